"""What prompts have in common, by their tokens: which segments a prompt consists of, as the simulation names them.

Blocks of tokens are known by a hash of themselves and of all before them. Where a prompt begins with blocks that an
earlier request has, it begins with that one's segments; what is behind them is a new segment of its own, and so is its
answer, with which later prompts may begin.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Segments

_MOST_BLOCKS: Final = 1 << 20
"""Blocks whose content is remembered; of more, those that were asked for longest ago are forgotten."""


@dataclass(frozen=True, slots=True)
class Content:
    """A prompt and its answer.

    Attributes:
        segments: what the prompt consists of, all of it shareable.
        answer: the segment that is the answer.
        hashes: of each full block of both, that of its tokens and all before them.
    """

    segments: Segments
    answer: str
    hashes: tuple[int, ...]


class Contents:
    """All content that was asked for.

    Args:
        block_size_tokens: tokens of a block.
    """

    def __init__(self, block_size_tokens: int) -> None:
        self._size = block_size_tokens
        self._known: OrderedDict[int, Segments] = OrderedDict()

    def add(self, name: str, prompt: Sequence[int], answer: Sequence[int], salt: str = "") -> Content:
        """A request's content; equal prompts under different salts (adapters) have nothing in common."""
        hashes = self._hashes([*prompt, *answer], salt)
        shared: Segments = ()
        for count, one in enumerate(hashes[: len(prompt) // self._size], 1):
            found = self._known.get(one)
            if found is None:
                break
            self._known.move_to_end(one)
            shared = _head(found, count * self._size)
        rest = len(prompt) - _length(shared)
        segments = (*shared, (name, rest)) if rest else shared
        whole = (*segments, (f"{name}/answer", len(answer))) if answer else segments
        for one in hashes:
            self._known.setdefault(one, whole)
        while len(self._known) > _MOST_BLOCKS:
            self._known.popitem(last=False)
        return Content(segments, f"{name}/answer", hashes)

    def _hashes(self, tokens: Sequence[int], salt: str) -> tuple[int, ...]:
        found: list[int] = []
        before = salt.encode()
        for end in range(self._size, len(tokens) + 1, self._size):
            block = array("q", tokens[end - self._size : end])
            before = blake2b(before + block.tobytes(), digest_size=8).digest()
            found.append(int.from_bytes(before, "big"))
        return tuple(found)


def _head(segments: Segments, tokens: int) -> Segments:
    """The first tokens of these segments."""
    found: list[tuple[str, int]] = []
    for name, length in segments:
        if tokens <= 0:
            break
        found.append((name, min(length, tokens)))
        tokens -= length
    return tuple(found)


def _length(segments: Segments) -> int:
    total = 0
    for _, tokens in segments:
        total += tokens
    return total
