"""Compares what a load generator sums up of a run with a simulation of such a load, figure by figure.

The file has no single requests, so they cannot be paired. The load is made from what the file says of it; all that had
to be assumed, and all that the file leaves out, is a note.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import TraceProblem
from blis_tui.base.errors import SpecError, TraceError
from blis_tui.base.text import aligned, printable
from blis_tui.base.units import in_words, plural, share_change_text
from blis_tui.live.twin.summaries import is_finite
from blis_tui.model.defaults import CHAT
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.live.twin.summaries import Lengths, Summary
    from blis_tui.model import Experiment
    from blis_tui.results.report import Report

_NAMES: Final = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
_FIGURES: Final = ("mean", "p50", "p90", "p95", "p99")
_MOST_LENGTHS: Final = 200
"""Entries of a table of lengths; longer ones are condensed."""
_ALIKE: Final = 0.05
"""Loads whose mean lengths differ by more are not the same."""
_ABOUT: Final = "TPOT: mean gap of a request's tokens; ITL: every gap; simulated requests are not those measured"
_GAP: Final = 4
_MOST_CV: Final = 10.0
_MANY: Final = 20
"""Requests of each user, where the file has no number of requests."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of both sides."""

    name: str
    unit: str
    measured: float
    simulated: float

    @property
    def change(self) -> float | None:
        """By how much the simulation differs, as a share; None = the measured figure is 0."""
        return self.simulated / self.measured - 1.0 if self.measured else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTwin:
    """The comparison."""

    summary: Summary
    name: str
    """Of the experiment."""
    load: str
    """What was simulated, in words."""
    figures: tuple[Figure, ...]
    lacking: tuple[str, ...]
    """What the file leaves out."""
    notes: tuple[str, ...]

    def errors(self) -> dict[str, float]:
        """Return by how much mean latencies differ, as shares."""
        means = {
            figure.name.removesuffix(" mean"): figure.change for figure in self.figures if figure.name.endswith(" mean")
        }
        return {name: change for name, change in means.items() if change is not None}


def compare_summary(
    summary: Summary, opened: Callable[[Sequence[str]], Experiment], name: str, *, own_load: bool = False
) -> SummaryTwin:
    """Compare a summary with a simulation.

    Args:
        summary: what the load generator says.
        opened: opens the experiment that describes the server, with overrides that come before the user's.
        name: the experiment's name.
        own_load: simulate the experiment's own workload, whatever the file says of the load.

    Raises:
        SpecError: the experiment is invalid.
        TraceError: it cannot have the load of the file.
    """
    notes: list[str] = []
    document = None if own_load else _workload(summary, notes)
    experiment = opened([]) if document is None else _loaded(summary, document, opened)
    simulation = Simulation(replace(experiment, expect=()), check="off")
    simulation.run()
    report = simulation.report(verify=False)
    load = "the experiment's own" if document is None else _load_text(summary, document)
    figures = (*_load_figures(summary, report), *_figures(summary, report))
    if document is None and (differing := [figure for figure in figures if _differs(figure)]):
        what = in_words([f"{figure.name} ({figure.measured:,.0f} measured)" for figure in differing])
        notes.append(f"the loads differ: {what}")
    if summary.failed:
        notes.append(f"{plural(summary.failed, 'request')} failed: what they added to the load is not simulated")
    return SummaryTwin(
        summary=summary, name=name, load=load, figures=figures, lacking=tuple(summary.lacking()), notes=tuple(notes)
    )


def _loaded(
    summary: Summary, document: Mapping[str, object], opened: Callable[[Sequence[str]], Experiment]
) -> Experiment:
    """Open the experiment with the load of the file."""
    try:
        return opened([f"workload={json.dumps(document)}"])
    except SpecError as error:
        opened([])  # raises what is wrong without the load, too
        message = f"its load cannot be simulated: {error.diagnostics[0].message}"
        advice = "`--load spec` simulates the experiment's own workload"
        raise TraceError(
            [TraceProblem(file=str(summary.path), line=1, column="", message=message, help=advice)]
        ) from error


def _differs(figure: Figure) -> bool:
    return "tokens of a" in figure.name and abs(figure.change or 0.0) > _ALIKE


# ---- the load ----


def _workload(summary: Summary, notes: list[str]) -> dict[str, object] | None:
    """Return the workload that the file describes, and note what was assumed; None = it says too little."""
    rate, users = summary.rate_per_s, summary.users
    missing = [
        name
        for name, value in (
            ("at what rate, or by how many users", None if rate is None and users is None else 1),
            ("how long prompts are", summary.prompts),
            ("how long answers are", summary.answers),
        )
        if not value
    ]
    if missing or summary.prompts is None or summary.answers is None:
        notes.append(f"not in the file: {in_words(missing)}; simulated is the experiment's own workload")
        return None
    client: dict[str, object] = {"id": "file"}
    document: dict[str, object] = {"requests": summary.completed or _MANY * max(users or 1, 10), "clients": [client]}
    document |= {"endpoint": CHAT} if summary.chat else {}
    if not summary.completed:
        notes.append(f"not in the file: how many requests were sent; simulated are {document['requests']:,}")
    if is_finite(rate):
        document["rate_per_s"] = rate
        client["arrivals"] = _arrivals(summary, notes)
    else:
        client["arrivals"] = {"kind": "closed-loop", "users": users or document["requests"]}
    client["input_tokens"] = _lengths(summary.prompts, "prompts", notes)
    client["output_tokens"] = _lengths(summary.answers, "answers", notes)
    notes.append("not in the file: what prompts share; simulated prompts share nothing")
    return document


def _arrivals(summary: Summary, notes: list[str]) -> dict[str, object]:
    if summary.users is not None:
        notes.append(f"that at most {plural(summary.users, 'request')} are in flight is not simulated")
    if summary.cv is None:
        notes.append("not in the file: the gaps between requests; simulated is a Poisson process")
    if not summary.cv:
        return {"kind": "poisson" if summary.cv is None else "constant"}
    return {"kind": "poisson"} if summary.cv == 1.0 else {"kind": "gamma", "cv": min(summary.cv, _MOST_CV)}


def _lengths(lengths: Lengths, of: str, notes: list[str]) -> object:
    """Return lengths as a document has them."""
    if lengths.values:
        ordered = sorted(lengths.values)
        if len(dict.fromkeys(ordered)) > _MOST_LENGTHS:
            ordered = [ordered[(2 * at + 1) * len(ordered) // (2 * _MOST_LENGTHS)] for at in range(_MOST_LENGTHS)]
        weights: dict[str, int] = {}
        for tokens in ordered:
            weights[str(tokens)] = weights.get(str(tokens), 0) + 1
        return {"kind": "empirical", "weights": weights}
    ranked = sorted((int(name[1:]), value) for name, value in lengths.percentiles.items() if name[:1] == "p")
    values = [value for _, value in ranked]
    lowest, highest = (lengths.percentiles.get(name) for name in ("min", "max"))
    if lowest == highest is not None:
        return max(1, round(lengths.mean))
    if len(ranked) > 1 and values == sorted(values) and values[0] >= 1.0 and values[0] < values[-1]:
        notes.append(f"not in the file: lengths of single {of}; simulated ones follow its percentiles")
        distribution: dict[str, object] = {"kind": "percentiles", "values": {f"p{at}": value for at, value in ranked}}
        distribution["max"] = max(round(highest or values[-1]), round(values[-1]))
        distribution["min"] = max(1, min(round(lowest or 1.0), round(values[0])))
        return distribution
    notes.append(f"not in the file: lengths of single {of}; all simulated ones have the mean")
    return max(1, round(lengths.mean))


def _load_text(summary: Summary, document: Mapping[str, object]) -> str:
    requests = plural(int(str(document["requests"])), "request")
    if is_finite(summary.rate_per_s):
        return f"that of the file: {requests} at {summary.rate_per_s:g}/s"
    users = summary.users or int(str(document["requests"]))
    return f"that of the file: {requests} of {plural(users, 'user')}, each waiting for its answers"


# ---- figures ----


def _load_figures(summary: Summary, report: Report) -> list[Figure]:
    rows = report.rows
    count = max(len(rows), 1)
    pairs = [
        ("tokens of a prompt", "tokens", summary.prompts, [row.input_tokens for row in rows]),
        ("tokens of an answer", "tokens", summary.answers, [row.output_tokens for row in rows]),
    ]
    figures = [
        Figure(name, unit, measured.mean, fsum(values) / count)
        for name, unit, measured, values in pairs
        if measured is not None
    ]
    if summary.completed is not None:
        figures.insert(0, Figure("completed", "requests", float(summary.completed), float(report.requests.completed)))
    return figures


def _figures(summary: Summary, report: Report) -> list[Figure]:
    figures = []
    for latency, percentiles in summary.latency_ms.items():
        simulated = getattr(report.latency, f"{latency}_ms")
        for name in _FIGURES:
            value: float | None = getattr(simulated, name)
            if name in percentiles and value is not None:
                figures.append(Figure(f"{_NAMES[latency]} {name}", "ms", percentiles[name], value))
    rates = (
        ("request throughput", "requests/s", summary.requests_per_s, report.throughput.requests_per_s),
        ("output throughput", "tokens/s", summary.output_tokens_per_s, report.throughput.output_tokens_per_s),
    )
    figures += [Figure(name, unit, measured, value) for name, unit, measured, value in rates if measured is not None]
    return figures


# ---- text and data ----


def summary_text(twin: SummaryTwin) -> str:
    """Return both sides, at most 100 columns wide."""
    summary = twin.summary
    run = f", {summary.run}" if summary.run else ""
    lines = [
        f"measured   {summary.path} ({summary.tool}{run})",
        f"simulated  {twin.name}",
        f"load       {twin.load}",
    ]
    if twin.lacking:
        lines.append(f"note: not in the file: {in_words(list(twin.lacking))}")
    lines += [f"note: {note}" for note in twin.notes]
    rows = [("", "measured", "simulated", "difference")]
    for figure in twin.figures:
        change = "" if figure.change is None else share_change_text(figure.change)
        rows.append((f"{figure.name}, {figure.unit}", f"{figure.measured:,.2f}", f"{figure.simulated:,.2f}", change))
    lines += ["", *aligned(rows, range(1, 4), _GAP), _ABOUT]
    return "\n".join(printable(line.rstrip()) for line in lines) + "\n"


def summary_document(twin: SummaryTwin) -> dict[str, object]:
    """Return the comparison as plain data."""
    return {
        "measured": str(twin.summary.path),
        "tool": twin.summary.tool,
        "run": twin.summary.run,
        "simulated": twin.name,
        "load": twin.load,
        "figures": [{**asdict(figure), "change": figure.change} for figure in twin.figures],
        "not_in_the_file": list(twin.lacking),
        "notes": list(twin.notes),
    }
