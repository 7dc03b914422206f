"""Both sides of a twin: how far they agree, and over time the state of requests, steps and occupancy."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.live.calibration.simulated_load import correlation, mape
from blis_tui.live.observe.recording import COMPLETED
from blis_tui.live.twin.first_difference import batch_of
from blis_tui.results.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.observe.recording import Observed, Recording
    from blis_tui.live.twin.fitting import Pace
    from blis_tui.live.twin.simulated_requests import Batch, Simulated
    from blis_tui.results.request_log import RequestRow

_WAITING = "vllm:num_requests_waiting"
_RUNNING = "vllm:num_requests_running"
_KV = "vllm:kv_cache_usage_perc"


@dataclass(frozen=True, slots=True)
class ServedLife:
    """A request on one side; times in microseconds."""

    name: str
    sent_us: int
    times_us: tuple[int, ...]
    """Arrival times of tokens."""
    counts: tuple[int, ...]
    """Cumulative number of tokens at these times."""
    end_us: int
    completed: bool
    whole: bool = False
    """Whether all tokens came at once, so that the time of the first one is unknown."""

    @property
    def ttft_us(self) -> int | None:
        """Time to its first token; None = no token, or an unknown time."""
        return self.times_us[0] - self.sent_us if self.times_us and not self.whole else None

    @property
    def e2e_us(self) -> int | None:
        """Time to its last token; None = the answer is incomplete."""
        return self.times_us[-1] - self.sent_us if self.completed and self.times_us else None

    def tokens(self, time_us: int) -> int:
        """Return the number of tokens received by a time."""
        place = bisect_right(self.times_us, time_us)
        return self.counts[place - 1] if place else 0


@dataclass(frozen=True, slots=True)
class Levels:
    """A step function of time."""

    times_us: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, time_us: int) -> float | None:
        """Return its value at a time; None = before the first, or unknown."""
        place = bisect_right(self.times_us, time_us)
        return self.values[place - 1] if place else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTimeSeries:
    """One side.

    Attributes:
        name: its name.
        lives: its requests by name, in the order of sending.
        begins_us: start of each step; empty = unknown.
        batches: content of each step.
        step_times: time from the start of each step until the next could begin, in microseconds.
        figures: known figures over time: ``running``, ``waiting``, ``KV in use`` (a share), ``preemptions``.
    """

    name: str
    lives: Mapping[str, ServedLife]
    begins_us: tuple[int, ...]
    batches: tuple[Batch, ...]
    step_times: Levels
    figures: Mapping[str, Levels]
    sent_us: tuple[int, ...]
    """Ascending times of sending. The next fields have the times of ends, and of tokens."""
    ended_us: tuple[int, ...]
    tokens_us: Levels

    @property
    def end_us(self) -> int:
        """End of its last request."""
        return self.ended_us[-1] if self.ended_us else 0

    def step(self, time_us: int) -> int | None:
        """Return the index of the current or latest step; None = none has begun, or unknown."""
        place = bisect_right(self.begins_us, time_us)
        return place - 1 if place else None

    def in_flight(self, time_us: int) -> int:
        """Return the number of requests sent but not ended."""
        return bisect_right(self.sent_us, time_us) - bisect_right(self.ended_us, time_us)

    def tokens(self, time_us: int) -> int:
        """Return the number of tokens that clients had received."""
        return int(self.tokens_us.at(time_us) or 0)

    def answered(self, time_us: int) -> list[ServedLife]:
        """Return the requests completed by a time."""
        return [life for life in self.lives.values() if life.completed and life.end_us <= time_us]


def _course(name: str, lives: Mapping[str, ServedLife], figures: Mapping[str, Levels], steps: _Steps) -> TwinTimeSeries:
    came: dict[int, int] = {}
    for life in lives.values():
        before = 0
        for time_us, count in zip(life.times_us, life.counts, strict=True):
            came[time_us] = came.get(time_us, 0) + count - before
            before = count
    times = sorted(came)
    return TwinTimeSeries(
        name=name,
        lives=lives,
        begins_us=steps.begins_us,
        batches=steps.batches,
        step_times=Levels(steps.begins_us, steps.periods_us),
        figures=figures,
        sent_us=tuple(sorted(life.sent_us for life in lives.values())),
        ended_us=tuple(sorted(life.end_us for life in lives.values())),
        tokens_us=Levels(tuple(times), tuple(map(float, accumulate(came[time_us] for time_us in times)))),
    )


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of a side in time; empty if unknown."""

    begins_us: tuple[int, ...] = ()
    batches: tuple[Batch, ...] = ()
    periods_us: tuple[float, ...] = ()


def of_recording(recording: Recording, pace: Pace | None) -> TwinTimeSeries:
    """Return the measured side."""
    lives: dict[str, ServedLife] = {}
    for row in recording.requests:
        total, counts = 0, []
        for _, count in row.chunks:
            total += count
            counts.append(total)
        times = tuple(time_us for time_us, _ in row.chunks)
        done = row.outcome == COMPLETED
        end_us = times[-1] if done and times else row.done_us
        lives[row.request_id] = ServedLife(row.request_id, row.sent_us, times, tuple(counts), end_us, done, row.whole)
    steps = _Steps()
    if pace is not None and pace.begins_us is not None:
        batches = tuple(batch_of(step) for step in pace.steps)
        steps = _Steps(pace.begins_us, batches, tuple(map(float, pace.periods_us)))
    return _course(recording.folder.name, lives, levels_of_recording(recording, pace), steps)


def levels_of_recording(recording: Recording, pace: Pace | None) -> dict[str, Levels]:
    """Return a recording's figures of the engine over time, under the names of ``TwinTimeSeries.figures``."""
    preempted = _scraped(recording, PREEMPTIONS)
    first = preempted.values[0] if preempted.values else 0.0
    figures = {
        "waiting": _scraped(recording, _WAITING),
        "running": _scraped(recording, _RUNNING),
        "KV in use": _kv_by_steps(pace) or _scraped(recording, _KV),
        "preemptions": Levels(preempted.times_us, tuple(value - first for value in preempted.values)),
    }
    return {name: levels for name, levels in figures.items() if levels.times_us}


def _scraped(recording: Recording, key: str) -> Levels:
    levels = [(scrape.time_us, scrape.values[key]) for scrape in recording.scrapes if key in scrape.values]
    return Levels(tuple(time_us for time_us, _ in levels), tuple(value for _, value in levels))


def _kv_by_steps(pace: Pace | None) -> Levels | None:
    if pace is None or pace.begins_us is None or any(step.kv_share is None for step in pace.steps):
        return None
    ends = tuple(begin + step.duration_us for begin, step in zip(pace.begins_us, pace.steps, strict=True))
    return Levels(ends, tuple(step.kv_share or 0.0 for step in pace.steps))


def of_simulation(name: str, run: Simulated) -> TwinTimeSeries:
    """Return the simulated side; its run must have been followed."""
    lives: dict[str, ServedLife] = {}
    for row in run.rows.values():
        tokens = run.answers.get(row.request_id, ())
        extra_us = 0
        if row.ttft_us is not None and tokens:
            extra_us = row.arrival_us + row.ttft_us - tokens[0][0]  # time between the step's end and the client
        times = tuple(time_us + extra_us for time_us, _ in tokens)
        done = row.state == "completed"
        ended = times[-1] if done and times else row.deadline_us or row.arrival_us
        counts = tuple(count for _, count in tokens)
        lives[row.request_id] = ServedLife(row.request_id, row.arrival_us, times, counts, ended, done)
    ordered = dict(sorted(lives.items(), key=lambda entry: (entry[1].sent_us, entry[0])))
    begins = tuple(step.time_us for step in run.steps)
    steps = _Steps(begins, run.batches, tuple(float(step.duration_us) for step in run.steps))
    return _course(name, ordered, levels_of_simulation(run), steps)


def levels_of_simulation(run: Simulated) -> dict[str, Levels]:
    """Return a simulation's figures of the engine over time, whether or not it was followed."""
    steps = run.steps
    ends = tuple(step.time_us + step.duration_us for step in steps)
    preempted, total = [], 0
    for step in steps:
        total += len(step.preempted)
        preempted.append(float(total))
    return {
        "running": Levels(ends, tuple(float(step.running) for step in steps)),
        "waiting": Levels(ends, tuple(float(step.waiting) for step in steps)),
        "KV in use": Levels(ends, tuple(step.kv_used_blocks / run.kv_blocks for step in steps)),
        "preemptions": Levels(tuple(step.time_us for step in steps), tuple(preempted)),
    }


def sampled(levels: Levels, end_us: int, cells: int) -> Sequence[float | None]:
    """Return the maximum in each of ``cells`` equal intervals from 0 to ``end_us``; None where unknown."""
    samples: list[float | None] = []
    for cell in range(cells):
        start_us, stop_us = cell * end_us // cells, (cell + 1) * end_us // cells
        first, last = bisect_right(levels.times_us, start_us), bisect_right(levels.times_us, stop_us)
        before = [levels.values[first - 1]] if first else []
        inside = [*before, *levels.values[first:last]]
        known = levels.times_us and start_us <= levels.times_us[-1]
        samples.append(max(inside) if inside and known else None)
    return samples


# Both sides in about ten time intervals.

STRETCHES: Final = 10
KV: Final = "KV in use"
LEVELS: Final = ("waiting", "running", KV, "preemptions")
"""Figures at the end of each interval: requests, requests, a share of all blocks, a count since the start."""
LATENCIES: Final = ("ttft", "e2e")
"""Mean latencies of the requests sent in each interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time interval; figures by the names in ``LEVELS`` and ``LATENCIES``, None if unknown."""

    until_us: int
    """Its end; it begins at the end of the previous interval, or at 0."""
    requests: int
    """Requests sent in it and answered on both sides."""
    left: Mapping[str, float | None]
    """Latencies in milliseconds. The next field has those of the right side."""
    right: Mapping[str, float | None]


def stretches(
    pairs: Sequence[Pair], left: Mapping[str, Levels], right: Mapping[str, Levels], count: int = STRETCHES
) -> list[Stretch]:
    """Return equal intervals from 0 to the last answer of either side; empty if nothing was answered."""
    ends = [pair.sent_us + round(max(pair.left["e2e"], pair.right["e2e"])) for pair in pairs]
    end_us = max(ends, default=0)
    parts = []
    for number in range(count if ends else 0):
        from_us, until_us = number * end_us // count, (number + 1) * end_us // count
        sent = [pair for pair in pairs if max(pair.sent_us, 0) in range(from_us, until_us)]
        sides = (
            {
                **{name: _at(levels.get(name), until_us) for name in LEVELS},
                **{name: _mean_ms([pair[name] for pair in latencies if name in pair]) for name in LATENCIES},
            }
            for levels, latencies in ((left, [pair.left for pair in sent]), (right, [pair.right for pair in sent]))
        )
        of_left, of_right = sides
        parts.append(Stretch(until_us=until_us, requests=len(sent), left=of_left, right=of_right))
    return parts


def _at(levels: Levels | None, time_us: int) -> float | None:
    """Return a figure at a time: 0 before its first value, None if it has none."""
    return None if levels is None else levels.at(time_us) or 0.0


def _mean_ms(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) / 1e3 if values else None


METRICS: Final = ("ttft", "itl", "e2e")
PREEMPTIONS: Final = "vllm:num_preemptions_total"
CACHE_HITS: Final = "vllm:prefix_cache_hits_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A request on both sides; latencies in microseconds, by the names in ``METRICS``."""

    name: str
    sent_us: int
    left: Mapping[str, float]
    right: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of a latency; times in milliseconds."""

    requests: int
    left: Mapping[str, float]
    """Mean, p50 and p99. The next field has those of the right side."""
    right: Mapping[str, float]
    bias: float
    """Error of the mean: right / left - 1."""
    mape: float
    """Mean absolute error of single requests, relative to the left side."""
    r: float | None
    """Correlation of single requests; None if there is no variation."""


def observed(row: Observed) -> dict[str, float]:
    """Return the latencies of an observed request by name; empty if its answer is incomplete."""
    if row.whole and row.e2e_us is not None:
        return {"e2e": float(row.e2e_us)}
    return _latencies(row.ttft_us, row.e2e_us, row.tokens)


def simulated(row: RequestRow) -> dict[str, float]:
    """Return the latencies of a simulated request by name."""
    return _latencies(row.ttft_us, row.e2e_us, row.output_tokens)


def _latencies(ttft_us: int | None, e2e_us: int | None, tokens: int) -> dict[str, float]:
    if ttft_us is None or e2e_us is None or ttft_us <= 0:
        return {}
    latencies = {"ttft": float(ttft_us), "e2e": float(e2e_us)}
    if tokens > 1 and e2e_us > ttft_us:
        latencies["itl"] = (e2e_us - ttft_us) / (tokens - 1)
    return latencies


def agreement(pairs: Sequence[Pair], metric: str) -> Agreement | None:
    """Return the agreement of a latency over requests; None if no request has it."""
    values = [(pair.left[metric], pair.right[metric]) for pair in pairs if metric in pair.left and metric in pair.right]
    if not values:
        return None
    left, right = ([both[side] for both in values] for side in (0, 1))
    return Agreement(
        requests=len(values),
        left=_spread(left),
        right=_spread(right),
        bias=fsum(right) / fsum(left) - 1.0,
        mape=mape(values),
        r=correlation(left, right),
    )


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    count = len(ordered)
    return {
        "mean": fsum(ordered) / count / 1e3,
        "p50": percentile(ordered, 50) / 1e3,
        "p99": percentile(ordered, 99) / 1e3,
    }
