"""Keys for the content of a prompt's blocks, and content that a step is still computing."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import Picklable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        ranges = self._stretches.get(segments)
        if ranges is None:
            if len(self._stretches) == _REMEMBERED:
                self._stretches.clear()
            ranges = self._stretches[segments] = self._build(segments)
        return ranges

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


_NEVER: Final = 1 << 62


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingBlocks(Picklable):
    """Blocks that became findable in steps that may not be over."""

    __slots__ = ("_fresh", "_until")

    def __init__(self) -> None:
        self._until: dict[int, list[tuple[range, int]]] = {}
        """Chain -> keys, and the end of the step that computes them."""
        self._fresh: list[range] = []
        """Keys whose step has no known end yet."""

    def note(self, keys: range, end: int | None) -> None:
        """Record keys that became findable; ``end``: end of the step computing them, None = ``computed`` will tell."""
        if end is None:
            self._fresh.append(keys)
        elif end >= 0:
            self._hide(keys, end)

    def _hide(self, keys: range, end: int) -> None:
        """Hide these keys until ``end``, replacing earlier ends."""
        self._show(keys)
        if end >= 0:
            self._until.setdefault(chain_of(keys.start), []).append((keys, end))

    def _show(self, gone: range) -> None:
        """Remove all entries for these keys."""
        chain = chain_of(gone.start)
        hidden = self._until.pop(chain, None)
        if hidden is not None:
            hidden = [(rest, until) for keys, until in hidden for rest in _without(keys, gone)]
            if hidden:
                self._until[chain] = hidden

    def planned(self) -> None:
        """Hide what came since the last call of ``computed`` until it is computed."""
        for keys in self._fresh:
            self._hide(keys, _NEVER)

    def computed(self, now: int, end: int) -> None:
        """Set ``end`` as the time at which what came since the last call is computed; others see it after that."""
        if self._until:
            kept = {
                chain: [(keys, until) for keys, until in hidden if now <= until < _NEVER]
                for chain, hidden in self._until.items()
            }
            self._until = {chain: hidden for chain, hidden in kept.items() if hidden}
        if self._fresh:
            for keys in self._fresh:
                self._hide(keys, end)
            self._fresh.clear()

    def publish_transferred(self, stretches: Iterable[range]) -> None:
        """Show keys transferred from elsewhere at once, even if a step here computes the same."""
        for stretch in stretches:
            chain = chain_of(stretch.start)
            self._fresh = [
                rest
                for keys in self._fresh
                for rest in (_without(keys, stretch) if chain_of(keys.start) == chain else (keys,))
            ]
            self._show(stretch)

    def seen(self, keys: range, now: int) -> Iterable[int]:
        """Return those of the keys, all of one chain, that others see."""
        hidden = self._hidden(keys, now)
        return keys if not hidden else [key for key in keys if not any(key in stretch for stretch in hidden)]

    def visible_count(self, stretches: Iterable[range], count: int, now: int) -> int:
        """Number of leading keys, at most ``count``, that others see."""
        at = 0
        for stretch in stretches:
            if at >= count:
                break
            for keys in self._hidden(stretch, now):
                count = min(count, at + max(keys.start - stretch.start, 0))
            at += len(stretch)
        return count

    def _hidden(self, stretch: range, now: int) -> list[range]:
        """Return the hidden parts of a stretch of a chain."""
        return [
            keys
            for keys, until in self._until.get(chain_of(stretch.start), ())
            if until >= now and keys.start < stretch.stop and stretch.start < keys.stop
        ]

    def clear(self) -> None:
        """Remove everything, as all content is gone."""
        self._until.clear()


def _without(keys: range, gone: range) -> list[range]:
    parts = (range(keys.start, min(keys.stop, gone.start)), range(max(keys.start, gone.stop), keys.stop))
    return [part for part in parts if part]
