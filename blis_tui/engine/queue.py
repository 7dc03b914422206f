"""Waiting queues in scheduling order. ``items`` is empty exactly when the queue is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from itertools import chain, islice
from operator import index, itemgetter
from typing import TYPE_CHECKING, Final, Protocol, cast

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import Picklable, is_internal_class, is_internal_object, own_attributes
from blis_tui.base.portable_math import whole_sum
from blis_tui.model.plug_ins import PlugPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from blis_tui.engine.request import Request

SortKey = tuple[int, int, str, int]
_Entry = tuple[SortKey, "Request"]

_CHUNK: Final = 512
"""Number of entries of a new chunk, which may grow to twice as many."""
_FIRST: Final = itemgetter(0)


class WaitingQueue(Protocol):
    """The requests that an instance has not scheduled yet, in scheduling order.

    Observers also call ``head``, ``ordered`` and ``first``, so these must not change anything.
    """

    @property
    def order(self) -> str:
        """The order, as a sentence without a full stop."""

    @property
    def items(self) -> Collection[object]:
        """A collection that is empty exactly when the queue is."""

    def push(self, request: Request) -> None:
        """Add a newly queued request."""

    def push_front(self, request: Request) -> None:
        """Put back a preempted request: at the head, if the order allows it."""

    def head(self) -> Request:
        """Return the next request; the queue must not be empty."""

    def remove(self, request: Request) -> None:
        """Remove a request, which must be in the queue."""

    def position(self, request: Request) -> int:
        """Number of requests ahead of ``request``, which was pushed last."""

    def ordered(self) -> list[Request]:
        """Return all waiting requests, head first."""

    def first(self, count: int | None) -> list[Request]:
        """Return the first ``count`` waiting requests; None = all."""


SCHEDULING: Final = PlugPoint[[], WaitingQueue]("policy.scheduling", "scheduler", WaitingQueue)


@mypyc_attr(allow_interpreted_subclasses=True)
class FcfsQueue(Picklable):
    """First come, first served; preempted requests return to the head."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: OrderedDict[int, Request] = OrderedDict()

    @property
    def order(self) -> str:
        """The order as a sentence."""
        return "First come, first served"

    def push(self, request: Request) -> None:
        """Add at the tail."""
        self.items[request.index] = request

    def position(self, request: Request) -> int:  # noqa: ARG002  (the protocol's signature)
        """Return the tail's position."""
        return len(self.items) - 1

    def push_front(self, request: Request) -> None:
        """Add at the head."""
        self.items[request.index] = request
        self.items.move_to_end(request.index, last=False)

    def head(self) -> Request:
        """Return the first request."""
        for request in self.items.values():  # (half the cost of next() and iter())
            return request
        raise IndexError("the queue is empty")

    def remove(self, request: Request) -> None:
        """Remove a request from anywhere in the queue."""
        del self.items[request.index]

    def ordered(self) -> list[Request]:
        """Return all waiting requests, head first."""
        return list(self.items.values())

    def first(self, count: int | None) -> list[Request]:
        """Return the first ``count`` waiting requests; None = all."""
        return list(islice(self.items.values(), count))

    def by_priority(self, sign: int) -> ByPriority:
        """Return this order within each priority; the queue must be empty."""
        return ByPriority(_alike, self.order, sign)


@mypyc_attr(allow_interpreted_subclasses=True)
class _Rank(Picklable):
    """A plug-in's sort key, whose answers are checked."""

    __slots__ = ("_rank",)

    def __init__(self, rank: Callable[[Request], int]) -> None:
        self._rank = rank

    def __call__(self, request: Request) -> int:
        """Return the plug-in's answer.

        Raises:
            SimulationError: it is not a whole number.
        """
        says: Callable[..., object] = self._rank
        answer = says(request)
        try:
            return index(cast("int", answer))
        except TypeError:
            message = f"the rank of {request.request_id} in a `SortedQueue` is {answer!r}"
            raise SimulationError(message, help="it is a whole number; the smallest goes first") from None


@mypyc_attr(allow_interpreted_subclasses=True)
class SortedQueue:
    """Served by a fixed sort key; a preempted request takes the place its key gives it.

    Ties are broken by arrival time, then by the request's name compared as text, as in BLIS (Go), or by insertion
    order, as in vLLM. The entries are kept in chunks of bounded length, so a change moves only a few hundred of them
    however many wait.

    Attributes:
        by_name: whether the last ties are broken by name.
    """

    __slots__ = ("_chunks", "_rank", "by_name", "items", "order")

    def __init__(self, rank: Callable[[Request], int], order: str, *, by_name: bool = True) -> None:
        self._rank = rank if is_internal_object(rank) else _Rank(rank)
        self.order = order
        self.by_name = by_name
        self.items: dict[int, Request] = {}
        # Sorted, none empty. Keys are unique (they end in the index), so requests themselves are never compared.
        self._chunks: list[list[_Entry]] = []

    def __getstate__(self) -> tuple[Callable[[Request], int], str, bool, list[Request], dict[str, object]]:
        # The division into chunks is left out. The order is that of the keys, even if a subclass reports another.
        return (self._rank, self.order, self.by_name, SortedQueue.first(self, None), own_attributes(self))

    def __setstate__(self, state: tuple[Callable[[Request], int], str, bool, list[Request], dict[str, object]]) -> None:
        self._rank, self.order, self.by_name, requests, own = state
        for name, value in own.items():  # ranks may depend on them
            setattr(self, name, value)
        self.items = {request.index: request for request in requests}
        entries = [(self._key(request), request) for request in requests]
        self._chunks = [entries[i : i + _CHUNK] for i in range(0, len(entries), _CHUNK)]

    def _key(self, request: Request) -> SortKey:
        name = request.request_id if self.by_name else ""
        return (self._rank(request), request.arrival_us, name, request.index)

    def push(self, request: Request) -> None:
        """Insert at the position of its key."""
        self.items[request.index] = request
        entry = (self._key(request), request)
        chunks = self._chunks
        if not chunks:
            chunks.append([entry])
            return
        place = self._place(entry)
        chunk = chunks[place]
        insort(chunk, entry)
        if len(chunk) > 2 * _CHUNK:
            chunks.insert(place + 1, chunk[_CHUNK:])
            del chunk[_CHUNK:]

    def push_front(self, request: Request) -> None:
        """Insert at the position of its key; this order has no privileged front."""
        self.push(request)

    def position(self, request: Request) -> int:
        """Number of requests ahead of a waiting request."""
        entry = (self._key(request), request)
        place = self._place(entry)
        return bisect_left(self._chunks[place], entry) + whole_sum([len(chunk) for chunk in self._chunks[:place]])

    def head(self) -> Request:
        """Return the request with the smallest key."""
        return self._chunks[0][0][1]

    def remove(self, request: Request) -> None:
        """Remove a request from anywhere in the queue."""
        if request is self._chunks[0][0][1]:  # the usual case
            self._take(0, 0)
            return
        entry = (self._key(request), request)
        place = self._place(entry)
        self._take(place, bisect_left(self._chunks[place], entry))

    def ordered(self) -> list[Request]:
        """Return all waiting requests, head first."""
        return self.first(None)

    def first(self, count: int | None) -> list[Request]:
        """Return the first ``count`` waiting requests; None = all."""
        return [request for _, request in islice(chain.from_iterable(self._chunks), count)]

    def _place(self, entry: _Entry) -> int:
        """Return the chunk in which an entry is or belongs."""
        return max(0, bisect_right(self._chunks, entry, key=_FIRST) - 1)

    def _take(self, place: int, position: int) -> None:
        chunk = self._chunks[place]
        _, request = chunk.pop(position)
        if not chunk:
            del self._chunks[place]
        del self.items[request.index]

    def by_turn(self) -> ByTurn:
        """Return this order with ties broken by turn; the queue must be empty.

        Not called for a class that overrides the order.
        """
        return ByTurn(self._rank, self.order)

    def by_priority(self, sign: int) -> ByPriority:
        """Return this order within each priority; the queue must be empty."""
        return ByPriority(self._rank, self.order, sign)


@mypyc_attr(allow_interpreted_subclasses=True)
class ByTurn(SortedQueue):
    """Served by a fixed sort key, then by insertion order: a request that is put back comes after its equals."""

    __slots__ = ("_turn", "_turns")

    def __init__(self, rank: Callable[[Request], int], order: str) -> None:
        super().__init__(rank, order, by_name=False)
        self._turn = 0
        self._turns: dict[int, int] = {}

    def __getstate__(self) -> tuple[Callable[[Request], int], str, int, dict[int, int], list[Request]]:  # type: ignore[override]
        return (self._rank, self.order, self._turn, self._turns, SortedQueue.first(self, None))

    def __setstate__(  # type: ignore[override]
        self, state: tuple[Callable[[Request], int], str, int, dict[int, int], list[Request]]
    ) -> None:
        rank, order, self._turn, self._turns, requests = state
        super().__setstate__((rank, order, False, requests, {}))

    def _key(self, request: Request) -> SortKey:
        return (self._rank(request), self._turns[request.index], "", request.index)

    def push(self, request: Request) -> None:
        """Insert behind all requests with the same key."""
        self._turn += 1
        self._turns[request.index] = self._turn
        super().push(request)

    def remove(self, request: Request) -> None:
        """Remove a request from anywhere in the queue."""
        super().remove(request)
        del self._turns[request.index]

    def turn(self, request: Request) -> int:
        """Return the insertion number of a waiting request, which increases with each insertion."""
        return self._turns[request.index]


@mypyc_attr(allow_interpreted_subclasses=True)
class ByPriority(ByTurn):
    """Served by priority, then by a fixed sort key, then by insertion order.

    Args:
        rank: the sort key.
        order: its order, as a sentence without its full stop.
        sign: 1: the smallest priority goes first; -1: the largest.
    """

    __slots__ = ("_sign",)

    def __init__(self, rank: Callable[[Request], int], order: str, sign: int) -> None:
        super().__init__(rank, f"By priority; of equals: {order[:1].lower()}{order[1:]}")
        self._sign = sign

    def __getstate__(self) -> tuple[Callable[[Request], int], str, int, dict[int, int], list[Request], int]:  # type: ignore[override]
        return (*super().__getstate__(), self._sign)

    def __setstate__(  # type: ignore[override]
        self, state: tuple[Callable[[Request], int], str, int, dict[int, int], list[Request], int]
    ) -> None:
        self._sign = state[-1]
        super().__setstate__(state[:-1])

    def _key(self, request: Request) -> SortKey:
        return (self._sign * request.priority, self._rank(request), "", self._turns[request.index])


_ORDER_METHODS: Final = ("push", "push_front", "head", "remove", "position", "ordered", "first")


def overrides_order(queue: SortedQueue) -> bool:
    """Whether a plug-in's class overrides the order, so that another queue with the same rank would differ."""
    base = next(kind for kind in type(queue).__mro__ if is_internal_class(kind))
    return any(getattr(type(queue), name) is not getattr(base, name) for name in _ORDER_METHODS)


def _alike(request: Request) -> int:  # noqa: ARG001  (a rank's signature)
    return 0
