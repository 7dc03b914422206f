"""How vLLM's hybrid KV cache manager groups the layers of a model that attend differently far back.

A block holds some tokens for the layers of one group. All groups have the same number of layers, so that all blocks are
of one size and come from one pool. A layer with a sliding window needs only the tokens in its window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.engine.batching.traits import Traits
    from blis_tui.spec.model import Engine, Model

_PADDED: Final = 1.5
"""With fewer than so many times the layers of the rarer kind, the other kind's layers stay one group."""
_NARROWEST: Final = 2
"""The narrowest window with which vLLM's prefix cache finds anything."""
_ANY: Final = 1 << 40
"""More tokens than any request has."""


@dataclass(frozen=True, slots=True)
class KvGroups:
    """The groups of a model whose layers have a sliding window, or some of them.

    Source: vLLM 0.32.0, ``v1/core/kv_cache_utils.py`` (``_get_kv_cache_groups_uniform_page_size``).
    """

    windowed: int
    """Number of groups of layers with a sliding window, at least one."""
    full: int
    """Number of groups of layers that attend to the whole context."""
    layers: int
    """Layers in a group; in the last one of a kind, some may be padding."""
    window: int
    """Tokens that a layer with a sliding window attends to, the next one included."""

    @property
    def count(self) -> int:
        """Number of groups."""
        return self.windowed + self.full

    def window_blocks(self, in_flight_tokens: int, block_size_tokens: int, max_model_len: int | None) -> int:
        """Maximum number of blocks that a request holds in a group with a window.

        Source: vLLM 0.32.0, ``v1/kv_cache_interface.py`` line 873.

        Args:
            in_flight_tokens: the most tokens in steps whose results are not known.
            block_size_tokens: tokens per block.
            max_model_len: limit on prompt and answer together; None = no limit.
        """
        tokens = self.window - 1 + in_flight_tokens
        if max_model_len is not None:
            tokens = min(tokens, max_model_len)
        return -(-tokens // block_size_tokens) + 1

    def blocks_for(self, tokens: int, block_size_tokens: int, window_blocks: int) -> int:
        """Number of blocks that a request of this length holds at most."""
        blocks = -(-tokens // block_size_tokens)
        return self.full * blocks + self.windowed * min(blocks, window_blocks)

    def longest(
        self, blocks: int, block_size_tokens: int, budget: int, max_model_len: int | None, traits: Traits
    ) -> int:
        """Number of tokens of the longest request for which ``blocks`` blocks suffice; ``budget``: of a step."""
        held = self.window_blocks(_in_flight_tokens(budget, traits), block_size_tokens, max_model_len)
        return self.tokens_in(blocks, block_size_tokens, held)

    def tokens_held(self, blocks: int, requests: int, block_size_tokens: int) -> int:
        """Estimate the tokens of requests of equal length that hold these blocks together and share none."""
        tokens = blocks * block_size_tokens
        if not self.full or tokens <= requests * self.window * self.count:
            return tokens // self.count
        return (tokens - self.windowed * requests * self.window) // self.full

    def tokens_in(self, blocks: int, block_size_tokens: int, window_blocks: int) -> int:
        """Number of tokens of the longest request for which ``blocks`` blocks suffice."""
        short = blocks // self.count
        if short < window_blocks:
            return short * block_size_tokens
        if not self.full:
            return _ANY
        return (blocks - self.windowed * window_blocks) // self.full * block_size_tokens


def groups_of(model: Model) -> KvGroups | None:
    """Return the groups of a model; None = no layer has a sliding window."""
    windowed = min(model.sliding_window_layers, model.num_hidden_layers)
    if not windowed or model.sliding_window < _NARROWEST:
        return None
    full = model.num_hidden_layers - windowed
    if not full:
        return KvGroups(1, 0, windowed, model.sliding_window)
    fewer, more = sorted((windowed, full))
    layers = more if more < fewer * _PADDED else fewer
    return KvGroups(-(-windowed // layers), -(-full // layers), layers, model.sliding_window)


def kv_groups(model: Model, engine: Engine) -> KvGroups | None:
    """Return the groups in which an instance manages its KV cache; None = all layers count as full attention."""
    return groups_of(model) if engine.disable_hybrid_kv_cache_manager is False else None


def window_blocks(groups: KvGroups, engine: Engine, traits: Traits) -> int:
    """Return the most blocks that a request holds in a group with a window."""
    in_flight = _in_flight_tokens(engine.max_num_batched_tokens, traits)
    return groups.window_blocks(in_flight, engine.block_size_tokens, engine.max_model_len)


def _in_flight_tokens(budget: int, traits: Traits) -> int:
    """Return the most tokens in steps whose results are not known; ``budget``: of one step."""
    return budget * 2 if traits.plans_ahead else budget
