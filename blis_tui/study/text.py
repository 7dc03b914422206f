"""A study's points as text for a terminal: a table with bars, and the Pareto front as a plot."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from blis_tui.columns import aligned, cut
from blis_tui.printable import printable
from blis_tui.study.costs import PRICES
from blis_tui.study.expected import step_times_lines
from blis_tui.study.front_plot import FrontPlot, plain
from blis_tui.study.names import short_names, value_text
from blis_tui.study.rows import USUAL, wanted_metrics
from blis_tui.study.scenarios import load_paths, ranked_by, scenarios, study_front
from blis_tui.study.summary import summaries
from blis_tui.units import fine_bar, number_text, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.spec.model import Expectation
    from blis_tui.spec.study.model import Study
    from blis_tui.study.rows import StudyResult
    from blis_tui.study.scenarios import Scenario
    from blis_tui.study.summary import PointSummary

MOST_POINTS: Final = 40
"""Maximum number of points shown; files have them all."""
WIDTH: Final = 100
"""Default width of sentences, in characters."""
_EXTREMES: Final = {"min": "lowest", "max": "highest"}
"""Goals of figures, and the best values by them."""
_BAR: Final = 16
_WHY: Final = 60
_PRICE: Final = "cost.usd_per_hour"
_PLOT: Final = (72, 15)
"""Columns and rows of the plot, including its axes."""


def study_text(result: StudyResult, width: int = WIDTH) -> str:
    """Return the study in a line, a table of its points (the best ones if there are many), and its problems.

    Args:
        result: the result.
        width: characters per line of sentences.
    """
    study = result.study
    points = summaries(result)
    front = {one.point.number for one in study_front(study, points)}
    shown = sorted(points, key=lambda one: _rank(one, study, front))[:MOST_POINTS]
    lines = [_headline(result, points), "", *_table(study, shown, front), ""]
    lines += sentence_lines(_legend(study), width)
    if len(shown) < len(points):
        lines.append(f"{len(points) - len(shown):,} more points: -o FILE.csv writes all of them")
    if front:
        names = ", ".join(objective.metric for objective in study.objectives)
        rivals = " that meets all bounds" if study.constraints else ""
        front_words = f"no other point{rivals}{same_load(study)} is better in one of {names} and worse in none"
        if len(study.objectives) == 1:
            (only,) = study.objectives
            front_words = f"{_EXTREMES[only.goal]} {names} of any point{rivals}{same_load(study)}"
        lines += sentence_lines(f"* {front_words}", width)
    if study.constraints:
        holding = len([one for one in points if one.ok])
        wishes = ", ".join(map(bound_text, study.constraints))
        lines.append(
            f"{holding:,} of {plural(len(points), 'point')} {'meets' if holding == 1 else 'meet'} all bounds: {wishes}"
        )
    lines += (part for line in _not_known(study, points) for part in sentence_lines(line, width))
    lines += _scenarios(study, points)
    if expected := list(step_times_lines(study, shown)):
        lines += ["", *(part for line in expected for part in sentence_lines(line, width))]
    lines += ["", *plain(FrontPlot(points, front, study.objectives, _PLOT, number_text).lines())]
    return "\n".join(map(printable, lines)).rstrip() + "\n"


def _not_known(study: Study, points: Sequence[PointSummary]) -> Iterator[str]:
    """Yield the objectives by which points cannot be compared, and why."""
    for metric in dict.fromkeys(objective.metric for objective in study.objectives):
        lacking = [one for one in points if one.status == "done" and one.mean(metric) is None]
        priceless = metric.startswith("cost.usd") and all(not one.values(_PRICE) for one in lacking)
        why = f": their GPUs have no price ({PRICES})" if priceless else ""
        if lacking:
            yield f"{metric} is not known for {plural(len(lacking), 'point')}{why}"


def sentence_lines(text: str, width: int, indent: str = "  ") -> list[str]:
    """Wrap a sentence, with indentation from the second line on and without breaking hyphenated names."""
    return wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def same_load(study: Study) -> str:
    """Return which points compete, if the load is an axis: `` at the same rate_per_s``."""
    names = short_names(study.paths)
    paths = load_paths(study)
    return f" at the same {' and '.join(names[path] for path in paths)}" if paths else ""


def best_words(study: Study, points: Sequence[PointSummary]) -> str:
    """Return which point is chosen for each load."""
    by = ", then ".join(f"{_EXTREMES[goal]} {metric}" for metric, goal in ranked_by(study, points))
    holding = " that meets all bounds" if study.constraints else ""
    return f"the best point{holding}: {by}"


def _scenarios(study: Study, points: Sequence[PointSummary]) -> list[str]:
    """Return a table of the best point for each load."""
    found = scenarios(study, points)
    if not found:
        return []
    names, paths = short_names(study.paths), load_paths(study)
    chosen = [path for path in study.paths if path not in paths]
    metrics = wanted(study)
    head = [*(names[path] for path in paths), "", *(names[path] for path in chosen), *map(_latency, metrics)]
    rows = [head]
    for one in found:
        best, values = one.best, list(map(value_text, one.values))
        if best is None:
            rows.append([*values, "-", *("" for _ in chosen), *("" for _ in metrics)])
        else:
            told = [value_text(best.coordinates.get(path)) for path in chosen]
            rows.append(
                [*values, f"point {best.point.number}", *told, *(number_text(best.mean(each)) for each in metrics)]
            )
    first = len(head) - len(metrics)
    title = f"For each {' and '.join(names[path] for path in paths)}, {best_words(study, points)} (- = none):"
    return ["", title, *aligned(rows, right=range(first, len(head))), *ties_text(study, found)]


def ties_text(study: Study, found: Sequence[Scenario]) -> list[str]:
    """Return a sentence for each load with several best points, naming those that were not chosen."""
    names = short_names(study.paths)
    chosen = [path for path in study.paths if path not in load_paths(study)]
    told = []
    for one in found:
        if one.best is None or not one.ties:
            continue
        load = ", ".join(
            f"{names[path]} {value_text(value)}" for path, value in zip(load_paths(study), one.values, strict=True)
        )
        others = [
            f"point {tie.point.number} ({', '.join(value_text(tie.coordinates.get(path)) for path in chosen)})"
            for tie in one.ties
        ]
        listed = " and ".join([", ".join(others[:-1]), others[-1]] if len(others) > 1 else others)
        told.append(
            f"With {load}, {listed} {'is' if len(others) == 1 else 'are'} as good as point {one.best.point.number}."
        )
    return told


def _latency(metric: str) -> str:
    return metric.removeprefix("latency.")


def wanted(study: Study) -> tuple[str, ...]:
    """Return the figures shown in a table of this study."""
    return wanted_metrics(study) or USUAL


def bound_text(one: Expectation) -> str:
    """Return a constraint as text: ``latency.ttft_ms.p99 <= 300``."""
    words = ((">=", one.min), ("<=", one.max), ("==", one.equals))
    said = [
        f"{sign} {f'{value:g}' if isinstance(value, float) else value}" for sign, value in words if value is not None
    ]
    return f"{one.metric} {' and '.join(said)}"


def _headline(result: StudyResult, points: Sequence[PointSummary]) -> str:
    study = result.study
    parts = [f"{study.name}: {plural(len(points), 'point')} of {study.experiment}"]
    if len(study.seeds) > 1:
        parts.append(f"each with {plural(len(study.seeds), 'seed')} (means are shown)")
    for status, words in (("stopped", "stopped early"), ("invalid", "invalid"), ("failed", "failed")):
        if count := len([one for one in points if one.status == status]):
            parts.append(f"{count:,} {words}")
    if not result.complete:
        parts.append(f"interrupted: {len(result.rows):,} of {plural(study.runs, 'run')}")
    return ", ".join(parts)


def _rank(one: PointSummary, study: Study, front: set[int]) -> tuple[float, ...]:
    """Return the sort key of a point; if not all points fit, the front and those that hold come first."""
    if not study.objectives:
        return (one.point.number,)
    first = study.objectives[0]
    value = one.mean(first.metric)
    lost = one.status in {"invalid", "failed"}
    placed = 1e308 if value is None else -value if first.goal == "max" else value
    return (float(lost), float(one.ok is False), float(one.point.number not in front), placed, one.point.number)


def _legend(study: Study) -> str:
    """Return what the bars show, and where the columns are explained."""
    drawn = _latency(_drawn(study, wanted(study)))
    return f"Bars show {drawn}; `blis-tui explain {drawn}` explains a column."


def _drawn(study: Study, metrics: Sequence[str]) -> str:
    """Return the metric with bars: the first bounded one, or else the last."""
    return study.constraints[0].metric if study.constraints else metrics[-1]


def _table(study: Study, points: Sequence[PointSummary], front: set[int]) -> list[str]:
    names, metrics = short_names(study.paths), wanted(study)
    drawn = _drawn(study, metrics)
    values = [value for one in points if (value := one.mean(drawn)) is not None]
    top = max(values, default=0.0)
    head = ["", *names.values(), *map(_latency, metrics), "", ""]
    rows = []
    for one in points:
        cells = ["*" if one.point.number in front else "✗" if one.ok is False else ""]
        cells += [value_text(one.coordinates.get(path)) for path in names]
        cells += [number_text(one.mean(metric)) for metric in metrics]
        note = "" if one.status == "done" else f"{one.status}: {one.why}"
        cells += [fine_bar(one.mean(drawn), top, _BAR), cut(note, _WHY)]
        rows.append(cells)
    return list(aligned([head, *rows], right=range(1 + len(names), 1 + len(names) + len(metrics))))
