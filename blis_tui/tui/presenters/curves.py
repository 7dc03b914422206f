"""One figure of two runs over time, the one as an area and the other as a line over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.tui.presenters.plot import AREA, GUTTER, LINE, SECOND, draw, with_position
from blis_tui.tui.presenters.series import KV_USE, PAST, SERIES, quantity_text, sample
from blis_tui.tui.presenters.timeline import Scale, axis, round_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.presenters.compare import CompareView, SideView
    from blis_tui.tui.presenters.series import Series

CHOICES: Final[tuple[Series, ...]] = SERIES
"""The figures that can be drawn."""
_LEAST_ROWS: Final = 4
_LEAST_US: Final = 1_000_000


def curves_text(view: CompareView, series: Series, width: int, height: int) -> Content:
    """The figure of A and of B on one scale, with the position of both; what lies behind it is dimmed."""
    if height < _LEAST_ROWS or width <= 2 * GUTTER:
        return Content("")
    scale = _scale(view, width - GUTTER)
    a, b = (_values(side, series, scale) for side in view.sides)
    highest = max((value for value in [*a, *b] if value is not None), default=0)
    top = 1.0 if series is KV_USE else float(round_end(max(int(highest + 0.999), 1)))
    rows = height - 2
    here = scale.cell(max(side.moment.time_us for side in view.sides))
    labels = {0: _label(series, top), rows - 1: _label(series, 0)}
    lines = [
        Content.assemble((f"{labels.get(row, ''):>{GUTTER - 1}} ", "$text-muted"), with_position(area, line, here))
        for row, (area, line) in enumerate(zip(draw(a, rows, top, filled=True), draw(b, rows, top), strict=True))
    ]
    title = Content.assemble((f"{AREA} A", PAST), (f"  {LINE} B", SECOND), (f"  {series.about}", "$text-muted"))
    return Content("\n").join([title.truncate(width, ellipsis=True), *lines, Content(" " * GUTTER) + axis(scale)])


def _scale(view: CompareView, cells: int) -> Scale:
    """As long as the longer run, as far as it is known; up to a round time while it grows."""
    known_us = max(side.tape.time_us(side.moment.frontier) for side in view.sides)
    if all(side.moment.complete for side in view.sides):
        return Scale(known_us + 1, cells)
    return Scale(round_end(max(known_us + 1, _LEAST_US)), cells)


def _values(side: SideView, series: Series, scale: Scale) -> Sequence[float | None]:
    known_us = side.tape.time_us(side.moment.frontier)
    found = sample(series, side.tape.overview, scale.end_us, 2 * scale.cells, known_us)
    if series is not KV_USE:
        return found
    blocks = 0
    for instance in side.moment.after.instances:
        blocks += instance.kv.total_blocks
    return [None if value is None else value / max(blocks, 1) for value in found]


def _label(series: Series, value: float) -> str:
    return f"{100 * value:.0f} %" if series is KV_USE else quantity_text(series.unit, value)
