"""A study's points as text for a terminal: a table with bars, and the Pareto front as a plot."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import ln
from blis_tui.base.text import aligned, cut, printable, scatter
from blis_tui.base.units import fine_bar, number_text, percent_text, plural
from blis_tui.study.costs import PRICES
from blis_tui.study.point_summary import load_paths, ranked_by, scenarios, step_times_lines, study_front, summaries
from blis_tui.study.study_rows import USUAL, short_names, value_text, wanted_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from blis_tui.model import Expectation
    from blis_tui.spec.study.study_records import Objective, Study
    from blis_tui.study.point_summary import PointSummary, Scenario
    from blis_tui.study.study_rows import StudyResult


PieceKind = Literal["", "axis", "holds", "broken", "front", "selected"]
"""What a piece of a plot shows: nothing, the axes, a point, a point that violates a bound, the front, a selected point.
"""
Piece = tuple[str, PieceKind]

FRONT: Final = "*"
SELECTED: Final = "●"
_WIDE: Final = 20.0
"""A scale is logarithmic if the ratio of its ends is at least this."""


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: its objective, and the values at its ends."""

    objective: Objective
    low: float
    high: float

    @property
    def is_log(self) -> bool:
        """Whether the scale is logarithmic."""
        return self.low > 0 and self.high / self.low >= _WIDE

    @property
    def title(self) -> str:
        """The metric, and notes on it."""
        notes = [note for note, holds in (("max", self.objective.goal == "max"), ("log", self.is_log)) if holds]
        return self.objective.metric.removeprefix("latency.") + (f" ({', '.join(notes)})" if notes else "")

    def share(self, value: float) -> float:
        """Return the position of a value along the axis, from 0 to 1."""
        if self.high <= self.low:
            return 0.5
        if self.is_log:
            return ln(value / self.low) / ln(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


class FrontPlot:
    """A plot of many points, drawn once, in which any of them can then be selected.

    Unfinished runs are left out, because their figures cover only a part of the run.

    Args:
        points: all points.
        front: the numbers of the points on the front.
        objectives: the first two are the horizontal and the vertical axis.
        size: columns and rows of the whole plot, including its axes.
        written: formats the values at the ends of the axes.
    """

    def __init__(
        self,
        points: Iterable[PointSummary],
        front: set[int],
        objectives: Sequence[Objective],
        size: tuple[int, int],
        written: Callable[[float], str],
    ) -> None:
        placed = _placed(points, objectives)
        self._shares: dict[int, tuple[float, float]] = {}
        self._cells: list[list[Piece]] = []
        if len(dict.fromkeys(place for place, _ in placed)) < 2:
            return
        x, y = (_scale(objectives[at], [place[at] for place, _ in placed]) for at in (0, 1))
        low, high = _ends(y, written)
        left, right = _ends(x, written)
        gutter = max(len(low), len(high))
        self._width, self._height = max(size[0] - gutter - 2, 2), max(size[1] - 3, 2)
        self._shares = {point.point.number: (x.share(across), y.share(up)) for (across, up), point in placed}
        self._cells = self._draw([point for _, point in placed], front)
        ends = {0: high, self._height - 1: low}
        if y.low == y.high:
            column = scatter([(0.0, y.share(y.low))], 1, self._height)
            ends = {at: low for at, row in enumerate(column) if row.strip()}
        self._labels = [f"{ends.get(at, ''):>{gutter}} {'┤' if at in ends else '│'}" for at in range(self._height)]
        self._title = f"↑ {y.title}  → {x.title}"[: size[0]]
        self._below = (
            f"{'':{gutter}} └{'─' * self._width}",
            f"{'':{gutter}}  "
            + (f"{left:^{self._width}}" if x.low == x.high else f"{left}{right:>{max(self._width - len(left), 1)}}"),
        )

    def lines(self, selected: int | None = None) -> list[list[Piece]]:
        """Return the lines as lists of pieces; none without two objectives, or without points at two places.

        Args:
            selected: the number of the selected point.
        """
        if not self._cells:
            return []
        cells = self._cells
        if selected in self._shares:
            cells = [list(row) for row in cells]
            self._put(cells, [self._shares[selected]], SELECTED, "selected")
        rows = [[(label, "axis"), *_joined(row)] for label, row in zip(self._labels, cells, strict=True)]
        axis: PieceKind = "axis"
        return [[(self._title, axis)], *rows, *([(text, axis)] for text in self._below)]

    def _draw(self, points: Sequence[PointSummary], front: set[int]) -> list[list[Piece]]:
        """Return the area within the axes; where points share a character, the one drawn last is visible."""
        shares = self._shares
        dots = scatter(shares.values(), self._width, self._height)
        cells: list[list[Piece]] = [[(char, "") for char in row] for row in dots]
        self._put(cells, [shares[point.point.number] for point in points if point.ok is False], "", "broken")
        self._put(cells, [shares[point.point.number] for point in points if point.ok is not False], "", "holds")
        self._put(cells, [place for number, place in shares.items() if number in front], FRONT, "front")
        return cells

    def _put(self, cells: list[list[Piece]], places: Sequence[tuple[float, float]], mark: str, what: PieceKind) -> None:
        for y, row in enumerate(scatter(places, self._width, self._height)):
            for x, char in enumerate(row):
                if char != " ":
                    cells[y][x] = (mark or cells[y][x][0], what)


def plain(lines: Iterable[Iterable[Piece]]) -> list[str]:
    """Return the lines as plain text."""
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def _placed(
    points: Iterable[PointSummary], objectives: Sequence[Objective]
) -> list[tuple[tuple[float, float], PointSummary]]:
    if len(objectives) < 2:
        return []
    placed: list[tuple[tuple[float, float], PointSummary]] = []
    for point in points:
        across, up = (point.mean(objective.metric) for objective in objectives[:2])
        if point.status == "done" and across is not None and up is not None:
            placed.append(((across, up), point))
    return placed


def _ends(scale: Scale, written: Callable[[float], str]) -> tuple[str, str]:
    """Return the labels at the ends of an axis, with more digits if the usual ones are equal."""
    low, high = written(scale.low), written(scale.high)
    return (low, high) if low != high or scale.low == scale.high else (f"{scale.low:.9g}", f"{scale.high:.9g}")


def _scale(objective: Objective, values: Sequence[float]) -> Scale:
    return Scale(objective, min(values), max(values))


def _joined(cells: Iterable[Piece]) -> Iterator[Piece]:
    """Join neighbouring pieces that show the same."""
    text, before = "", ""
    kept: PieceKind = ""
    for char, what in cells:
        if text and what != before:
            yield text, kept
            text = ""
        text, before, kept = text + char, what, what
    if text:
        yield text, kept


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
    front = {point.point.number for point in study_front(study, points)}
    shown = sorted(points, key=lambda point: _rank(point, study, front))[:MOST_POINTS]
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
        holding = len([point for point in points if point.ok])
        wishes = ", ".join(map(bound_text, study.constraints))
        lines.append(
            f"{holding:,} of {plural(len(points), 'point')} {'meets' if holding == 1 else 'meet'} all bounds: {wishes}"
        )
    doubts = (*_unserved(points), *_in_doubt(points))
    lines += (part for line in doubts for part in sentence_lines(line, width))
    lines += (part for line in _not_known(study, points) for part in sentence_lines(line, width))
    lines += _scenarios(study, points)
    if expected := list(step_times_lines(study, shown)):
        lines += ["", *(part for line in expected for part in sentence_lines(line, width))]
    lines += ["", *plain(FrontPlot(points, front, study.objectives, _PLOT, number_text).lines())]
    return "\n".join(map(printable, lines)).rstrip() + "\n"


def _in_doubt(points: Sequence[PointSummary]) -> Iterator[str]:
    """Yield how many points meet all bounds in runs that say little about the long run."""
    growing = len([point for point in points if point.grows])
    short = len([point for point in points if point.short and not point.grows])
    if growing:
        yield (
            f"? in {growing:,} of them ever more requests were in the system when the arrivals ended: longer runs have"
            " longer latencies"
        )
    if short:
        yield f"in {short:,} of them, ramp-up and drain are more than a third of the run"
    if growing or short:
        yield "`blis-tui plan` runs until it is known what lasts; here more requests show it (workload.requests)"


def _unserved(points: Sequence[PointSummary]) -> Iterator[str]:
    """Yield how many points have latencies that are not those of all requests, unless bounds fail anyway."""
    away = [point for point in points if point.ok is not False and not point.counts_served and _away(point)]
    if away:
        most = percent_text(round(1000 * max(point.unserved for point in away)), 1000)
        yield (
            f"{'? ' if any(point.in_doubt for point in away) else ''}in {len(away):,} of them up to {most} of the"
            " requests were rejected, dropped, lost or timed out, and"
            " figures of latency are those of the others: bound these, too (--slo 'requests.rejected<=0')"
        )


def _away(point: PointSummary) -> str:
    """Return which share of a point's requests was not served; empty if it is hardly any, or the runs are not done."""
    if point.status != "done" or not point.turns_away:
        return ""
    return f"{percent_text(round(1000 * point.unserved), 1000)} not served"


def _not_known(study: Study, points: Sequence[PointSummary]) -> Iterator[str]:
    """Yield the objectives by which points cannot be compared, and why."""
    for metric in dict.fromkeys(objective.metric for objective in study.objectives):
        lacking = [point for point in points if point.status == "done" and point.mean(metric) is None]
        priceless = metric.startswith("cost.usd") and all(not point.values(_PRICE) for point in lacking)
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
    loads = scenarios(study, points)
    if not loads:
        return []
    names, paths = short_names(study.paths), load_paths(study)
    chosen = [path for path in study.paths if path not in paths]
    metrics = wanted(study)
    head = [*(names[path] for path in paths), "", *(names[path] for path in chosen), *map(_latency, metrics)]
    rows = [head]
    for scenario in loads:
        best, values = scenario.best, list(map(value_text, scenario.values))
        if best is None:
            rows.append([*values, "-", *("" for _ in chosen), *("" for _ in metrics)])
        else:
            coordinates = [value_text(best.coordinates.get(path)) for path in chosen]
            rows.append(
                [
                    *values,
                    f"point {best.point.number}",
                    *coordinates,
                    *(number_text(best.mean(each)) for each in metrics),
                ]
            )
    first = len(head) - len(metrics)
    title = f"For each {' and '.join(names[path] for path in paths)}, {best_words(study, points)} (- = none):"
    return ["", title, *aligned(rows, right=range(first, len(head))), *ties_text(study, loads)]


def ties_text(study: Study, loads: Sequence[Scenario]) -> list[str]:
    """Return a sentence for each load with several best points, naming those that were not chosen."""
    names = short_names(study.paths)
    chosen = [path for path in study.paths if path not in load_paths(study)]
    sentences = []
    for scenario in loads:
        if scenario.best is None or not scenario.ties:
            continue
        load = ", ".join(
            f"{names[path]} {value_text(value)}" for path, value in zip(load_paths(study), scenario.values, strict=True)
        )
        others = [
            f"point {tie.point.number} ({', '.join(value_text(tie.coordinates.get(path)) for path in chosen)})"
            for tie in scenario.ties
        ]
        listed = " and ".join([", ".join(others[:-1]), others[-1]] if len(others) > 1 else others)
        verb = "is" if len(others) == 1 else "are"
        sentences.append(f"With {load}, {listed} {verb} as good as point {scenario.best.point.number}.")
    return sentences


def _latency(metric: str) -> str:
    return metric.removeprefix("latency.")


def wanted(study: Study) -> tuple[str, ...]:
    """Return the figures shown in a table of this study."""
    return wanted_metrics(study) or USUAL


def bound_text(expectation: Expectation) -> str:
    """Return a constraint as text: ``latency.ttft_ms.p99 <= 300``."""
    words = ((">=", expectation.min), ("<=", expectation.max), ("==", expectation.equals))
    limits = [
        f"{sign} {f'{value:g}' if isinstance(value, float) else value}" for sign, value in words if value is not None
    ]
    return f"{expectation.metric} {' and '.join(limits)}"


def _headline(result: StudyResult, points: Sequence[PointSummary]) -> str:
    study = result.study
    parts = [f"{study.name}: {plural(len(points), 'point')} of {study.experiment}"]
    if len(study.seeds) > 1:
        parts.append(f"each with {plural(len(study.seeds), 'seed')} (means are shown)")
    for status, words in (("stopped", "stopped early"), ("invalid", "invalid"), ("failed", "failed")):
        if count := len([point for point in points if point.status == status]):
            parts.append(f"{count:,} {words}")
    if not result.complete:
        parts.append(f"interrupted: {len(result.rows):,} of {plural(study.runs, 'run')}")
    return ", ".join(parts)


def _rank(point: PointSummary, study: Study, front: set[int]) -> tuple[float, ...]:
    """Return the sort key of a point; if not all points fit, the front and those that hold come first."""
    if not study.objectives:
        return (point.point.number,)
    first = study.objectives[0]
    value = point.mean(first.metric)
    lost = point.status in {"invalid", "failed"}
    placed = 1e308 if value is None else -value if first.goal == "max" else value
    doubt = 2.0 if point.ok is False else float(point.in_doubt)
    return (float(lost), doubt, float(point.point.number not in front), placed, point.point.number)


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
    values = [value for point in points if (value := point.mean(drawn)) is not None]
    top = max(values, default=0.0)
    head = ["", *names.values(), *map(_latency, metrics), "", ""]
    rows = []
    for point in points:
        cells = ["*" if point.point.number in front else "✗" if point.ok is False else "?" if point.in_doubt else ""]
        cells += [value_text(point.coordinates.get(path)) for path in names]
        cells += [number_text(point.mean(metric)) for metric in metrics]
        note = _away(point) if point.status == "done" else f"{point.status}: {point.why}"
        cells += [fine_bar(point.mean(drawn), top, _BAR), cut(note, _WHY)]
        rows.append(cells)
    return list(aligned([head, *rows], right=range(1 + len(names), 1 + len(names) + len(metrics))))
