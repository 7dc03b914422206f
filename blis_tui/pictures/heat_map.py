"""A figure of a study's points over two axes."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.pictures.parts import Picture, View, label
from blis_tui.pictures.points import coordinate, short
from blis_tui.units import number_text

if TYPE_CHECKING:
    from blis_tui.pictures.points import Points
    from blis_tui.study.summary import PointSummary

_VIEWS: Final = 40
_CELLS_WITH_TEXT: Final = 150


class Cell(NamedTuple):
    """The best point at two coordinates: its figure, and whether it meets all bounds."""

    value: float
    one: PointSummary


def cells_of(points: Points, x: str, y: str, metric: str) -> dict[tuple[str, str], Cell]:
    """Return, by two coordinates, the best point that meets all bounds, or without any the best of all."""
    found: dict[tuple[str, str], Cell] = {}
    sign = -1 if points.goal(metric) == "max" else 1
    for one in points.all:
        value = one.mean(metric)
        if value is None or one.status != "done":
            continue
        place = (coordinate(one, x), coordinate(one, y))
        known = found.get(place)
        if known is None or (one.ok is False, sign * value) < (known.one.ok is False, sign * known.value):
            found[place] = Cell(value, one)
    return found


def heat_map_picture(points: Points) -> Picture | None:
    """Return every pair of axes and every figure, one at a time; None if fewer than two axes vary."""
    pairs = list(combinations(points.varied, 2))
    chosen = list(product(pairs, [*points.latencies, *(one for one in points.metrics if one not in points.latencies)]))[
        :_VIEWS
    ]
    views = {}
    for (x, y), metric in chosen:
        title = f"{short(metric)} over {points.names[x]} and {points.names[y]}"
        if cells := cells_of(points, x, y, metric):
            views[title] = _view(points, x, y, metric, cells)
    if not views:
        return None
    others = len(points.varied) > 2
    return Picture(
        name="heat-map",
        title="Two axes at a time",
        description=f"A heat map of a metric over two of {len(points.varied)} axes; the selector has every pair.",
        views=views,
        height=420,
        note=(
            "Other axes are at their best: of the points of a cell the one shown meets all bounds, if one does. "
            if others
            else ""
        )
        + "✗: a bound does not hold. Where a figure is bounded, colours end at twice the bound. Means over seeds.",
    )


def _view(points: Points, x: str, y: str, metric: str, cells: dict[tuple[str, str], Cell]) -> View:
    columns, rows = points.values[x], points.values[y]
    grid = [[cells.get((column, row)) for column in columns] for row in rows]
    bound = points.bound(metric)
    top = max(one.value for one in cells.values())
    capped = {"zmax": 2 * bound, "zmin": 0} if bound is not None and top > 2 * bound else {}
    few = len(columns) * len(rows) <= _CELLS_WITH_TEXT
    trace: dict[str, object] = {
        "type": "heatmap",
        "x": [label(one) for one in columns],
        "y": [label(one) for one in rows],
        "z": [[None if one is None else one.value for one in line] for line in grid],
        "text": [["" if one is None else _text(one) for one in line] for line in grid],
        "customdata": [["" if one is None else label(points.name(one.one)) for one in line] for line in grid],
        "hovertemplate": "%{customdata}<br>" + label(metric) + " %{text}<extra></extra>",
        "colorscale": "Viridis",
        "reversescale": points.goal(metric) == "min",
        "colorbar": {"title": {"text": label(metric), "side": "right"}, "thickness": 14},
        "xgap": 1,
        "ygap": 1,
        **({"texttemplate": "%{text}"} if few else {}),
        **capped,
    }
    category = {"type": "category", "showgrid": False}
    layout = {
        "xaxis": {**category, "title": {"text": label(x)}},
        "yaxis": {**category, "title": {"text": label(y)}},
        "margin": {"l": 80, "r": 16, "t": 16, "b": 56},
    }
    return View([trace], layout)


def _text(cell: Cell) -> str:
    return number_text(cell.value) + (" ✗" if cell.one.ok is False else "")
