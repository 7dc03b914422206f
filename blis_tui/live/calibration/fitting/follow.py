"""Simulates a measured load, guided by its measurements.

A free simulation drifts from the server: a request that joins a step earlier or later shares batches with other
requests, and after a while no step is the server's. So the simulation is corrected as it runs: whenever a request gets
its first or last token, the server's clock at the end of that step was measured, and the step is made to end then. A
Kalman filter with one variable, the lag of the simulated clock, decides how much of a difference to apply, given the
noise of measurements and step times. The result is which requests shared each step on the server, independent of the
coefficients as long as step durations are about right.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from itertools import accumulate
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.records import Queued, Scheduled, StepFinished
from blis_tui.live.calibration.simulated_load import with_load
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.live.calibration.fitting.clock import Noise
    from blis_tui.live.calibration.measured import Measured, Recording
    from blis_tui.model import Experiment

FIRST: Final = 0
LAST: Final = 1
_FADING: Final = 0.05
"""Weight of a step in the moving average."""
_DOUBT_US: Final = 1000.0
"""Minimum standard deviation of a pause's end, because coefficients are still inexact,"""
_DOUBT: Final = 0.01
"""and of a step's duration, relative to it."""
_LOST: Final = 0.2
"""Each rejected measurement adds this share of a step to the clock's uncertainty."""
_OTHER_STEP: Final = 0.5
"""A token that differs by more than this share of a step belongs to another step,"""
_SURE: Final = 4.0
"""unless the difference is within this many standard deviations."""
_NEXT: Final = 1.5
"""A first token that differs by less than this many steps belongs to the previous or the next step."""
_CLIP: Final = 3.0
"""Differences are clipped to this many standard deviations, and clipping increases the clock's uncertainty."""


@dataclass(frozen=True, slots=True)
class Token:
    """A first or last token of a request, which is the measured end of a step."""

    kind: int
    request: int
    step: int
    measured_us: float
    """When its client received it."""
    off_us: float
    """How much later than expected it came, given all earlier tokens."""
    elsewhere: bool
    """Whether it cannot belong to this step."""
    shorter_us: int
    """Duration of the shorter of this step and the previous one."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """The scheduling passes between which a request joined the queue, as far as its first token shows.

    It joined between the second and the third of four passes; or, if its first token belongs to another step than it
    seems, between the pair before or after them.
    """

    request: int
    looks_us: tuple[float, ...]
    """Times of the passes on the server's clock."""
    off_us: float
    """How much later than expected its first token came."""
    step_us: int
    """How much later it would have been expected with a queue entry one pass later."""


@dataclass(slots=True)
class FollowResult:
    """The result of the simulation."""

    steps: list[StepFinished] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    """For each step, the request that ended the pause before it; -1 = no pause."""
    tokens: list[Token] = field(default_factory=list)
    entries: list[QueueEntry] = field(default_factory=list)
    queued_us: dict[int, int] = field(default_factory=dict)
    """When each request joined the queue."""


class _CorrectedModel:
    """A step-time model corrected by a leader, with given times of queue entry."""

    def __init__(self, model: StepTimeModel, waits_us: Sequence[float]) -> None:
        self.model = model
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us
        self.waits_us = waits_us
        self.numbers: dict[str, int] = {}
        self.corrected_us: Callable[[StepLoad, int], int] = lambda _, duration_us: duration_us

    def step_time_us(self, load: StepLoad) -> int:
        """Return the step time, as corrected by the leader."""
        return max(1, self.corrected_us(load, self.model.step_time_us(load)))

    def queueing_time_us(self, request: Request) -> int:
        """Return the given wait."""
        self.numbers[request.request_id] = request.index
        return max(0, round(self.waits_us[request.index]))


class _Pace:
    """The mean step duration at any time, from the time per token of the requests that ran then."""

    def __init__(self, requests: Sequence[Measured], *, flat: bool) -> None:
        changes: list[tuple[float, float, int]] = []
        for request in requests:
            lasted = request.e2e_us - request.ttft_us
            if request.output_tokens > 1 and lasted > 0.0:
                each = lasted / (request.output_tokens - 1)
                changes.append((request.arrival_us + request.ttft_us, each, 1))
                changes.append((request.arrival_us + request.e2e_us, -each, -1))
        changes.sort()
        self._times = [time for time, _, _ in changes]
        sums = accumulate(((each, count) for _, each, count in changes), lambda a, b: (a[0] + b[0], a[1] + b[1]))
        self._means = [0.0, *(total / count if count else 0.0 for total, count in sums)]
        self._flat = flat
        self._usual = 0.0

    def step_us(self, duration_us: int, now: int) -> int:
        """Return the step's duration: the mean duration, or scaled to it."""
        measured = self._means[bisect_right(self._times, now)]
        if not measured:
            return duration_us
        if self._flat:
            return round(measured)
        self._usual += _FADING * (duration_us - self._usual) if self._usual else duration_us
        return round(measured * duration_us / self._usual)


class _Clock:
    """The filter: the lag of the simulated clock behind the server's."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self.doubt = 0.0

    def begin(self) -> None:
        """Restart at a request that ended a pause; the clock is as certain as the request's arrival."""
        self.doubt = max(self.noise.arrival, _DOUBT_US**2)

    def tick(self, duration_us: float) -> None:
        """Add the uncertainty of a step."""
        self.doubt += max(self.noise.of_step(duration_us), (_DOUBT * duration_us) ** 2)

    def clock_error(self, off_us: float, error: float, shorter_us: int) -> float | None:
        """Return the part of a difference due to the clock; None = the token belongs to another step.

        Args:
            off_us: how much later than expected a token came.
            error: variance of the measurement.
            shorter_us: duration of the shorter of this step and the previous one.
        """
        total = self.doubt + error
        deviation = sqrt(total)
        if abs(off_us) > max(_OTHER_STEP * shorter_us, _SURE * deviation):
            self.doubt += (_LOST * shorter_us) ** 2
            return None
        share = self.doubt / total
        if abs(off_us) > _CLIP * deviation:
            self.doubt += total
            off_us = _CLIP * deviation if off_us > 0.0 else -_CLIP * deviation
        else:
            self.doubt *= 1.0 - share
        return share * off_us


def follow(
    experiment: Experiment,
    recording: Recording,
    noise: Noise | None,
    waits_us: Sequence[float],
    *,
    repeated: bool = False,
    flat: bool = False,
) -> FollowResult:
    """Simulate a measured load, guided by its measurements.

    Args:
        experiment: the experiment with the step-time model.
        recording: the measured load.
        noise: noise of step times and measurements; None = follow only mean step durations.
        waits_us: time from arrival to queue entry, for each request.
        repeated: whether prompts of equal length are equal, and hit the prefix cache.
        flat: without ``noise``, whether all steps take equally long instead of in proportion to the model.
    """
    with TemporaryDirectory() as folder:
        loaded = with_load(experiment, recording, Path(folder), repeated=repeated)
        simulation = Simulation(loaded, check="off")
    (instance,) = simulation.cluster.instances
    led = instance.latency = _CorrectedModel(instance.latency, waits_us)
    follower = _Follower(recording.requests, led, noise)
    if noise is None:
        pace = _Pace(recording.requests, flat=flat)
        led.corrected_us = lambda _, duration_us: pace.step_us(duration_us, simulation.now_us)
    else:
        led.corrected_us = lambda load, duration_us: follower.corrected_us(load, duration_us, simulation.now_us)
    simulation.subscribe(Queued, follower.queued)
    simulation.subscribe(StepFinished, follower.step)
    simulation.subscribe(Scheduled, follower.scheduled)
    simulation.run()
    return follower.finish()


class _Follower:
    """Makes steps end when they did on the server, and notes the measurements at their ends."""

    def __init__(self, requests: Sequence[Measured], led: _CorrectedModel, noise: Noise | None) -> None:
        self.found = FollowResult()
        self._requests = requests
        self._led = led
        self._clock = None if noise is None else _Clock(noise)
        self._plain_us = 0
        """Duration of the latest step by the model."""
        self._left_us = 0.0
        """Correction that previous steps could not apply."""
        self._starts = (-1, -1)
        """Starts of the last two steps."""
        self._end = -1
        self._duration = 1 << 60
        self._due: dict[int, list[int]] = {}
        """Step -> the requests whose last token it should compute."""
        self._entries: dict[int, int] = {}
        self._looks: list[tuple[int, int, float, int]] = []
        self._moved: list[float | None] = []
        """For each step with a measurement, its correction."""
        self._elsewhere: set[int] = set()
        self._left: set[int] = set()
        """Requests that have left the queue once."""

    def corrected_us(self, load: StepLoad, duration_us: int, now: int) -> int:
        """Return the corrected duration of a step."""
        clock = self._clock
        assert clock is not None  # noqa: S101  (only called with a clock)
        self._plain_us = duration_us
        due = self._due.get(len(self.found.steps))
        if not load.chunks and not due:  # common case: nothing is measured at its end
            return max(duration_us // 4, round(duration_us + self._left_us))
        ends = [
            (FIRST, chunk.request.index)
            for chunk in load.chunks
            if chunk.computed + chunk.new == chunk.prompt and not chunk.request.generated_tokens
        ]
        ends += [(LAST, number) for number in due or ()]
        doubt = clock.doubt
        if now > self._end:
            clock.begin()
        clock.tick(duration_us)
        moved = self._left_us
        for kind, number in ends:
            if number not in self._elsewhere:
                off = self._expected_us(kind, number) - (now + duration_us + moved)
                error = clock.noise.of_token(kind, self._requests[number])
                moved += clock.clock_error(off, error, min(duration_us, self._duration)) or 0.0
        clock.doubt = doubt
        return max(duration_us // 4, round(duration_us + moved))

    def _expected_us(self, kind: int, number: int) -> float:
        """Return when the step of a token ended, by its client's clock."""
        request, led = self._requests[number], self._led
        if kind == FIRST:
            return request.arrival_us + request.ttft_us - led.output_token_overhead_us
        overhead_us = request.output_tokens * led.output_token_overhead_us + led.post_decode_overhead_us
        return request.arrival_us + request.e2e_us - overhead_us

    def queued(self, record: Queued) -> None:
        """Note when a request joined the queue."""
        self.found.queued_us.setdefault(self._led.numbers[record.request_id], record.time_us)

    def scheduled(self, record: Scheduled) -> None:
        """Note between which scheduling passes it joined, unless a pass had left it waiting or it ended a pause."""
        number, now = self._led.numbers[record.request_id], record.time_us
        came = self.found.queued_us[number]
        before = self._starts[1] if self._starts[1] < now else self._starts[0]
        if number not in self._left and now <= self._end and 0 <= before < came <= now:
            self._entries[number] = now
        self._left.add(number)

    def step(self, record: StepFinished) -> None:
        """Note the measurements at the end of a step."""
        names = self._led.numbers
        number, begin = len(self.found.steps), record.time_us
        pause = begin > self._end
        self.found.steps.append(record)
        self.found.heads.append(names[record.admitted[0]] if pause and record.admitted else -1)
        shorter = min(record.duration_us, self._duration)
        ends = self._ends(record, number) if record.first_tokens or record.completed else []
        if self._clock is None:
            self._moved.append(None)
            for kind, index in ends:
                self._note(kind, index, 0.0, elsewhere=False, shorter=shorter)
        else:
            self._compare(record, ends, pause=pause, shorter=shorter)
        self._duration = record.duration_us
        self._starts, self._end = (self._starts[1], begin), begin + record.duration_us
        self._due.pop(number, None)

    def _ends(self, record: StepFinished, number: int) -> list[tuple[int, int]]:
        """Return the tokens measured at the end of a step; also note when some requests' last tokens are due."""
        names = self._led.numbers
        first = [names[name] for name in record.first_tokens]
        for index in first:
            if (more := self._requests[index].output_tokens - 1) > 0:
                self._due.setdefault(number + more, []).append(index)
        last = [names[name] for name in record.completed if self._requests[names[name]].output_tokens > 1]
        return [*((FIRST, index) for index in first), *((LAST, index) for index in last)]

    def _compare(self, record: StepFinished, ends: list[tuple[int, int]], *, pause: bool, shorter: int) -> None:
        """Apply or reject the measurements at the end of a step."""
        clock = self._clock
        assert clock is not None  # noqa: S101  (checked before)
        if pause:
            clock.begin()
            self._left_us = 0.0
        clock.tick(self._plain_us)
        moved = self._left_us
        for kind, index in ends:
            off = self._expected_us(kind, index) - (record.time_us + self._plain_us + moved)
            elsewhere = index in self._elsewhere
            if not elsewhere:
                believed = clock.clock_error(off, clock.noise.of_token(kind, self._requests[index]), shorter)
                elsewhere = believed is None
                moved += believed or 0.0
            if elsewhere:
                self._elsewhere.add(index)
            self._note(kind, index, off, elsewhere=elsewhere, shorter=shorter)
        self._left_us = moved - (record.duration_us - self._plain_us)
        self._moved.append(moved if ends else None)

    def _note(self, kind: int, number: int, off: float, *, elsewhere: bool, shorter: int) -> None:
        request = self._requests[number]
        measured = request.arrival_us + (request.ttft_us if kind == FIRST else request.e2e_us)
        self.found.tokens.append(Token(kind, number, len(self.found.steps) - 1, measured, off, elsewhere, shorter))
        if kind == FIRST and number in self._entries:
            until = self._entries.pop(number)
            if abs(off) < _NEXT * max(self.found.steps[-1].duration_us, shorter):
                self._looks.append((number, until, off, shorter))

    def finish(self) -> FollowResult:
        """Convert scheduling passes to the server's clock, as far as it is known after each."""
        steps = self.found.steps
        numbers = {step.time_us: number for number, step in enumerate(steps)}
        times = [float(step.time_us) for step in steps]
        # A pause's end is as uncertain as its request's arrival; the first later measurement corrects it.
        coming = 0.0
        for number in range(len(steps) - 1, -1, -1):
            moved = self._moved[number]
            coming = coming if moved is None else moved
            if self.found.heads[number] >= 0:
                at = number
                while at < len(steps) and (at == number or self.found.heads[at] < 0):
                    times[at] += coming
                    if self._moved[at] is not None:
                        break
                    at += 1
        for number, until, off, shorter in self._looks:
            at = numbers[until]
            looks = [self._step_start_us(times, at + offset) for offset in (-2, -1, 0, 1)]
            self.found.entries.append(QueueEntry(number, tuple(looks), off, shorter))
        return self.found

    def _step_start_us(self, times: list[float], step: int) -> float:
        """Return when a step began, clamped to the first and the last step."""
        return times[min(max(step, 0), len(times) - 1)]
