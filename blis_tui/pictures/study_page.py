"""The page about a study: its points, their costs and results in pictures, and the best of them over time."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from html import escape
from itertools import combinations, product
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from blis_tui.base.canonical import to_sorted_json
from blis_tui.base.classes import NamedTuple
from blis_tui.base.html import Table
from blis_tui.base.units import number_text, plural
from blis_tui.pictures.arrivals import NAMES, OF, percentile_axis, place
from blis_tui.pictures.page import (
    PALETTE,
    Card,
    Picture,
    PictureView,
    Section,
    bound_line,
    cards,
    document,
    label,
    line_of,
    page,
    paragraph,
    provenance,
    spread_line,
    star,
    unfold,
    value_axis,
)
from blis_tui.pictures.points import Points, chosen_section, coordinate, short, verdict
from blis_tui.spec.study.study_records import Objective
from blis_tui.study.point_summary import load_paths, scenarios, step_times_lines, still_grows, study_front
from blis_tui.study.study_rows import value_text
from blis_tui.study.study_text import best_words, bound_text, same_load, ties_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.pictures.points import Chosen
    from blis_tui.study.point_summary import PointSummary
    from blis_tui.study.study_rows import StudyResult

ROWS: Final = 2_000
"""Maximum number of points in the table."""
_BEST: Final = 12
_WHY: Final = 60
_CURVES: Final = 7
"""Maximum number of points with a percentile line."""
_PERCENTS: Final = (50, 90, 95, 99)


def study_page(result: StudyResult, chosen: Sequence[Chosen] = ()) -> str:
    """Return the page about a study.

    Args:
        result: its rows, all or those so far.
        chosen: runs to show over time (see :func:`blis_tui.pictures.points.choose`).

    Raises:
        InputError: the plotting library is not installed.
    """
    points, study = Points.of(result), result.study
    pictures = (front_picture(points), rate_picture(points), _percentiles(points), heat_map_picture(points))
    sections = [
        Section(name="overview", title="Overview", content=_overview(result, points)),
        Section(
            name="compared", title="Points compared", content=[picture for picture in pictures if picture is not None]
        ),
        Section(name="points", title="All points", content=[_table(points)] if points.all else []),
        chosen_section(chosen) if chosen else Section(name="runs", title=""),
        Section(name="settings", title="All settings", content=[_settings(result)]),
        Section(name="provenance", title="Provenance", content=[_provenance(result), _digests(result)]),
    ]
    about = study.description or f"{study.experiment} with {plural(len(study.points), 'combination')} of settings."
    return page(f"{study.name}: a study", about, sections)


def _overview(result: StudyResult, points: Points) -> list[str | Table]:
    study = result.study
    seeds = f"{len(study.seeds):,} seeds each" if len(study.seeds) > 1 else "one seed each"
    summary_cards = [
        Card(name="Points", value=f"{len(study.points):,}", more=seeds),
        Card(name="Axes", value=f"{len(study.axes):,}", more=", ".join(points.names.values())),
    ]
    if study.constraints:
        held = [point for point in points.all if point.ok]
        wishes = ", ".join(map(bound_text, study.constraints))
        summary_cards.append(Card(name="Points that meet all bounds", value=f"{len(held):,}", more=wishes))
    if points.front:
        what = ", ".join(f"{objective.goal} {objective.metric}" for objective in study.objectives)
        name = "Points on the front" if points.has_front else "Best points"
        summary_cards.append(Card(name=name, value=f"{len(points.front):,}", more=what))
    parts: list[str | Table] = [cards(summary_cards)]
    if not result.complete:
        known = f"The study was interrupted: {len(result.rows):,} of {plural(study.runs, 'run')} are known."
        parts.append(f"<div class='finding error'>{paragraph(known)}</div>")
    for status, words in _ENDS.items():
        ended = [point for point in points.all if point.status == status]
        if ended:
            first = ended[0]
            text = (
                f"{len(ended):,} of {plural(len(points.all), 'point')} {words}. Point {first.point.number}: {first.why}"
            )
            parts.append(f"<div class='finding'>{paragraph(text)}</div>")
    best = [point for point in points.all if point.point.number in points.front]
    if best:
        what = f"Points that no other one{same_load(study)} beats" if points.has_front else "The best points"
        what += "" if points.has_front else f" in {study.objectives[0].metric}{same_load(study)}"
        caption = f"{what}{_first(best)}; means over seeds"
        parts.append(_rows(points, best[:_BEST], caption))
    parts += _by_load(points)
    accuracy = [*step_times_lines(study, (best or list(points.all))[:_BEST])]
    return [*parts, *([f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in accuracy)}</ul>"] if accuracy else [])]


def _by_load(points: Points) -> list[str | Table]:
    """Return the best point for each load, if the load varies and there is a choice."""
    outcomes = scenarios(points.study, points.all)
    best = [scenario.best for scenario in outcomes if scenario.best is not None]
    if not outcomes:
        return []
    names = " and ".join(points.names[path] for path in load_paths(points.study))
    parts: list[str | Table] = []
    if best:
        caption = f"For each {names}: {best_words(points.study, points.all)}; means over seeds"
        parts.append(_rows(points, best, caption))
        parts += [paragraph(text) for text in ties_text(points.study, outcomes)]
    without = [", ".join(map(value_text, scenario.values)) for scenario in outcomes if scenario.best is None]
    if without:
        text = f"No point meets all bounds where {names} is {' or '.join(without)}."
        parts.append(f"<div class='finding'>{paragraph(text)}</div>")
    return parts


def _first(best: Sequence[PointSummary]) -> str:
    return "" if len(best) <= _BEST else f", the first {_BEST} of {len(best):,}"


_ENDS: Final = {
    "failed": "failed",
    "invalid": "are not valid experiments",
    "stopped": "were stopped early, when a bound could no longer hold",
}


def _table(points: Points) -> Table:
    shown = points.all[:ROWS]
    rest = len(points.all) - len(shown)
    more = "" if rest == 0 else f"; {rest:,} more points are in the files that a sweep writes"
    return replace(_rows(points, shown, f"Means over seeds; a click on a name sorts{more}"), sortable=True)


def _rows(points: Points, members: Sequence[PointSummary], caption: str) -> Table:
    """Return a table of points with their coordinates and figures."""
    metrics, names = points.metrics, points.names
    rows = []
    for member in members:
        coordinates = (value_text(member.coordinates[path]) for path in names)
        figures = (number_text(member.mean(metric)) for metric in metrics)
        unbeaten = ", front" if points.has_front else ", best"
        result = verdict(member) + (unbeaten if member.point.number in points.front else "")
        why = "" if member.status == "done" else f": {shorten(member.why, _WHY, placeholder=' …')}"
        rows.append((f"{member.point.number}", *coordinates, *figures, result + why))
    head = ("point", *names.values(), *map(short, metrics), "result")
    texts = [
        at for at, path in enumerate(names, 1) if any(isinstance(member.coordinates[path], str) for member in members)
    ]
    kinds = {True: "good", False: "bad", None: ""}
    words, classes = (*texts, len(head) - 1), [kinds[member.ok] for member in members]
    return Table(caption=caption, head=head, rows=rows, words=words, classes=classes)


def _percentiles(points: Points) -> Picture | None:
    """Four percentiles of each latency, for the best points or the first that meet all bounds."""
    done = [point for point in points.all if point.status == "done"]
    front = [point for point in done if point.point.number in points.front]
    members = (front or [point for point in done if point.ok is not False] or done)[:_CURVES]
    views = {}
    for latency, title in NAMES.items():
        traces = []
        for color, member in enumerate(members):
            means = [member.mean(f"latency.{latency}.p{percent}") for percent in _PERCENTS]
            if None not in means:
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "lines+markers",
                        "name": label(points.name(member)),
                        "x": [place(percent * OF // 100) for percent in _PERCENTS],
                        "y": means,
                        "line": line_of(color),
                        "hovertemplate": "%{y:,.4~g} ms<extra>%{fullData.name}</extra>",
                    }
                )
        if traces:
            y = {"title": {"text": f"{title}, ms"}, "rangemode": "tozero"}
            views[title] = PictureView(traces, {"xaxis": percentile_axis(), "yaxis": y, "showlegend": True})
    if not views:
        return None
    which = "of the study"
    if front:
        which = "of the front" if points.has_front else "that are best"
    return Picture(
        name="percentiles",
        title="Latency by percentile",
        description=f"The percentiles of {plural(len(members), 'point')} {which}, a line each.",
        views=views,
        height=440,
        note="Means over seeds of the percentiles p50, p90, p95 and p99"
        + (f"; the first {len(members)} points {which}." if len(members) < len(front or done) else "."),
    )


def _settings(result: StudyResult) -> str:
    study = result.study
    base = study.base.data
    parts = [unfold("The study", document(study.document))]
    if isinstance(base, dict):
        parts.append(unfold(f"Its experiment, {study.experiment}, as it was read", document(base)))
    return "".join(parts)


def _provenance(result: StudyResult) -> Table:
    study = result.study
    return provenance(
        {
            "Study": study.name,
            "Experiment": study.experiment,
            "SHA-256 of the study": sha256(to_sorted_json(study.document).encode()).hexdigest(),
            "Seeds": ", ".join(map(str, study.seeds)),
            "Runs": f"{len(result.rows):,} of {study.runs:,}",
        }
    )


def _digests(result: StudyResult) -> str:
    rows = [(f"{row.point.number}", f"{row.seed}", row.sha256 or "-") for row in result.rows[:ROWS]]
    table = Table(
        caption="The resolved experiment of each run", head=("point", "seed", "SHA-256"), rows=rows, words=(2,)
    )
    return unfold("Digests of all runs", table.html())


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
        (f"{point.point.number}", points.name(point), *(number_text(point.mean(metric.metric)) for metric in first))
        for point in best
    ]
    return Picture(
        name="front",
        title="Pareto front",
        description=f"Each point by {first[0].metric} and {first[1].metric}. {unbeaten}"
        f" {len(best)} of {len(points.all)}: " + "; ".join(points.name(point) for point in best[:8]) + ".",
        views=views,
        height=440,
        table=Table(
            caption="The points of the front, in the first two figures",
            head=("point", "", *(objective.metric for objective in first)),
            rows=rows,
            words=(1,),
        ),
        note=f"The front: by {_by(points, first)}, no other point that meets all bounds{rivals} is better in one of"
        " these and not worse in the others. It is a line where the two figures shown alone decide, for one load."
        " Means over seeds.",
    )


def _by(points: Points, first: tuple[Objective, Objective]) -> str:
    return ", ".join(objective.metric for objective in (points.study.objectives if points.has_front else first))


def _front(points: Points, pair: tuple[Objective, Objective]) -> list[PointSummary]:
    """Return the points of the front that have both figures, sorted by the first one.

    If the study has several objectives, they define the front, whichever two figures are shown.
    """
    if not points.has_front:
        return list(study_front(points.study, points.all, pair))
    front = [point for point in _placed(points.all, pair) if point.point.number in points.front]
    return sorted(front, key=lambda point: (point.mean(pair[0].metric) or 0.0, point.point.number))


def _pairs(points: Points) -> list[tuple[Objective, Objective]]:
    objectives = list(points.study.objectives)
    more = [points.cost, *points.metrics]
    known = {objective.metric for objective in objectives}
    objectives += [
        Objective(metric=metric, goal=points.goal(metric)) for metric in dict.fromkeys(more) if metric not in known
    ]
    return list(combinations(objectives[:5], 2))[:_PAIRS]


def _placed(members: Sequence[PointSummary], pair: Sequence[Objective]) -> list[PointSummary]:
    """Return the points of complete runs that have both figures."""
    return [
        member
        for member in members
        if member.status == "done" and None not in [member.mean(each.metric) for each in pair]
    ]


def _front_view(points: Points, pair: tuple[Objective, Objective]) -> PictureView:
    best = _front(points, pair)
    alone = {point.point.number for point in best} == {
        point.point.number for point in study_front(points.study, points.all, pair)
    }
    alone = alone and not load_paths(points.study)
    numbers = {point.point.number for point in best}
    placed = _placed(points.all, pair)
    others = [point for point in placed if point.point.number not in numbers]
    groups = (
        ("does not hold", [point for point in others if point.ok is False], "x", PALETTE[1], 8),
        ("in doubt", [point for point in others if point.in_doubt], "diamond-open", PALETTE[2], 8),
        (
            "beaten",
            [point for point in others if point.ok is not False and not point.in_doubt],
            "circle-open",
            PALETTE[-1],
            8,
        ),
        ("front", list(best), "circle", PALETTE[0], 11),
    )
    traces = []
    for name, group, symbol, color, size in groups:
        members = group[:: -(-len(group) // POINTS) or 1]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if name == "front" and alone else "markers",
                "name": name,
                "x": [member.mean(pair[0].metric) for member in members],
                "y": [member.mean(pair[1].metric) for member in members],
                "customdata": [
                    [member.point.number, label(points.name(member)), verdict(member)] for member in members
                ],
                "marker": {"symbol": symbol, "color": color, "size": size, "line": {"width": 1.5, "color": color}},
                "line": {"color": color, "width": 1.5, "dash": "dot"},
                "hovertemplate": "<b>point %{customdata[0]}</b>: %{customdata[1]}<br>"
                f"{short(pair[0].metric)} %{{x:,.4~g}}, {short(pair[1].metric)} %{{y:,.4~g}}"
                "<br>%{customdata[2]}<extra></extra>",
            }
        )
    x, y = (value_axis(_axis(each), [point.mean(each.metric) or 0.0 for point in placed]) for each in pair)
    layout = {
        "xaxis": x,
        "yaxis": y,
        "shapes": [
            bound_line(axis, bound)
            for axis, objective in zip("xy", pair, strict=True)
            if (bound := points.bound(objective.metric)) is not None
        ],
    }
    return PictureView([trace for trace in traces if trace["x"]], layout)


def _axis(objective: Objective) -> str:
    return f"{objective.metric} ({'less' if objective.goal == 'min' else 'more'} is better)"


_VIEWS: Final = 40
_CELLS_WITH_TEXT: Final = 150


class Cell(NamedTuple):
    """The best point at two coordinates: its figure, and whether it meets all bounds."""

    value: float
    point: PointSummary


def cells_of(points: Points, x: str, y: str, metric: str) -> dict[tuple[str, str], Cell]:
    """Return, by two coordinates, the best point that meets all bounds, or without any the best of all."""
    cells: dict[tuple[str, str], Cell] = {}
    sign = -1 if points.goal(metric) == "max" else 1
    for point in points.all:
        value = point.mean(metric)
        if value is None or point.status != "done":
            continue
        place = (coordinate(point, x), coordinate(point, y))
        known = cells.get(place)
        if known is None or (point.ok is False, sign * value) < (known.point.ok is False, sign * known.value):
            cells[place] = Cell(value, point)
    return cells


def heat_map_picture(points: Points) -> Picture | None:
    """Return every pair of axes and every figure, one at a time; None if fewer than two axes vary."""
    pairs = list(combinations(points.varied, 2))
    chosen = list(
        product(pairs, [*points.latencies, *(metric for metric in points.metrics if metric not in points.latencies)])
    )[:_VIEWS]
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
    top = max(cell.value for cell in cells.values())
    capped = {"zmax": 2 * bound, "zmin": 0} if bound is not None and top > 2 * bound else {}
    few = len(columns) * len(rows) <= _CELLS_WITH_TEXT
    trace: dict[str, object] = {
        "type": "heatmap",
        "x": [label(column) for column in columns],
        "y": [label(row) for row in rows],
        "z": [[None if cell is None else cell.value for cell in line] for line in grid],
        "text": [["" if cell is None else _text(cell) for cell in line] for line in grid],
        "customdata": [["" if cell is None else label(points.name(cell.point)) for cell in line] for line in grid],
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
    return number_text(cell.value) + (" ✗" if cell.point.ok is False else "")


LINES: Final = 14
"""Maximum number of lines."""

_NOTE: Final = (
    "Stars are knees: up to that rate every point meets all bounds, none is overloaded, and all serve 99 % of their"
    " requests. The true knee lies between a star and the next point, or, where the star is hollow, beyond the last"
    " one. Bars reach from the lowest to the highest seed."
)


class PlotLine(NamedTuple):
    """Points that differ only in their rate, sorted by rate."""

    name: str
    rates: tuple[float, ...]
    members: tuple[PointSummary, ...]

    @property
    def knee(self) -> int | None:
        """Return the index of the highest rate up to which every point meets all bounds to last, or None.

        That is without overload, and for nearly all requests.
        """
        good = 0
        for member in self.members:
            lasts = member.status == "done" and not any(map(still_grows, member.rows))
            if member.ok is False or not lasts or member.turns_away:
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
    others = [other for other in points.varied if other != path]
    by_others: dict[tuple[str, ...], list[tuple[float, PointSummary]]] = {}
    for point in points.all:
        rate = point.coordinates[path]
        if isinstance(rate, int | float) and point.status in ("done", "stopped"):
            by_others.setdefault(tuple(coordinate(point, other) for other in others), []).append((float(rate), point))
    lines = []
    for members in by_others.values():
        members.sort(key=lambda pair: pair[0])
        first = members[0][1]
        name = ", ".join(f"{points.names[other]} {value_text(first.coordinates[other])}" for other in others)
        lines.append(PlotLine(name or "all", tuple(rate for rate, _ in members), tuple(point for _, point in members)))
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
            (rate, mean, member.values(metric))
            for rate, member in zip(line.rates, line.members, strict=True)
            if member.status == "done" and (mean := member.mean(metric)) is not None
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
