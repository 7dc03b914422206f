"""The known results of a study's points as a table, with the Pareto front, details, marks and filters."""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import suggestion
from blis_tui.base.errors import BlisError
from blis_tui.base.text import printable
from blis_tui.base.units import fine_bar, number_text, percent_text, plural
from blis_tui.debugger.why.explanation import Explanation, ExplanationRow, Subject
from blis_tui.debugger.why.explanation import Part as Paragraph
from blis_tui.results.expectations import judge
from blis_tui.spec.metric_names import is_study_metric
from blis_tui.study.point_summary import beaten_by, study_front, summaries
from blis_tui.study.study_rows import StudyResult, short_names, value_text
from blis_tui.study.study_text import FrontPlot, bound_text, wanted
from blis_tui.tui.drawing.lines import Column, Line, fit, names_text, table_rows, titles, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.model import Expectation
    from blis_tui.spec.study.study_records import Point, Study
    from blis_tui.study.point_summary import PointSummary
    from blis_tui.study.study_rows import Row
    from blis_tui.study.study_text import PieceKind
    from blis_tui.tui.drawing.lines import Part

    Matches = Callable[["PointEntry"], bool]


PENDING = "pending"
"""The status of a point without results."""


@dataclass(frozen=True, slots=True)
class PointEntry:
    """A point of a study with its results so far."""

    point: Point
    summary: PointSummary | None = None
    """None = no results yet."""
    status: str = PENDING
    """``pending``, or the status of its runs."""
    on_front: bool = False
    marked: bool = False
    """Whether it is marked for comparison."""

    @property
    def ok(self) -> bool | None:
        """Whether all constraints hold; None = there are none, or unknown."""
        return None if self.summary is None else self.summary.ok

    def mean(self, metric: str) -> float | None:
        """Return the mean of a figure over its seeds; None if unknown."""
        return None if self.summary is None else self.summary.mean(metric)


class Board:
    """The points of a study. Rows are added as runs complete; everything else is derived."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._rows: dict[int, dict[int, Row]] = {}
        self._known: dict[int, PointEntry] = {}
        self._marked: tuple[int, ...] = ()
        self.version = 0
        """Increases with every change."""
        self.front: frozenset[int] = frozenset()
        """The numbers of the points on the front."""
        self._entries: tuple[PointEntry, ...] | None = None

    def add(self, rows: Iterable[Row]) -> None:
        """Add results of runs; a second one of the same run replaces the first."""
        touched: dict[int, None] = {}
        for row in rows:
            self._rows.setdefault(row.point.number, {})[row.seed] = row
            touched[row.point.number] = None
        for number in touched:
            result = StudyResult(study=self.study, rows=self._of_point(number))
            own = summaries(result)[0]
            self._known[number] = PointEntry(own.point, own, own.status)
        if touched:
            self.version += 1
            self._entries = None
            known = [entry.summary for entry in self._known.values() if entry.summary is not None]
            self.front = frozenset(summary.point.number for summary in study_front(self.study, known))

    def mark(self, number: int) -> None:
        """Mark or unmark a point; a third mark removes the first."""
        before = self._marked
        others = tuple(other for other in before if other != number)
        self._marked = others if number in before else (*others[-1:], number)
        entries = list(self.entries)
        for changed in {*before, number}:  # handled separately, so their order does not matter
            entries[changed] = replace(entries[changed], marked=changed in self._marked)
        self._entries = tuple(entries)

    @property
    def entries(self) -> tuple[PointEntry, ...]:
        """All points in order."""
        if self._entries is None:
            self._entries = tuple(
                replace(self._known.get(at, PointEntry(point)), on_front=at in self.front, marked=at in self._marked)
                for at, point in enumerate(self.study.points)
            )
        return self._entries

    @property
    def marked(self) -> tuple[PointEntry, ...]:
        """The marked points, in the order of marking."""
        return tuple(self.entries[number] for number in self._marked)

    @property
    def done(self) -> int:
        """Number of runs with a result."""
        return sum(map(len, self._rows.values()))

    def result(self) -> StudyResult:
        """Return the rows so far, in order."""
        rows = [row for number in sorted(self._rows) for row in self._of_point(number)]
        return StudyResult(study=self.study, rows=tuple(rows))

    def _of_point(self, number: int) -> tuple[Row, ...]:
        own = self._rows[number]
        return tuple(own[seed] for seed in self.study.seeds if seed in own)


_MUTED: Final = "$text-muted"
_STATUS: Final[Mapping[str, tuple[str, str]]] = {
    "done": ("done", ""),
    "stopped": ("stopped", "$warning"),
    "failed": ("✗ failed", "$error"),
    "invalid": ("✗ invalid", "$error"),
    PENDING: (PENDING, _MUTED),
}
"""Text and colour of each status."""
_STATUS_WIDTH: Final = 9
_FIGURE_WIDTH: Final = 9
_BAR_WIDTH: Final = 8
_POINT: Final = "point"
_PLOT_STYLES: Final[Mapping[PieceKind, str]] = {
    "axis": _MUTED,
    "holds": "$primary",
    "broken": "$error",
    "front": "$success bold",
    "selected": "$accent bold",
}
_FIGURES: Final = (
    "throughput.requests_per_s",
    "throughput.output_tokens_per_s",
    "latency.ttft_ms.p50",
    "latency.ttft_ms.p99",
    "latency.itl_ms.p99",
    "latency.e2e_ms.p50",
    "latency.e2e_ms.p99",
)
"""Figures shown for every point besides those of the study."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order of points."""

    column: str = _POINT
    """The sort column: ``point``, a path that varies, a metric, or ``status``."""
    down: bool = False
    """Whether the order is descending."""


def columns_of(study: Study) -> tuple[str, ...]:
    """Return the sort columns, in the order of the table."""
    return (_POINT, *study.paths, *wanted(study), "status")


def in_order(entries: Sequence[PointEntry], order: Order) -> list[PointEntry]:
    """Return the points sorted by a column; those without a value last, ties by number."""
    known = [(value, entry) for entry in entries if (value := _value(entry, order.column)) is not None]
    known.sort(key=lambda pair: _rank(pair[0]), reverse=order.down)
    placed = {entry.point.number for _, entry in known}
    return [entry for _, entry in known] + [entry for entry in entries if entry.point.number not in placed]


def _value(entry: PointEntry, column: str) -> Json:
    if column == _POINT:
        return entry.point.number
    if column == "status":
        return entry.status
    coordinates = entry.point.coordinates
    return coordinates[column] if column in coordinates else entry.mean(column)


def _rank(value: Json) -> tuple[int, float, str]:
    """Return a sort key with numbers before texts."""
    if isinstance(value, int | float):
        return (0, value, "")
    return (1, 0.0, value_text(value))


# ---- the table ----


def longest_bar(study: Study, entries: Sequence[PointEntry]) -> float:
    """Return the maximum of the figure drawn as bars."""
    return max((value for entry in entries if (value := entry.mean(_drawn(study))) is not None), default=0.0)


def _drawn(study: Study) -> str:
    return study.constraints[0].metric if study.constraints else wanted(study)[-1]


def table_columns(study: Study, top: float, order: Order, width: int) -> tuple[Column[PointEntry], ...]:
    """Return the columns that fit.

    Args:
        study: the study.
        top: the value of the longest bar.
        order: the order of the points.
        width: columns of the terminal.
    """
    names, metrics = short_names(study.paths), wanted(study)
    values = {
        path: [value_text(row[at].value.data) for row in axis.rows]
        for axis in study.axes
        for at, path in enumerate(axis.paths)
    }
    first: list[Column[PointEntry]] = [
        Column("", 2, _marks),
        Column(_titled("#", _POINT, order), max(3, len(str(len(study.points)))), _number_of, right=True, rank=3),
    ]
    for path, name in names.items():
        longest = max(map(len, values[path]), default=0)
        first.append(Column(_titled(name, path, order), max(len(name) + 2, longest), partial(_coordinate, path)))
    for at, metric in enumerate(metrics):
        name = metric.removeprefix("latency.")
        wide, rank = max(len(name) + 2, _FIGURE_WIDTH), 0 if at < 2 else 4 + at
        first.append(Column(_titled(name, metric, order), wide, partial(_figure, metric), right=True, rank=rank))
    first.append(Column(_titled("status", "status", order), _STATUS_WIDTH, _status, rank=1))
    first.append(Column("", _BAR_WIDTH, partial(_bar, _drawn(study), top), rank=2, grows=True, most=24))
    return fit(first, width)


def table(columns: Sequence[Column[PointEntry]], entries: Sequence[PointEntry]) -> list[Line]:
    """Return a line per point, which is its subject."""
    return table_rows(columns, entries, lambda entry: Subject("point", str(entry.point.number)))


def headings(columns: Sequence[Column[PointEntry]], width: int) -> Content:
    """The line above the points."""
    return titles(columns).draw().truncate(max(width, 1), ellipsis=True)


def _titled(title: str, column: str, order: Order) -> str:
    if column != order.column or order == Order():
        return title
    return f"{title} {'▼' if order.down else '▲'}"


def _marks(entry: PointEntry, _width: int) -> Part:
    mark = "●" if entry.marked else " "
    stands, style = ("*", "$success bold") if entry.on_front else ("✗", "$error") if entry.ok is False else (" ", "")
    if entry.summary is not None and entry.summary.in_doubt:
        stands, style = "?", "$warning bold"
    return (mark + stands, "$accent bold" if entry.marked and stands == " " else style)


def _number_of(entry: PointEntry, _width: int) -> Part:
    return (str(entry.point.number), _MUTED)


def _coordinate(path: str, entry: PointEntry, width: int) -> Part:
    return (value_text(entry.point.coordinates.get(path))[:width], "bold")


def _figure(metric: str, entry: PointEntry, _width: int) -> Part:
    return number_text(entry.mean(metric)) if entry.summary is not None else ""


def _status(entry: PointEntry, _width: int) -> Part:
    return _STATUS[entry.status]


def _bar(metric: str, top: float, entry: PointEntry, width: int) -> Part:
    return (fine_bar(entry.mean(metric), top, width), "$error" if entry.ok is False else "$primary")


# ---- the front ----


def draw_front(study: Study, entries: Sequence[PointEntry], size: tuple[int, int]) -> FrontPlot:
    """Return the plot of the points by the first two objectives."""
    known = [entry.summary for entry in entries if entry.summary is not None]
    front = {entry.point.number for entry in entries if entry.on_front}
    return FrontPlot(known, front, study.objectives, size, number_text)


def plot(drawn: FrontPlot, selected: int | None, width: int) -> Content:
    """Return the points and the front, with the selected point marked."""
    lines = drawn.lines(selected)
    if not lines:
        hint = "The Pareto front is drawn here once two points have results."
        return Content("\n").join(words(hint, max(width, 1), _MUTED))
    return Content("\n").join(
        Content.assemble(*((text, _PLOT_STYLES.get(what, "")) for text, what in line)) for line in lines
    )


# ---- selected point ----


def heading(entry: PointEntry) -> Content:
    """Return the point and its status."""
    text, style = _STATUS[entry.status]
    front = ("  * on the front", "$success") if entry.on_front else ""
    return Content.assemble((f"point {entry.point.number}", "bold"), "  ", (text, style), front)


def details(study: Study, entry: PointEntry, width: int) -> Content:
    """Return all that is known about a point: its values, constraints and figures."""
    figures = tuple(dict.fromkeys((*wanted(study), *_FIGURES)))
    label = min(max(map(len, (*study.paths, *figures))), max(width - _FIGURE_WIDTH - 1, 12))
    lines = [_labelled(path, value_text(value), label, "bold") for path, value in entry.point.coordinates.items()]
    if entry.summary is None:
        lines += [Content(""), *words("This point has not been run: c makes the missing runs.", width, _MUTED)]
        return Content("\n").join(lines)
    lines.append(_seeds(study, entry.summary, label))
    if entry.summary.why and entry.status != "done":
        lines += [Content(""), *words(f"{entry.summary.why}.", width, "$error" if entry.ok is False else "$warning")]
    lines += _verdicts(study, entry.summary, width)
    if entry.status in {"done", "stopped"}:
        lines.append(Content(""))
        lines += [_figure_line(entry.summary, metric, label) for metric in figures]
    return Content("\n").join(lines)


def _labelled(label: str, value: str, width: int, style: str = "") -> Content:
    return Content.assemble((f"{label:<{width}} ", _MUTED), (value, style))


def _seeds(study: Study, summary: PointSummary, width: int) -> Content:
    seeds = [str(row.seed) for row in summary.rows]
    if len(study.seeds) == 1:
        return _labelled("seed", seeds[0], width)
    missing = f" of {len(study.seeds)}" if len(seeds) < len(study.seeds) else ""
    return _labelled("seeds", names_text(seeds) + missing, width)


def _verdicts(study: Study, summary: PointSummary, width: int) -> Iterator[Content]:
    if study.constraints and summary.status in {"done", "stopped"}:
        yield Content("")
        for wish in study.constraints:
            mean = number_text(summary.mean(wish.metric))
            if _holds(wish, summary):
                yield Content.assemble(("✓ ", "$success"), f"{bound_text(wish)}", (f"  {mean}", _MUTED))
            else:
                text = f"✗ {bound_text(wish)}  is {mean}{_how_often(wish, summary)}"
                yield from words(text, width, "$error")


def _holds(wish: Expectation, summary: PointSummary) -> bool:
    return _breaking(wish, summary) == 0


def _breaking(wish: Expectation, summary: PointSummary) -> int:
    """Return the number of seeds with which a constraint does not hold."""
    return len([row for row in summary.rows if not judge(wish, _nested(wish.metric, row.figures.get(wish.metric))).ok])


def _nested(metric: str, value: object) -> dict[str, object]:
    """Return a report with a single figure."""
    for name in reversed(metric.split(".")):
        value = {name: value}
    return value if isinstance(value, dict) else {}


def _how_often(wish: Expectation, summary: PointSummary) -> str:
    count = len(summary.rows)
    return "" if count == 1 else f" (broken with {_breaking(wish, summary)} of {plural(count, 'seed')})"


def _figure_line(summary: PointSummary, metric: str, width: int) -> Content:
    values = summary.values(metric)
    spread = f"  {number_text(min(values))} to {number_text(max(values))}" if len(values) > 1 else ""
    return Content.assemble(
        (f"{metric:<{width}} ", _MUTED), f"{number_text(summary.mean(metric)):>{_FIGURE_WIDTH}}", (spread, _MUTED)
    )


# ---- why a point stands where it does ----

_STANDS: Final[Mapping[str, str]] = {
    PENDING: "This point has not been run: c makes the missing runs.",
    "stopped": "Its run was stopped before its end, so it does not compete.",
    "failed": "Its run failed, so there is nothing to compare.",
    "invalid": "With these values there is no valid experiment.",
}
_RIVALS: Final = 5
"""Maximum number of better points that are named."""


def explained(study: Study, entries: Sequence[PointEntry], entry: PointEntry) -> Explanation:
    """Return why a point is on the front or is not: the bounds that it breaks, and the points that are better."""
    known = [each.summary for each in entries if each.summary is not None]
    rivals = () if entry.summary is None or not study.objectives else beaten_by(study, known, entry.summary)
    parts = [_bounds_part(study, entry), *_objective_parts(study, known, entry, rivals)]
    return Explanation(
        Subject(_POINT, str(entry.point.number)),
        f"Point {entry.point.number}: {point_name(study, entry)}",
        _headline(study, entry, rivals),
        tuple(part for part in parts if part is not None),
    )


def _headline(study: Study, entry: PointEntry, rivals: Sequence[PointSummary]) -> str:
    if entry.status in _STANDS:
        why = "" if entry.summary is None or not entry.summary.why else f" {entry.summary.why}."
        return f"{_STANDS[entry.status]}{why}"
    if entry.ok is False:
        return "It breaks a bound, so it cannot be on the front."
    if entry.summary is not None and entry.summary.grows:
        return "It meets all bounds as long as it ran, but ever more requests were in the system at the end."
    if entry.summary is not None and entry.summary.in_doubt:
        share = percent_text(round(1000 * entry.summary.unserved), 1000)
        return f"It meets all bounds, but {share} of its requests were not served, and no latency tells of these."
    if not study.objectives:
        return "The study has no objectives, so there is no front." + (" All bounds hold." if entry.ok else "")
    if entry.on_front:
        return "It is on the front: no other point is as good in each objective and better in one."
    better = f"{plural(len(rivals), 'point')} {'is' if len(rivals) == 1 else 'are'}"
    return f"It is not on the front: {better} as good in each objective and better in one."


def _bounds_part(study: Study, entry: PointEntry) -> Paragraph | None:
    summary = entry.summary
    if summary is None or not study.constraints or entry.status not in ("done", "stopped"):
        return None
    return Paragraph(
        "Bounds",
        rows=tuple(
            ExplanationRow(bound_text(wish), number_text(summary.mean(wish.metric)), note=(_verdict(wish, summary),))
            for wish in study.constraints
        ),
    )


def _verdict(wish: Expectation, summary: PointSummary) -> str:
    if not _holds(wish, summary):
        return f"broken{_how_often(wish, summary)}"
    return "holds" if len(summary.rows) == 1 else f"holds with each of {plural(len(summary.rows), 'seed')}"


def _objective_parts(
    study: Study, known: Sequence[PointSummary], entry: PointEntry, rivals: Sequence[PointSummary]
) -> Iterator[Paragraph]:
    """Yield its objectives beside the best of the study, and the points that are better."""
    if entry.summary is None or entry.status != "done" or not study.objectives:
        return
    rows = []
    for wish in study.objectives:
        values = [value for each in known if each.ok is not False and (value := each.mean(wish.metric)) is not None]
        best = (max if wish.goal == "max" else min)(values, default=None)
        which = "best that keeps all bounds" if study.constraints else "best"
        note = f"{which}: {number_text(best)} ({'max' if wish.goal == 'max' else 'min'})"
        rows.append(ExplanationRow(wish.metric, number_text(entry.mean(wish.metric)), note=(note,)))
    yield Paragraph("Objectives", rows=tuple(rows))
    if rivals:
        better = tuple((_rival(study, rival),) for rival in rivals[:_RIVALS])
        more = ((f"and {len(rivals) - _RIVALS:,} more.",),) if len(rivals) > _RIVALS else ()
        yield Paragraph("Better points", (*better, *more))


def _rival(study: Study, rival: PointSummary) -> str:
    figures = ", ".join(f"{wish.metric} {number_text(rival.mean(wish.metric))}" for wish in study.objectives)
    return f"{rival.point.number}: {point_name(study, PointEntry(rival.point))}: {figures}"


# ---- the title ----


def title(study: Study, shown: int | None) -> Content:
    """Return the study's description; with a filter, also the number of visible points."""
    count = plural(len(study.points), "point")
    seeds = f" with {plural(len(study.seeds), 'seed')} each" if len(study.seeds) > 1 else ""
    name = Path(study.experiment).name.removesuffix(".blis.yaml")
    size = f"{count} of {name}{seeds}" if shown is None else f"{shown:,} of {count} shown"
    return Content.assemble((study.name, "bold"), f"  {size}")


def standing(study: Study, entries: Sequence[PointEntry], done: int) -> Content:
    """Return the progress, and how many points hold."""
    parts = [f"{done:,} of {study.runs:,} runs" if done < study.runs else plural(done, "run")]
    if study.constraints:
        parts.append(f"{len([entry for entry in entries if entry.ok]):,} ok")
    if study.objectives:
        parts.append(f"{len([entry for entry in entries if entry.on_front]):,} on the front")
    counts = {
        status: len([entry for entry in entries if entry.status == status])
        for status in ("stopped", "failed", "invalid")
    }
    parts += [f"{count:,} {status}" for status, count in counts.items() if count]
    return Content.styled(", ".join(parts), _MUTED)


def point_name(study: Study, entry: PointEntry) -> str:
    """Return a point in a few words: ``instances=2 policy=default``."""
    names = short_names(study.paths)
    return (
        " ".join(f"{names[path]}={value_text(value)}" for path, value in entry.point.coordinates.items()) or study.name
    )


# ---- filters: words and comparisons, compiled to a predicate ----

WORDS: Final[Mapping[str, Callable[[PointEntry], bool]]] = MappingProxyType(
    {
        "ok": lambda entry: entry.ok is True,
        "broken": lambda entry: entry.ok is False,
        "front": lambda entry: entry.on_front,
        "marked": lambda entry: entry.marked,
        **{
            status: (lambda entry, status=status: entry.status == status)  # type: ignore[misc]
            for status in ("done", "stopped", "failed", "invalid", "pending")
        },
    }
)
"""Words with a meaning; other words are searched for in the values of the axes."""
_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt}
)
_SIGN: Final = re.compile(r"\s*(<=|>=|==|!=|=|<|>)\s*")
_COMPARISON: Final = re.compile(r"([^<>=!]+)(<=|>=|==|!=|=|<|>)(.+)")


class FilterError(BlisError):
    """A filter is invalid."""


def parse_filter(text: str, study: Study) -> Matches | None:
    """Compile a filter; return None for an empty one, which matches every point.

    ``cluster.instances >= 2``, ``policy = vllm-v1`` or ``ttft_ms.p99 < 30`` compares a value of an axis, or a figure
    (the mean over seeds). ``ok``, ``broken``, ``front``, ``marked``, ``done``, ``stopped``, ``failed``, ``invalid`` and
    ``pending`` refer to a point's state. Anything else is searched for in the values of its axes. ``-word`` inverts a
    word. All must match; ``and`` between them is ignored.

    Raises:
        FilterError: a comparison uses something that the study does not have.
    """
    words = [word for word in _SIGN.sub(r"\1", text.strip()).split() if word.lower() != "and"]
    tests = [_test(word, study) for word in words]
    if not tests:
        return None
    return lambda entry: all(test(entry) for test in tests)


def _test(word: str, study: Study) -> Matches:
    if word.startswith("-") and len(word) > 1:
        test = _test(word[1:], study)
        return lambda entry: not test(entry)
    if match := _COMPARISON.fullmatch(word):
        return _comparison(match[1], match[2], match[3], study)
    if _SIGN.search(word):
        help_text = "write it as `cluster.instances >= 2`"
        raise FilterError(f"`{printable(word)}` is an incomplete comparison", help=help_text)
    if word.lower() in WORDS:
        return WORDS[word.lower()]
    lower = word.lower()
    return lambda entry: any(lower in text for text in _texts(entry))


def _texts(entry: PointEntry) -> Iterator[str]:
    for path, value in entry.point.coordinates.items():
        yield f"{path} {value_text(value)}".lower()


def _comparison(name: str, sign: str, wish: str, study: Study) -> Matches:
    read = _reader(name, study)
    same = sign in {"=", "=="}
    try:
        number = float(wish.replace(",", ""))
    except ValueError:
        if not same and sign != "!=":
            raise FilterError(
                f"`{printable(wish)}` is not a number", help="text can only be compared with = and !="
            ) from None
        return lambda entry: (value := read(entry)) is not None and (value_text(value).lower() == wish.lower()) == same
    holds = _SIGNS["==" if same else sign]

    def matches(entry: PointEntry) -> bool:
        value = read(entry)
        return isinstance(value, int | float) and not isinstance(value, bool) and holds(value, number)

    return matches


def _reader(name: str, study: Study) -> Callable[[PointEntry], Json]:
    """Return the reader of an axis value or a figure, by its name or the last part of it."""
    short = {shown: path for path, shown in short_names(study.paths).items()}
    path = short.get(name, name)
    if path in study.paths:
        return lambda entry: entry.point.coordinates.get(path)
    if name == "point":
        return lambda entry: entry.point.number
    metric = next((candidate for candidate in (name, f"latency.{name}") if is_study_metric(candidate)), None)
    if metric is None:
        known = (*study.paths, *short, *wanted(study))
        raise FilterError(
            f"no axis and no metric is named `{printable(name)}`",
            help=suggestion(name, known, otherwise="known names are"),
        )
    return lambda entry: entry.mean(metric)
