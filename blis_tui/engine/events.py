"""The event queue: one heap for the whole simulation, totally ordered, never comparing what an event is about.

The key is ``(time, rank, instance, priority, seq)``: at the same microsecond cluster events (rank 0) come before
instance events (rank 1), then the lower instance index, then the lower priority, then who was scheduled first. Rank,
instance and priority are packed into one integer, ``order``.
"""

from __future__ import annotations

from heapq import heapify, heappush
from typing import TYPE_CHECKING, Final

from blis_tui.engine.request import Request, RequestState

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance

# Kinds of events. Cluster events are ordered among themselves by kind.
ARRIVAL: Final = 0
ADMISSION: Final = 1
ROUTING: Final = 2
QUEUED: Final = 3
STEP: Final = 4
REQUEST_LEFT: Final = 5
TIMEOUT: Final = 6

EVENT_NAMES: Final = ("arrival", "admission", "routing", "queued", "step", "request-left", "timeout")

# Priorities of instance events at a tie. A completion beats the timeout of the same microsecond.
_PRIORITY_BITS: Final = 4
_PRIORITY: Final = {QUEUED: 1, STEP: 2, REQUEST_LEFT: 4, TIMEOUT: 5}

_SWEEP_FROM: Final = 1024

Event = tuple[int, int, int, int, "Request | Instance"]
"""``(time_us, order, seq, kind, what it is about)``."""


def instance_order(kind: int, instance: int) -> int:
    """The packed ``order`` of an instance event."""
    return (instance + 1) << _PRIORITY_BITS | _PRIORITY[kind]


class EventQueue:
    """Pending events, earliest first.

    Attributes:
        heap: a ``heapq`` of events; its first element is the next event.
        seq: the number of events ever scheduled; breaks the last ties.
    """

    __slots__ = ("_sweep_at", "heap", "seq")

    def __init__(self) -> None:
        self.heap: list[Event] = []
        self.seq = 0
        self._sweep_at = _SWEEP_FROM

    def push(self, time_us: int, order: int, kind: int, target: Request | Instance) -> None:
        """Schedule an event; ``time_us`` must not lie in the past."""
        self.seq += 1
        heappush(self.heap, (time_us, order, self.seq, kind, target))

    def sweep(self) -> None:
        """Drop timeouts of requests that have ended, once they may be most of the queue."""
        heap = self.heap
        if len(heap) < self._sweep_at:
            return
        heap[:] = [event for event in heap if not _is_dead(event)]
        heapify(heap)
        self._sweep_at = max(_SWEEP_FROM, 2 * len(heap))


def _is_dead(event: Event) -> bool:
    """Whether an event is the timeout of a request that has ended."""
    target = event[4]
    return event[3] == TIMEOUT and isinstance(target, Request) and target.state > RequestState.RUNNING
