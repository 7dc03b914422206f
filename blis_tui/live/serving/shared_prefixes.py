"""The served prompts by their shared prefixes, and the served requests as a replayable table.

Shared prefixes of prompts, found by their tokens: the segments of each prompt as the simulation names them.

Blocks of tokens are identified by a hash of themselves and everything before them. A prompt that begins with blocks of
an earlier request begins with that request's segments. The rest is a new segment, and so is its answer, with which
later prompts may begin.
"""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final
from zlib import crc32

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import declared_segments
from blis_tui.output.tables import csv_line
from blis_tui.results.request_log import PLAIN_COLUMNS
from blis_tui.workload.traces.cells import segments_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from blis_tui.engine.request import Request, Segments
    from blis_tui.results.request_log import RequestRow


_MOST_BLOCKS: Final = 1 << 20
"""Maximum number of remembered blocks; the least recently requested ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Content:
    """A prompt and its answer.

    Attributes:
        segments: the segments of the prompt, all of which are shareable.
        answer: the segment of the answer.
        hashes: for each full block of both, the hash of its tokens and everything before them.
    """

    segments: Segments
    answer: str
    hashes: tuple[int, ...]


class Contents:
    """All requested content.

    Args:
        block_size_tokens: tokens of a block.
    """

    def __init__(self, block_size_tokens: int) -> None:
        self._size = block_size_tokens
        self._known: OrderedDict[int, Segments] = OrderedDict()

    def add(self, name: str, prompt: Sequence[int], answer: Sequence[int], salt: str = "") -> Content:
        """Add a request's content; equal prompts with different salts (adapters) share nothing."""
        hashes = self._hashes([*prompt, *answer], salt)
        shared: Segments = ()
        for count, block_hash in enumerate(hashes[: len(prompt) // self._size], 1):
            known_segments = self._known.get(block_hash)
            if known_segments is None:
                break
            self._known.move_to_end(block_hash)
            shared = _head(known_segments, count * self._size)
        rest = len(prompt) - _length(shared)
        segments = (*shared, (name, rest)) if rest else shared
        whole = (*segments, (f"{name}/answer", len(answer))) if answer else segments
        for block_hash in hashes:
            self._known.setdefault(block_hash, whole)
        while len(self._known) > _MOST_BLOCKS:
            self._known.popitem(last=False)
        return Content(segments, f"{name}/answer", hashes)

    def _hashes(self, tokens: Sequence[int], salt: str) -> tuple[int, ...]:
        hashes: list[int] = []
        before = salt.encode()
        for end in range(self._size, len(tokens) + 1, self._size):
            block = array("q", tokens[end - self._size : end])
            before = blake2b(before + block.tobytes(), digest_size=8).digest()
            hashes.append(int.from_bytes(before, "big"))
        return tuple(hashes)


def _head(segments: Segments, tokens: int) -> Segments:
    """Return the first ``tokens`` tokens of these segments."""
    head: list[tuple[str, int]] = []
    for name, length in segments:
        if tokens <= 0:
            break
        head.append((name, min(length, tokens)))
        tokens -= length
    return tuple(head)


def _length(segments: Segments) -> int:
    return whole_sum([tokens for _, tokens in segments])


# Tokens without a tokenizer: texts are cut into short pieces, and answers consist of words that are one piece each.
#
# A piece is up to six characters of a word with the preceding blank, about as long as tokens of real vocabularies.
# Concatenated text has the concatenated pieces of its parts, so a conversation's next prompt begins with the tokens of
# the previous prompt and its answer.

_PIECE: Final = re.compile(r" ?[^\s]{1,6}|\s")
_VOCABULARY: Final = 1 << 17
_WORD_LIST: Final = (
    "the day went on and we saw how one by one the lights came up over the old town where some of them had been for a"
    " long time now while the rest would still wait to see what might come next if it ever did"
)
_WORDS: Final = tuple(_WORD_LIST.split())


def pieces(text: str, most: int | None = None) -> list[str]:
    """Return the pieces of a text that are a token each, or its first ``most``."""
    return [piece[0] for piece in islice(_PIECE.finditer(text), most)]


def encode(text: str, most: int | None = None) -> list[int]:
    """Return the tokens of a text, or its first ``most``."""
    return [crc32(piece.encode("utf-8", "surrogatepass")) % _VOCABULARY for piece in pieces(text, most)]


def encode_chat(messages: Iterable[tuple[str, str]], most: int | None = None) -> list[int]:
    """Return the tokens of a conversation, given as roles and texts, up to where its answer begins.

    With ``most``, nothing is read after it has more tokens than that.
    """
    tokens: list[int] = []
    for role, text in messages:
        tokens += [*encode(f"<{role}>", most), *encode(text, most), *encode("\n")]
        if most is not None and len(tokens) > most:
            return tokens
    return tokens + encode("<assistant>")


class Answer:
    """The words of one answer; equal numbers give equal answers.

    Args:
        number: the request's number.
        count: its number of tokens.
        goes_on: whether it continues the prompt's text, and so begins with a blank; otherwise it stands alone.
    """

    def __init__(self, number: int, count: int, *, goes_on: bool) -> None:
        self._goes_on = goes_on
        self._words = [_WORDS[(number * 31 + place * 7 + place // 11) % len(_WORDS)] for place in range(count)]

    def tokens(self) -> list[int]:
        """Return all of its tokens."""
        return list(self.piece(0, len(self._words))[1])

    def piece(self, start: int, stop: int) -> tuple[str, Sequence[int]]:
        """Return the text and the tokens from ``start`` to ``stop``."""
        words = [f" {word}" for word in self._words[start:stop]]
        if words and not start and not self._goes_on:
            words[0] = words[0][1:]
        return "".join(words), [_IDS[word] for word in words]


_IDS: Final = {piece: encode(piece)[0] for word in _WORDS for piece in (word, f" {word}")}


def served_csv(requests: Iterable[Request], rows: Iterable[RequestRow]) -> Iterator[str]:
    """Iterate over the lines of the request table, with shared prefixes in parts, and answer segments."""
    more = ("model", "adapter", "prefix_segments", "answer_segment")
    yield csv_line([*PLAIN_COLUMNS, *more])
    known = {request.request_id: request for request in requests}
    for row in rows:
        request = known[row.request_id]
        parts = segments_cell(declared_segments(request))
        cells = [getattr(row, name) for name in PLAIN_COLUMNS]
        yield csv_line([*cells, request.model, request.adapter, parts, request.content[-1][0]])
