"""Whom a full KV cache preempts.

Each rule spares one request until no other is left, and that one goes on until it ends: this is why a full KV cache
never stops an instance (``docs/semantics.md``, "Progress").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.engine.preemption.indexes import RecomputeIndex, UrgencyHeap
from blis_tui.registry import PlugPoint

if TYPE_CHECKING:
    from blis_tui.engine.preemption.seats import Seats
    from blis_tui.engine.request import Request
    from blis_tui.registry import NoSettings


class VictimRule(Protocol):
    """Chooses victims."""

    rule: str
    """Whom it chooses, such as "the youngest running request"."""
    serves_on: bool
    """Whether those behind a request that is its own victim get their tokens all the same."""

    def choose(self, seats: Seats) -> Request:
        """Who has to go next; a request runs, or waits for its last token.

        It is asked once for each victim: a rule that walks the batch costs in proportion to the running requests.
        """


VICTIM: Final = PlugPoint[[], VictimRule]("policy.preemption.victim", "preemption victim", VictimRule)


@VICTIM.plugin("tail", "The youngest running request.")
class Tail:
    """The one that was scheduled last."""

    rule = "the youngest running request (the one scheduled last)"
    serves_on = False

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def choose(self, seats: Seats) -> Request:
        """The last one in the batch."""
        if not seats.running:
            return max(seats.ending.values(), key=_slot)
        youngest = next(reversed(seats.running.values()))
        return max((youngest, *seats.ending.values()), key=_slot) if seats.ending else youngest


@VICTIM.plugin("priority", "The least urgent running request, then the youngest.")
class LeastUrgent:
    """By priority; of equals the latest to come: if another went, they could take each other's blocks for ever."""

    rule = "the least urgent running request (the youngest of equals)"
    serves_on = False

    def __init__(self, settings: NoSettings) -> None:
        del settings
        self._index: UrgencyHeap | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_index": None}

    def choose(self, seats: Seats) -> Request:
        """The largest (priority, arrival)."""
        if not seats.running:
            return max(seats.ending.values(), key=_urgency)
        index = self._index
        if index is None or not index.fits(seats):
            index = self._index = UrgencyHeap(seats)
        least_urgent = index.largest()
        return max((least_urgent, *seats.ending.values()), key=_urgency) if seats.ending else least_urgent


@VICTIM.plugin("cheapest-recompute", "The running request with the least to recompute, the younger the sooner.")
class CheapestRecompute:
    """By the tokens that it would have to compute again, times two more than there are younger ones in the batch.

    Blocks that others hold, too, need not be computed again; whose last token is being computed loses nothing. Without
    the weight, old requests with short prompts are picked again and again, and lose what they have just won back. The
    oldest one is spared until it is alone, so one request always goes on.
    """

    rule = "the running request with the least to recompute, weighted by its seniority (the oldest one is spared)"
    serves_on = True

    def __init__(self, settings: NoSettings) -> None:
        del settings
        self._index: RecomputeIndex | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_index": None}

    def choose(self, seats: Seats) -> Request:
        """The least (tokens to recompute x (younger ones + 2)); of equals the youngest."""
        if seats.ending:
            return max(seats.ending.values(), key=_slot)
        if seats.stalled or not seats.cohort.lockstep:
            return _cheapest(seats)
        index = self._index
        if index is None or not index.fits(seats):
            index = self._index = RecomputeIndex(seats)
        return index.cheapest(seats)


def _cheapest(seats: Seats) -> Request:
    """Walk over the batch, of which some member does not advance with the others."""
    context_tokens, pool = seats.cohort.context_tokens, seats.pool
    youngest_first = [*reversed(seats.running.values())]
    victim, least = youngest_first[0], -1
    for younger, request in enumerate(youngest_first[:-1]):
        kept = pool.kept_by_others(request) * pool.block_size_tokens
        weight = (context_tokens(request) - kept) * (younger + 2)
        if least < 0 or weight < least:
            victim, least = request, weight
    return victim


def _slot(request: Request) -> int:
    return request.batch_slot


def _urgency(request: Request) -> tuple[int, int, int]:
    return (request.priority, request.arrival_us, request.index)
