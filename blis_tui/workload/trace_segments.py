"""A prompt's shared head with several parts in one cell: ``[["system", 512], ["manual", 64]]``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

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
