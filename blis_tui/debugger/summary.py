"""The summary of a whole run, and the event that set each of its figures.

A figure is named by its path in the report (``latency.ttft_ms.p95``). The event that set it is the last one that
changed a count, and for a percentile the one in which the request at that rank got its time.
"""

from __future__ import annotations

import re
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.debugger.event_store import of_kind
from blis_tui.debugger.history import SLICE, Progress
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.debugger.why.ranking import Steps, token_times_us
from blis_tui.engine.stopped import BLOCKS, MAX_NUM_SEQS, PROMPTS, TOKENS
from blis_tui.model.latencies import LATENCIES, SAMPLED
from blis_tui.results.report import seen_gaps_us
from blis_tui.results.stats import HistogramSamples

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import EventStore
    from blis_tui.model import Experiment
    from blis_tui.model.latencies import Latency
    from blis_tui.results.lints.finding import Finding
    from blis_tui.results.report import Report
    from blis_tui.runs.simulation import Simulation

WORST: Final = "worst"
"""The name of the worst request among the figures."""
WARNINGS: Final = "warnings"
EXPECTATIONS: Final = "expectations"


class Worst(NamedTuple):
    """The request with the longest time of a latency."""

    request: str
    latency: Latency
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run from its start to its end."""

    report: Report
    gaps_us: Mapping[int, int]
    """How often clients saw each inter-token latency."""
    overheads_us: tuple[int, ...]
    """For each instance, how much later than the engine's a client sees each gap between two tokens."""
    worst: Worst | None
    """None if no request got a token."""

    @property
    def warnings(self) -> Sequence[Finding]:
        """What looks wrong with the run."""
        return self.report.warnings


def summarize(
    experiment: Experiment, routes: RouteOverrides | None, go_on: Callable[[Simulation], bool]
) -> Summary | None:
    """Simulate a run to its end, with nothing that listens, and return its summary.

    Args:
        experiment: what to simulate.
        routes: routing decisions to override, as for ``Simulation``.
        go_on: called now and then; if it returns False, the run is given up.

    Returns:
        None if it was given up.

    Raises:
        SimulationError: it cannot go on.
    """
    from blis_tui.runs.simulation import Simulation  # noqa: PLC0415  (the list of experiments needs none)

    simulation = Simulation(experiment, routes=routes)
    return summary_of(simulation) if simulation.run(go_on=go_on) else None


def summary_of(simulation: Simulation) -> Summary:
    """Return the summary of a simulation that is at its end."""
    report = simulation.report()
    instances = simulation.cluster.instances
    return Summary(
        report=report,
        gaps_us=seen_gaps_us(simulation.cluster),
        overheads_us=tuple(instance.latency.output_token_overhead_us for instance in instances),
        worst=worst_of(report),
    )


# ---- the worst request ----

_BOUND: Final = re.compile(r"latency\.(\w+)_ms\b")


def worst_of(report: Report) -> Worst | None:
    """Return the worst request by the latency that is bounded; else by E2E, or TTFT if none completed."""
    for name in dict.fromkeys((*_bounded(report.experiment), "e2e_ms", "ttft_ms")):
        samples = _samples(report, name)
        if samples:
            us, _, request = max(samples, key=lambda sample: (sample[0], -sample[1]))
            return Worst(request, SAMPLED[name], us)
    return None


def _bounded(experiment: Experiment) -> Iterator[str]:
    """Yield the latencies with one time for each request that the experiment bounds, as the report's fields."""
    for wish in experiment.expect:
        match = _BOUND.match(wish.metric)
        if match is not None:
            # A request has many gaps between its tokens; their mean is its time per output token.
            name = f"{'tpot' if match[1] == 'itl' else match[1]}_ms"
            if name in SAMPLED:
                yield name
    for target in experiment.slo_targets.values():
        yield from (name for name in SAMPLED if getattr(target, name, None) is not None)


_ANY: Final = ""


def _samples(report: Report, name: str, column: str = _ANY, group: str = "") -> list[tuple[float, int, str]]:
    """Return a latency of each request that has one, with its place in order of arrival and its name.

    Args:
        report: the report.
        name: the latency, a field of the report.
        column: ``slo_class`` or ``tenant_id`` to take only the requests of a group; empty = all.
        group: the group's name.
    """
    latency, warm_up_us = SAMPLED[name], report.experiment.warm_up_us
    names = (
        "request_id",
        "arrival_us",
        "output_tokens",
        latency.end,
        latency.start or "arrival_us",
        column or "slo_class",
    )
    samples: list[tuple[float, int, str]] = []
    number = -1
    for block in report.rows.in_columns(names):
        for request, arrival_us, tokens, end_us, start_us, of in zip(*block, strict=True):
            number += 1
            if end_us is None or arrival_us < warm_up_us or (column and of != group):
                continue
            took_us = end_us - (start_us or 0 if latency.start else 0)
            if not latency.per_gap:
                samples.append((took_us, number, str(request)))
            elif tokens > 1:
                samples.append((took_us / (tokens - 1), number, str(request)))
    return samples


# ---- what set a figure ----


class Setting(NamedTuple):
    """The event that set a figure, and its request if it is about one."""

    event: int
    request: str | None = None


_MOMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {"ttft_us": "first-token", "e2e_us": "completed", "scheduled_us": "scheduled", "": "step"}
)
"""Where a latency ends (see ``Latency.end``) -> the kind of record that tells it."""
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests.total": "arrived",
        "requests.injected": "arrived",
        "requests.completed": "completed",
        "requests.rejected": "rejected",
        "requests.dropped_unservable": "dropped",
        "requests.timed_out": "timed-out",
        "requests.lost": "lost",
        "requests.still_queued": "queued",
        "requests.still_running": "scheduled",
        "tokens.input": "queued",
        "tokens.output": "step",
        "tokens.cached": "scheduled",
        "offered": "arrived",
        "throughput.requests_per_s": "completed",
        "throughput.output_tokens_per_s": "step",
        "kv.hit_rate": "scheduled",
        "kv.preemptions": "preempted",
        "kv.preempted_requests": "preempted",
        "kv.peak_used": "step",
    }
    | {f"latency.{latency.field}": _MOMENTS[latency.end] for latency in LATENCIES}
)
"""Paths of figures, or their beginnings -> the kind of record that changes them."""


def kind_of(path: str) -> str:
    """Return the kind of record that changes a figure; empty = none in particular."""
    group = _GROUP.fullmatch(path)
    if group is not None:
        path = f"latency.{group['latency']}.{group['statistic']}"
    parts = path.split(".")[2 if path.startswith("instances.") else 0 :]
    return next((_KINDS[name] for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in _KINDS), "")


_DISTRIBUTION: Final = re.compile(r"latency\.(?P<latency>\w+)\.(?P<statistic>mean|min|max|p50|p90|p95|p99)")
_GROUP: Final = re.compile(
    r"(?P<kind>slo_classes|tenants)\.(?P<group>.*)\.(?P<latency>ttft_ms|e2e_ms)\.(?P<statistic>\w+)", re.DOTALL
)
_COLUMN: Final = {"slo_classes": "slo_class", "tenants": "tenant_id"}


def setting(debugger: Debugger, summary: Summary, path: str) -> Generator[Progress, None, Setting]:
    """Find the event that set a figure of the summary of a run, all of which must be recorded."""
    tape, report = debugger.tape, summary.report
    name, _, number = path.partition(".")
    if path == WORST and summary.worst is not None:
        return _event_of(tape, summary.worst.latency.field, summary.worst.request)
    if name == WARNINGS:
        return (yield from _of_finding(tape, report.warnings[int(number)]))
    if name == EXPECTATIONS:
        verdict = report.expectations[int(number)]
        if verdict.event is not None:
            return Setting(verdict.event)
        path = verdict.metric
    match = _DISTRIBUTION.fullmatch(path) or _GROUP.fullmatch(path)
    if match is not None and match["statistic"] != "mean":
        if match["latency"] in SAMPLED:
            request = _ranked(report, match)
            return Setting(len(tape)) if request is None else _event_of(tape, match["latency"], request)
        return (yield from _gap(tape, summary, match["statistic"]))
    if path.endswith("kv.peak_used"):
        return Setting((yield from _peak(debugger, report, path)))
    kind = kind_of(path)
    return Setting((yield from _search(tape, kind, back=True)) if kind else len(tape))


def request_of(summary: Summary, path: str) -> str | None:
    """Return the request that a figure is of; None if it is of several, or of a gap between tokens."""
    name, _, number = path.partition(".")
    if path == WORST:
        return None if summary.worst is None else summary.worst.request
    if name == WARNINGS:
        return summary.warnings[int(number)].request
    match = _DISTRIBUTION.fullmatch(path) or _GROUP.fullmatch(path)
    if match is None or match["statistic"] == "mean" or match["latency"] not in SAMPLED:
        return None
    return _ranked(summary.report, match)


def _search(tape: EventStore, kind: str, *, back: bool) -> Generator[Progress, None, int]:
    """Return the first or last event that did something; the last of all if none did."""
    start = len(tape) + 1 if back else 0
    matches = of_kind(kind, tape) if tape.counted(kind) else lambda row: tape.has(row.event, kind)
    event: int | None = 0
    for event in tape.find(matches, start, back=back):
        if event is None:
            yield Progress(0, 0, None)
    return event or len(tape)


# ---- percentiles ----

_PERCENT: Final = {"min": 0, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


def _rank(statistic: str, count: int) -> int:
    """Return the rank of the sample at a percentile: of the two around it, the larger one."""
    return -(-_PERCENT[statistic] * (count - 1) // 100)


def _ranked(report: Report, match: re.Match[str]) -> str | None:
    """Return the request at the rank of a percentile; None if no request has such a time."""
    group = match.groupdict()
    samples = _samples(report, match["latency"], _COLUMN.get(group.get("kind", ""), _ANY), group.get("group", ""))
    samples.sort()
    return samples[_rank(match["statistic"], len(samples))][2] if samples else None


def _event_of(tape: EventStore, latency: str, request: str) -> Setting:
    """Return the event at which a request got its time of a latency."""
    life = tape.life(request)
    kind = _MOMENTS[SAMPLED[latency].end]
    if kind != "scheduled":
        events = [entry.event for entry in life if entry.what == kind]
        return Setting(events[-1] if events else len(tape), request)
    # Where steps are planned ahead, it is the first step that worked on the request, not the plan before it.
    starts = {entry.what: entry.event for entry in reversed(life)}
    return Setting(starts.get("started", starts.get("scheduled", len(tape))), request)


def _gap(tape: EventStore, summary: Summary, statistic: str) -> Generator[Progress, None, Setting]:
    """Return the step that ended the gap between two tokens at the rank of a percentile, the first as long as that."""
    samples = HistogramSamples(summary.gaps_us)
    if not len(samples):
        return Setting(len(tape))
    wanted = samples[_rank(statistic, len(samples))]
    steps = Steps(tape)
    best, widest = -1, Setting(len(tape))
    warm_up_us = summary.report.experiment.warm_up_us
    for number, name in enumerate(tape.names()):
        if not number % SLICE:
            yield Progress(0, 0, None)
        life = read_life(tape, name, len(tape))
        if life is None or life.instance < 0:
            continue
        seen_us = wanted - summary.overheads_us[life.instance]
        for before_us, after_us in pairwise(token_times_us(life, steps)):
            off = abs(after_us - before_us - seen_us)
            if (best < 0 or off < best) and after_us >= warm_up_us:
                best, widest = off, Setting(_step_until(tape, after_us, life.instance), name)
                if not off:
                    return widest
    return widest


def _step_until(tape: EventStore, time_us: int, instance: int) -> int:
    """Return the step of an instance that ended at a time."""
    event = tape.next_step(tape.at_time(time_us) + 1, back=True)
    while event:
        row = tape.row(event)
        if row.instance == instance and row.time_us + tape.step(row.step).duration_us == time_us:
            return event
        event = tape.next_step(event, back=True)
    return tape.at_time(time_us)


# ---- peaks ----


def _peak(debugger: Debugger, report: Report, path: str) -> Generator[Progress, None, int]:
    """Return the step in which the blocks in use at the peak, of an instance or of all, became as many as they are."""
    owner, _, number = path.partition(".")
    index = int(number.partition(".")[0]) if owner == "instances" else None
    most = report.kv.peak_used if index is None else report.instances[index].kv.peak_used

    def reached(simulation: Simulation) -> bool:
        pools = [instance.pool for instance in simulation.cluster.instances]
        return (
            whole_sum([pool.total - pool.min_free for pool in (pools if index is None else pools[index : index + 1])])
            >= most
        )

    return (yield from debugger.first_time(reached))


# ---- warnings ----

_BEGINS: Final[Mapping[str, str]] = MappingProxyType(
    {"dropped": "dropped", "timed-out": "timed-out", "rejected": "rejected", "crowded-out": "preempted"}
)
"""Warnings -> the kind of record with which what they are about begins."""
_STOPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"kv-cache": (BLOCKS,), "max-num-seqs": (MAX_NUM_SEQS,), "token-budget": (TOKENS, PROMPTS)}
)
"""Warnings -> what kept requests waiting in the steps that they are about."""


def _of_finding(tape: EventStore, finding: Finding) -> Generator[Progress, None, Setting]:
    """Return where to look at what a warning is about: its request's worst moment, or where it begins."""
    if finding.request is not None:
        life = tape.life(finding.request)
        preempted = [entry.event for entry in life if entry.what == "preempted"]
        return Setting((preempted or [entry.event for entry in life] or [len(tape)])[-1], finding.request)
    if finding.id in _BEGINS:
        return Setting((yield from _search(tape, _BEGINS[finding.id], back=False)))
    if finding.id in _STOPS:
        stopped = tape.first_stop(_STOPS[finding.id])
        if stopped:
            return Setting(stopped)
    if finding.id == "overload":
        return Setting(tape.longest_queue())
    if finding.instance is not None:
        return Setting(tape.latest_on(finding.instance, len(tape)) or len(tape))
    return Setting(len(tape))
