"""The known results of a study's points, and the marked points."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.study.rows import StudyResult
from blis_tui.study.scenarios import study_front
from blis_tui.study.summary import summaries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.spec.study.model import Point, Study
    from blis_tui.study.rows import Row
    from blis_tui.study.summary import PointSummary

PENDING = "pending"
"""The status of a point without results."""


@dataclass(frozen=True, slots=True)
class Entry:
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
        self._known: dict[int, Entry] = {}
        self._marked: tuple[int, ...] = ()
        self.version = 0
        """Increases with every change."""
        self.front: frozenset[int] = frozenset()
        """The numbers of the points on the front."""
        self._entries: tuple[Entry, ...] | None = None

    def add(self, rows: Iterable[Row]) -> None:
        """Add results of runs; a second one of the same run replaces the first."""
        touched: dict[int, None] = {}
        for row in rows:
            self._rows.setdefault(row.point.number, {})[row.seed] = row
            touched[row.point.number] = None
        for number in touched:
            result = StudyResult(study=self.study, rows=self._of_point(number))
            own = summaries(result)[0]
            self._known[number] = Entry(own.point, own, own.status)
        if touched:
            self.version += 1
            self._entries = None
            known = [one.summary for one in self._known.values() if one.summary is not None]
            self.front = frozenset(one.point.number for one in study_front(self.study, known))

    def mark(self, number: int) -> None:
        """Mark or unmark a point; a third mark removes the first."""
        before = self._marked
        others = tuple(one for one in before if one != number)
        self._marked = others if number in before else (*others[-1:], number)
        entries = list(self.entries)
        for one in {*before, number}:  # handled separately, so their order does not matter
            entries[one] = replace(entries[one], marked=one in self._marked)
        self._entries = tuple(entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All points in order."""
        if self._entries is None:
            self._entries = tuple(
                replace(self._known.get(at, Entry(point)), on_front=at in self.front, marked=at in self._marked)
                for at, point in enumerate(self.study.points)
            )
        return self._entries

    @property
    def marked(self) -> tuple[Entry, ...]:
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
