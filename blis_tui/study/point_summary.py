"""Summaries of a study's points: means over seeds with their expected errors, scenarios, and the Pareto front.

Scenarios: the part of a study that varies the load. Points compete only with those that serve the same requests.

Operators choose hardware, policies and limits, but not what clients send. Each value of a workload axis (a rate, users,
the scale of a trace, or another workload) is a scenario with an answer of its own.
"""

from __future__ import annotations

import json
import re
from functools import partial
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import plural
from blis_tui.engine.latency.creation import create_latency
from blis_tui.output.section_text import METRIC_NAMES, not_measured_text, percent_text
from blis_tui.results.expected_error import expectations
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.samples import MIN_SERVED_SHARE
from blis_tui.study.study_rows import numbers, point_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.results.expected_error import Band, Expectation
    from blis_tui.spec.study.study_records import Objective, Point, Study
    from blis_tui.study.study_rows import Row, StudyResult


COSTS: Final = ("cost.usd_per_hour", "cost.gpus")
"""The cost figure of a configuration: money if all have a price, else GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The points that serve the same requests."""

    values: tuple[Json, ...]
    """Values of the load's axes, in their order."""
    points: tuple[PointSummary, ...]
    best: PointSummary | None
    """The cheapest point that meets all bounds; None = none does."""
    ties: tuple[PointSummary, ...] = ()
    """Points that are equal in all deciding figures but come later in the study."""


def load_paths(study: Study) -> tuple[str, ...]:
    """Return the axes that vary the load."""
    return tuple(path for path in study.paths if path == "workload" or path.startswith("workload."))


def study_front(
    study: Study, points: Sequence[PointSummary], objectives: Sequence[Objective] | None = None
) -> tuple[PointSummary, ...]:
    """Return the points on the Pareto front of each scenario.

    Args:
        study: the study.
        points: the candidate points.
        objectives: the figures to compare; None = the study's objectives.
    """
    wanted = study.objectives if objectives is None else objectives
    return tuple(summary for members in _by_load(study, points).values() for summary in pareto_front(members, wanted))


def beaten_by(study: Study, points: Sequence[PointSummary], summary: PointSummary) -> tuple[PointSummary, ...]:
    """Return the points that keep one off the front: as good in each objective, better in one, with the same load."""
    rivals = next(members for members in _by_load(study, [summary, *points]).values() if summary in members)
    mine = _place(summary, study.objectives)
    places = [(other, _place(other, study.objectives)) for other in rivals if other is not summary]
    return tuple(other for other, place in places if place and mine and _dominates(place, mine))


def cost_of(points: Sequence[PointSummary]) -> str:
    """Return the figure by which the points' costs are compared."""
    done = [summary for summary in points if summary.status == "done"]
    return next((name for name in COSTS if all(summary.mean(name) is not None for summary in done)), COSTS[-1])


def scenarios(study: Study, points: Sequence[PointSummary]) -> tuple[Scenario, ...]:
    """Return the scenarios of a study, each with its best point; empty if the load does not vary, or nothing else does.

    The best is the cheapest point that meets all bounds. Ties, and scenarios without bounds, are decided by the
    objectives in order.
    """
    paths = load_paths(study)
    if not paths or len(paths) == len(study.paths):
        return ()
    by = ranked_by(study, points)
    best_of_loads = []
    for members in _by_load(study, points).values():
        values = tuple(members[0].coordinates[path] for path in paths)
        able = [member for member in members if _can_be_best(member)]
        places = {summary.point.number: [_placed(summary, wish) for wish in by] for summary in able}
        able.sort(key=lambda summary: (places[summary.point.number], summary.point.number))
        best = able[0] if able else None
        ties = tuple(summary for summary in able[1:] if places[summary.point.number] == places[able[0].point.number])
        best_of_loads.append(Scenario(values=values, points=tuple(members), best=best, ties=ties))
    return tuple(best_of_loads)


def ranked_by(study: Study, points: Sequence[PointSummary]) -> list[tuple[str, str]]:
    """Return the figures that decide the best point of a scenario, in order: metric and goal."""
    wishes = [(objective.metric, objective.goal) for objective in study.objectives]
    cost: list[tuple[str, str]] = [(cost_of(points), "min")]
    return list(dict.fromkeys([*(cost if study.constraints or not wishes else []), *wishes]))


def _placed(summary: PointSummary, wish: tuple[str, str]) -> float:
    metric, goal = wish
    value = summary.mean(metric)
    return float("inf") if value is None else -value if goal == "max" else value


def _by_load(study: Study, points: Sequence[PointSummary]) -> dict[str, list[PointSummary]]:
    paths = load_paths(study)
    by_load: dict[str, list[PointSummary]] = {}
    for summary in points:
        by_load.setdefault(json.dumps([summary.coordinates.get(path) for path in paths]), []).append(summary)
    return by_load


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSummary:
    """A point, over all of its seeds."""

    point: Point
    rows: tuple[Row, ...]
    ok: bool | None
    """Whether the constraints hold with every seed; None = there are none, or a run has no result."""
    counts_served: bool = False
    """Whether a constraint is on numbers of requests, and so on those that are not served."""

    @property
    def status(self) -> str:
        """The status of its runs; the worst if they differ."""
        statuses = {row.status for row in self.rows}
        return next(status for status in ("invalid", "failed", "stopped", "done") if status in statuses)

    @property
    def why(self) -> str:
        """The first reason that one of its runs gives."""
        return next((row.why for row in self.rows if row.why), "")

    @property
    def grows(self) -> bool:
        """Whether its bounds only held as long as it ran: at the end of a run, ever more was in the system."""
        return self.ok is True and any(map(still_grows, self.rows))

    @property
    def short(self) -> bool:
        """Whether its bounds held in a run of which much is ramp-up and drain."""
        return self.ok is True and any(_SHORT in row.warnings for row in self.rows)

    @property
    def unserved(self) -> float:
        """The mean share of its requests that were rejected, dropped, lost or timed out, of which no latency tells."""
        shares = []
        for row in self.rows:
            total, *away = (sum(map(int, numbers([row], f"requests.{name}"))) for name in ("total", *_AWAY))
            shares.append(sum(away) / total if total else 0.0)
        return fsum(shares) / len(shares)

    @property
    def turns_away(self) -> bool:
        """Whether these are so many that its latencies are not those of its load."""
        return self.unserved > 1 - MIN_SERVED_SHARE

    @property
    def in_doubt(self) -> bool:
        """Whether its bounds only held as long as it ran, or for the requests that were served, and many were not."""
        return self.grows or (self.ok is True and self.turns_away and not self.counts_served)

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
        return numbers(self.rows, metric)


def still_grows(row: Row) -> bool:
    """Return whether at the end of a run ever more was in the system, so that a longer one has longer latencies."""
    return any(name in row.warnings for name in _GROWS)


def summaries(result: StudyResult) -> tuple[PointSummary, ...]:
    """Return the summaries of all points with a row, in order."""
    rows: dict[int, list[Row]] = {}
    for row in result.rows:
        rows.setdefault(row.point.number, []).append(row)
    counts = any(constraint.metric.startswith("requests.") for constraint in result.study.constraints)
    return tuple(
        PointSummary(point=own[0].point, rows=tuple(own), ok=_ok(own), counts_served=counts) for own in rows.values()
    )


def _ok(rows: Iterable[Row]) -> bool | None:
    verdicts = [row.ok for row in rows]
    return False if False in verdicts else None if None in verdicts else True


def pareto_front(points: Sequence[PointSummary], objectives: Sequence[Objective]) -> tuple[PointSummary, ...]:
    """Return the points that no other point dominates (better in one objective, worse in none), by the first objective.

    Points whose constraints do not hold, or hold only as long as they ran or for those that they served, or whose run
    was not finished, are excluded.
    """
    if not objectives:
        return ()
    placed = [(place, summary) for summary in points if (place := _place(summary, objectives))]
    placed.sort(key=lambda pair: pair[0])
    front: list[PointSummary] = []
    kept: list[tuple[float, ...]] = []
    # Points that beat it come first; of two objectives, the last kept has the best second.
    for place, summary in placed:
        if not kept or place != kept[-1]:
            if any(_dominates(other, place) for other in (kept[-1:] if len(objectives) <= 2 else kept)):
                continue
            kept.append(place)
        front.append(summary)
    return tuple(front)


def _can_be_best(summary: PointSummary) -> bool:
    return summary.ok is not False and not summary.in_doubt and summary.status == "done"


def _place(summary: PointSummary, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Return a point's objectives, all of which should be small; empty if it cannot be on the front."""
    values = [summary.mean(objective.metric) for objective in objectives]
    if not _can_be_best(summary) or None in values:
        return ()
    signed = zip(values, objectives, strict=True)
    return tuple(-value if objective.goal == "max" else value for value, objective in signed if value is not None)


def _dominates(place: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return place != other and all(mine <= theirs for mine, theirs in zip(place, other, strict=True))


_GROWS: Final = ("overload", "unsettled")
_SHORT: Final = "start-and-drain"
"""Warnings of runs whose figures say little about the long run."""
_AWAY: Final = ("rejected", "dropped_unservable", "timed_out", "lost")
"""How requests end without being served."""
_NAMED: Final = 3
"""Maximum number of points named."""
_WITH_VALUE: Final = re.compile(r"`([\w.]+): [^`]*`")
"""A key with its value; if points differ only in the value, only the key is named."""


def expected_of(study: Study, row: Row) -> dict[str, tuple[str, Expectation]]:
    """Return the step-time model of each pool, and the expected errors of the run; empty without a report.

    Args:
        study: the study.
        row: the run.
    """
    if not row.loads:
        return {}
    experiment = experiment_of(study, row.point, row.seed)
    expected = expectations(experiment, row.loads, partial(create_latency, experiment.plugins))
    return {pool.name: (pool.latency.kind, expected[pool.name]) for pool in experiment.pools}


def step_times_lines(study: Study, points: Sequence[PointSummary]) -> Iterator[str]:
    """Yield the combined expected errors of some points, and why they are unknown for the others.

    The first run of each point is used.
    """
    bands: dict[str, dict[str, list[Band]]] = {}
    reasons: dict[str, list[tuple[str, str]]] = {}
    asked = 0
    for summary in points:
        known = expected_of(study, next((row for row in summary.rows if row.loads), summary.rows[0]))
        asked += bool(known)
        for kind, expectation in known.values():
            for metric, band in expectation.bands.items():
                bands.setdefault(kind, {}).setdefault(metric, []).append(band)
            if expectation.reasons:
                why = f"(step times: {kind}): {not_measured_text(expectation)}"
                named = reasons.setdefault(_WITH_VALUE.sub(r"`\1`", why), [])
                if (reason := (point_text(study.paths, summary.point.coordinates), why)) not in named:
                    named.append(reason)
    for kind, metrics in bands.items():
        errors = [f"{name} {_widest(metrics[key])}" for key, name in METRIC_NAMES.items() if key in metrics]
        yield f"Accuracy (step times: {kind}): {', '.join(errors)} (median by point; `blis-tui explain accuracy`)."
    for text, named in reasons.items():
        alike = len(dict.fromkeys(why for _, why in named)) == 1
        yield f"Accuracy{_of([name for name, _ in named], asked)} {named[0][1] if alike else text}."


def _of(named: Sequence[str], asked: int) -> str:
    """Return which points are meant; empty if it is all of them."""
    if len(named) == asked:
        return ""
    more = f"; and of {plural(len(named) - _NAMED, 'more point')}" if len(named) > _NAMED else ""
    return f" of {'; '.join(named[:_NAMED])}{more}"


def _widest(bands: Sequence[Band]) -> str:
    medians = [band.median for band in bands]
    return "±" + " to ".join(dict.fromkeys((percent_text(min(medians)), percent_text(max(medians)))))
