"""Figures over time, drawn in braille characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.portable_math import whole_sum
from blis_tui.base.text import draw
from blis_tui.base.units import count_text, plural
from blis_tui.tui.drawing.lines import cells_text
from blis_tui.tui.drawing.series import (
    BY_NAME,
    COMPANIONS,
    FUTURE,
    KV_USE,
    PAST,
    RUNNING,
    WAITING,
    coloured,
    course,
    courses_of_instances,
    kv_blocks,
    quantity_text,
    sample,
    value_text,
)
from blis_tui.tui.panes.timeline import Scale, axis, round_end, scale_of, scale_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.drawing.series import Series
    from blis_tui.tui.screens.compare_lines import CompareView, SideView
    from blis_tui.tui.view import View

GUTTER: Final = 10
"""Width of the value labels left of the plot."""
_HERE: Final = "│"
SECOND: Final = "$warning"
"""Colour of the figure drawn over the first one."""
AREA, LINE = "⣿", "⠤⠤"
"""Samples of an area and a line, for the legend."""


def _layered(area: str, line: str, here: int) -> Content:
    """Return a row of an area with a line over it, in colours; dimmed after column ``here``."""
    chars = [below if above == " " else above for below, above in zip(area, line, strict=True)]
    styles = [FUTURE if cell > here else PAST if above == " " else SECOND for cell, above in enumerate(line)]
    return cells_text(chars, styles)


def _with_position(area: str, line: str, here: int) -> Content:
    """Return a row of an area with a line over it, and the mark of the present position."""
    at = line[here] if line[here] != " " else area[here]
    drawn = _layered(area, line, here)
    return Content.assemble(drawn[:here], (_HERE if at == " " else at, "$accent bold"), drawn[here + 1 :])


def plot_scale(view: View, width: int) -> Scale:
    """Return the scale of a plot of that width, without the labels."""
    return scale_of(view, width - GUTTER)


def plot(view: View, series: Series, width: int, height: int) -> list[Content]:
    """Return a figure over the whole run, with value labels and times; its companion is a line over it.

    The known future is dimmed; a vertical line marks the present position.
    """
    scale = plot_scale(view, width)
    drawn = max(height - 2, 1)  # without the name above and the times below
    companion = BY_NAME.get(COMPANIONS.get(series.name, ""))
    values, others = (
        [None] * 2 * scale.cells if curve is None else course(curve, view, scale.end_us, 2 * scale.cells)
        for curve in (series, companion)
    )
    top = top_value(series, [*values, *others], view)
    here = scale.cell(view.moment.time_us)
    rows = area_with_line(values, others, top, _labels(series, top, drawn, view), here)
    return [_title(series, companion, width), *rows, Content.assemble(" " * GUTTER, axis(scale))]


def area_with_line(
    values: Sequence[float | None], others: Sequence[float | None], top: float, labels: Sequence[str], here: int
) -> list[Content]:
    """Return an area with a line over it, one row per label, and the mark of the present position."""
    area, line = draw(values, len(labels), top, filled=True), draw(others, len(labels), top)
    return [
        Content.assemble(_label(text), _with_position(below, above, here))
        for below, above, text in zip(area, line, labels, strict=True)
    ]


def _title(series: Series, companion: Series | None, width: int) -> Content:
    """Return the figure's name, and as much of its meaning as fits."""
    if companion is not None:
        title = Content.assemble(
            (f"{AREA} ", PAST), (series.name, "bold"), (f"  {LINE} ", SECOND), (companion.name, "bold")
        )
        return title if title.cell_length <= width else Content.styled(series.name, "bold")
    room = width - len(series.name)
    about = next((text for text in (series.about, series.about.rpartition(", ")[0]) if len(text) + 2 <= room), "")
    return Content.assemble((series.name, "bold"), (f"  {about}" if about else "", "$text-muted"))


def top_value(series: Series, values: Sequence[float | None], view: View) -> float:
    """Return the value at the upper edge: all blocks for a share of them, else a round one."""
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


def strips(view: View, series: Series, width: int, height: int) -> list[Content]:
    """Return each instance's KV use or number of requests in a row, on the plot's axis.

    Args:
        view: the view.
        series: the figure of the plot above.
        width: columns.
        height: rows; if there are more instances, the last row says how many.
    """
    scale = plot_scale(view, width)
    overview = view.tape.overview
    requests = series in (WAITING, RUNNING)
    read = overview.load_of if requests else overview.kv_of
    drawn = courses_of_instances(
        view, [read(index) for index in range(view.tape.instances)], scale.end_us, scale.cells, requests=requests
    )
    known = [value for curve in drawn for value in curve if value is not None]
    top = max(known, default=0) if requests else max(profile.limits.kv_blocks for profile in view.tape.profiles)
    figure = f"requests of each instance, ▁ none to █ {count_text(int(top))}" if requests else "KV in use by instance"
    rows = [Content.styled(figure, "bold")]
    here = scale.cell(view.moment.time_us)
    shown = len(drawn) if len(drawn) < height else height - 2
    chosen = view.selection.instance
    # Scroll so that the selected instance is visible.
    first = 0 if chosen is None else min(max(chosen - shown + 1, 0), max(len(drawn) - shown, 0))
    for index, curve in list(enumerate(drawn))[first : first + shown]:
        label = _label(f"{'▸' if index == chosen else ''}i{index}")
        rows.append(Content.assemble(label, coloured(WAITING if requests else KV_USE, curve, top, here)))
    if shown < len(drawn):
        rows.append(Content.styled(f"{'':{GUTTER}}… {plural(len(drawn) - shown, 'more instance')}", "$text-muted"))
    return rows


# ---- two runs: one as an area, the other as a line over it ----

_LEAST_ROWS: Final = 4


def curves_text(view: CompareView, series: Series, width: int, height: int) -> Content:
    """Return a figure of A and B on one scale, as long as the longer run; dimmed after the position."""
    if height < _LEAST_ROWS or width <= 2 * GUTTER:
        return Content("")
    known_us = max(side.tape.time_us(side.moment.frontier) for side in view.sides)
    complete = all(side.moment.complete for side in view.sides)
    scale = scale_until(known_us, width - GUTTER, complete=complete)
    a, b = (_of_side(side, series, scale) for side in view.sides)
    highest = max((value for value in [*a, *b] if value is not None), default=0)
    top = 1.0 if series is KV_USE else float(round_end(max(int(highest + 0.999), 1)))
    labels = [_axis_label(series, top), *[""] * (height - 4), _axis_label(series, 0)]
    lines = area_with_line(a, b, top, labels, scale.cell(max(side.moment.time_us for side in view.sides)))
    title = Content.assemble((f"{AREA} A", PAST), (f"  {LINE} B", SECOND), (f"  {series.about}", "$text-muted"))
    return Content("\n").join([title.truncate(width, ellipsis=True), *lines, Content(" " * GUTTER) + axis(scale)])


def _of_side(side: SideView, series: Series, scale: Scale) -> Sequence[float | None]:
    known_us = side.tape.time_us(side.moment.frontier)
    samples = sample(series, side.tape.overview, scale.end_us, 2 * scale.cells, known_us)
    if series is not KV_USE:
        return samples
    blocks = whole_sum([instance.kv.total_blocks for instance in side.moment.after.instances])
    return [None if value is None else value / max(blocks, 1) for value in samples]


def _axis_label(series: Series, value: float) -> str:
    return f"{100 * value:.0f} %" if series is KV_USE else quantity_text(series.unit, value)
