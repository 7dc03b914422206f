"""The prompts of traces that name blocks of tokens: equal ids are equal tokens after an equal beginning."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.base.units import plural
from blis_tui.workload.traces.trace_rows import JsonRow, count_of
from blis_tui.workload.traces.trace_text import LARGEST_NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.request import Segments

IDS: Final = "hash_ids"
_NOTHING: Final = -1
_SEVERAL: Final = -2
_FAR: Final = 1 << 16
"""Ids from here on may be hashes, unless so many blocks were named that they may count from 0."""
_SPARSE: Final = 8
"""Ids of which as few as one in so many occurs still count from 0."""
_ROOM: Final = 1 << 12
"""Places made at a time."""
_LARGEST: Final = 2048
"""No cache has larger blocks."""


def block_ids(
    row: JsonRow, prompt: int | None, block_tokens: int, *, whole: bool = False, stated: bool = False
) -> list[int] | None:
    """Return the ids of a prompt's blocks; None = they are invalid, which is noted.

    Args:
        row: a row with the key ``hash_ids``.
        prompt: the prompt's tokens; None = unknown, so the number of blocks is not checked.
        block_tokens: tokens of a block.
        whole: whether a last block that is not full may lack an id.
        stated: whether the file itself states the size of a block.
    """
    value = row.data.get(IDS)
    if not isinstance(value, list):
        row.note(IDS, "it is not a list" if IDS in row.data else f"there is no `{IDS}`", "list the ids of the blocks")
        return None
    ids: list[int] = value
    if not all(type(entry) is int and 0 <= entry <= LARGEST_NUMBER for entry in value):
        numbers = [count_of(entry, row.line, row.at(IDS), row.problems) for entry in value]
        ids = [number for number in numbers if number is not None]
        if len(ids) < len(numbers):
            return None
    if prompt is not None and len(ids) not in (-(-prompt // block_tokens), *((prompt // block_tokens,) * whole)):
        blocks = f"{plural(-(-prompt // block_tokens), 'block')} of {block_tokens}"
        message = f"a prompt of {prompt:,} tokens has {blocks}, not {len(ids):,}"
        row.note(IDS, message, _advice(None if stated else prompt, len(ids), block_tokens))
        return None
    return ids


def _advice(prompt: int | None, blocks: int, block_tokens: int) -> str:
    """Advise on a wrong number of blocks: the size that would explain it, if it is usual and may be said."""
    size = 16
    while prompt is not None and size <= _LARGEST:
        if size != block_tokens and -(-prompt // size) == blocks:
            return f"add under `trace:` how many tokens a block has: `block_size_tokens: {size}`"
        size *= 2
    return f"each id stands for {block_tokens} tokens, the last one for what is left"


class Blocks:
    """The blocks of all prompts, from which shared segments are derived.

    A block that occurs in one prompt only is private. Blocks that always occur together form one segment: a prompt of
    12,000 tokens then has three or four segments instead of 24.

    Args:
        block_tokens: tokens of a block; the last one of a prompt may be shorter.
    """

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._ids = array("q")
        """The blocks of all prompts, by their numbers."""
        self._ends = array("q")
        self._numbers: dict[int, int] = {}
        """Id -> number; only of ids that are not their own number."""
        self._names: dict[int, int] = {}
        """The reverse."""
        self._uses = array("q")
        self._before = array("q")
        """Number of a block -> that of the block that always precedes it."""

    def add(self, ids: list[int]) -> None:
        """Add the blocks of the next prompt."""
        uses, before, last = self._uses, self._before, _NOTHING
        if ids and (self._numbers or max(ids) >= len(uses)):
            far = _FAR + _SPARSE * (len(self._ids) + len(ids))
            ids = [self._number(identifier, far) for identifier in ids]
        for number in ids:
            used = uses[number]
            if not used:
                before[number] = last
            elif before[number] != last:
                before[number] = _SEVERAL
            uses[number] = used + 1
            last = number
        self._ids.extend(ids)
        self._ends.append(len(self._ids))

    def _number(self, identifier: int, far: int) -> int:
        """Return a block's place in the tables: its id, or from ``far`` on the next free place.

        Ids usually count from 0, and the tables then take sixteen bytes for each, not two hundred.
        """
        if (known := self._numbers.get(identifier)) is not None:
            return known
        if identifier >= max(far, len(self._uses)) or identifier in self._names:
            number = self._numbers[identifier] = len(self._uses)
            self._names[number] = identifier
        else:
            number = identifier
        if number >= len(self._uses):
            more = bytes(8 * (number + 1 - len(self._uses) + (_ROOM if number == identifier else 0)))
            self._uses.frombytes(more)
            self._before.frombytes(more)
        return number

    @property
    def any(self) -> bool:
        """Whether any prompt has blocks."""
        return bool(self._ids)

    def segments(self, prompts: array[int], *, whole: bool = False) -> Iterator[Segments]:
        """Iterate over what each prompt, given its number of tokens, may share with others.

        ``whole``: name what it shares with none, too, so that a session's prompts are exactly these.
        """
        uses, before, names = self._uses, self._before, self._names
        start = 0
        for row, (end, tokens) in enumerate(zip(self._ends, prompts, strict=True)):
            ids = self._ids[start:end]
            while ids and uses[ids[-1]] == 1:
                ids.pop()
            parts: list[tuple[str, int]] = []
            last, rest = _NOTHING, tokens
            for block in ids:
                part = min(self.block_tokens, rest)
                if parts and before[block] == last and uses[block] == uses[last]:
                    parts[-1] = (parts[-1][0], parts[-1][1] + part)
                else:
                    parts.append((str(names.get(block, block)), part))
                last, rest = block, rest - part
            if whole and rest:
                parts.append((f"of-{row}", rest))
            yield tuple(parts)
            start = end
