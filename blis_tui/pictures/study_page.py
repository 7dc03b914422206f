"""The page about a study: its points, their costs and results, and the best of them over time."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from blis_tui.base.canonical import to_sorted_json
from blis_tui.base.html import Table
from blis_tui.base.units import number_text, plural
from blis_tui.pictures.arrivals import NAMES, OF, percentile_axis, place
from blis_tui.pictures.chosen import chosen_section
from blis_tui.pictures.page import (
    Card,
    Picture,
    PictureView,
    Section,
    cards,
    document,
    label,
    page,
    paragraph,
    provenance,
    unfold,
)
from blis_tui.pictures.panels import line_of
from blis_tui.pictures.points import Points, short, verdict
from blis_tui.pictures.views import front_picture, heat_map_picture, rate_picture
from blis_tui.study.point_summary import load_paths, scenarios, step_times_lines
from blis_tui.study.study_rows import value_text
from blis_tui.study.study_text import best_words, bound_text, same_load, ties_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.pictures.chosen import Chosen
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
        chosen: runs to show over time (see :func:`blis_tui.pictures.chosen.choose`).

    Raises:
        InputError: the plotting library is not installed.
    """
    points, study = Points.of(result), result.study
    pictures = (front_picture(points), rate_picture(points), _percentiles(points), heat_map_picture(points))
    sections = [
        Section(name="overview", title="Overview", content=_overview(result, points)),
        Section(name="compared", title="Points compared", content=[one for one in pictures if one is not None]),
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
    found = [
        Card(name="Points", value=f"{len(study.points):,}", more=seeds),
        Card(name="Axes", value=f"{len(study.axes):,}", more=", ".join(points.names.values())),
    ]
    if study.constraints:
        held = [one for one in points.all if one.ok]
        wishes = ", ".join(map(bound_text, study.constraints))
        found.append(Card(name="Points that meet all bounds", value=f"{len(held):,}", more=wishes))
    if points.front:
        what = ", ".join(f"{one.goal} {one.metric}" for one in study.objectives)
        name = "Points on the front" if points.has_front else "Best points"
        found.append(Card(name=name, value=f"{len(points.front):,}", more=what))
    parts: list[str | Table] = [cards(found)]
    if not result.complete:
        known = f"The study was interrupted: {len(result.rows):,} of {plural(study.runs, 'run')} are known."
        parts.append(f"<div class='finding error'>{paragraph(known)}</div>")
    for status, words in _ENDS.items():
        ended = [one for one in points.all if one.status == status]
        if ended:
            first = ended[0]
            text = (
                f"{len(ended):,} of {plural(len(points.all), 'point')} {words}. Point {first.point.number}: {first.why}"
            )
            parts.append(f"<div class='finding'>{paragraph(text)}</div>")
    best = [one for one in points.all if one.point.number in points.front]
    if best:
        what = f"Points that no other one{same_load(study)} beats" if points.has_front else "The best points"
        what += "" if points.has_front else f" in {study.objectives[0].metric}{same_load(study)}"
        caption = f"{what}{_first(best)}; means over seeds"
        parts.append(_rows(points, best[:_BEST], caption))
    parts += _by_load(points)
    told = [*step_times_lines(study, (best or list(points.all))[:_BEST])]
    return [*parts, *([f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in told)}</ul>"] if told else [])]


def _by_load(points: Points) -> list[str | Table]:
    """Return the best point for each load, if the load varies and there is a choice."""
    found = scenarios(points.study, points.all)
    best = [one.best for one in found if one.best is not None]
    if not found:
        return []
    names = " and ".join(points.names[path] for path in load_paths(points.study))
    parts: list[str | Table] = []
    if best:
        caption = f"For each {names}: {best_words(points.study, points.all)}; means over seeds"
        parts.append(_rows(points, best, caption))
        parts += [paragraph(text) for text in ties_text(points.study, found)]
    without = [", ".join(map(value_text, one.values)) for one in found if one.best is None]
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
    for one in members:
        coordinates = (value_text(one.coordinates[path]) for path in names)
        figures = (number_text(one.mean(metric)) for metric in metrics)
        unbeaten = ", front" if points.has_front else ", best"
        result = verdict(one) + (unbeaten if one.point.number in points.front else "")
        why = "" if one.status == "done" else f": {shorten(one.why, _WHY, placeholder=' …')}"
        rows.append((f"{one.point.number}", *coordinates, *figures, result + why))
    head = ("point", *names.values(), *map(short, metrics), "result")
    texts = [at for at, path in enumerate(names, 1) if any(isinstance(one.coordinates[path], str) for one in members)]
    kinds = {True: "good", False: "bad", None: ""}
    words, classes = (*texts, len(head) - 1), [kinds[one.ok] for one in members]
    return Table(caption=caption, head=head, rows=rows, words=words, classes=classes)


def _percentiles(points: Points) -> Picture | None:
    """Four percentiles of each latency, for the best points or the first that meet all bounds."""
    done = [one for one in points.all if one.status == "done"]
    front = [one for one in done if one.point.number in points.front]
    members = (front or [one for one in done if one.ok is not False] or done)[:_CURVES]
    views = {}
    for latency, title in NAMES.items():
        traces = []
        for color, one in enumerate(members):
            means = [one.mean(f"latency.{latency}.p{percent}") for percent in _PERCENTS]
            if None not in means:
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "lines+markers",
                        "name": label(points.name(one)),
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
