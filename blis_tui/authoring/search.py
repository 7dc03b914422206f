"""Keys by a word: of their names, of what others call them, of their descriptions."""

from __future__ import annotations

import re
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from blis_tui.authoring.tree import root
from blis_tui.spec.nearness import words_of
from blis_tui.spec.synonyms import KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.authoring.tree import Key
    from blis_tui.registry import Registry
    from blis_tui.spec.source import Json

_KINDS: Final = ("Experiment", "Latency")
"""The documents with keys of their own; an experiment holds the keys of all others."""
_MOST_SHOWN: Final = 12
_WIDTH: Final = 100


def search(text: str, plugins: Registry | None = None) -> list[tuple[str, Key]]:
    """Every key that ``text`` may be about, with the kind of its document, the best match first.

    A key of that name comes before one that others call so, then names and values with these words, names with words
    that begin so, and descriptions with these words.
    """
    words = words_of(text)
    if not words:
        return []
    found: dict[str, tuple[int, str, Key]] = {}
    for kind in _KINDS:
        for key in root(kind, plugins).walk():
            path = key.dotted if kind == "Experiment" else f"{kind}.{key.dotted}"
            rank = _rank(words, key) if key.path else None
            if rank is not None and path not in found:
                found[path] = (rank, kind, key)
    return [(kind, key) for _, kind, key in sorted(found.values(), key=lambda one: one[0])]


def _rank(words: Sequence[str], key: Key) -> int | None:
    name, plain = words_of(key.name), "_".join(words)
    there = set(words_of(re.sub(r"`[^`]*`", "", key.description)))
    matches = (
        name == tuple(words),
        key.dotted in KEYS.get(plain, ()),
        set(words) <= set(name) or any(words_of(one.value) == tuple(words) for one in key.choices),
        all(any(one.startswith(word) for one in name) for word in words),
        all(word in there or f"{word}s" in there for word in words),
    )
    return next((rank for rank, is_match in enumerate(matches) if is_match), None)


def as_list(text: str, found: Sequence[tuple[str, Key]]) -> str:
    """The best matches, a line each, for a person."""
    rows = [(_path(kind, key), key.description) for kind, key in found[:_MOST_SHOWN]]
    width = max(len(path) for path, _ in rows)
    room = max(_WIDTH - width - 4, 30)
    more = len(found) - len(rows)
    lines = [f"no key has the path `{text}`; keys that mention it:", ""]
    lines += [f"  {path:<{width}}  {shorten(about, room, placeholder=' ...')}" for path, about in rows]
    return "\n".join([*lines, *([f"  ... and {more} more"] if more else [])]) + "\n"


def as_rows(found: Sequence[tuple[str, Key]]) -> Json:
    """All matches as plain data."""
    rows: list[Json] = [{"path": _path(kind, key), "description": key.description} for kind, key in found]
    return rows


def _path(kind: str, key: Key) -> str:
    return key.dotted if kind == "Experiment" else f"{kind}.{key.dotted}"
