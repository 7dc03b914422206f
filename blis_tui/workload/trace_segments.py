"""Parts of a prompt in one cell, as JSON.

A shared head with several segments is ``[["system", 512], ["manual", 64]]``. Media items have the number of tokens
before them, too: ``[[512, 1676, "photo-7"]]``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from blis_tui.engine.request import MediaItem

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
    try:
        pairs = json.loads(cell)
    except ValueError:
        pairs = None
    if not isinstance(pairs, list) or not all(map(_is_segment, pairs)):
        raise ValueError("the cell is not a list of names and tokens")
    total = 0
    for _, tokens in pairs:
        total += tokens
    if total > prompt_tokens:
        raise ValueError(f"a prompt of {prompt_tokens} tokens cannot have {total} shared ones")
    return tuple((name, tokens) for name, tokens in pairs)


def _is_segment(pair: object) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    name, tokens = pair
    return isinstance(name, str) and bool(name) and type(tokens) is int and tokens > 0


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
    try:
        rows = json.loads(cell)
    except ValueError:
        rows = None
    if not isinstance(rows, list) or not all(map(_is_item, rows)):
        raise ValueError("the cell is not a list of items: tokens before it, its tokens, its name")
    items = tuple(MediaItem(*row) for row in rows)
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


def _is_item(row: object) -> bool:
    if not isinstance(row, list) or len(row) != 3:
        return False
    offset, tokens, name = row
    return type(offset) is int and offset >= 0 and _is_segment([name, tokens])
