"""The static profile of an instance, for signals, explanations and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.engine.kv.capacity import KvGroups
    from blis_tui.engine.rules.traits import EngineBehavior


@dataclass(frozen=True, slots=True)
class Profile:
    """Limits and rules of one instance."""

    limits: Limits
    traits: EngineBehavior
    """Traits of its batch-formation rule."""
    order: str
    """The order of its queue, as a sentence without its full stop."""
    victims: str
    """Which request it preempts, such as "the youngest running request"."""

    @property
    def max_running(self) -> int | None:
        """How many requests may run at the same time; None = any number."""
        return None if self.traits.limits_each_step else self.limits.max_num_seqs


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of an instance, under vLLM's names; None and 0 mean "unlimited" and "off"."""

    model: str
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    """The value in force: a batch-formation rule may derive it from the other limits."""
    max_model_len: int | None
    block_size_tokens: int
    kv_blocks: int
    kv_groups: KvGroups | None = None
    """Groups of layers that blocks belong to; None = a block holds its tokens for all layers."""
    window_blocks: int = 0
    """Maximum number of blocks that a request holds in a group with a window."""
    windows_count_as_full: bool = False
    """Whether there are layers with a sliding window whose KV blocks are kept for all tokens."""
    max_loras: int = 0
    draft_tokens: int = 0
    """Number of drafted tokens that a decode may verify in a step."""

    def blocks_for(self, tokens: int) -> int:
        """Number of KV blocks for a prompt of so many tokens, of which none is cached."""
        if self.kv_groups is None:
            return -(-tokens // self.block_size_tokens)
        return self.kv_groups.blocks_for(tokens, self.block_size_tokens, self.window_blocks)
