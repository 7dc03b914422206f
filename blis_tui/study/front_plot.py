"""Plots the points of a study by its first two objectives, with the Pareto front, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from blis_tui.braille import scatter
from blis_tui.classes import dataclass
from blis_tui.engine.portable_math import ln

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from blis_tui.spec.study.model import Objective
    from blis_tui.study.summary import PointSummary

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
        self._shares = {one.point.number: (x.share(across), y.share(up)) for (across, up), one in placed}
        self._cells = self._draw([one for _, one in placed], front)
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
        self._put(cells, [shares[one.point.number] for one in points if one.ok is False], "", "broken")
        self._put(cells, [shares[one.point.number] for one in points if one.ok is not False], "", "holds")
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
    found: list[tuple[tuple[float, float], PointSummary]] = []
    for one in points:
        across, up = (one.mean(objective.metric) for objective in objectives[:2])
        if one.status == "done" and across is not None and up is not None:
            found.append(((across, up), one))
    return found


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
