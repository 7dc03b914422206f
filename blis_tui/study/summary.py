"""Summaries of a study's points: means over seeds, which points hold, and the Pareto front."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.spec.source import Json
    from blis_tui.spec.study.model import Objective, Point
    from blis_tui.study.rows import Row, StudyResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSummary:
    """A point, over all of its seeds."""

    point: Point
    rows: tuple[Row, ...]
    ok: bool | None
    """Whether the constraints hold with every seed; None = there are none, or a run has no result."""

    @property
    def status(self) -> str:
        """The status of its runs; the worst if they differ."""
        found = {row.status for row in self.rows}
        return next(one for one in ("invalid", "failed", "stopped", "done") if one in found)

    @property
    def why(self) -> str:
        """The first reason that one of its runs gives."""
        return next((row.why for row in self.rows if row.why), "")

    @property
    def coordinates(self) -> Mapping[str, Json]:
        """The point's values by path."""
        return self.point.coordinates

    def mean(self, metric: str) -> float | None:
        """Return the mean of a figure over the seeds; None if a run lacks it."""
        values = self.values(metric)
        return fsum(values) / len(values) if values and len(values) == len(self.rows) else None

    def values(self, metric: str) -> list[float]:
        """Return a figure of each run that has it."""
        found = [row.figures.get(metric) for row in self.rows]
        return [float(one) for one in found if isinstance(one, int | float) and not isinstance(one, bool)]


def summaries(result: StudyResult) -> tuple[PointSummary, ...]:
    """Return the summaries of all points with a row, in order."""
    rows: dict[int, list[Row]] = {}
    for row in result.rows:
        rows.setdefault(row.point.number, []).append(row)
    return tuple(PointSummary(point=own[0].point, rows=tuple(own), ok=_ok(own)) for own in rows.values())


def _ok(rows: Iterable[Row]) -> bool | None:
    found = [row.ok for row in rows]
    return False if False in found else None if None in found else True


def pareto_front(points: Sequence[PointSummary], objectives: Sequence[Objective]) -> tuple[PointSummary, ...]:
    """Return the points that no other point dominates (better in one objective, worse in none), by the first objective.

    Points whose constraints do not hold, or whose run was not finished, are excluded.
    """
    if not objectives:
        return ()
    placed: list[tuple[tuple[float, ...], PointSummary]] = []
    for one in points:
        values = [one.mean(objective.metric) for objective in objectives]
        if one.ok is not False and one.status == "done" and None not in values:
            signed = zip(values, objectives, strict=True)
            placed.append((tuple(-v if o.goal == "max" else v for v, o in signed if v is not None), one))
    placed.sort(key=lambda pair: pair[0])
    front: list[PointSummary] = []
    kept: list[tuple[float, ...]] = []
    for place, one in placed:  # points that beat it come first; of two objectives, the last kept has the best second
        if not kept or place != kept[-1]:
            if any(_dominates(other, place) for other in (kept[-1:] if len(objectives) <= 2 else kept)):
                continue
            kept.append(place)
        front.append(one)
    return tuple(front)


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))
