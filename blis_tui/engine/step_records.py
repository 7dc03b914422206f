"""Emits the records that tell observers what a step did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.client_times import client_ttft_us
from blis_tui.engine.records import (
    ChunkDone,
    FirstToken,
    Preempted,
    PreemptedByPriority,
    RestoreChosen,
    Retracted,
    Scheduled,
    StepFinished,
    SwappedBack,
    TiersLoaded,
)

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.plan import Done, Plan
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request


def emit_plan(observers: Observers, index: int, now: int, plan: Plan, given_up: Container[int]) -> None:
    """Emit a Preempted record for each request the step puts back, and a Scheduled record for each it admits.

    Those in ``given_up`` (indices) have ended for everybody but the engine.
    """
    event = observers.event
    if Preempted in observers.kinds:
        for victim, beneficiary, tokens, blocks in plan.preempted:
            if victim.index in given_up:
                continue
            observers.emit(Preempted(event, now, victim.request_id, index, beneficiary.request_id, tokens, blocks))
    if plan.outranked and PreemptedByPriority in observers.kinds:
        for victim, urgent, threshold in plan.outranked:
            if victim.index in given_up:
                continue
            names, priorities = (victim.request_id, index, urgent.request_id), (victim.priority, urgent.priority)
            observers.emit(PreemptedByPriority(event, now, *names, *priorities, threshold))
    if plan.retraction is not None and Retracted in observers.kinds:
        retracted, kept, needed, free, before, ratio = plan.retraction
        shares = round(before, 6), round(ratio, 6)
        observers.emit(Retracted(event, now, index, retracted, kept, needed, free, *shares))
    if RestoreChosen in observers.kinds:
        for victim, swapped, blocks, costs in plan.restored:
            choice = "swap" if swapped else "recompute"
            observers.emit(RestoreChosen(event, now, victim.request_id, index, choice, blocks, *costs))
    if Scheduled in observers.kinds:
        granted = {chunk.request.index: chunk.new for chunk in plan.chunks}
        for request in plan.admitted:
            if request.index in given_up:
                continue
            cached, new = request.computed_tokens, granted.get(request.index, 0)
            observers.emit(Scheduled(event, now, request.request_id, index, cached, new, now - request.arrival_us))
    if TiersLoaded in observers.kinds:
        for request, blocks, sources, thrashing, took in plan.reloaded:
            tiers = tuple(f"{name}: {count}" for name, count in sources)
            observers.emit(TiersLoaded(event, now, request.request_id, index, blocks, tiers, thrashing, took))
    if SwappedBack in observers.kinds:
        for request, tokens, blocks, took in plan.swapped_in:
            observers.emit(SwappedBack(event, now, request.request_id, index, tokens, blocks, took))


def _names(requests: Sequence[Request], given_up: Container[int] = ()) -> tuple[str, ...]:
    """Return the names of requests; skip the list for the usual empty case, where it would only cost time."""
    return tuple([request.request_id for request in requests if request.index not in given_up]) if requests else ()


def emit_step(
    observers: Observers, index: int, number: int, batch: Batch, plan: Plan, done: Done, upcoming_us: int
) -> None:
    """Emit a StepFinished record; the batch is as after the step. ``upcoming_us``: start of the next one, or -1."""
    if StepFinished in observers.kinds:
        observers.emit(
            StepFinished(
                observers.event,
                done.start_us,
                index,
                number,
                _names(plan.admitted, batch.given_up),
                _names([one.victim for one in plan.preempted], batch.given_up),
                tuple([ChunkDone(c.request.request_id, c.computed, c.new) for c in plan.chunks]) if plan.chunks else (),
                done.decode_requests,
                done.decode_context_tokens,
                _names([batch.stalled[slot] for slot in sorted(batch.stalled) if slot not in batch.busy]),
                done.duration_us,
                _names(done.first_tokens, batch.given_up),
                _names(done.finishing, batch.given_up),
                len(batch.waiting.items),
                len(batch.running),
                batch.pool.used,
                upcoming_us,
            )
        )


def emit_first_tokens(
    observers: Observers, index: int, done: Done, latency: StepTimeModel, given_up: Container[int]
) -> None:
    """Emit a FirstToken record for each first token, as its client sees it."""
    if FirstToken in observers.kinds:
        for request in done.first_tokens:
            if request.index in given_up:
                continue
            ttft_us = client_ttft_us(request, latency)
            observers.emit(
                FirstToken(observers.event, done.start_us, request.request_id, index, request.first_token_us, ttft_us)
            )
