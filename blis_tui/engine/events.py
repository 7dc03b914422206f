"""The event queue of the whole simulation, totally ordered, never comparing the events themselves.

The key is ``(time, rank, instance, priority, seq)``: at the same microsecond cluster events (rank 0) come before
instance events (rank 1), then the lower instance index, then the lower priority, then who was scheduled first. Rank,
instance and priority are packed into one integer, ``order``.

The next step of each instance stands in a heap of its own: the other one tells how far it gets by steps alone.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

from blis_tui.classes import mypyc_attr
from blis_tui.engine.request import RequestState
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.request import Request


# The next step of an instance as an event, and what a step answers beside the time of the next one.

IDLE: Final = -1
"""A step's answer: nothing is left to do."""
NO_STEP: Final = -2
"""A step's answer: there was nothing to do, or nothing can be done before KV blocks arrive; it did not happen."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Stepper(Kept):
    """What takes the steps of an instance; what they are is said at ``Flow``."""

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
        """Run one step from ``now``; returns when the next one starts, IDLE or NO_STEP."""
        raise NotImplementedError

    def advance(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """Run that step, and those after it as far as nothing can come between."""
        raise NotImplementedError

    def advance_deferring(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """The same, where plain decodes wait until their results are asked for."""
        raise NotImplementedError

    def catch_up(self, bar: int) -> None:
        """Take the deferred plain decodes that start before ``bar``."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Step(Kept):
    """The next step of an instance; the event loop runs it itself (``happen`` is the slow way)."""

    __slots__ = ("flow", "instance_index")

    kind: ClassVar[str] = "step"
    request: ClassVar[None] = None

    def __init__(self, flow: Stepper) -> None:
        self.flow = flow
        self.instance_index = flow.index

    @property
    def stale(self) -> bool:
        """Whether the instance has nothing to do."""
        return not self.flow.has_work

    def happen(self, now: int) -> bool:
        """Run the step."""
        return self.flow.step(now) != NO_STEP

    def drop(self) -> None:
        """No step is pending any more."""
        self.flow.step_pending = False
        self.flow.next_us = self.flow.due_us = -1


_PRIORITY_BITS: Final = 4
_SWEEP_FROM: Final = 1024


class Event(Protocol):
    """Something that will happen, and what it will do."""

    @property
    def kind(self) -> str:
        """What it is called, such as ``arrival``."""

    @property
    def request(self) -> Request | None:
        """The request it is about, if it is about one."""

    @property
    def instance_index(self) -> int | None:
        """The instance it is about, if it is about one."""

    @property
    def stale(self) -> bool:
        """Whether nothing would come of it any more; once true, it stays so."""

    def happen(self, now: int) -> bool:
        """Do it; returns False where it was stale, and so did not happen."""

    def drop(self) -> None:
        """It will not happen: it was found to be stale."""


_Kind = TypeVar("_Kind", bound=Event)
Entry = tuple[int, int, int, Event]
"""``(time_us, order, seq, event)``."""
StepEntry = tuple[int, int, int, Step]
"""The same of a step, where ``seq`` is 0: an instance has one at most."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestCallback:
    """Something happens to a request: it carries the method that will do it.

    Attributes:
        kind: what it is called, such as ``arrival``.
        request: whom it happens to.
        handler: called with the request and the time.
        instance_index: where it happens; None = not on an instance.
    """

    __slots__ = ("handler", "instance_index", "kind", "request")

    def __init__(
        self, kind: str, request: Request, handler: Callable[[Request, int], None], instance_index: int | None = None
    ) -> None:
        self.kind = kind
        self.request = request
        self.handler = handler
        self.instance_index = instance_index

    def __reduce__(self) -> tuple[type[RequestCallback], tuple[object, ...]]:
        # Values without their names: many waiting deadlines pickle three times as fast.
        return type(self), (self.kind, self.request, self.handler, self.instance_index)

    @property
    def stale(self) -> bool:
        """Never."""
        return False

    def happen(self, now: int) -> bool:
        """Call the handler."""
        self.handler(self.request, now)
        return True

    def drop(self) -> None:
        """Nothing depends on it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Timeout(RequestCallback):
    """The deadline of a request that waits or runs."""

    __slots__ = ()

    @property
    def stale(self) -> bool:
        """Whether it comes too late, or its request is on another instance; then it must not move the clock."""
        request = self.request
        there = request.state is RequestState.WAITING or request.state is RequestState.RUNNING
        return not there or request.instance != self.instance_index

    def happen(self, now: int) -> bool:
        """Call the handler, if it is not too late."""
        if self.stale:
            return False
        self.handler(self.request, now)
        return True


def instance_order(priority: int, instance: int) -> int:
    """The packed ``order`` of an instance event; cluster events have their priority alone."""
    return (instance + 1) << _PRIORITY_BITS | priority


@mypyc_attr(allow_interpreted_subclasses=True)
class EventQueue(Kept):
    """Pending events, earliest first.

    Attributes:
        heap: a ``heapq`` of entries: all events but those of ``steps``.
        steps: a ``heapq`` of the instances' next steps, one of each at most, so that their ``seq`` has no tie to break.
        seq: the number of events ever scheduled in ``heap``; breaks the last ties.
    """

    __slots__ = ("_sweep_at", "heap", "seq", "steps")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.steps: list[StepEntry] = []
        self.seq = 0
        self._sweep_at = _SWEEP_FROM

    def push(self, time_us: int, order: int, event: Event) -> None:
        """Schedule an event; ``time_us`` must not lie in the past."""
        self.seq += 1
        heappush(self.heap, (time_us, order, self.seq, event))

    def push_step(self, time_us: int, order: int, step: Step) -> None:
        """Schedule the next step of an instance that has none."""
        step.flow.next_us = step.flow.due_us = time_us
        heappush(self.steps, (time_us, order, 0, step))

    def head(self) -> Entry | None:
        """The next event; None where there is none."""
        heap, steps = self.heap, self.steps
        if heap and steps:
            return min(heap[0], steps[0])
        return (heap or steps or (None,))[0]

    def entries(self) -> list[Entry]:
        """All that is pending, in no order."""
        return [*self.heap, *self.steps]

    def drop_stale(self) -> None:
        """Let the next event be one of which something will come."""
        while (head := self.head()) is not None and head[3].stale:
            if self.steps and self.steps[0][3] is head[3]:
                heappop(self.steps)
            else:
                heappop(self.heap)
            head[3].drop()

    def sweep(self) -> None:
        """Drop stale events, once they may be most of the queue."""
        if len(self.heap) + len(self.steps) < self._sweep_at:
            return
        _sweep(self.heap)
        _sweep(self.steps)
        self._sweep_at = max(_SWEEP_FROM, 2 * (len(self.heap) + len(self.steps)))


def _sweep(heap: list[tuple[int, int, int, _Kind]]) -> None:
    for _, _, _, event in heap:
        if event.stale:
            event.drop()
    heap[:] = [entry for entry in heap if not entry[3].stale]
    heapify(heap)
