"""Waiting queues: who is at the head. ``items`` is empty exactly when the queue is."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Plug

SortKey = tuple[int, int, str, int]


class WaitingQueue(Protocol):
    """The requests an instance has not scheduled yet, in the order in which it will."""

    @property
    def items(self) -> Collection[object]:
        """Something that is true exactly when somebody waits."""

    def push(self, request: Request) -> int:
        """Add a newly queued request; returns its position."""

    def push_front(self, request: Request) -> None:
        """Put back a preempted request: first in line, where the order allows it."""

    def head(self) -> Request:
        """Who is next; somebody must be waiting."""

    def pop(self) -> Request:
        """Take out the head."""

    def remove(self, request: Request) -> None:
        """Take out a request from anywhere; it must be there."""

    def ordered(self) -> list[Request]:
        """Everybody who waits, head first."""

    def first(self, count: int | None) -> list[Request]:
        """The first ``count`` of them; None = all."""


class FcfsQueue:
    """First come, first served; preempted requests come back to the head."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: OrderedDict[int, Request] = OrderedDict()

    def push(self, request: Request) -> int:
        """Add at the tail."""
        self.items[request.index] = request
        return len(self.items) - 1

    def push_front(self, request: Request) -> None:
        """Add at the head."""
        self.items[request.index] = request
        self.items.move_to_end(request.index, last=False)

    def head(self) -> Request:
        """The first in line."""
        return next(iter(self.items.values()))

    def pop(self) -> Request:
        """Take out the first in line."""
        return self.items.popitem(last=False)[1]

    def remove(self, request: Request) -> None:
        """Take out a request from anywhere."""
        del self.items[request.index]

    def ordered(self) -> list[Request]:
        """Everybody who waits, head first."""
        return list(self.items.values())

    def first(self, count: int | None) -> list[Request]:
        """The first ``count`` of them; None = all."""
        return list(islice(self.items.values(), count))


def _by_priority(request: Request) -> SortKey:
    return (request.priority, request.arrival_us, request.request_id, request.index)


def _by_reversed_priority(request: Request) -> SortKey:
    return (-request.priority, request.arrival_us, request.request_id, request.index)


def _by_length(request: Request) -> SortKey:
    return (request.input_tokens, request.arrival_us, request.request_id, request.index)


class SortedQueue:
    """Served by a fixed sort key; a preempted request takes the place its key gives it.

    Equal keys fall back to arrival time, then to the request's name compared as text, as in BLIS (Go).
    """

    __slots__ = ("_key", "items")

    def __init__(self, key: Callable[[Request], SortKey]) -> None:
        self._key = key
        # Keys are unique (they end in the index), so requests themselves are never compared.
        self.items: list[tuple[SortKey, Request]] = []

    def push(self, request: Request) -> int:
        """Add where the key says."""
        entry = (self._key(request), request)
        position = bisect_left(self.items, entry)
        self.items.insert(position, entry)
        return position

    def push_front(self, request: Request) -> None:
        """Add where the key says; the order has no privileged front."""
        self.push(request)

    def head(self) -> Request:
        """The entry with the smallest key."""
        return self.items[0][1]

    def pop(self) -> Request:
        """Take out the entry with the smallest key."""
        return self.items.pop(0)[1]

    def remove(self, request: Request) -> None:
        """Take out a request from anywhere."""
        del self.items[bisect_left(self.items, (self._key(request), request))]

    def ordered(self) -> list[Request]:
        """Everybody who waits, head first."""
        return [request for _, request in self.items]

    def first(self, count: int | None) -> list[Request]:
        """The first ``count`` of them; None = all."""
        return [request for _, request in self.items[:count]]


SCHEDULERS: Final[dict[str, Callable[[Request], SortKey] | None]] = {
    "fcfs": None,
    "priority-fcfs": _by_priority,
    "sjf": _by_length,
    "reverse-priority": _by_reversed_priority,
}


def create_queue(plug: Plug) -> WaitingQueue:
    """The waiting queue of the scheduler of that name. Raises PolicyError when there is none."""
    try:
        key = SCHEDULERS[plug.kind]
    except KeyError:
        raise PolicyError(f"no scheduler `{plug.kind}`", help=f"known: {', '.join(SCHEDULERS)}") from None
    return FcfsQueue() if key is None else SortedQueue(key)
