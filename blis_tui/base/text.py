r"""Text for terminals: columns, curves of braille dots, and external text without control characters.

Sanitizes external text for a terminal: names in documents and traces, paths, messages about them.

A terminal acts on control characters (``"\x1b]0;…\x07"`` sets the window title), and bidirectional marks change the
displayed order of a text. Everything printed for people goes through :func:`printable` or :func:`printable_lines`; JSON
writes the same characters as escapes, which lose nothing (:mod:`blis_tui.base.canonical`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence


_WIDTH: Final = 100
_WIDEST: Final = 48
"""Widest name column with texts beside it; longer names push their own text to the right."""


def aligned(rows: Sequence[Sequence[str]], right: Container[int], gap: int = 2) -> Iterator[str]:
    """Format rows of cells as lines, with ``gap`` blanks between columns and no trailing blanks.

    Args:
        rows: rows of equal length.
        right: right-aligned columns, counted from 0.
        gap: blanks between two columns.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        line = (" " * gap).join(cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in cells)
        yield line.rstrip()


def described(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Format names with their meanings beside them, wrapped and indented by four."""
    from textwrap import wrap  # noqa: PLC0415  (plain lists of names do not need it)

    listed = list(rows)
    width = min(max((len(name) for name, _ in listed), default=0), _WIDEST)
    for name, text in listed:
        first, *more = wrap(text, max(_WIDTH - width - 6, 30)) or [""]
        yield f"    {name:<{width}}  {first}".rstrip()
        yield from (f"    {'':<{width}}  {line}" for line in more)


def clip(text: str, room: int) -> str:
    """Shorten a text in the middle, because both ends of a path matter."""
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def cut(text: str, room: int) -> str:
    """Shorten a text at its end."""
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"


# Listed explicitly: Unicode's categories differ between versions of Python.
_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f"
_UNSEEN: Final = (
    r"\xad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian vowel separator
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # joiners, directions, line separators, invisible operators
    r"\ufeff\ufff9-\ufffb"  # byte-order mark, annotations
    r"\ud800-\udfff"  # surrogates, which no encoding has
    r"\U000e0000-\U000e007f"  # tags
)
REPLACEMENT: Final = "\ufffd"


@cache
def control_characters() -> re.Pattern[str]:
    """Return the pattern of characters that a terminal acts on or does not show; compiled on first, rare use."""
    return re.compile(f"[{_CONTROLS}{_UNSEEN}]")


def printable(text: str) -> str:
    """Sanitize a text for a single line: tabs become blanks, and dangerous characters a replacement character."""
    if text.isascii() and text.isprintable():
        return text
    return control_characters().sub(REPLACEMENT, text.replace("\t", " "))


def escaped(text: str) -> str:
    """Write dangerous characters of a name as escapes of Python, so that different names stay different."""
    if text.isascii() and text.isprintable():
        return text
    return control_characters().sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """Sanitize a text of several lines like :func:`printable`, but keep line ends and tabs."""
    shown = text.replace("\n", "").replace("\t", "")
    if shown.isascii() and shown.isprintable():
        return text
    return control_characters().sub(
        lambda match: match[0] if match[0] in "\n\t" else REPLACEMENT, text.replace("\r\n", "\n")
    )


_BLANK: Final = 0x2800
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille character, by column and row."""


def draw(values: Sequence[float | None], height: int, top: float, *, filled: bool = False) -> list[str]:
    """Draw values from left to right as a line, two per character; return rows from the top. None = a gap.

    Args:
        values: what to draw.
        height: number of rows.
        top: the value at the upper edge.
        filled: also set every second dot below the line, so that another line can be told from the area.
    """
    width = (len(values) + 1) // 2
    cells = [[0] * width for _ in range(height)]
    dots = 4 * height - 1
    before: int | None = None
    for x, value in enumerate(values):
        if value is None:
            before = None
            continue
        level = min(max(int(value * dots / top + 0.5), 0), dots) if top > 0 else 0
        start = level if before is None else before
        upright = range(min(start, level), max(start, level) + 1)
        area = range(x % 2, upright.start, 2) if filled else ()
        for y in (*area, *upright):
            cells[height - 1 - y // 4][x // 2] |= _DOTS[x % 2][3 - y % 4]
        before = level
    return ["".join([chr(_BLANK + bits) if bits else " " for bits in row]) for row in cells]


def scatter(places: Iterable[tuple[float, float]], width: int, height: int) -> list[str]:
    """Draw a dot for each place; return rows from the top. Places beyond an edge are drawn at it.

    Args:
        places: shares of the width, from the left, and of the height, from the bottom; 0 to 1.
        width: number of columns.
        height: number of rows.
    """
    cells = [[0] * width for _ in range(height)]
    for across, up in places:
        x, y = _dot(across, 2 * width), _dot(up, 4 * height)
        cells[height - 1 - y // 4][x // 2] |= _DOTS[x % 2][3 - y % 4]
    return ["".join([chr(_BLANK + bits) if bits else " " for bits in row]) for row in cells]


def _dot(share: float, count: int) -> int:
    return min(max(int(share * (count - 1) + 0.5), 0), count - 1)
