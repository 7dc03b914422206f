"""A measured load, simulated in step with its measurements.

A simulation left to itself drifts from the server: a request that joins a step earlier or later meets other requests,
and after a while no step is the server's. So the simulation is corrected as it goes: whenever a request gets its first
or last token, the server's clock at the end of that step was measured, and the next step lasts longer or shorter to
meet it. How much of a difference is believed is a matter of how exact measurements and step times are (a Kalman filter
of one number, how far the simulated clock is behind). What comes out is which requests shared each step on the server,
whatever the coefficients are, as long as steps last about as long as they should.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from blis_tui.calibration.replay import with_load
from blis_tui.engine.records import Queued, Scheduled, StepFinished
from blis_tui.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.fitting.clock import Noise
    from blis_tui.calibration.measured import Measured, Recording
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Experiment

FIRST: Final = 0
LAST: Final = 1
_CLIP: Final = 3.0
"""Differences beyond so many standard deviations are believed no more than that, and doubt about the clock grows."""
_DOUBT_US: Final = 1000.0
"""However exact measurements are, coefficients are not there yet: how much a pause's end is doubted at least,"""
_DOUBT: Final = 0.01
"""and a step's duration, as a share of it."""
_OTHER_STEP: Final = 0.5
"""A first token that differs by more than this share of a step was the end of another one,"""
_SURE: Final = 4.0
"""unless measurements are as inexact as that: a difference of so many standard deviations."""


@dataclass(frozen=True, slots=True)
class Token:
    """A first or last token of a request: the measured end of a step."""

    kind: int
    request: int
    step: int
    measured_us: float
    """When its client had it."""
    late_us: float
    """How much later than in the simulation that was."""
    elsewhere: bool
    """Whether it cannot have been the end of this step."""
    shorter_us: int
    """The shorter one of this step and the one before it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Between which two looks at the queue a request came to stand in it, on the server's clock."""

    request: int
    after_us: float
    until_us: float


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
    """A step-time model whose next step is corrected, and whose requests enter the queue when they are told to."""

    __slots__ = ("due_us", "model", "numbers", "output_token_overhead_us", "post_decode_overhead_us", "shifts_us")

    def __init__(self, model: StepTimeModel, shifts_us: Sequence[float]) -> None:
        self.model = model
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us
        self.shifts_us = shifts_us
        self.due_us = 0.0
        self.numbers: dict[str, int] = {}

    def step_time_us(self, load: StepLoad) -> int:
        """What the other model says, and what the clock is behind."""
        duration = self.model.step_time_us(load)
        return max(1, duration // 4, round(duration + self.due_us))

    def queueing_time_us(self, request: Request) -> int:
        """What the other model says, moved."""
        self.numbers[request.request_id] = request.index
        return max(0, self.model.queueing_time_us(request) + round(self.shifts_us[request.index]))


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

    def believe(self, late_us: float, error: float) -> float:
        """What of a difference is the clock's; ``error``: of the measurement, a variance."""
        total = self.doubt + error
        limit = _CLIP * sqrt(total)
        share = self.doubt / total
        if abs(late_us) > limit:
            self.doubt += total
            late_us = limit if late_us > 0.0 else -limit
        else:
            self.doubt *= 1.0 - share
        return share * late_us


def follow(
    experiment: Experiment,
    recording: Recording,
    noise: Noise | None,
    shifts_us: Sequence[float],
    *,
    repeated: bool = False,
) -> Followed:
    """Simulate a measured load in step with its measurements.

    Args:
        experiment: with the step-time model to follow with.
        recording: the measured load.
        noise: how exact step times and measurements are; None = let it run by itself.
        shifts_us: of each request, how much later than the model says it enters the queue.
        repeated: prompts of one length are one prompt, found in the cache.
    """
    with TemporaryDirectory() as folder:
        loaded = with_load(experiment, recording, Path(folder), repeated=repeated)
        simulation = Simulation(loaded, check="off")
    (instance,) = simulation.cluster.instances
    led = instance.latency = _Led(instance.latency, shifts_us)
    follower = _Follower(recording.requests, led, noise)
    simulation.subscribe(Queued, follower.queued)
    simulation.subscribe(StepFinished, follower.step)
    simulation.subscribe(Scheduled, follower.scheduled)
    simulation.run()
    return follower.finish()


class _Follower:
    """Listens to what the simulation does, notes what was measured of it, and corrects the next step."""

    def __init__(self, requests: Sequence[Measured], led: _Led, noise: Noise | None) -> None:
        self.found = Followed()
        self._requests = requests
        self._led = led
        self._clock = None if noise is None else _Clock(noise)
        self._starts = (-1, -1)
        """Of the last two steps."""
        self._end = -1
        self._duration = 1 << 60
        self._entries: dict[int, tuple[int, int]] = {}
        self._looks: list[tuple[int, int, int, float]] = []
        self._behind: list[float | None] = []
        """Of each step with something measured, how far the clock was behind at its end."""
        self._elsewhere: set[int] = set()
        self._left: set[int] = set()
        """Who has left the queue once."""

    def queued(self, record: Queued) -> None:
        """Note when a request came to stand in the queue."""
        self.found.queued_us.setdefault(self._led.numbers[record.request_id], record.time_us)

    def scheduled(self, record: Scheduled) -> None:
        """Note between which two looks at the queue it had come, unless it was left there by one, or ended a pause."""
        number, now = self._led.numbers[record.request_id], record.time_us
        came = self.found.queued_us[number]
        before = self._starts[1] if self._starts[1] < now else self._starts[0]
        if number not in self._left and now <= self._end and 0 <= before < came <= now:
            self._entries[number] = (before, now)
        self._left.add(number)

    def step(self, record: StepFinished) -> None:
        """Compare the end of a step with what was measured of it."""
        begin, end = record.time_us, record.time_us + record.duration_us
        names, led, clock = self._led.numbers, self._led, self._clock
        head = names[record.admitted[0]] if begin > self._end and record.admitted else -1
        if clock is not None:
            if begin > self._end:
                clock.begin()
            clock.tick(record.duration_us)
        self.found.steps.append(record)
        self.found.heads.append(head)
        first = [(FIRST, names[name]) for name in record.first_tokens]
        last = [(LAST, names[name]) for name in record.completed]
        behind = 0.0
        shorter = min(record.duration_us, self._duration)
        self._duration = record.duration_us
        for kind, number in first + [one for one in last if self._requests[one[1]].output_tokens > 1]:
            request = self._requests[number]
            lasted = request.ttft_us if kind == FIRST else request.e2e_us
            measured = request.arrival_us + lasted
            late = measured - end - self._overhead_us(kind, request)
            elsewhere = False
            if clock is not None:
                error = clock.noise.of_token(kind, request)
                limit = max(_OTHER_STEP * shorter, _SURE * sqrt(clock.doubt + error))
                elsewhere = number in self._elsewhere or abs(late - behind) > limit
                if elsewhere:
                    self._elsewhere.add(number)
                if not elsewhere:
                    behind += clock.believe(late - behind, error)
            self.found.tokens.append(Token(kind, number, len(self.found.steps) - 1, measured, late, elsewhere, shorter))
            if kind == FIRST and number in self._entries:
                after, until = self._entries.pop(number)
                other = late - behind if elsewhere else 0.0
                if abs(other) < 1.5 * shorter:
                    self._looks.append((number, after, until, other))
        led.due_us = behind
        self._behind.append(behind if first or last else None)
        self._starts, self._end = (self._starts[1], begin), end

    def finish(self) -> Followed:
        """Put the looks at the queue on the server's clock, as far as it is known before and after each."""
        starts = {one.time_us: number for number, one in enumerate(self.found.steps)}
        behind = self._behind
        late: list[float] = [0.0] * len(behind)
        """Of the start of each step."""
        coming, at = 0.0, len(behind)
        for number in range(len(behind) - 1, -1, -1):
            value = behind[number]
            if value is not None:
                coming, at = value, number
            late[number] = coming
            begins = self.found.heads[number] >= 0
            if not begins and number and (before := behind[number - 1]) is not None:
                late[number] = before
            elif not begins and number:
                late[number] = coming
        del at
        for number, after, until, other in self._looks:
            moved = [one + other + (late[starts[one]] if one in starts else 0.0) for one in (after, until)]
            self.found.entries.append(Entry(number, moved[0], moved[1]))
        return self.found

    def _overhead_us(self, kind: int, request: Measured) -> int:
        led = self._led
        if kind == FIRST:
            return led.output_token_overhead_us
        return request.output_tokens * led.output_token_overhead_us + led.post_decode_overhead_us
