"""Finds the known name that a misspelt one probably means."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_LETTERS_A_WORD_SLIP: Final = 3
"""A word may differ in one letter per this many."""
_LETTERS_A_NAME_SLIP: Final = 5
"""A whole name may differ in one letter per this many (for words run together, for example)."""
_LONGEST: Final = 100
_REMEMBERED: Final = 4096
"""Cache size; more than the number of key names, all of which are compared with each word looked up."""


@lru_cache(_REMEMBERED)
def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name, in lower case; ``max-num-seqs`` and ``max_num_seqs`` have the same words."""
    return tuple(word for word in re.split(r"[^a-z0-9]+", name.lower()) if word)


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """Return the known name that ``wrong`` most probably means; None if none is near enough.

    Names with equally many words are compared word by word: ``prompt_tokens`` is not near ``output_tokens``, however
    many letters they share.
    """
    if len(wrong) > _LONGEST:
        return None
    scored = [(score, name) for name in known if (score := _score(words_of(wrong), words_of(name))) is not None]
    best = min((score for score, _ in scored), default=0)
    return max((name for score, name in scored if score == best), default=None)


def begin_alike(wrong: str, known: Iterable[str]) -> list[str]:
    """Return the known names that begin with ``wrong``, or with which ``wrong`` begins."""
    ours = "-".join(words_of(wrong))
    pairs = [("-".join(words_of(name)), name) for name in known]
    return [
        name
        for theirs, name in pairs
        if min(len(ours), len(theirs)) >= _LETTERS_A_WORD_SLIP and (theirs.startswith(ours) or ours.startswith(theirs))
    ]


def _score(wrong: tuple[str, ...], name: tuple[str, ...]) -> int | None:
    """Return the distance between two names; None = too far apart."""
    if len(wrong) == len(name):
        slips = [_few_slips(ours, theirs, _LETTERS_A_WORD_SLIP) for ours, theirs in zip(wrong, name, strict=True)]
        if None not in slips and all(
            len(ours) > _LETTERS_A_NAME_SLIP or ours[0] == theirs[0]  # `v100` is no misspelt `h100`
            for ours, theirs in zip(wrong, name, strict=True)
        ):
            return sum(filter(None, slips))
    count = _few_slips("_".join(wrong), "_".join(name), _LETTERS_A_NAME_SLIP)
    if count is not None:
        return count
    # Words may be missing or in another order, but more than half must match.
    common = set(wrong) & set(name)
    few, many = sorted((len(set(wrong)), len(set(name))))
    return _LONGEST + many - few if len(common) == few and 2 * few > many else None


def _few_slips(wrong: str, name: str, letters: int) -> int | None:
    """Return the edit distance if it is at most one per ``letters`` letters, else None."""
    most = max(len(wrong), len(name)) // letters
    if abs(len(wrong) - len(name)) > most:
        return None
    slips = _slips(wrong, name)
    return slips if slips <= most else None


def _slips(wrong: str, name: str) -> int:
    """Return the edit distance with insertions, deletions, replacements and swaps (optimal string alignment)."""
    before: list[int] = []
    above = list(range(len(name) + 1))
    for i, ours in enumerate(wrong, 1):
        row = [i]
        for j, theirs in enumerate(name, 1):
            best = min(row[j - 1] + 1, above[j] + 1, above[j - 1] + (ours != theirs))
            if i > 1 and j > 1 and ours == name[j - 2] and wrong[i - 2] == theirs:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before, above = above, row
    return above[-1]
