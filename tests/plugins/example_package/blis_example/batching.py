"""``shortest-prefill``: running requests first, then the shortest prompt among the first few in the queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.plugins import BATCHING, EngineBehavior, RunningFirst, Stopped, setting

if TYPE_CHECKING:
    from blis_tui.plugins import Batch, Plan, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of this rule."""

    window: int = setting(
        "How many requests at the head of the queue are looked at.", default=8, minimum=1, maximum=1000
    )


@BATCHING.plugin("shortest-prefill", "Running requests first, then short prompts of those that wait longest.", Settings)
class ShortestPrefill(RunningFirst):
    """Whole prompts only: one that does not fit into what is left of the step's budget waits."""

    traits = EngineBehavior(keeps_output=True, chunked_prefill=False)

    def __init__(self, settings: Settings) -> None:
        self._window = settings.window

    def admit_waiting(self, batch: Batch, plan: Plan, budget: int) -> None:
        """Admit as long as something fits; what does not is said, for explanations."""
        for request in sorted(batch.waiting.first(self._window), key=_length):
            cached = batch.pool.cached_prefix(request, (request.target_tokens - 1) // batch.pool.block_size_tokens)
            tokens = request.target_tokens - cached * batch.pool.block_size_tokens
            spare = batch.pool.free - batch.pool.idle_among(request, cached)
            blocks = -(-request.target_tokens // batch.pool.block_size_tokens) - cached
            if len(batch.running) == batch.limits.max_num_seqs:
                plan.stopped = Stopped("seqs", 1)
            elif tokens > budget:
                plan.stopped = Stopped("tokens", tokens, budget, request)
            elif blocks > spare:
                plan.stopped = Stopped("blocks", blocks, spare, request)
            if plan.stopped is not None:
                return
            batch.admit(plan, request, cached, tokens)
            budget -= tokens


def _length(request: Request) -> tuple[int, int]:
    return (request.target_tokens, request.index)
