"""Rules that choose which request a full KV cache preempts.

Each rule spares one request until no other is left, and that request continues until it ends. Therefore a full KV cache
never stops an instance (``docs/semantics.md``, "Progress").
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import NamedTuple
from blis_tui.model.plug_ins import PlugPoint

if TYPE_CHECKING:
    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.request import Request
    from blis_tui.model.plug_ins import NoSettings


class VictimRule(Protocol):
    """Chooses which request to preempt."""

    rule: str
    """Which request it chooses, such as "the youngest running request"."""
    serves_behind_preempted: bool
    """Whether requests behind one that preempts itself still get their tokens."""

    def choose(self, seats: Seats) -> Request:
        """Return the next victim: a request that runs, or waits for its last token.

        It is called once per victim, so a rule that walks the batch takes time in proportion to the running requests.
        """


VICTIM: Final = PlugPoint[[], VictimRule]("policy.preemption.victim", "preemption victim", VictimRule)


@VICTIM.plugin("tail", "The youngest running request.")
class Tail:
    """Chooses the request that was scheduled last."""

    rule = "the youngest running request (the one scheduled last)"
    serves_behind_preempted = False

    def __init__(self, settings: NoSettings) -> None:
        """Take the settings, of which there are none."""

    def choose(self, seats: Seats) -> Request:
        """Return the last request in the batch."""
        if not seats.running:
            return max(seats.finishing.values(), key=_slot)
        youngest = next(reversed(seats.running.values()))
        return max((youngest, *seats.finishing.values()), key=_slot) if seats.finishing else youngest


@VICTIM.plugin("priority", "The least urgent running request, then the youngest.")
class LeastUrgent:
    """Chooses by priority, then the latest arrival.

    With other ties, two requests could take each other's blocks for ever.
    """

    rule = "the least urgent running request (the youngest of equals)"
    serves_behind_preempted = False

    def __init__(self, settings: NoSettings) -> None:  # noqa: ARG002  (there are none)
        self._index: UrgencyHeap | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_index": None}

    def choose(self, seats: Seats) -> Request:
        """Return the request with the largest (priority, arrival)."""
        if not seats.running:
            return max(seats.finishing.values(), key=_urgency)
        index = self._index
        if index is None or not index.fits(seats):
            index = self._index = UrgencyHeap(seats)
        least_urgent = index.largest()
        return max((least_urgent, *seats.finishing.values()), key=_urgency) if seats.finishing else least_urgent


@VICTIM.plugin("cheapest-recompute", "The running request with the least to recompute, the younger the sooner.")
class CheapestRecompute:
    """Chooses by the tokens to recompute, multiplied by the number of younger requests in the batch plus two.

    Blocks that others hold, too, need not be recomputed; a request whose last token is being computed loses nothing.
    Without the weight, old requests with short prompts would be chosen again and again, and lose what they have just
    regained. The oldest request is spared until it is alone, so one request always continues.
    """

    rule = "the running request with the least to recompute, weighted by its seniority (the oldest one is spared)"
    serves_behind_preempted = True

    def __init__(self, settings: NoSettings) -> None:  # noqa: ARG002  (there are none)
        self._index: RecomputeIndex | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_index": None}

    def choose(self, seats: Seats) -> Request:
        """Return the request with the least (tokens to recompute x (younger ones + 2)); among equals the youngest."""
        if seats.finishing:
            return max(seats.finishing.values(), key=_slot)
        if seats.stalled or not seats.cohort.lockstep:
            return _cheapest(seats)
        index = self._index
        if index is None or not index.fits(seats):
            index = self._index = RecomputeIndex(seats)
        return index.cheapest(seats)


def _cheapest(seats: Seats) -> Request:
    """Search the whole batch, because some member does not advance with the others."""
    context_tokens, pool = seats.cohort.context_tokens, seats.pool
    youngest_first = [*reversed(seats.running.values())]
    victim, least = youngest_first[0], -1
    for younger, request in enumerate(youngest_first[:-1]):
        kept = pool.shared_prefix_blocks(request) * pool.block_size_tokens
        weight = (context_tokens(request) - kept) * (younger + 2)
        if least < 0 or weight < least:
            victim, least = request, weight
    return victim


def _slot(request: Request) -> int:
    return request.batch_slot


def _urgency(request: Request) -> tuple[int, int, int]:
    return (request.priority, request.arrival_us, request.index)


# Indices that spare victim rules a search of the whole batch.
#
# They decide nothing: an index answers as a search of the batch would. It updates itself from the batch when it is
# asked (batch slots only grow, so a later request has a larger one than all before), so a run that is never short of KV
# blocks pays nothing for it. Checkpoints leave it out; it is rebuilt when needed.

_SPARE: Final = 64
"""Entries of departed requests that an index may keep in any case."""
_YOUNGEST: Final = 8
"""Number of youngest requests that are always examined one by one."""


class UrgencyHeap:
    """The running requests by (priority, arrival, index), which do not change while a request runs."""

    def __init__(self, seats: Seats) -> None:
        self._running = seats.running
        self._heap: list[tuple[int, int, int, int]] = []
        self._seen = -1

    def fits(self, seats: Seats) -> bool:
        """Whether it is an index of this batch."""
        return self._running is seats.running

    def largest(self) -> Request:
        """Return the running request with the largest key; there must be one."""
        running, heap = self._running, self._heap
        if next(reversed(running)) != self._seen:
            self._catch_up()
        while -heap[0][3] not in running:
            heappop(heap)
        return running[-heap[0][3]]

    def _catch_up(self) -> None:
        """Add new requests, and remove departed ones if there are too many."""
        running, heap, seen = self._running, self._heap, self._seen
        self._seen = next(reversed(running))
        for slot, request in reversed(running.items()):
            if slot <= seen:
                break
            heappush(heap, (-request.priority, -request.arrival_us, -request.index, -slot))
        if len(heap) > 2 * len(running) + _SPARE:
            heap[:] = [entry for entry in heap if -entry[3] in running]
            heapify(heap)


class _Group(NamedTuple):
    """Adjacent requests in the batch, all of which decode."""

    last_slot: int
    """Slot of the youngest."""
    floor: int
    """Lower bound on each member's tokens to recompute minus the cohort's clock."""
    members: int
    """Number of members when the group was created; some may have left."""


class RecomputeIndex:
    """Finds the least (tokens to recompute) x (younger ones + 2) without examining all requests.

    All decodes gain a token with each advance of the cohort, so each one's tokens minus the cohort's clock stay
    constant. Only findable blocks can be shared with others. A group of decodes therefore has a lower bound on its
    tokens, and at least as many younger requests as come after it. The youngest requests are examined one by one, and
    groups only if these bounds do not rule them out. Groups get larger towards the front of the batch, as the weights
    do.

    A stalled request falls behind the clock, which invalidates all bounds (``Seats.stalls``).
    """

    def __init__(self, seats: Seats) -> None:
        self._running = seats.running
        self._stalls = seats.stalls
        self._groups: list[_Group] = []  # the oldest first; requests younger than the last group are in none
        self._grouped = 0

    def fits(self, seats: Seats) -> bool:
        """Whether it is an index of this batch, and no request has stalled since it was created."""
        return self._running is seats.running and self._stalls == seats.stalls

    def cheapest(self, seats: Seats) -> Request:
        """Return the cheapest request, among equals the youngest; the oldest only if alone. None may be stalled."""
        pool, clock, groups = seats.pool, seats.cohort.clock, self._groups
        size = pool.block_size_tokens
        running = self._running
        last = len(running) - 1
        border = groups[-1].last_slot if groups else -1
        walked: list[Request] = []
        victim, least = next(reversed(running.values())), -1
        for younger, (slot, request) in enumerate(reversed(running.items())):
            if slot <= border:
                if self._settled(younger, least, clock):
                    break
                border = self._dissolve_youngest()
            walked.append(request)
            if younger == last:
                break
            joined = request.joined_clock
            tokens = request.computed_tokens
            if joined >= 0:
                tokens += clock - joined
            if request.pieces:
                tokens -= pool.shared_prefix_blocks(request) * size
            weight = tokens * (younger + 2)
            if weight < least or least < 0:
                victim, least = request, weight
        if len(walked) >= 2 * _YOUNGEST:
            self._group(walked, size)
        return victim

    def _settled(self, younger: int, least: int, clock: int) -> bool:
        """Whether no grouped request can cost less than ``least``, the minimum over all ``younger`` ungrouped ones."""
        gone = self._grouped + younger - len(self._running)
        if least < 0 or gone > _SPARE + len(self._running) // 4:
            return False
        factor = younger + 2
        for _, floor, count in reversed(self._groups):
            if factor * (floor + clock) < least:
                return False
            if count > gone:
                factor += count - gone
                gone = 0
            else:
                gone -= count
        return True

    def _dissolve_youngest(self) -> int:
        """Dissolve the youngest group; return the last slot of the remaining groups."""
        groups = self._groups
        self._grouped -= groups.pop().members
        return groups[-1].last_slot if groups else -1

    def _group(self, walked: list[Request], size: int) -> None:
        """Group the ungrouped requests (given youngest first) except for the youngest few."""
        groups = self._groups
        floor = count = 0
        for request in reversed(walked[_YOUNGEST:]):
            if request.joined_clock < 0:
                break  # its tokens may stay the same while the clock advances
            own = request.computed_tokens - request.joined_clock - request.shared_blocks * size
            floor = min(floor, own) if count else own
            count += 1
            if count == _YOUNGEST:
                groups.append(_Group(request.batch_slot, floor, count))
                self._grouped += count
                count = 0
        self._merge_groups()

    def _merge_groups(self) -> None:
        """Merge two groups if together they are at most twice as large as the number of younger requests."""
        groups = self._groups
        behind = _YOUNGEST
        for at in range(len(groups) - 1, 0, -1):
            older, younger = groups[at - 1 : at + 1]
            both = older.members + younger.members
            if both <= 2 * behind:
                groups[at - 1 : at + 1] = [_Group(younger.last_slot, min(older.floor, younger.floor), both)]
            else:
                behind += younger.members


# What victim rules see of a batch.


class Seats(Protocol):
    """The holders of KV blocks, as victim rules see them."""

    running: dict[int, Request]
    """Batch slot -> request, in the order of admission; it may be empty while ``finishing`` is not."""
    finishing: dict[int, Request]
    """Requests whose last token is being computed; they hold their blocks until then."""
    stalled: dict[int, Request]
    """Decoding requests of ``running`` that do not advance with the cohort."""
    stalls: int
    """How often decodes have left the cohort's lock-step."""
    cohort: DecodeCohort
    """The other decoding requests."""
    pool: BlockPool
