"""Compares a recording, or a load generator's results, with a simulation of its requests, or two recordings."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field, replace
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import plural
from blis_tui.live.calibration import measured
from blis_tui.live.calibration.simulated_load import correlation, with_latency
from blis_tui.live.observe.recording import COMPLETED, Observed, Recording, Server
from blis_tui.live.observe.server_reports import GAUGES
from blis_tui.live.twin.course import (
    CACHE_HITS,
    METRICS,
    PREEMPTIONS,
    Pair,
    agreement,
    levels_of_recording,
    levels_of_simulation,
    observed,
    simulated,
    stretches,
)
from blis_tui.live.twin.first_difference import batch_of, first_divergence
from blis_tui.live.twin.fitting import fit, foreign_steps, front_end_us, pace_of, predicted_us
from blis_tui.live.twin.simulated_requests import replaying, simulate, with_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from blis_tui.live.twin.course import Agreement, Stretch
    from blis_tui.live.twin.first_difference import BatchDivergence
    from blis_tui.live.twin.fitting import Fitted, Pace
    from blis_tui.live.twin.simulated_requests import Batch, Simulated
    from blis_tui.model import Experiment

STEPS: Final = ("model", "measured", "fitted")
"""Source of a simulation's step times: the experiment's model, the recording's log, or a fit to the log."""
_LOOKS: Final = 5
_NEARLY_ALWAYS: Final = 0.8
_ROOM: Final = 0.8
"""A limit is detected in at least a minimum number of scrapes, in at least this share of those with waiting requests,
and only while at most this share of the KV blocks is in use."""
_SHARED: Final = 0.5
"""Two recordings with a smaller share of common requests have different workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The agreement of both sides' steps, paired by number."""

    steps: tuple[int, int]
    equal: int
    """Number of pairs with equal batches."""
    r: float | None
    """Correlation of their numbers of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAgreement:
    """The agreement of a metric over time, at the times of the scrapes."""

    left: float
    """Mean. The next field has that of the right side."""
    right: float
    r: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStep:
    """A simulation with some modelled parts replaced by measured ones."""

    name: str
    experiment: Experiment
    errors: Mapping[str, Agreement]
    run: Simulated
    parting: BatchDivergence | None
    front_end_us: int | None = None
    """Measured wait of requests outside of steps; None = not replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """Coefficients fitted on each half of a recording's steps, evaluated on the other."""

    fitted: tuple[Fitted, Fitted]
    steady: Mapping[str, Agreement]
    """Errors with a constant speed of the machine."""
    drifting: Mapping[str, Agreement]
    """Errors with the machine's speed in the adjacent steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The comparison."""

    left: TwinSide
    right: TwinSide
    pairs: Sequence[Pair]
    only_left: int
    """Requests that completed only on the left. The next field has those only on the right."""
    only_right: int
    errors: Mapping[str, Agreement]
    """Agreement by the names in ``METRICS``, without those that no request has."""
    batches: Batches | None
    seen: Mapping[str, SeriesAgreement]
    parting: BatchDivergence | None
    course: Sequence[Stretch] = ()
    """Both sides over time; empty if no request was answered on both."""
    rungs: Sequence[LadderStep] = ()
    """Simulations from the experiment as it is to everything measured; empty for two recordings."""
    halves: Halves | None = None
    notes: Sequence[str] = ()

    @property
    def simulated(self) -> bool:
        """Whether one side is a simulation."""
        return bool(self.rungs)

    def alike(self, rung: LadderStep) -> float | None:
        """Return the share of measured batches that are equal in the simulation, by step; None = none was measured."""
        measured = self.left.batches or ()
        equal = len([None for batch, other in zip(measured, rung.run.batches, strict=False) if batch == other])
        return equal / len(measured) if measured else None


def compare_recordings(left: Recording, right: Recording) -> Twin:
    """Compare two recordings of one workload.

    Raises:
        InputError: they have few requests in common.
    """
    paces = pace_of(left), pace_of(right)
    sides = of_recording(left, paces[0]), of_recording(right, paces[1])
    common = sides[0].sent_us.keys() & sides[1].sent_us.keys()
    asked = [
        {row.request_id: (row.input_tokens, row.output_tokens) for row in recording.requests}
        for recording in (left, right)
    ]
    others = [name for name in asked[0] if name in common and asked[0][name] != asked[1][name]]
    same = len(common) - len(others)
    if same < _SHARED * max(len(sides[0].sent_us), 1):
        lengths = f" with equal lengths; {plural(len(others), 'name')} stand for others" if others else ""
        raise InputError(
            f"{right.folder} and {left.folder} have {plural(same, 'request')} in common{lengths}",
            help="recordings are compared request by request: record the same workload with the same seed",
        )
    twin = _compared(*sides)
    notes = [*_broken_off(left), *_broken_off(right)]
    if others:
        notes.append(f"{plural(len(others), 'request')} asked for other lengths on both sides, {others[0]} first")
    course = stretches(twin.pairs, levels_of_recording(left, paces[0]), levels_of_recording(right, paces[1]))
    return replace(twin, course=course, notes=tuple(notes))


def compare_with_simulation(recording: Recording, experiment: Experiment, name: str, steps: str = "model") -> Twin:
    """Compare a recording with a simulation of its requests.

    Args:
        recording: the recording.
        experiment: the experiment that describes the server.
        name: the experiment's name.
        steps: one of ``STEPS``.

    Raises:
        PolicyError: the experiment has several instances.
        InputError: steps are required, and the recording has none.
    """
    pace = pace_of(recording)
    if pace is None and steps != "model":
        why = foreign_steps(recording)
        raise InputError(
            f"the log of {recording.folder} {why}" if why else f"{recording.folder} has no steps",
            help="record the log of a server with --enable-logging-iteration-details",
        )
    replayed = replaying(experiment, recording)
    rungs = tuple(_climbed(recording, pace, replayed))
    chosen = rungs[0]
    halves = None
    if pace is not None and steps == "measured":
        chosen = rungs[-1]
    elif pace is not None and steps == "fitted":
        halves = _crossed(recording, pace, replayed)
        fitted = _fitted(recording, pace, replayed)
        chosen = _rung("fitted", recording, pace, with_latency(replayed, fitted.latency))
    twin = _compared(of_recording(recording, pace), of_simulation(name, chosen.run), chosen.parting)
    course = stretches(twin.pairs, levels_of_recording(recording, pace), levels_of_simulation(chosen.run))
    return replace(twin, course=course, rungs=rungs, halves=halves, notes=tuple(_notes(recording, experiment)))


# ---- implementation ----


class Results(NamedTuple):
    """The requests that a load generator measured."""

    recording: Recording
    failed: int
    """Number of requests without a complete answer, which are not in it."""


def read_results(path: Path, experiment: Experiment, run: int | None = None) -> Results:
    """Read the requests in a file.

    Args:
        path: what ``calibrate`` reads: a result of ``vllm bench serve --save-detailed``, GuideLLM, and others.
        experiment: the experiment that describes the server.
        run: which of several runs in the file, from 1; None = the only one.

    Raises:
        InputError: the file cannot be read, or has no requests.
    """
    recording = measured.read_recording(path, experiment.pools[0], run)
    if not isinstance(recording, measured.Recording):
        raise InputError(f"{path} has steps of an engine, no requests", help="name the results of a load generator")
    rows = tuple(_as_observed(number, request) for number, request in enumerate(recording.requests))
    return Results(Recording(folder=path, server=Server(), requests=rows), recording.failed)


def compare_results(results: Results, experiment: Experiment, name: str) -> Twin:
    """Compare the requests that a load generator measured with a simulation of them.

    Args:
        results: the requests.
        experiment: the experiment that describes the server.
        name: the experiment's name.

    Raises:
        PolicyError: the experiment has several instances.
    """
    twin = compare_with_simulation(results.recording, experiment, name)
    if not results.failed:
        return twin
    note = (
        f"{plural(results.failed, 'request')} without a complete answer: what they added to the load is not simulated"
    )
    return replace(twin, notes=(*twin.notes, note))


def _as_observed(number: int, request: measured.Measured) -> Observed:
    sent_us = round(request.arrival_us)
    first_us, last_us = sent_us + round(request.ttft_us), sent_us + round(request.e2e_us)
    chunks = ((first_us, 1), (last_us, request.output_tokens - 1)) if request.output_tokens > 1 else ((first_us, 1),)
    return Observed(
        request_id=f"request_{number}",
        index=number,
        due_us=sent_us,
        sent_us=sent_us,
        done_us=last_us,
        outcome=COMPLETED,
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        chunks=chunks,
        completion_tokens=request.output_tokens,
        segments=((request.prefix_group, request.prefix_tokens),) if request.prefix_group else (),
    )


def _compared(left: TwinSide, right: TwinSide, parting: BatchDivergence | None = None) -> Twin:
    common = [name for name in left.latencies if name in right.latencies]
    pairs = [
        Pair(name=name, sent_us=left.sent_us[name], left=left.latencies[name], right=right.latencies[name])
        for name in common
    ]
    seen = {
        name: _series_agreement(of_left, of_right)
        for name, of_left, of_right in (("running", left.running, right.running), ("KV in use", left.kv, right.kv))
        if of_left and of_right
    }
    return Twin(
        left=left,
        right=right,
        pairs=pairs,
        only_left=len(left.latencies) - len(common),
        only_right=len(right.latencies) - len(common),
        errors=_errors(pairs),
        batches=_batches(left, right),
        seen=seen,
        parting=parting,
    )


def _errors(pairs: Sequence[Pair]) -> dict[str, Agreement]:
    return {metric: agreed for metric in METRICS if (agreed := agreement(pairs, metric)) is not None}


def _batches(left: TwinSide, right: TwinSide) -> Batches | None:
    if left.batches is None or right.batches is None:
        return None
    both = list(zip(left.batches, right.batches, strict=False))
    return Batches(
        steps=(len(left.batches), len(right.batches)),
        equal=len([None for batch, other in both if batch == other]),
        r=correlation([batch.requests for batch, _ in both], [other.requests for _, other in both]),
    )


def _series_agreement(left: Sequence[tuple[int, float]], right: Sequence[tuple[int, float]]) -> SeriesAgreement:
    times = [time_us for time_us, _ in left if time_us >= 0]
    of_left, of_right = at(left, times), at(right, times)
    count = max(len(times), 1)
    return SeriesAgreement(left=_sum(of_left) / count, right=_sum(of_right) / count, r=correlation(of_left, of_right))


def _sum(values: Sequence[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def _climbed(recording: Recording, pace: Pace | None, replayed: Experiment) -> list[LadderStep]:
    """Return simulations with more and more measured parts."""
    rungs = [_rung("as the experiment says", recording, pace, replayed)]
    if pace is None:
        return rungs
    rungs.append(_rung("with the measured step times", recording, pace, with_steps(replayed, pace.durations_us)))
    rungs.append(_rung("and the gaps between steps", recording, pace, with_steps(replayed, pace.periods_us)))
    queue_us = front_end_us(recording.answered, rungs[-1].run)
    name = f"and the front end ({queue_us / 1000:,.1f} ms)"
    last = _rung(name, recording, pace, with_steps(replayed, pace.periods_us, queue_us))
    rungs.append(replace(last, front_end_us=queue_us))
    return rungs


def _rung(name: str, recording: Recording, pace: Pace | None, experiment: Experiment) -> LadderStep:
    run = simulate(experiment)
    pairs = _compared(of_recording(recording, pace), of_simulation(name, run)).pairs
    parting = first_divergence(recording, pace, run)
    return LadderStep(name=name, experiment=experiment, errors=_errors(pairs), run=run, parting=parting)


def _fitted(recording: Recording, pace: Pace, replayed: Experiment) -> Fitted:
    """Return coefficients from all steps and requests."""
    coefficients = fit(pace)
    run = simulate(with_latency(replayed, coefficients.latency))
    return replace(coefficients, queue_us=float(front_end_us(recording.answered, run)))


def _crossed(recording: Recording, pace: Pace, replayed: Experiment) -> Halves:
    """Predict each half of the steps and requests from the other."""
    fitted = fit(pace, 0), fit(pace, 1)
    left = of_recording(recording, pace)

    def errors(*, at_its_speed: bool) -> Mapping[str, Agreement]:
        times = predicted_us(pace, fitted, at_its_speed=at_its_speed)
        without = simulate(with_steps(replayed, times))
        pairs: list[Pair] = []
        for part in (0, 1):
            queue_us = front_end_us(recording.answered[1 - part :: 2], without)
            run = simulate(with_steps(replayed, times, queue_us))
            judged = frozenset(row.request_id for row in recording.answered[part::2])
            pairs += [pair for pair in _compared(left, of_simulation("", run)).pairs if pair.name in judged]
        return _errors(pairs)

    return Halves(fitted=fitted, steady=errors(at_its_speed=False), drifting=errors(at_its_speed=True))


def _notes(recording: Recording, experiment: Experiment) -> list[str]:
    """Return where the experiment contradicts the server's own description."""
    server, engine = recording.server, experiment.pools[0].engine
    pairs: tuple[tuple[str, object, object, str], ...] = (
        ("KV blocks", server.kv_blocks, engine.kv_blocks, "engine.kv_blocks"),
        ("tokens in a block", server.block_size_tokens, engine.block_size_tokens, "engine.block_size_tokens"),
        ("tokens in its longest context", server.max_model_len, engine.max_model_len, "engine.max_model_len"),
    )
    notes = _broken_off(recording)
    notes += [
        f"the server has {theirs} {what}, the experiment {ours}: --set {key}={theirs}"
        for what, theirs, ours, key in pairs
        if theirs is not None and theirs != ours
    ]
    if server.prefix_caching is not None and server.prefix_caching != engine.enable_prefix_caching:
        word = str(server.prefix_caching).lower()
        notes.append(f"prefix caching differs: --set engine.enable_prefix_caching={word}")
    if (limit := _limit(recording)) is not None and limit != engine.max_num_seqs:
        waited = "while others waited and KV blocks were free"
        notes.append(f"the server ran no more than {limit} requests {waited}: --set engine.max_num_seqs={limit}")
    if server.engines is not None and server.engines > 1:
        notes.append(f"the server has {server.engines} engines, the simulation one")
    return notes


def _broken_off(recording: Recording) -> list[str]:
    """Return what a recording lacks because it was aborted, or because its log is that of another time."""
    notes = []
    if recording.about.get("complete") is False:
        notes.append(
            f"{recording.folder} was interrupted: requests in progress or still to come are missing or incomplete"
        )
    if why := foreign_steps(recording):
        notes.append(f"the log of {recording.folder} {why}; it is not used")
    return notes


def _limit(recording: Recording) -> int | None:
    """Return the maximum number of running requests if the metrics show that it is a limit; None otherwise.

    It is a limit if the engine nearly always ran that many while others waited, and KV blocks were not short.
    """
    samples = [scrape.values for scrape in recording.scrapes if all(name in scrape.values for name in GAUGES)]
    running, waiting, kv = GAUGES
    most = max((sample[running] for sample in samples), default=0.0)
    kept = [sample for sample in samples if sample[waiting] > 0]
    full = [sample for sample in kept if sample[running] == most]
    many = len(full) >= _LOOKS and len(full) >= _NEARLY_ALWAYS * len(kept)
    if not many or recording.server.engines not in (None, 1) or max(sample[kv] for sample in kept) > _ROOM:
        return None
    return int(most)


_GENERATED: Final = "vllm:generation_tokens_total"
_RUNNING: Final = "vllm:num_requests_running"
_KV: Final = "vllm:kv_cache_usage_perc"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinSide:
    """The compared data of a side.

    Attributes:
        name: its name.
        latencies: latencies of each completed request, by name.
        sent_us: sending time of each request.
        batches: batches of its steps; None = unknown.
        step_us: mean period of a step, including the gap to the next one; None = unknown.
        counts: counts over the whole run, as far as known.
        running: number of running requests over time.
        kv: share of KV blocks in use over time.
    """

    name: str
    latencies: Mapping[str, Mapping[str, float]]
    sent_us: Mapping[str, int]
    batches: Sequence[Batch] | None = None
    step_us: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    running: Sequence[tuple[int, float]] = ()
    kv: Sequence[tuple[int, float]] = ()


def of_recording(recording: Recording, pace: Pace | None) -> TwinSide:
    """Return a recording as a side."""
    counters = recording.about.get("counters")
    known = counters if isinstance(counters, dict) else {}
    names = {"preemptions": PREEMPTIONS, "prompt tokens from cache": CACHE_HITS, "tokens generated": _GENERATED}
    counts = {name: round(known[key]) for name, key in names.items() if isinstance(known.get(key), int | float)}
    if pace is not None:
        counts = {"steps": len(pace.steps), **counts}
    return TwinSide(
        name=str(recording.folder),
        latencies={row.request_id: latencies for row in recording.requests if (latencies := observed(row))},
        sent_us={row.request_id: row.sent_us for row in recording.requests},
        batches=None if pace is None else [batch_of(step) for step in pace.steps],
        step_us=None if pace is None else fsum(pace.periods_us) / len(pace.steps),
        counts=counts,
        running=[
            (scrape.time_us, scrape.values[_RUNNING]) for scrape in recording.scrapes if _RUNNING in scrape.values
        ],
        kv=[(scrape.time_us, scrape.values[_KV]) for scrape in recording.scrapes if _KV in scrape.values],
    )


def of_simulation(name: str, run: Simulated) -> TwinSide:
    """Return a simulation as a side."""
    cached = whole_sum([row.cached_tokens for row in run.rows.values()])
    generated = whole_sum([row.output_tokens for row in run.rows.values()])
    ends = [step.time_us + step.duration_us for step in run.steps]
    periods = [later.time_us - step.time_us for step, later in zip(run.steps, run.steps[1:], strict=False)]
    busy = [period for step, period in zip(run.steps, periods, strict=False) if step.next_step_us >= 0]
    return TwinSide(
        name=name,
        latencies={request_id: latencies for request_id, row in run.rows.items() if (latencies := simulated(row))},
        sent_us={request_id: row.arrival_us for request_id, row in run.rows.items()},
        batches=run.batches,
        step_us=fsum(busy) / len(busy) if busy else None,
        counts={
            "steps": len(run.steps),
            "preemptions": run.preemptions,
            "prompt tokens from cache": cached,
            "tokens generated": generated,
        },
        running=[(end, float(step.running)) for end, step in zip(ends, run.steps, strict=True)],
        kv=[(end, step.kv_used_blocks / run.kv_blocks) for end, step in zip(ends, run.steps, strict=True)],
    )


def at(series: Sequence[tuple[int, float]], times_us: Sequence[int]) -> list[float]:
    """Return the latest value of a series at these times; 0 before the first."""
    known = [time_us for time_us, _ in series]
    places = [bisect_right(known, time_us) - 1 for time_us in times_us]
    return [series[place][1] if place >= 0 else 0.0 for place in places]
