"""A line drawn with the dots of braille characters: two across and four down in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.tui.presenters.series import FUTURE, PAST, course, kv_blocks, value_text
from blis_tui.tui.presenters.timeline import Scale, axis, round_end, scale_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.presenters.series import Series
    from blis_tui.tui.view import View

_BLANK: Final = 0x2800
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille character, by column and row."""
GUTTER: Final = 10
"""Columns left of the plot, for its values."""
_HERE: Final = "│"


def draw(values: Sequence[float | None], height: int, top: float) -> list[str]:
    """The values from left to right as one line, two to a character; rows from the top. None = a gap."""
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
        for y in range(min(start, level), max(start, level) + 1):
            cells[height - 1 - y // 4][x // 2] |= _DOTS[x % 2][3 - y % 4]
        before = level
    return ["".join(chr(_BLANK + bits) if bits else " " for bits in row) for row in cells]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where things are in a plot: the columns of the gutter, then those of the scale."""

    scale: Scale
    rows: int
    """Rows of the line itself; above it one for the name, below one for the times."""


def frame_of(view: View, width: int, height: int) -> Frame:
    """The inner measures of a plot."""
    return Frame(scale_of(view, width - GUTTER), max(height - 2, 1))


def plot(view: View, series: Series, width: int, height: int) -> list[Content]:
    """A figure over the whole run, with its values on the left and times below.

    What is known of the future is dimmed; an upright line stands at the present position.
    """
    frame = frame_of(view, width, height)
    scale = frame.scale
    values = course(series, view, scale.end_us, 2 * scale.cells)
    top = top_value(series, values, view)
    here = scale.cell(view.moment.time_us)
    room = width - len(series.name)
    rows = [
        Content.assemble(_label(text), _row(line, here))
        for line, text in zip(draw(values, frame.rows, top), _labels(series, top, frame.rows, view), strict=True)
    ]
    about = next((text for text in (series.about, series.about.rpartition(", ")[0]) if len(text) + 2 <= room), "")
    title = Content.assemble((series.name, "bold"), (f"  {about}" if about else "", "$text-muted"))
    return [title, *rows, Content.assemble(" " * GUTTER, axis(scale))]


def top_value(series: Series, values: Sequence[float | None], view: View) -> float:
    """The value at the upper edge: all blocks for a share of them, else a round one."""
    if series.unit == "share":
        return kv_blocks(view)
    highest = max((value for value in values if value is not None), default=0)
    return round_end(max(int(highest + 0.999), 1))


def _labels(series: Series, top: float, rows: int, view: View) -> list[str]:
    labels = [""] * rows
    labels[0] = value_text(series, top, view)
    half_is_whole = series.unit != "count" or top % 2 == 0
    if rows >= 5 and rows % 2 and half_is_whole:
        labels[rows // 2] = value_text(series, top / 2, view)
    if rows > 1:
        labels[-1] = value_text(series, 0, view)
    return labels


def _label(text: str) -> Content:
    return Content.styled(text.rjust(GUTTER - 1) + " ", "$text-muted")


def _row(line: str, here: int) -> Content:
    """A row of dots, with the present position in it."""
    at = line[here]
    return Content.assemble(
        (line[:here], PAST),
        (_HERE if at == " " else at, "$accent bold"),
        (line[here + 1 :], FUTURE),
    )
