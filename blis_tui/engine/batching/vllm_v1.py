"""``vllm-v1``: the scheduler of vLLM's V1 engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.engine.batching.rule import BATCHING, RunningFirst, Traits
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.spec.model import Engine

PARTIAL_PREFILL_SHARE_PERCENT = 4
"""With several partial prefills allowed, a prefill is "long" from this share of ``max_model_len`` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Under vLLM's names."""

    watermark: float = setting(
        "Share of the KV blocks kept free when a waiting request is admitted, 0 to 1.",
        default=0.0,
        minimum=0,
        maximum=1,
    )
    reserve_full_input: bool = setting(
        "Admit a waiting request only when its whole prompt fits into the free KV blocks.", default=True
    )
    enable_chunked_prefill: bool = setting(
        "Split a prompt that exceeds the step's token budget; off = it waits for a step it fits in.", default=True
    )
    max_num_partial_prefills: int = setting(
        "Prompts that may be partly processed at the same time.", default=1, minimum=1, maximum=10**6
    )


@BATCHING.plugin("vllm-v1", "As vLLM's V1 scheduler admits requests.", Settings)
class VllmV1Batching(RunningFirst):
    """Computed tokens chase known tokens (prompt + generated); there is no prefill or decode phase.

    Waiting requests are admitted only when nothing was preempted in this step, behind two gates: the watermark, and
    (``reserve_full_input``) room for the whole known sequence, not just its first chunk. The whole prompt never counts
    as cached: a step must still compute the last token. A preempted request keeps what it has generated and computes
    prompt and output again.
    """

    def __init__(self, settings: Settings) -> None:
        self._partial_prefills = settings.max_num_partial_prefills
        self.traits = Traits(
            keeps_output=True,
            chunked_prefill=settings.enable_chunked_prefill,
            reserves_whole_prompt=settings.reserve_full_input,
            watermark=settings.watermark,
        )

    def prefill_threshold(self, engine: Engine) -> int:
        """As configured; 4 % of ``max_model_len`` where it is off and several partial prefills may run."""
        threshold = engine.long_prefill_token_threshold
        if self._partial_prefills > 1 and threshold == 0 and engine.max_model_len is not None:
            return engine.max_model_len * PARTIAL_PREFILL_SHARE_PERCENT // 100
        return threshold
