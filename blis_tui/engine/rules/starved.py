"""Serves a step that has enough tokens for all decodes but too few KV blocks, without walking the whole batch.

Served in batch order, only prefills and decodes that cross a block boundary need blocks. All other requests get their
token whatever happens, unless they are preempted. So it suffices to go through the requests that need blocks, and the
cohort stays intact except for the victims.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request


def serve_with_too_few_blocks(batch: Batch, plan: Plan, wants: Mapping[int, int], budget: int) -> None:
    """Serve all running requests, none of which is stalled, in the order of their admission; preempt as needed.

    Args:
        batch: the requests.
        plan: the step's plan, which grants nothing so far.
        wants: batch slot of each prefill -> tokens it asks for, in ascending order of slots.
        budget: token budget of the step. It covers all requests, or all prefills come after all decodes and it covers
            these.
    """
    pool, running = batch.pool, batch.running
    due = batch.cohort.due() if batch.load.decode_requests else {}
    prefills = [*wants]
    asking = sorted([*due, *prefills])
    granted: dict[int, int] = {}
    left = budget - batch.load.decode_requests
    """Budget left after the decodes and ``granted``."""
    at = 0
    while at < len(asking):
        slot = asking[at]
        tokens = min(wants[slot], left) if slot in wants else 0
        if not tokens:
            if slot in wants:
                return
            if pool.free:
                behind = bisect_right(prefills, slot)
                decodes = (bisect_left(asking, prefills[behind]) if behind < len(prefills) else len(asking)) - at
                decodes = min(decodes, pool.free)
                pool.take(decodes)
                at += decodes
                continue
        request = running[slot]
        need = pool.missing(request, request.computed_tokens + tokens) if tokens else 1
        while need > pool.free and request.batch_slot >= 0:
            victim = batch.choose_victim()
            gone = victim.batch_slot
            left += _preempt(batch, plan, victim, request, granted.pop(gone, 0), took_block=gone < slot and gone in due)
            if gone != slot and _remove_slot(asking, gone) and gone < slot:
                at -= 1
            _remove_slot(prefills, gone)
        if request.batch_slot >= 0:
            if tokens:
                batch.grant(plan, request, tokens)
                granted[slot] = tokens
                left -= tokens
                at += 1
            continue
        if not batch.serves_behind_preempted:
            _stall_behind(batch, slot)
            return
        at += 1


def _remove_slot(slots: list[int], slot: int) -> bool:
    """Remove a slot from a sorted list; return whether it was there."""
    place = bisect_left(slots, slot)
    if place == len(slots) or slots[place] != slot:
        return False
    del slots[place]
    return True


def _preempt(batch: Batch, plan: Plan, victim: Request, beneficiary: Request, granted: int, *, took_block: bool) -> int:
    """Preempt a request, which loses its grant of this step; return how much of the budget that frees.

    A victim that decodes and comes before the beneficiary has been served, too.
    """
    if victim.joined_clock < 0:
        batch.preempt(plan, victim, beneficiary, granted)
        return granted
    served = victim.batch_slot < beneficiary.batch_slot
    batch.cohort.leave(victim)
    victim.held_blocks += took_block
    batch.preempt(plan, victim, beneficiary, int(served))
    return 1


def _stall_behind(batch: Batch, slot: int) -> None:
    """Stall the decodes from ``slot`` on in this step."""
    batch.stalls += 1
    for request in reversed(batch.running.values()):
        if request.batch_slot < slot:
            break
        if request.joined_clock >= 0:
            batch.cohort.leave(request)
            batch.stalled[request.batch_slot] = request
