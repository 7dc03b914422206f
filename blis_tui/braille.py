"""Curves and points drawn with the dots of braille characters, two across and four down in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
