"""``vllm-v1``: the scheduler of vLLM's V1 engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.batching.rule import schedule_running

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Engine, Plug

PARTIAL_PREFILL_SHARE_PERCENT = 4
"""With several partial prefills allowed, a prefill is "long" from this share of ``max_model_len`` on."""


class VllmV1Batching:
    """Computed tokens chase known tokens (prompt + generated); there is no prefill or decode phase.

    Running requests first. Waiting ones are admitted, head first, only when nothing was preempted in this step, behind
    two gates: the watermark, and (``reserve_full_input``) room for the whole known sequence, not just its first chunk.
    The whole prompt never counts as cached: a step must still compute the last token. A preempted request keeps what
    it has generated and computes prompt and output again.
    """

    stores_last_token = False

    def __init__(self, plug: Plug) -> None:
        self._watermark = plug.number("watermark")
        self._reserve_full_input = plug.flag("reserve_full_input")
        self._chunked = plug.flag("enable_chunked_prefill")
        self._partial_prefills = plug.integer("max_num_partial_prefills")

    def schedule(self, instance: Instance) -> None:
        """Plan one step."""
        budget = schedule_running(instance, instance.max_num_batched_tokens)
        waiting = instance.waiting
        pool = instance.pool
        size = pool.block_size_tokens
        threshold = instance.long_prefill_token_threshold
        watermark = int(self._watermark * pool.total)
        while budget > 0 and waiting.items and len(instance.running) < instance.max_num_seqs:
            request = waiting.head()
            attempt = (request.index, pool.epoch, budget)
            if attempt == instance.refused:
                break  # nothing has changed since it did not fit
            known = request.target_tokens
            cached = pool.cached_prefix(request, (known - 1) // size)
            start = cached * size
            tokens = known - start
            if 0 < threshold < tokens:
                tokens = threshold
            if not self._chunked and tokens > budget:
                break
            tokens = min(tokens, budget)
            idle = pool.idle_among(request, cached)
            spare = pool.free - idle - (watermark if instance.running else 0)
            whole = known if self._reserve_full_input else start + tokens
            if -(-whole // size) - cached > spare:
                instance.refused = attempt
                break  # head-of-line: nobody overtakes
            instance.admit(request, cached, tokens)
            budget -= tokens

    def restart(self, request: Request) -> None:
        """What was generated is kept, and prefilled again together with the prompt."""
        request.target_tokens = request.input_tokens + request.generated_tokens

    def prefill_threshold(self, engine: Engine) -> int:
        """As configured; 4 % of ``max_model_len`` where it is off and several partial prefills may run."""
        threshold = engine.long_prefill_token_threshold
        if self._partial_prefills > 1 and threshold == 0 and engine.max_model_len is not None:
            return engine.max_model_len * PARTIAL_PREFILL_SHARE_PERCENT // 100
        return threshold
