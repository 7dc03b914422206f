"""Finds the smallest workload that still breaks an expectation: delta debugging over requests and their lengths.

Ever smaller groups of requests are removed as long as an expectation is still broken (Zeller and Hildebrandt:
Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002). Then the lengths of the remaining requests are
halved. The result is 1-minimal: without any single one of its requests, the expectations hold.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError, SpecError, TraceError
from blis_tui.base.input_files import MAX_TRACE_BYTES, input_digest
from blis_tui.base.scalars import flow
from blis_tui.base.source import as_list, as_map
from blis_tui.model import CourseExpectation
from blis_tui.output.result_files import atomic_text
from blis_tui.output.tables import requests_csv
from blis_tui.results.conditions.course import text_of
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.authoring.provenance import compose
from blis_tui.spec.build import Part, decode
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.results.expectations import Verdict
    from blis_tui.results.report import Report

Rows = tuple[tuple[str, ...], ...]

_RESULTS: Final = frozenset(
    {
        *("state", "instance", "queued_us", "scheduled_us", "first_token_us", "completed_us", "ttft_us", "e2e_us"),
        *("cached_tokens", "preemptions", "output_tokens"),
    }
)
"""Columns of a request table that are results, as opposed to properties of the request."""
_LENGTHS: Final = ("input_tokens", "requested_output_tokens")
_TRACE: Final = "requests.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The shrunk workload."""

    columns: tuple[str, ...]
    rows: Rows
    requests: int
    """Number of requests of the original workload."""
    broken: tuple[Verdict, ...]
    """The expectations that it breaks."""
    expect: tuple[Mapping[str, Json], ...]
    """The corresponding entries of `expect`."""
    runs: int
    minimal: bool
    """Whether there were enough runs to make it 1-minimal."""

    def csv(self) -> str:
        """Return the requests as a trace that can be replayed."""
        return _text(self.columns, self.rows)


class _OutOfRunsError(Exception):
    """The limit on runs is reached."""


class _Trials:
    """Runs of parts of the workload."""

    def __init__(
        self,
        source: str,
        assignments: Sequence[str],
        *,
        trace: Path,
        columns: tuple[str, ...],
        wanted: Collection[str],
        plugins: Registry | None,
        most: int,
        on_run: Callable[[int, int], None],
    ) -> None:
        self._source = source
        self._assignments = [*assignments, replayed(str(trace))]
        self._trace = trace
        self._columns = columns
        self._wanted = wanted
        self._plugins = plugins
        self._most = most
        self._on_run = on_run
        self._known: dict[Rows, tuple[Verdict, ...]] = {}
        self._loaded: Experiment | None = None
        self.runs = 0

    def broken(self, rows: Rows) -> tuple[Verdict, ...]:
        """Return which of the originally broken expectations a part breaks; none if it is no valid workload."""
        known = self._known.get(rows)
        if known is not None:
            return known
        if self.runs == self._most:
            raise _OutOfRunsError
        self.runs += 1
        self._on_run(self.runs, len(rows))
        with atomic_text(self._trace, asked_for=False) as out:
            out.write(_text(self._columns, rows))
        try:
            judged = verdicts(self._replaying())
        except (SpecError, TraceError):  # such as a prompt that is shorter than its shared prefix
            judged = ()
        self._known[rows] = tuple(verdict for verdict in judged if verdict.metric in self._wanted)
        return self._known[rows]

    def _replaying(self) -> Experiment:
        """Return the experiment with the current trace; everything else stays as it was loaded."""
        if self._loaded is None:
            self._loaded = load(self._source, overrides=self._assignments, plugins=self._plugins)
        workload = self._loaded.workload
        assert workload.trace is not None  # noqa: S101  (assigned above)
        trace = replace(workload.trace, sha256=input_digest(self._trace, limit=MAX_TRACE_BYTES))
        return replace(self._loaded, workload=replace(workload, trace=trace))


def replayed(trace: str) -> str:
    """Return the assignment that makes an experiment replay a request table."""
    return f"workload={json.dumps({'trace': {'file': trace}})}"


def verdicts(experiment: Experiment) -> tuple[Verdict, ...]:
    """Run an experiment and return the expectations that it breaks."""
    simulation = Simulation(experiment)
    simulation.run()
    return tuple(expectation for expectation in simulation.report().expectations if not expectation.ok)


def shrink(
    source: str,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    expect: Sequence[Mapping[str, object]] = (),
    plugins: Registry | None = None,
    most_runs: int = 1000,
    on_run: Callable[[int, int], None] = lambda _runs, _requests: None,
) -> Shrunk:
    """Find a smallest workload with which an experiment still breaks its expectations.

    Args:
        source: the experiment, as :func:`blis_tui.spec.load.load` takes it.
        overrides: ``path=value`` texts.
        seed: replaces the document's.
        expect: entries of `expect` instead of the experiment's own.
        plugins: plug-ins that it may name.
        most_runs: maximum number of runs.
        on_run: called before each run, with its number and how many requests it has.

    Raises:
        SpecError: the experiment is not valid.
        InputError: its expectations hold; or its requests, replayed at their arrival times, do not break them.
        SimulationError: it cannot go on.
    """
    assignments = [*overrides, *([f"expect={json.dumps(list(expect))}"] if expect else [])]
    if seed is not None:
        assignments.append(f"seed={seed}")
    experiment = load(source, overrides=assignments, plugins=plugins)
    simulation = Simulation(experiment)
    simulation.run()
    report = simulation.report()
    _require_broken(report)
    columns, rows = _requests("".join(requests_csv(report.rows, report.rows.columns)))
    wanted = [expectation.metric for expectation in report.expectations if not expectation.ok]
    with TemporaryDirectory(prefix="blis-") as folder:
        trials = _Trials(
            source,
            assignments,
            trace=Path(folder) / _TRACE,
            columns=columns,
            wanted=wanted,
            plugins=plugins,
            most=most_runs,
            on_run=on_run,
        )
        if not trials.broken(rows):
            raise InputError(
                "no expectation fails when its requests are replayed at their arrival times",
                help="the failure depends on clients that wait for answers, which a trace cannot express",
            )
        best, minimal = _smallest(columns, rows, trials)
        broken = trials.broken(best)
    document = as_list(cast("Json", experiment.document["expect"]))
    metrics = {verdict.metric for verdict in broken}
    return Shrunk(
        columns=columns,
        rows=best,
        requests=len(rows),
        broken=broken,
        expect=tuple(as_map(expectation) for expectation in document if _name(as_map(expectation)) in metrics),
        runs=trials.runs,
        minimal=minimal,
    )


def _require_broken(report: Report) -> None:
    """Raise InputError unless an expectation is broken."""
    if not report.expectations:
        raise InputError(
            "the experiment has no expectations", help="add one, such as --expect 'latency.ttft_ms.p99<=200'"
        )
    if report.ok:
        raise InputError(
            "all expectations hold: there is nothing to shrink",
            help="give one that fails, such as --expect 'latency.ttft_ms.p99<=200'",
        )


def _smallest(columns: Sequence[str], rows: Rows, trials: _Trials) -> tuple[Rows, bool]:
    """Return the remaining requests, and whether there were enough runs to finish."""
    best = rows
    try:
        for part in _fewer(rows, trials.broken):
            best = part
        for part in _shorter(columns, best, trials.broken):
            best = part
        for part in _fewer(best, trials.broken):
            best = part
    except _OutOfRunsError:
        return best, False
    return best, True


def _name(entry: Mapping[str, Json]) -> str:
    """Return the name that a verdict gives to an entry of `expect`."""
    if "metric" in entry:
        return str(entry["metric"])
    return text_of(decode(CourseExpectation, Part(entry, "")))


def experiment_text(
    source: str,
    shrunk: Shrunk,
    name: str,
    trace: str,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    plugins: Registry | None = None,
) -> str:
    """Return a document that replays the remaining requests, with the broken expectations marked as known failures.

    Args:
        source: the experiment that was shrunk.
        shrunk: the shrunk workload.
        name: the name of the new experiment.
        trace: the name of the file with the requests, which must be beside the document.
        overrides: as for :func:`shrink`.
        seed: as for :func:`shrink`.
        plugins: as for :func:`shrink`.
    """
    with TemporaryDirectory(prefix="blis-") as folder:
        written = Path(folder) / trace
        with atomic_text(written, asked_for=False) as out:
            out.write(shrunk.csv())
        own = [f"expect={json.dumps(list(shrunk.expect))}", f"metadata.name={name}", replayed(str(written))]
        composed = compose(source, overrides=[*overrides, *own], seed=seed, plugins=plugins, trace_name=trace)
        broken = flow([verdict.metric for verdict in shrunk.broken])
        note = "# An expectation fails here on purpose: the golden test passes as long as it does."
        return f"{composed.to_yaml()}{note}\ngolden:\n  xfail: {broken}\n"


def _fewer(rows: Rows, broken: Callable[[Rows], object]) -> Iterator[Rows]:
    """Yield ever smaller parts that still break it; no single request of the last one can be removed."""
    groups = 2
    while len(rows) > 1:
        size = -(-len(rows) // groups)
        starts = range(0, len(rows), size)
        parts = [rows[at : at + size] for at in starts] if groups > 1 else []
        rests = [rows[:at] + rows[at + size :] for at in starts]
        smaller = next((part for part in parts if broken(part)), None)
        if smaller is not None:
            rows, groups = smaller, 2
        elif (rest := next((part for part in rests if broken(part)), None)) is not None:
            rows, groups = rest, max(groups - 1, 2)
        elif size == 1:
            return
        else:
            groups = min(2 * groups, len(rows))
            continue
        groups = min(groups, len(rows))
        yield rows


def _shorter(columns: Sequence[str], rows: Rows, broken: Callable[[Rows], object]) -> Iterator[Rows]:
    """Yield parts with ever shorter prompts and answers that still break it; each is halved as often as possible."""
    for number in range(len(rows)):
        for name in _LENGTHS:
            at = columns.index(name)
            while (half := int(rows[number][at]) // 2) > 0:
                row = (*rows[number][:at], str(half), *rows[number][at + 1 :])
                part = (*rows[:number], row, *rows[number + 1 :])
                if not broken(part):
                    break
                rows = part
                yield rows


def _requests(table: str) -> tuple[tuple[str, ...], Rows]:
    """Return the input columns of a request table, and its rows, in order of arrival."""
    lines = list(csv.DictReader(io.StringIO(table)))
    columns = tuple(name for name in lines[0] if name not in _RESULTS)
    return columns, tuple(tuple(line[name] for name in columns) for line in lines)


def _text(columns: Sequence[str], rows: Rows) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()
