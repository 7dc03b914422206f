"""What happened in the step being processed, and how it is told to observers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.clientview import client_ttft_us
from blis_tui.engine.records import ChunkDone, FirstToken, Scheduled, StepFinished

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request


class StepNotes:
    """Whom a step admitted, preempted and served; emptied when the step is over.

    Attributes:
        admitted: requests taken from the queue, in order.
        preempted: requests put back, in order.
        instant: admitted requests whose whole prompt was cached: their prefill ends without a chunk in this step.
        first_tokens: requests that got their first token.
    """

    __slots__ = ("admitted", "first_tokens", "instant", "preempted")

    def __init__(self) -> None:
        self.admitted: list[Request] = []
        self.preempted: list[Request] = []
        self.instant: list[Request] = []
        self.first_tokens: list[Request] = []

    def clear(self) -> None:
        """Make room for the next step's."""
        self.admitted.clear()
        self.preempted.clear()
        self.instant.clear()
        self.first_tokens.clear()


def tell_admissions(observers: Observers, instance: Instance) -> None:
    """A Scheduled record for everybody the step being planned has admitted."""
    granted = {chunk.request.index: chunk.new for chunk in instance.load.chunks}
    for request in instance.notes.admitted:
        observers.emit(
            Scheduled(
                observers.event,
                instance.now,
                request.request_id,
                instance.index,
                request.computed_tokens,
                granted.get(request.index, 0),
                instance.now - request.arrival_us,
            )
        )


def tell_step(
    observers: Observers,
    instance: Instance,
    now: int,
    duration_us: int,
    decodes: tuple[int, int],
    finishing: list[Request],
    upcoming_us: int,
) -> None:
    """A StepFinished record, and a FirstToken record for each first token.

    Args:
        observers: whom to tell.
        instance: whose step it was; its state is that after the step.
        now: start of the step.
        duration_us: its duration.
        decodes: how many requests decoded, and the sum of their contexts before the step.
        finishing: who had the last token in it, in running order.
        upcoming_us: start of the next step, or -1.
    """
    notes = instance.notes
    if StepFinished in observers.kinds:
        observers.emit(
            StepFinished(
                observers.event,
                now,
                instance.index,
                instance.steps,
                tuple(request.request_id for request in notes.admitted),
                tuple(request.request_id for request in notes.preempted),
                tuple(ChunkDone(c.request.request_id, c.computed, c.new) for c in instance.load.chunks),
                *decodes,
                tuple(instance.stalled[slot].request_id for slot in sorted(instance.stalled)),
                duration_us,
                tuple(request.request_id for request in notes.first_tokens),
                tuple(request.request_id for request in finishing),
                len(instance.waiting.items),
                len(instance.running),
                instance.pool.used,
                upcoming_us,
            )
        )
    if FirstToken in observers.kinds:
        for request in notes.first_tokens:
            ttft_us = client_ttft_us(request, instance.latency)
            observers.emit(
                FirstToken(observers.event, now, request.request_id, instance.index, request.first_token_us, ttft_us)
            )
