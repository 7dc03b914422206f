"""One figure of a study's points against another, with the Pareto front."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from blis_tui.pictures.panels import PALETTE, bound_line, value_axis
from blis_tui.pictures.parts import Picture, View, label
from blis_tui.pictures.points import short, verdict
from blis_tui.plain_page import Table
from blis_tui.spec.study.model import Objective
from blis_tui.study.scenarios import load_paths, study_front
from blis_tui.study.text import same_load
from blis_tui.units import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.pictures.points import Points
    from blis_tui.study.summary import PointSummary

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
    views = {f"{short(pair[1].metric)} over {short(pair[0].metric)}": _view(points, pair) for pair in pairs}
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


def _view(points: Points, pair: tuple[Objective, Objective]) -> View:
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
    return View([one for one in traces if one["x"]], layout)


def _axis(one: Objective) -> str:
    return f"{one.metric} ({'less' if one.goal == 'min' else 'more'} is better)"
