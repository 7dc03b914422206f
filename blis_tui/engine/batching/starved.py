"""A step whose tokens suffice for all decodes, but whose KV blocks do not: it finds victims without walking the batch.

Served in the order of the batch, requests need blocks at a few places only: prefills, and the decodes that cross a
block's boundary. All others get their token whatever happens, unless they fall victim. So it is enough to go through
those who ask, and the cohort stays as it is, less the victims.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request


def serve_with_too_few_blocks(batch: Batch, plan: Plan, wants: Mapping[int, int], budget: int) -> None:
    """Serve all running requests, none of which is stalled, in the order of their admission; preempt as need be.

    Args:
        batch: the requests.
        plan: the step.
        wants: batch slot of each prefill -> tokens it asks for.
        budget: tokens of the step. It covers all wishes, or all prefills stand behind all decodes and it covers these.
    """
    pool = batch.pool
    due = dict(batch.cohort.due()) if batch.load.decode_requests else {}
    asking = sorted((*due.values(), *batch.prefills.values()), key=attrgetter("batch_slot"))
    at = 0
    while at < len(asking):
        decodes = _decodes_from(at, asking, wants)
        if decodes and pool.free:
            decodes = min(decodes, pool.free)
            pool.take(decodes)
            at += decodes
            continue
        request = asking[at]
        slot = request.batch_slot
        tokens = 0 if decodes else min(wants[slot], _left(batch, plan, budget))
        if not decodes and not tokens:
            return
        need = 1 if decodes else pool.missing(request, request.computed_tokens + tokens)
        while need > pool.free and request.batch_slot >= 0:
            victim = _preempt(batch, plan, request, due)
            if victim is not request and victim in asking:
                place = asking.index(victim)
                del asking[place]
                at -= place < at
        if request.batch_slot >= 0:
            if tokens:
                batch.grant(plan, request, tokens)
                at += 1
            continue
        if not batch.victim.serves_on:
            _stall_behind(batch, slot)
            return
        at += 1


def _left(batch: Batch, plan: Plan, budget: int) -> int:
    """What prefills and all decodes leave of the budget; victims lose what they had of it."""
    left = budget - batch.load.decode_requests
    for chunk in plan.chunks:
        left -= chunk.new
    return left


def _decodes_from(at: int, asking: Sequence[Request], wants: Mapping[int, int]) -> int:
    """How many decodes stand there, up to the next prefill."""
    if not wants:
        return len(asking) - at
    return next((n for n in range(at, len(asking)) if asking[n].batch_slot in wants), len(asking)) - at


def _preempt(batch: Batch, plan: Plan, beneficiary: Request, due: Mapping[int, Request]) -> Request:
    """Preempt the next victim; who stands before the beneficiary has been served, and loses that."""
    victim = batch.choose_victim()
    slot, granted = victim.batch_slot, 0
    served = slot < beneficiary.batch_slot
    if victim.joined_clock >= 0:
        took = served and victim.index in due
        batch.cohort.leave(victim)
        victim.held_blocks += took
        granted = int(served)
    elif served:
        granted = next((chunk.new for chunk in plan.chunks if chunk.request is victim), 0)
    batch.preempt(plan, victim, beneficiary, granted)
    return victim


def _stall_behind(batch: Batch, slot: int) -> None:
    """Nobody behind that place decodes in this step."""
    for request in reversed(batch.running.values()):
        if request.batch_slot < slot:
            break
        if request.joined_clock >= 0:
            batch.cohort.leave(request)
            batch.stalled[request.batch_slot] = request
