"""A measured load, simulated in step with its measurements.

A simulation left to itself drifts from the server: a request that joins a step earlier or later meets other requests,
and after a while no step is the server's. So the simulation is corrected as it goes: whenever a request gets its first
or last token, the server's clock at the end of that step was measured, and the step is made to end then. How much of a
difference is believed is a matter of how exact measurements and step times are (a Kalman filter of one number, how far
the simulated clock is behind). What comes out is which requests shared each step on the server, whatever the
coefficients are, as long as steps last about as long as they should.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from itertools import accumulate
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from blis_tui.calibration.replay import with_load
from blis_tui.classes import dataclass
from blis_tui.engine.records import Queued, Scheduled, StepFinished
from blis_tui.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.calibration.fitting.clock import Noise
    from blis_tui.calibration.measured import Measured, Recording
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Experiment

FIRST: Final = 0
LAST: Final = 1
_FADING: Final = 0.05
"""Weight of a step in the mean of those before it."""
_DOUBT_US: Final = 1000.0
"""However exact measurements are, coefficients are not there yet: how much a pause's end is doubted at least,"""
_DOUBT: Final = 0.01
"""and a step's duration, as a share of it."""
_LOST: Final = 0.2
"""Each measurement that is not believed makes the clock more doubtful, by this share of a step."""
_OTHER_STEP: Final = 0.5
"""A token that differs by more than this share of a step was the end of another one,"""
_SURE: Final = 4.0
"""unless measurements are as inexact as that: a difference of so many standard deviations."""
_NEXT: Final = 1.5
"""A first token that differs by less than so many steps was the end of the step before or behind."""
_CLIP: Final = 3.0
"""Differences beyond so many standard deviations are believed no more than that, and doubt about the clock grows."""


@dataclass(frozen=True, slots=True)
class Token:
    """A first or last token of a request: the measured end of a step."""

    kind: int
    request: int
    step: int
    measured_us: float
    """When its client had it."""
    off_us: float
    """How much later than it was expected after all tokens before it."""
    elsewhere: bool
    """Whether it cannot have been the end of this step."""
    shorter_us: int
    """The shorter one of this step and the one before it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Between which looks at the queue a request came to stand in it, as far as its first token tells it.

    It came between the second and the third of four looks; or, if its first token was the end of another step than it
    seems, between those before or behind them.
    """

    request: int
    looks_us: tuple[float, ...]
    """On the server's clock."""
    off_us: float
    """How much later its first token came than expected."""
    step_us: int
    """How much later it would have been expected, had it come a look later."""


@dataclass(slots=True)
class Followed:
    """What was simulated."""

    steps: list[StepFinished] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    """Of each step, the request that ended the pause before it; -1 = there was none."""
    tokens: list[Token] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    queued_us: dict[int, int] = field(default_factory=dict)
    """When each request came to stand in the queue."""


class _Led:
    """A step-time model that a leader corrects, and whose requests enter the queue when they are told to."""

    __slots__ = ("lead", "model", "numbers", "output_token_overhead_us", "post_decode_overhead_us", "waits_us")

    def __init__(self, model: StepTimeModel, waits_us: Sequence[float]) -> None:
        self.model = model
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us
        self.waits_us = waits_us
        self.numbers: dict[str, int] = {}
        self.lead: Callable[[StepLoad, int], int] = lambda _, duration_us: duration_us

    def step_time_us(self, load: StepLoad) -> int:
        """What the leader makes of what the other model says."""
        return max(1, self.lead(load, self.model.step_time_us(load)))

    def queueing_time_us(self, request: Request) -> int:
        """What it is told."""
        self.numbers[request.request_id] = request.index
        return max(0, round(self.waits_us[request.index]))


class _Pace:
    """How long steps took on average while the requests ran that did: what a token of theirs took."""

    def __init__(self, requests: Sequence[Measured], *, flat: bool) -> None:
        changes: list[tuple[float, float, int]] = []
        for one in requests:
            lasted = one.e2e_us - one.ttft_us
            if one.output_tokens > 1 and lasted > 0.0:
                each = lasted / (one.output_tokens - 1)
                changes.append((one.arrival_us + one.ttft_us, each, 1))
                changes.append((one.arrival_us + one.e2e_us, -each, -1))
        changes.sort()
        self._times = [time for time, _, _ in changes]
        sums = accumulate(((each, count) for _, each, count in changes), lambda a, b: (a[0] + b[0], a[1] + b[1]))
        self._means = [0.0, *(total / count if count else 0.0 for total, count in sums)]
        self._flat = flat
        self._usual = 0.0

    def step_us(self, duration_us: int, now: int) -> int:
        """How long a step takes now that should take so long: as long as all do, or in proportion."""
        measured = self._means[bisect_right(self._times, now)]
        if not measured:
            return duration_us
        if self._flat:
            return round(measured)
        self._usual += _FADING * (duration_us - self._usual) if self._usual else duration_us
        return round(measured * duration_us / self._usual)


class _Clock:
    """How far the simulated clock is behind the server's: the filter."""

    __slots__ = ("doubt", "noise")

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self.doubt = 0.0

    def begin(self) -> None:
        """A request ended a pause: the clock is as good as what is known of its arrival."""
        self.doubt = max(self.noise.arrival, _DOUBT_US**2)

    def tick(self, duration_us: float) -> None:
        """A step took so long, more or less."""
        self.doubt += max(self.noise.of_step(duration_us), (_DOUBT * duration_us) ** 2)

    def believe(self, off_us: float, error: float, shorter_us: int) -> float | None:
        """What of a difference is the clock's; None = it is no matter of the clock.

        Args:
            off_us: how much later a token came than expected.
            error: of the measurement, a variance.
            shorter_us: the shorter one of this step and the one before it.
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
) -> Followed:
    """Simulate a measured load in step with its measurements.

    Args:
        experiment: with the step-time model to follow with.
        recording: the measured load.
        noise: how exact step times and measurements are; None = only follow how long steps took on average.
        waits_us: of each request, how long after its arrival it comes to stand in the queue.
        repeated: prompts of one length are one prompt, found in the cache.
        flat: without ``noise``, all steps take as long; else in proportion to what the model says.
    """
    with TemporaryDirectory() as folder:
        loaded = with_load(experiment, recording, Path(folder), repeated=repeated)
        simulation = Simulation(loaded, check="off")
    (instance,) = simulation.cluster.instances
    led = instance.latency = _Led(instance.latency, waits_us)
    follower = _Follower(recording.requests, led, noise)
    if noise is None:
        pace = _Pace(recording.requests, flat=flat)
        led.lead = lambda _, duration_us: pace.step_us(duration_us, simulation.now_us)
    else:
        led.lead = lambda load, duration_us: follower.lead(load, duration_us, simulation.now_us)
    simulation.subscribe(Queued, follower.queued)
    simulation.subscribe(StepFinished, follower.step)
    simulation.subscribe(Scheduled, follower.scheduled)
    simulation.run()
    return follower.finish()


class _Follower:
    """Makes steps end when they did, and notes what was measured of them."""

    def __init__(self, requests: Sequence[Measured], led: _Led, noise: Noise | None) -> None:
        self.found = Followed()
        self._requests = requests
        self._led = led
        self._clock = None if noise is None else _Clock(noise)
        self._plain_us = 0
        """What the model says of the latest step."""
        self._left_us = 0.0
        """What steps could not make up for so far."""
        self._starts = (-1, -1)
        """Of the last two steps."""
        self._end = -1
        self._duration = 1 << 60
        self._due: dict[int, list[int]] = {}
        """Step -> the requests whose last token it should compute."""
        self._entries: dict[int, int] = {}
        self._looks: list[tuple[int, int, float, int]] = []
        self._moved: list[float | None] = []
        """Of each step with something measured, by how much it was corrected."""
        self._elsewhere: set[int] = set()
        self._left: set[int] = set()
        """Who has left the queue once."""

    def lead(self, load: StepLoad, duration_us: int, now: int) -> int:
        """How long a step takes that should take so long."""
        clock = self._clock
        assert clock is not None  # noqa: S101  (else it is not called)
        self._plain_us = duration_us
        due = self._due.get(len(self.found.steps))
        if not load.chunks and not due:  # as nearly always: nothing is measured at its end
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
                moved += clock.believe(off, error, min(duration_us, self._duration)) or 0.0
        clock.doubt = doubt
        return max(duration_us // 4, round(duration_us + moved))

    def _expected_us(self, kind: int, number: int) -> float:
        """When the step ended that made a token, by its client's clock."""
        request, led = self._requests[number], self._led
        if kind == FIRST:
            return request.arrival_us + request.ttft_us - led.output_token_overhead_us
        overhead_us = request.output_tokens * led.output_token_overhead_us + led.post_decode_overhead_us
        return request.arrival_us + request.e2e_us - overhead_us

    def queued(self, record: Queued) -> None:
        """Note when a request came to stand in the queue."""
        self.found.queued_us.setdefault(self._led.numbers[record.request_id], record.time_us)

    def scheduled(self, record: Scheduled) -> None:
        """Note between which two looks at the queue it had come, unless it was left there by one, or ended a pause."""
        number, now = self._led.numbers[record.request_id], record.time_us
        came = self.found.queued_us[number]
        before = self._starts[1] if self._starts[1] < now else self._starts[0]
        if number not in self._left and now <= self._end and 0 <= before < came <= now:
            self._entries[number] = now
        self._left.add(number)

    def step(self, record: StepFinished) -> None:
        """Note what was measured at the end of a step."""
        names = self._led.numbers
        number, begin = len(self.found.steps), record.time_us
        pause = begin > self._end
        self.found.steps.append(record)
        self.found.heads.append(names[record.admitted[0]] if pause and record.admitted else -1)
        shorter = min(record.duration_us, self._duration)
        ends = self._ends(record, number) if record.first_tokens or record.completed else []
        if self._clock is None:
            self._moved.append(None)
            for kind, one in ends:
                self._note(kind, one, 0.0, elsewhere=False, shorter=shorter)
        else:
            self._compare(record, ends, pause=pause, shorter=shorter)
        self._duration = record.duration_us
        self._starts, self._end = (self._starts[1], begin), begin + record.duration_us
        self._due.pop(number, None)

    def _ends(self, record: StepFinished, number: int) -> list[tuple[int, int]]:
        """The tokens that were measured at the end of a step; notes in which the last ones of some should come."""
        names = self._led.numbers
        first = [names[name] for name in record.first_tokens]
        for one in first:
            if (more := self._requests[one].output_tokens - 1) > 0:
                self._due.setdefault(number + more, []).append(one)
        last = [names[name] for name in record.completed if self._requests[names[name]].output_tokens > 1]
        return [*((FIRST, one) for one in first), *((LAST, one) for one in last)]

    def _compare(self, record: StepFinished, ends: list[tuple[int, int]], *, pause: bool, shorter: int) -> None:
        """Believe what was measured at the end of a step, or not."""
        clock = self._clock
        assert clock is not None  # noqa: S101  (asked before)
        if pause:
            clock.begin()
            self._left_us = 0.0
        clock.tick(self._plain_us)
        moved = self._left_us
        for kind, one in ends:
            off = self._expected_us(kind, one) - (record.time_us + self._plain_us + moved)
            elsewhere = one in self._elsewhere
            if not elsewhere:
                believed = clock.believe(off, clock.noise.of_token(kind, self._requests[one]), shorter)
                elsewhere = believed is None
                moved += believed or 0.0
            if elsewhere:
                self._elsewhere.add(one)
            self._note(kind, one, off, elsewhere=elsewhere, shorter=shorter)
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

    def finish(self) -> Followed:
        """Put the looks at the queue on the server's clock, as far as it is known behind each."""
        steps = self.found.steps
        numbers = {one.time_us: number for number, one in enumerate(steps)}
        times = [float(one.time_us) for one in steps]
        # A pause's end is as inexact as what is known of its request; what was measured first behind it corrects it.
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
            looks = [self._look_us(times, at + one) for one in (-2, -1, 0, 1)]
            self.found.entries.append(Entry(number, tuple(looks), off, shorter))
        return self.found

    def _look_us(self, times: list[float], step: int) -> float:
        """When a step began; beyond both ends of what there is, at the nearest one that did."""
        return times[min(max(step, 0), len(times) - 1)]
