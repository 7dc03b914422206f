"""The event queue of the whole simulation: totally ordered, without ever comparing the events themselves.

The key is ``(time, rank, instance, priority, seq)``. At the same microsecond, cluster events (rank 0) precede
instance events (rank 1); then the lower instance index wins, then the lower priority, then the event scheduled first.
Rank, instance and priority are packed into one integer, ``order``.

The next step of each instance is kept in a separate heap, so that the other heap shows how far steps alone can go.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.request import RUNNING, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from blis_tui.engine.request import Request


# The next step of an instance as an event, and what a step returns other than the time of the next one.

IDLE: Final = -1
"""Return value of a step: nothing is left to do."""
NO_STEP: Final = -2
"""Return value of a step that did not happen: no work, or none that can be done before KV blocks arrive."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Stepper(Picklable):
    """Interface that runs the steps of an instance; ``StepLoop`` implements it."""

    __slots__ = ("due_us", "index", "next_us", "order", "step_pending")

    index: int
    order: int
    step_pending: bool
    next_us: int
    due_us: int

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        raise NotImplementedError

    def step(self, now: int) -> int:
        """Run one step from ``now``; return when the next one starts, IDLE or NO_STEP."""
        raise NotImplementedError

    def advance(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """Run that step and the following ones until something else could happen in between."""
        raise NotImplementedError

    def advance_deferring(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """Do the same as ``advance``, but defer plain decodes until their results are asked for."""
        raise NotImplementedError

    def catch_up(self, bar: int) -> None:
        """Run the deferred plain decodes that start before ``bar``."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Step(Picklable):
    """The next step of an instance as an event; the main loop runs it directly (``fire`` is the slow path)."""

    __slots__ = ("instance_index", "loop")

    kind: ClassVar[str] = "step"
    request: ClassVar[None] = None

    def __init__(self, loop: Stepper) -> None:
        self.loop = loop
        self.instance_index = loop.index

    @property
    def stale(self) -> bool:
        """Whether the instance has nothing to do."""
        return not self.loop.has_work

    def fire(self, now: int) -> bool:
        """Run the step."""
        return self.loop.step(now) != NO_STEP

    def drop(self) -> None:
        """Mark that no step is pending any more."""
        self.loop.step_pending = False
        self.loop.next_us = self.loop.due_us = -1


_PRIORITY_BITS: Final = 4
_SWEEP_FROM: Final = 1024


class Event(Protocol):
    """Something that will happen, and its action."""

    @property
    def kind(self) -> str:
        """The event's name, such as ``arrival``."""

    @property
    def request(self) -> Request | None:
        """The request it concerns, if any."""

    @property
    def instance_index(self) -> int | None:
        """The instance it concerns, if any."""

    @property
    def stale(self) -> bool:
        """Whether the event would have no effect any more; once true, it stays true."""

    def fire(self, now: int) -> bool:
        """Execute the event; return False if it was stale and so did not happen."""

    def drop(self) -> None:
        """Clean up after removal as stale: it will not happen."""


_Kind = TypeVar("_Kind", bound=Event)
Entry = tuple[int, int, int, Event]
"""``(time_us, order, seq, event)``."""
StepEntry = tuple[int, int, int, Step]
"""The entry of a step; its ``seq`` is 0, as an instance has one step entry at most."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestCallback:
    """An event that calls a method with a request.

    Attributes:
        kind: its name, such as ``arrival``.
        request: the request it concerns.
        handler: called with the request and the time.
        instance_index: the instance where it happens; None = not on an instance.
    """

    __slots__ = ("handler", "instance_index", "kind", "request")

    def __init__(
        self, kind: str, request: Request, handler: Callable[[Request, int], object], instance_index: int | None = None
    ) -> None:
        self.kind = kind
        self.request = request
        self.handler = handler
        self.instance_index = instance_index

    def __reduce__(self) -> tuple[type[RequestCallback], tuple[object, ...]]:
        # Values without field names: many pending deadlines pickle three times as fast.
        return type(self), (self.kind, self.request, self.handler, self.instance_index)

    @property
    def stale(self) -> bool:
        """Return False: it never becomes stale."""
        return False

    def fire(self, now: int) -> bool:
        """Call the handler."""
        self.handler(self.request, now)
        return True

    def drop(self) -> None:
        """Do nothing: no other state depends on it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Timeout(RequestCallback):
    """The deadline of a request that waits or runs; its handler answers whether it meant anything.

    A request that comes back to an instance has another one there.
    """

    __slots__ = ()

    @property
    def stale(self) -> bool:
        """Whether the request has ended or is on another instance; a stale timeout must not move the clock."""
        request = self.request
        there = request.state is WAITING or request.state is RUNNING
        return not there or request.instance != self.instance_index

    def fire(self, now: int) -> bool:
        """Call the handler unless the event is stale; return whether it happened."""
        return not self.stale and bool(self.handler(self.request, now))


@mypyc_attr(allow_interpreted_subclasses=True)
class Revocable(Picklable):
    """An event that may be overtaken: by then it has no effect.

    Attributes:
        kind: its name.
        over: tells whether it was overtaken.
        action: called with the time unless it was.
        request: the request it concerns, if any.
        instance_index: the instance it concerns, if any.
    """

    __slots__ = ("action", "instance_index", "kind", "over", "request")

    def __init__(
        self,
        kind: str,
        over: Callable[[], bool],
        action: Callable[[int], object],
        *,
        request: Request | None = None,
        instance_index: int | None = None,
    ) -> None:
        self.kind = kind
        self.over = over
        self.action = action
        self.request = request
        self.instance_index = instance_index

    @property
    def stale(self) -> bool:
        """Whether it was overtaken."""
        return self.over()

    def fire(self, now: int) -> bool:
        """Act unless it was overtaken."""
        if self.over():
            return False
        self.action(now)
        return True

    def drop(self) -> None:
        """Do nothing: no other state depends on it."""


def instance_order(priority: int, instance: int) -> int:
    """Pack the ``order`` of an instance event; cluster events use their priority alone."""
    return (instance + 1) << _PRIORITY_BITS | priority


@mypyc_attr(allow_interpreted_subclasses=True)
class EventQueue(Picklable):
    """Pending events, earliest first.

    Attributes:
        heap: a ``heapq`` of entries: all events except those in ``steps``.
        steps: a ``heapq`` of the instances' next steps, at most one of each, so that ``seq`` breaks no tie.
        seq: the number of events ever scheduled in ``heap``; breaks the last ties.
    """

    __slots__ = ("_sweep_at", "_timeouts", "heap", "seq", "steps")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.steps: list[StepEntry] = []
        self.seq = 0
        self._timeouts = 0
        """Timeouts that were left by the latest sweep, and those scheduled since."""
        self._sweep_at = _SWEEP_FROM

    def push(self, time_us: int, order: int, event: Event) -> None:
        """Schedule an event; ``time_us`` must not lie in the past."""
        self.seq += 1
        heappush(self.heap, (time_us, order, self.seq, event))

    def push_step(self, time_us: int, order: int, step: Step) -> None:
        """Schedule the next step of an instance that has none."""
        step.loop.next_us = step.loop.due_us = time_us
        heappush(self.steps, (time_us, order, 0, step))

    def head(self) -> Entry | None:
        """Return the next event; None = there is none."""
        heap, steps = self.heap, self.steps
        if heap and steps:
            return min(heap[0], steps[0])
        return (heap or steps or (None,))[0]

    def entries(self) -> list[Entry]:
        """Return all pending entries, in no particular order."""
        return [*self.heap, *self.steps]

    def drop_stale(self) -> None:
        """Drop stale events until the next one is not stale."""
        while (head := self.head()) is not None and head[3].stale:
            if self.steps and self.steps[0][3] is head[3]:
                heappop(self.steps)
            else:
                heappop(self.heap)
            head[3].drop()

    def take_over(self, other: EventQueue, instances: Collection[int]) -> None:
        """Add the events of another queue that concern some instances, of which this queue has none."""
        self.heap += [entry for entry in other.heap if entry[3].instance_index in instances]
        self.steps += [entry for entry in other.steps if entry[3].instance_index in instances]
        heapify(self.heap)
        heapify(self.steps)

    def push_timeout(self, time_us: int, order: int, timeout: Timeout) -> None:
        """Schedule a deadline; drop all stale events once they may make up most of the queue."""
        self.push(time_us, order, timeout)
        self._timeouts += 1
        if self._timeouts < self._sweep_at:
            return
        _sweep(self.heap)
        _sweep(self.steps)
        self._timeouts = 0
        for _, _, _, event in self.heap:
            self._timeouts += type(event) is Timeout
        self._sweep_at = max(_SWEEP_FROM, 2 * self._timeouts)


def _sweep(heap: list[tuple[int, int, int, _Kind]]) -> None:
    for _, _, _, event in heap:
        if event.stale:
            event.drop()
    heap[:] = [entry for entry in heap if not entry[3].stale]
    heapify(heap)
