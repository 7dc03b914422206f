"""Tokens without a tokenizer: texts cut into short pieces, and answers made of words that are one piece each.

A piece is up to six characters of a word with the blank before it, about as long as the tokens of real vocabularies.
Cutting text that was put together from parts gives the pieces of the parts, so a conversation's next prompt begins with
the tokens of the one before it and of its answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PIECE: Final = re.compile(r" ?[^\s]{1,6}|\s")
_VOCABULARY: Final = 1 << 17
_WORD_LIST: Final = (
    "the day went on and we saw how one by one the lights came up over the old town where some of them had been for a"
    " long time now while the rest would still wait to see what might come next if it ever did"
)
_WORDS: Final = tuple(_WORD_LIST.split())


def encode(text: str) -> list[int]:
    """The tokens of a text."""
    return [crc32(piece.encode("utf-8", "surrogatepass")) % _VOCABULARY for piece in _PIECE.findall(text)]


def encode_chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """The tokens of a conversation, roles and texts, up to where its answer begins."""
    tokens: list[int] = []
    for role, text in messages:
        tokens += [*encode(f"<{role}>"), *encode(text), *encode("\n")]
    return tokens + encode("<assistant>")


class Answer:
    """The words of one answer; equal numbers give equal answers.

    Args:
        number: the request's.
        count: how many tokens it has.
        goes_on: whether it goes on with the prompt's text, and so begins with a blank; else it stands for itself.
    """

    def __init__(self, number: int, count: int, *, goes_on: bool) -> None:
        self._goes_on = goes_on
        self._words = [_WORDS[(number * 31 + place * 7 + place // 11) % len(_WORDS)] for place in range(count)]

    def tokens(self) -> list[int]:
        """All of its tokens."""
        return list(self.piece(0, len(self._words))[1])

    def piece(self, start: int, stop: int) -> tuple[str, Sequence[int]]:
        """The text and the tokens from one place to another."""
        pieces = [f" {word}" for word in self._words[start:stop]]
        if pieces and not start and not self._goes_on:
            pieces[0] = pieces[0][1:]
        return "".join(pieces), [_IDS[piece] for piece in pieces]


_IDS: Final = {piece: encode(piece)[0] for word in _WORDS for piece in (word, f" {word}")}
