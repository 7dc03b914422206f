"""The points of a study in pictures: over the rate, over two axes, and against each other with the Pareto front."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.html import Table
from blis_tui.base.units import number_text
from blis_tui.pictures.page import Picture, PictureView, label
from blis_tui.pictures.panels import PALETTE, bound_line, line_of, spread_line, star, value_axis
from blis_tui.pictures.points import coordinate, short, verdict
from blis_tui.spec.study.study_records import Objective
from blis_tui.study.point_summary import load_paths, study_front
from blis_tui.study.study_rows import value_text
from blis_tui.study.study_text import same_load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.pictures.points import Points
    from blis_tui.study.point_summary import PointSummary


_PAIRS: Final = 6
POINTS: Final = 2_000
"""Maximum number of points of a kind; of more, some at equal distances are drawn. The front is always complete."""


def front_picture(points: Points) -> Picture | None:
    """Return the points by two figures at a time; None if they have none.

    The first pair is the first two objectives; with fewer objectives, cost and latency.
    """
    pairs = [pair for pair in _pairs(points) if _placed(points.all, pair)]
    if not pairs:
        return None
    views = {f"{short(pair[1].metric)} over {short(pair[0].metric)}": _front_view(points, pair) for pair in pairs}
    first, rivals = pairs[0], same_load(points.study)
    best = _front(points, first)
    unbeaten = f"No other point that meets all bounds{rivals} beats"
    rows = [
        (f"{one.point.number}", points.name(one), *(number_text(one.mean(metric.metric)) for metric in first))
        for one in best
    ]
    return Picture(
        name="front",
        title="Pareto front",
        description=f"Each point by {first[0].metric} and {first[1].metric}. {unbeaten}"
        f" {len(best)} of {len(points.all)}: " + "; ".join(points.name(one) for one in best[:8]) + ".",
        views=views,
        height=440,
        table=Table(
            caption="The points of the front, in the first two figures",
            head=("point", "", *(one.metric for one in first)),
            rows=rows,
            words=(1,),
        ),
        note=f"The front: by {_by(points, first)}, no other point that meets all bounds{rivals} is better in one of"
        " these and not worse in the others. It is a line where the two figures shown alone decide, for one load."
        " Means over seeds.",
    )


def _by(points: Points, first: tuple[Objective, Objective]) -> str:
    return ", ".join(one.metric for one in (points.study.objectives if points.has_front else first))


def _front(points: Points, pair: tuple[Objective, Objective]) -> list[PointSummary]:
    """Return the points of the front that have both figures, sorted by the first one.

    If the study has several objectives, they define the front, whichever two figures are shown.
    """
    if not points.has_front:
        return list(study_front(points.study, points.all, pair))
    found = [one for one in _placed(points.all, pair) if one.point.number in points.front]
    return sorted(found, key=lambda one: (one.mean(pair[0].metric) or 0.0, one.point.number))


def _pairs(points: Points) -> list[tuple[Objective, Objective]]:
    said = list(points.study.objectives)
    more = [points.cost, *points.metrics]
    known = {one.metric for one in said}
    said += [Objective(metric=one, goal=points.goal(one)) for one in dict.fromkeys(more) if one not in known]
    return list(combinations(said[:5], 2))[:_PAIRS]


def _placed(members: Sequence[PointSummary], pair: Sequence[Objective]) -> list[PointSummary]:
    """Return the points of complete runs that have both figures."""
    return [one for one in members if one.status == "done" and None not in [one.mean(each.metric) for each in pair]]


def _front_view(points: Points, pair: tuple[Objective, Objective]) -> PictureView:
    best = _front(points, pair)
    alone = {one.point.number for one in best} == {
        one.point.number for one in study_front(points.study, points.all, pair)
    }
    alone = alone and not load_paths(points.study)
    numbers = {one.point.number for one in best}
    placed = _placed(points.all, pair)
    others = [one for one in placed if one.point.number not in numbers]
    groups = (
        ("does not hold", [one for one in others if one.ok is False], "x", PALETTE[1], 8),
        ("beaten", [one for one in others if one.ok is not False], "circle-open", PALETTE[-1], 8),
        ("front", list(best), "circle", PALETTE[0], 11),
    )
    traces = []
    for name, found, symbol, color, size in groups:
        members = found[:: -(-len(found) // POINTS) or 1]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if name == "front" and alone else "markers",
                "name": name,
                "x": [one.mean(pair[0].metric) for one in members],
                "y": [one.mean(pair[1].metric) for one in members],
                "customdata": [[one.point.number, label(points.name(one)), verdict(one)] for one in members],
                "marker": {"symbol": symbol, "color": color, "size": size, "line": {"width": 1.5, "color": color}},
                "line": {"color": color, "width": 1.5, "dash": "dot"},
                "hovertemplate": "<b>point %{customdata[0]}</b>: %{customdata[1]}<br>"
                f"{short(pair[0].metric)} %{{x:,.4~g}}, {short(pair[1].metric)} %{{y:,.4~g}}"
                "<br>%{customdata[2]}<extra></extra>",
            }
        )
    x, y = (value_axis(_axis(each), [one.mean(each.metric) or 0.0 for one in placed]) for each in pair)
    layout = {
        "xaxis": x,
        "yaxis": y,
        "shapes": [
            bound_line(axis, bound)
            for axis, one in zip("xy", pair, strict=True)
            if (bound := points.bound(one.metric)) is not None
        ],
    }
    return PictureView([one for one in traces if one["x"]], layout)


def _axis(one: Objective) -> str:
    return f"{one.metric} ({'less' if one.goal == 'min' else 'more'} is better)"


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
            views[title] = _heat_map_view(points, x, y, metric, cells)
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


def _heat_map_view(points: Points, x: str, y: str, metric: str, cells: dict[tuple[str, str], Cell]) -> PictureView:
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
    return PictureView([trace], layout)


def _text(cell: Cell) -> str:
    return number_text(cell.value) + (" ✗" if cell.one.ok is False else "")


LINES: Final = 14
"""Maximum number of lines."""

_NOTE: Final = (
    "Stars are knees: up to that rate every point meets all bounds, and none is overloaded. The true knee lies"
    " between a star and the next point, or, where the star is hollow, beyond the last one. Bars reach from the lowest"
    " to the highest seed."
)


class PlotLine(NamedTuple):
    """Points that differ only in their rate, sorted by rate."""

    name: str
    rates: tuple[float, ...]
    members: tuple[PointSummary, ...]

    @property
    def knee(self) -> int | None:
        """Return the index of the highest rate up to which every point meets all bounds without overload, or None."""
        good = 0
        for one in self.members:
            if one.ok is False or one.status != "done" or any("overload" in row.warnings for row in one.rows):
                break
            good += 1
        return good - 1 if good else None

    @property
    def holds_throughout(self) -> bool:
        """Return whether the knee, if there is one, lies beyond the highest tried rate."""
        return self.knee == len(self.members) - 1

    def knee_text(self) -> str:
        """Return the highest rate before the knee, as text."""
        if self.knee is None:
            return "none"
        return f"{self.rates[self.knee]:g}" + (" or more" if self.holds_throughout else "")


def rate_path(points: Points) -> str | None:
    """Return the path of the arrival rate, if one varies."""
    return next((path for path in points.varied if path.rsplit(".", 1)[-1] == "rate_per_s"), None)


def lines_of(points: Points, path: str) -> list[PlotLine]:
    """Return the points as lines over a path of numbers, those with the highest knee first."""
    others = [one for one in points.varied if one != path]
    found: dict[tuple[str, ...], list[tuple[float, PointSummary]]] = {}
    for one in points.all:
        rate = one.coordinates[path]
        if isinstance(rate, int | float) and one.status in ("done", "stopped"):
            found.setdefault(tuple(coordinate(one, other) for other in others), []).append((float(rate), one))
    lines = []
    for members in found.values():
        members.sort(key=lambda pair: pair[0])
        first = members[0][1]
        name = ", ".join(f"{points.names[other]} {value_text(first.coordinates[other])}" for other in others)
        lines.append(PlotLine(name or "all", tuple(rate for rate, _ in members), tuple(one for _, one in members)))
    return sorted(lines, key=lambda line: -1.0 if line.knee is None else -line.rates[line.knee] - 1.0)


def rate_picture(points: Points) -> Picture | None:
    """Return latency against rate, a line per configuration; None if no axis is a rate."""
    path = rate_path(points)
    lines = [] if path is None else lines_of(points, path)
    if path is None or not lines:
        return None
    shown = lines[:LINES]
    knees = [(line.name, line.knee_text()) for line in lines]
    beyond = "" if len(shown) == len(lines) else f" Of {len(lines)} lines those with the highest knees are drawn."
    return Picture(
        name="rate",
        title="Latency against rate",
        description="Figures over the rate of arrivals, a line for each configuration. Knees: "
        + "; ".join(f"{name} at {rate}" for name, rate in knees[:8])
        + ".",
        views={metric: _rate_view(points, path, shown, metric) for metric in points.latencies},
        height=440,
        table=Table(caption="The knee of each line", head=("", f"highest {label(path)}"), rows=knees),
        note=_NOTE + beyond,
    )


def _rate_view(points: Points, path: str, lines: Sequence[PlotLine], metric: str) -> PictureView:
    traces: list[dict[str, object]] = []
    everything: list[float] = []
    for color, line in enumerate(lines):
        placed = [
            (rate, mean, one.values(metric))
            for rate, one in zip(line.rates, line.members, strict=True)
            if one.status == "done" and (mean := one.mean(metric)) is not None
        ]
        everything += [mean for _, mean, _ in placed]
        bars = [(min(values), max(values)) for _, _, values in placed]
        own: dict[str, object] = {"name": label(line.name), "legendgroup": label(line.name)}
        over = spread_line(
            [rate for rate, _, _ in placed],
            [mean for _, mean, _ in placed],
            [low for low, _ in bars],
            [high for _, high in bars],
            shown=any(len(values) > 1 for _, _, values in placed),
        )
        hover = "%{y:,.4~g} at %{x:,g}/s<extra>%{fullData.name}</extra>"
        traces.append({**over, **own, "line": line_of(color), "hovertemplate": hover})
        if line.knee is not None and (value := line.members[line.knee].mean(metric)) is not None:
            knee = star(line.rates[line.knee], value, color, 15, hollow=line.holds_throughout)
            traces.append({**knee, **own, "showlegend": False, "hovertemplate": f"knee: {hover}"})
    bound = points.bound(metric)
    layout: dict[str, object] = {
        "xaxis": {"title": {"text": label(path)}, "rangemode": "tozero"},
        "yaxis": value_axis(metric, everything),
        "shapes": [] if bound is None else [bound_line("y", bound)],
        "showlegend": len(lines) > 1,
    }
    return PictureView(traces, layout)
