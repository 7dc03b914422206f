"""What bounds an instance."""

from __future__ import annotations

from blis_tui.classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds an instance, under vLLM's names; None and 0 mean "unlimited" and "off"."""

    model: str
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    """The one in force: a batch-formation rule may work it out from the other limits."""
    max_model_len: int | None
    block_size_tokens: int
    kv_blocks: int
    max_loras: int = 0
