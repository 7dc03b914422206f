"""Parts of a prompt in one cell, as JSON.

A shared head with several segments is ``[["system", 512], ["manual", 64]]``. Media items have the number of tokens
before them, too: ``[[512, 1676, "photo-7"]]``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from blis_tui.engine.request import MediaItem
from blis_tui.inputs import parse_json

if TYPE_CHECKING:
    from blis_tui.engine.request import Segments


def segments_cell(segments: Segments) -> str:
    """Write the cell; empty if nothing is shared."""
    return json.dumps(segments, ensure_ascii=False, separators=(",", ":")) if segments else ""


def read_segments(cell: str, prompt_tokens: int) -> Segments:
    """Read a cell that :func:`segments_cell` wrote.

    Raises:
        ValueError: it is invalid, or longer than the prompt; the message says how.
    """
    if not cell:
        return ()
    rows = _rows(cell)
    segments = [found for row in rows or () if (found := _segment(row)) is not None]
    if rows is None or len(segments) < len(rows):
        raise ValueError("the cell is not a list of names and tokens")
    total = 0
    for _, tokens in segments:
        total += tokens
    if total > prompt_tokens:
        raise ValueError(f"a prompt of {prompt_tokens} tokens cannot have {total} shared ones")
    return tuple(segments)


def _rows(cell: str) -> list[object] | None:
    """Return the list in a cell; None = there is none."""
    try:
        rows = parse_json(cell)
    except ValueError:
        return None
    return rows if isinstance(rows, list) else None


def _segment(pair: object) -> tuple[str, int] | None:
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    name, tokens = pair
    return (name, tokens) if isinstance(name, str) and name and type(tokens) is int and tokens > 0 else None


def items_cell(items: tuple[MediaItem, ...]) -> str:
    """Write the cell of a prompt's media items; empty if there are none."""
    return json.dumps(items, ensure_ascii=False, separators=(",", ":")) if items else ""


def read_items(cell: str, prompt_tokens: int, media_tokens: int) -> tuple[MediaItem, ...]:
    """Read a cell that :func:`items_cell` wrote.

    Raises:
        ValueError: it is invalid, does not fit into the prompt, or has another number of tokens than the prompt's
            media; the message says how.
    """
    if not cell:
        return ()
    rows = _rows(cell)
    items = tuple(found for row in rows or () if (found := _item(row)) is not None)
    if rows is None or len(items) < len(rows):
        raise ValueError("the cell is not a list of items: tokens before it, its tokens, its name")
    check_items(items, prompt_tokens, media_tokens)
    return items


def check_items(items: tuple[MediaItem, ...], prompt_tokens: int, media_tokens: int) -> None:
    """Raise ValueError if media items overlap, do not fit into the prompt, or are not its media."""
    end = total = 0
    for item in items:
        if item.offset < end:
            raise ValueError(f"an item begins after {item.offset} tokens, where another one has not ended")
        end = item.offset + item.tokens
        total += item.tokens
    if end > prompt_tokens:
        raise ValueError(f"a prompt of {prompt_tokens} tokens cannot have an item that ends after {end}")
    if total != media_tokens:
        raise ValueError(f"the items have {total} tokens, and the prompt {media_tokens} of images, audio and video")


def _item(row: object) -> MediaItem | None:
    if not isinstance(row, list) or len(row) != 3:
        return None
    offset, tokens, name = row
    named = _segment([name, tokens])
    return None if named is None or type(offset) is not int or offset < 0 else MediaItem(offset, named[1], named[0])
