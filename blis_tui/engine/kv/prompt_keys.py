"""Keys for the content of a prompt's blocks: a prompt has no tokens here, only segments."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, mypyc_attr
from blis_tui.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Request, Segments

MAX_SHARED_BLOCKS: Final = 2**20
"""Maximum number of blocks of one shared prefix."""
_INDEX_BITS: Final = 32
INDEX_MASK: Final = (1 << _INDEX_BITS) - 1
"""The bits of a key that give the block's position in its prompt."""
_REMEMBERED: Final = 1024
"""Number of prompts whose keys are cached. This is only a shortcut; the numbers of the chains are what must not
change."""


class KeyRanges(NamedTuple):
    """The keys of a prompt's blocks, as non-empty ranges of consecutive numbers."""

    parts: tuple[range, ...]
    blocks: int
    """Number of keys."""


def chain_of(key: int) -> int:
    """The part of a key that consecutive blocks in one chain of segments have in common."""
    return key >> _INDEX_BITS


@mypyc_attr(allow_interpreted_subclasses=True)
class PromptKeys:
    """Content keys of prompt blocks: two prompts share block ``i`` exactly when their keys for ``i`` are equal.

    A key names the chain of segments up to the one that holds the block's last token, and the block's position. It does
    not depend on how far that last segment continues after the block, so prompts that share only the head of a segment
    share the blocks of that head.

    The keys of the blocks that end in the same segment are consecutive numbers, so a prompt is a few ranges of keys.

    Attributes:
        block_size_tokens: tokens of a block.
        lookahead_tokens: tokens after a block that must be equal, too. A key names the chain up to the last of them.
    """

    __slots__ = ("_chains", "_stretches", "block_size_tokens", "lookahead_tokens")

    def __init__(self, block_size_tokens: int, lookahead_tokens: int = 0) -> None:
        self.block_size_tokens = block_size_tokens
        self.lookahead_tokens = lookahead_tokens
        self._chains: dict[tuple[int, int, str], int] = {}
        self._stretches: dict[Segments, KeyRanges] = {}

    def __getstate__(self) -> tuple[int, int, dict[tuple[int, int, str], int]]:
        return (self.block_size_tokens, self.lookahead_tokens, self._chains)

    def __setstate__(self, state: tuple[int, int, dict[tuple[int, int, str], int]]) -> None:
        self.block_size_tokens, self.lookahead_tokens, self._chains = state
        self._stretches = {}

    def shareable(self, segments: Segments) -> Sequence[int]:
        """Keys of the full blocks that lie within ``segments`` with their lookahead tokens, first block first.

        Raises:
            SimulationError: there are more than ``MAX_SHARED_BLOCKS``.
        """
        parts = self.key_ranges(segments).parts
        return parts[0] if len(parts) == 1 else tuple(chain.from_iterable(parts))

    def key_ranges(self, segments: Segments) -> KeyRanges:
        """Return the same keys as ranges, by the segments in which the blocks end.

        Raises:
            SimulationError: there are more than ``MAX_SHARED_BLOCKS``.
        """
        found = self._stretches.get(segments)
        if found is None:
            if len(self._stretches) == _REMEMBERED:
                self._stretches.clear()
            found = self._stretches[segments] = self._build(segments)
        return found

    def _build(self, segments: Segments) -> KeyRanges:
        parts: list[range] = []
        number = end = blocks = 0
        for name, tokens in segments:
            number = self._chains.setdefault((number, end, name), len(self._chains) + 1)
            end += tokens
            before, blocks = blocks, max(end - self.lookahead_tokens, 0) // self.block_size_tokens
            if before < blocks:
                first = (number << 1) << _INDEX_BITS
                parts.append(range(first + before, first + blocks))
        if blocks > MAX_SHARED_BLOCKS:
            raise SimulationError(
                f"a prefix of {end} tokens is {blocks} KV blocks, at most {MAX_SHARED_BLOCKS} can be shared",
                help="raise engine.block_size_tokens, or shorten the prefix",
            )
        return KeyRanges(tuple(parts), blocks)

    @staticmethod
    def own(request: Request, block: int) -> int:
        """Key of a block that ends in tokens only ``request`` has."""
        return (request.index << 1 | 1) << _INDEX_BITS | block
