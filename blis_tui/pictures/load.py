"""The load of each instance over time, accumulated from records during a run."""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.cluster.records import Dispatched, GatewayTick, Held, InstanceChanged, Lost, Retried
from blis_tui.engine.records import (
    Completed,
    Dropped,
    Preempted,
    Prefilled,
    Queued,
    Scheduled,
    StepFinished,
    TimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.simulation import Simulation
    from blis_tui.spec.model import Experiment

    _AtInstance = Queued | Scheduled | Preempted | Completed | Prefilled | TimedOut | Dropped | Lost | Retried


_FEW_INSTANCES: Final = 16
_SLICES: Final = 512
_SLICES_OF_MANY: Final = 128
_GONE: Final = ("terminated", "failed")
_AT_WORK: Final = ("active", "draining", "warming-up")


class InstanceLoad(NamedTuple):
    """An instance over time: its description, and its figures in each slice."""

    instance: int
    pool: str
    kv_blocks: int
    """Number of KV blocks."""
    waiting: Sequence[Slice]
    running: Sequence[Slice]
    kv_used: Sequence[Slice]
    """KV blocks in use."""
    step_tokens: Sequence[Slice]
    """Prompt and output tokens computed per step."""


class LoadTable(NamedTuple):
    """All instances over time; slices have equal length, except for the last one."""

    slice_us: int
    instances: Sequence[InstanceLoad]
    held: Sequence[Slice] | None
    """Requests in the gateway's queue; None = there is no gateway."""
    at_work: Sequence[Slice] | None
    """Instances that can serve; None if none comes or goes."""


class _Instance:
    """An instance during the run."""

    def __init__(self, pool: str, limit: int) -> None:
        self.pool = pool
        self.waiting = Course(limit)
        self.running = Course(limit)
        self.kv_used = Course(limit)
        self.step_tokens = Slices(limit)
        self.state = "active"
        self.due: deque[tuple[int, int]] = deque()
        """KV blocks in use at the ends of unfinished steps: time and number."""

    def settle(self, now_us: int) -> None:
        """Apply the ends of steps up to now."""
        while self.due and self.due[0][0] <= now_us:
            self.kv_used.set(*self.due.popleft())


class LoadObserver:
    """Subscribes to a run and accumulates its load over time.

    Args:
        simulation: a simulation that has not begun.

    Requests count as waiting from their queue entry, and as running from their first step to their last token. KV
    blocks are counted after each step.
    """

    def __init__(self, simulation: Simulation) -> None:
        experiment: Experiment = simulation.experiment
        self._limit = _SLICES if experiment.instances <= _FEW_INSTANCES else _SLICES_OF_MANY
        self._instances: dict[int, _Instance] = {}
        self._runs: dict[tuple[str, int], bool] = {}
        """Requests at instances, and whether they run."""
        self._held = None if experiment.policy.gateway is None else Course(self._limit)
        self._at_work = Course(self._limit) if experiment.cluster.varies else None
        for pool in experiment.pools:
            for _ in range(pool.instances):
                self._instances[len(self._instances)] = _Instance(pool.name, self._limit)
        if self._at_work is not None:
            self._at_work.value = len(self._instances)
        tell: dict[type[Record], Callable[..., None]] = {
            Queued: lambda one: self._move(one, runs=False),
            Scheduled: lambda one: self._move(one, runs=True),
            Preempted: lambda one: self._move(one, runs=False),
            **dict.fromkeys((Completed, Prefilled, TimedOut, Dropped, Lost, Retried), self._leave),
            StepFinished: self._step,
            InstanceChanged: self._change,
            **dict.fromkeys((Held, Dispatched, GatewayTick), self._hold),
        }
        for kind, callback in tell.items():
            simulation.subscribe(kind, callback)

    def table(self, simulation: Simulation, end_us: int) -> LoadTable:
        """Return the load until ``end_us``; no events may follow."""
        for instance in self._instances.values():
            instance.settle(end_us)
        courses = [course for one in self._instances.values() for course in (one.waiting, one.running, one.kv_used)]
        courses += [one for one in (self._held, self._at_work) if one is not None]
        for course in courses:
            course.set(end_us, course.value)
        slices = [*(course.slices for course in courses), *(one.step_tokens for one in self._instances.values())]
        slice_us = max((one.slice_us for one in slices), default=FIRST_US)
        count = -(-end_us // slice_us)
        found = [
            InstanceLoad(
                number,
                one.pool,
                simulation.cluster.instances[number].pool.total,
                one.waiting.slices.slices(slice_us, count),
                one.running.slices.slices(slice_us, count),
                one.kv_used.slices.slices(slice_us, count),
                one.step_tokens.slices(slice_us, count),
            )
            for number, one in sorted(self._instances.items())
        ]
        held = None if self._held is None else self._held.slices.slices(slice_us, count)
        at_work = None if self._at_work is None else self._at_work.slices.slices(slice_us, count)
        return LoadTable(slice_us, found, held, at_work)

    # ---- records ----

    def _move(self, record: _AtInstance, *, runs: bool) -> None:
        where = (record.request_id, record.instance)
        self._count(record, -1)
        self._runs[where] = runs
        self._count(record, 1)

    def _leave(self, record: _AtInstance) -> None:
        self._count(record, -1)
        self._runs.pop((record.request_id, record.instance), None)

    def _count(self, record: _AtInstance, change: int) -> None:
        runs = self._runs.get((record.request_id, record.instance))
        if runs is not None:
            instance = self._instances[record.instance]
            course = instance.running if runs else instance.waiting
            course.set(record.time_us, course.value + change)

    def _step(self, record: StepFinished) -> None:
        instance = self._instances[record.instance]
        instance.settle(record.time_us)
        tokens = record.decode_requests
        for chunk in record.chunks:
            tokens += chunk.new_tokens
        instance.step_tokens.add(record.time_us, tokens)
        instance.due.append((record.time_us + record.duration_us, record.kv_used_blocks))

    def _hold(self, record: Held | Dispatched | GatewayTick) -> None:
        if self._held is not None:
            self._held.set(record.time_us, record.waiting)

    def _change(self, record: InstanceChanged) -> None:
        instance = self._instances.setdefault(record.instance, _Instance(record.pool, self._limit))
        if self._at_work is not None:
            was = record.before in _AT_WORK
            self._at_work.set(record.time_us, self._at_work.value + (record.state in _AT_WORK) - was)
        if record.state in _GONE:
            instance.due.append((record.time_us, 0))


# Figures over simulated time, accumulated in time slices for a run of unknown length.

FIRST_US: Final = 1_000
"""Initial length of slices; it doubles whenever there would be too many."""


class Slice(NamedTuple):
    """Mean and peak of a figure in a time slice."""

    mean: float
    peak: int


class Slices:
    """Integers over time: the weighted mean and the peak in equal slices, at most ``limit`` of them.

    Attributes:
        slice_us: length of a slice.
    """

    def __init__(self, limit: int) -> None:
        self.slice_us = FIRST_US
        self._limit = limit
        self._amount = array("q")
        self._weight = array("q")
        self._peak = array("q")

    def add(self, time_us: int, value: int) -> None:
        """Count a value at a moment."""
        self._count(self._reach(time_us), value, 1)

    def last(self, start_us: int, end_us: int, value: int) -> None:
        """Count a value over an interval, weighted by its duration in each slice."""
        if end_us <= start_us:
            return
        last = self._reach(end_us - 1)
        slice_us = self.slice_us
        for at in range(start_us // slice_us, last + 1):
            until_us = end_us if at == last else (at + 1) * slice_us
            self._count(at, value, until_us - start_us)
            start_us = until_us

    def _reach(self, time_us: int) -> int:
        """Return the index of the slice with a time, and create it if needed."""
        while time_us >= self._limit * self.slice_us:
            self._halve()
        at = time_us // self.slice_us
        missing = at + 1 - len(self._amount)
        if missing > 0:
            for one in (self._amount, self._weight, self._peak):
                one.extend([0] * missing)
        return at

    def _count(self, at: int, value: int, weight: int) -> None:
        self._amount[at] += value * weight
        self._weight[at] += weight
        self._peak[at] = max(self._peak[at], value)

    def slices(self, slice_us: int, count: int) -> list[Slice]:
        """Return ``count`` slices of a length that doubling the current one reaches; 0 where nothing was counted."""
        while self.slice_us < slice_us:
            self._halve()
        found = [
            Slice(amount / weight if weight else 0.0, peak)
            for amount, weight, peak in zip(self._amount, self._weight, self._peak, strict=True)
        ]
        return (found + [Slice(0.0, 0)] * count)[:count]

    def _halve(self) -> None:
        """Merge pairs of slices."""
        self.slice_us *= 2
        odd = len(self._amount) % 2
        for one in (self._amount, self._weight, self._peak):
            one.extend([0] * odd)
        self._amount = array("q", (a + b for a, b in zip(self._amount[::2], self._amount[1::2], strict=True)))
        self._weight = array("q", (a + b for a, b in zip(self._weight[::2], self._weight[1::2], strict=True)))
        self._peak = array("q", (max(a, b) for a, b in zip(self._peak[::2], self._peak[1::2], strict=True)))


class Course:
    """An integer that keeps its value until it changes, in slices."""

    def __init__(self, limit: int) -> None:
        self.slices = Slices(limit)
        self.value = 0
        self._since_us = 0

    def set(self, time_us: int, value: int) -> None:
        """Set the value from a time on."""
        self.slices.last(self._since_us, time_us, self.value)
        self._since_us = max(self._since_us, time_us)
        self.value = value
