"""``blis``: the batch formation of the BLIS simulator, modelled on vLLM V1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.batching.rule import schedule_running

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Engine, Plug


class BlisBatching:
    """Running requests first, then the head of the queue for as long as it fits; recompute drops generated tokens.

    A prompt that is cached as a whole pins its blocks, schedules no token, and has its first token at the end of that
    step. A preempted request computes its prompt again and generates its output again.
    """

    stores_last_token = True

    def __init__(self, plug: Plug) -> None:
        del plug  # it has no settings

    def schedule(self, instance: Instance) -> None:
        """Plan one step."""
        budget = schedule_running(instance, instance.max_num_batched_tokens)
        waiting = instance.waiting
        pool = instance.pool
        size = pool.block_size_tokens
        threshold = instance.long_prefill_token_threshold
        while budget > 0 and waiting.items and len(instance.running) < instance.max_num_seqs:
            request = waiting.head()
            attempt = (request.index, pool.epoch, budget)
            if attempt == instance.refused:
                break  # nothing has changed since it did not fit
            cached = pool.cached_prefix(request, request.input_tokens // size)
            start = cached * size
            tokens = request.target_tokens - start
            if 0 < threshold < tokens:
                tokens = threshold
            tokens = min(tokens, budget)
            need = -(-(start + tokens) // size) - cached
            if need + pool.idle_among(request, cached) > pool.free:
                instance.refused = attempt
                break  # head-of-line: nobody overtakes
            instance.admit(request, cached, tokens)
            budget -= tokens

    def prefill_threshold(self, engine: Engine) -> int:
        """As configured."""
        return engine.long_prefill_token_threshold

    def restart(self, request: Request) -> None:
        """Prompt and output are both computed again."""
        request.generated_tokens = 0
        request.target_tokens = request.input_tokens
