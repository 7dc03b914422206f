"""Requests whose prompts were computed on another instance: they hold KV blocks here before they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.plan import Preemption
from blis_tui.engine.request import CREATED, WAITING

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request


def admit_prefilled(batch: Batch, plan: Plan, request: Request, padding: int = 0) -> None:
    """Move a waiting request whose prompt was computed elsewhere into the batch; it decodes in this step.

    ``padding``: number of draft placeholders beside its token.
    """
    batch.assign_slot(request)
    del batch.reserved[request.index]
    if padding:
        batch.decode_padded(request, padding)
    else:
        if batch.speculative is not None:
            batch.pool.hold(request, batch.speculative.slots(request, 1))
        batch.pool.extend(request, request.computed_tokens + 1)
        batch.join_cohort(request)
        if batch.speculative is not None:
            batch.speculative.note_grant(request)
    plan.admitted.append(request)


def first_with_blocks(batch: Batch) -> Request | None:
    """Return the first queued request whose prompt was computed elsewhere and that holds its KV blocks here."""
    return next((request for request in batch.waiting.ordered() if request.index in batch.reserved), None)


def awaits_blocks(batch: Batch) -> bool:
    """Whether no request runs while KV blocks are being transferred here from another instance, or sent to one."""
    coming = batch.reserved.values()
    return not batch.running and (bool(batch.sending) or any(request.state is CREATED for request in coming))


def evict_reserved(batch: Batch) -> Preemption:
    """Take the KV blocks of the last queued request that holds some; it must recompute its prompt here."""
    victim = next(request for request in reversed(batch.waiting.ordered()) if request.index in batch.reserved)
    del batch.reserved[victim.index]
    lost = Preemption(victim, batch.waiting.head(), victim.computed_tokens, victim.held_blocks)
    batch.release_victim(victim, victim.computed_tokens)
    return lost


def take_over(batch: Batch, request: Request) -> None:
    """Let a request have the KV blocks that a copy of it has held until its KV arrived."""
    holder = batch.reserved.get(request.index, request)
    if holder is not request:
        request.held_blocks = holder.held_blocks
        request.computed_tokens = holder.computed_tokens
        batch.reserved[request.index] = request


def give_back(batch: Batch, request: Request) -> None:
    """Free the KV blocks of a prompt computed elsewhere; before it waits here, its new blocks have no content."""
    holder = batch.reserved.pop(request.index, None)
    if holder is None:
        return
    if holder is not request:
        batch.pool.release(holder, 0)
        return
    tokens = request.computed_tokens
    if request.state is not WAITING:
        tokens = request.shared_blocks * batch.limits.block_size_tokens
    batch.pool.release(request, tokens)
