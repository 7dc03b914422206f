"""What a study varies that is no choice: the load. Points compete with those that serve the same requests.

Operators choose hardware, policies and limits, and not what clients send. Of an axis of the workload (a rate, users,
the scale of a trace, or another workload altogether) each value is a scenario, and each has an answer of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.study.summary import pareto_front

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.spec.source import Json
    from blis_tui.spec.study.model import Objective, Study
    from blis_tui.study.summary import PointSummary

COSTS: Final = ("cost.usd_per_hour", "cost.gpus")
"""What a configuration costs: money where all have a price, else GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The points that serve the same requests."""

    values: tuple[Json, ...]
    """Of the load's axes, in their order."""
    points: tuple[PointSummary, ...]
    best: PointSummary | None
    """The cheapest of those that meet all bounds; None = none does."""
    ties: tuple[PointSummary, ...] = ()
    """What is as good by all figures that decide, and comes later in the study."""


def load_paths(study: Study) -> tuple[str, ...]:
    """The axes that say what arrives."""
    return tuple(path for path in study.paths if path == "workload" or path.startswith("workload."))


def study_front(
    study: Study, points: Sequence[PointSummary], objectives: Sequence[Objective] | None = None
) -> tuple[PointSummary, ...]:
    """The points that no other one beats that serves the same requests, scenario by scenario.

    Args:
        study: whose points they are.
        points: those that may be on it.
        objectives: by which figures; None = the study's.
    """
    wanted = study.objectives if objectives is None else objectives
    return tuple(one for members in _by_load(study, points).values() for one in pareto_front(members, wanted))


def cost_of(points: Sequence[PointSummary]) -> str:
    """The figure that says what points cost."""
    done = [one for one in points if one.status == "done"]
    return next((name for name in COSTS if all(one.mean(name) is not None for one in done)), COSTS[-1])


def scenarios(study: Study, points: Sequence[PointSummary]) -> tuple[Scenario, ...]:
    """The scenarios of a study, each with its best point; none where one load is all there is, or all that varies.

    The best is the cheapest that meets all bounds; of equals, and where there are no bounds, the one that is best by
    the objectives, one after the other.
    """
    paths = load_paths(study)
    if not paths or len(paths) == len(study.paths):
        return ()
    by = ranked_by(study, points)
    found = []
    for members in _by_load(study, points).values():
        values = tuple(members[0].coordinates[path] for path in paths)
        able = [one for one in members if one.ok is not False and one.status == "done"]
        places = {one.point.number: [_placed(one, wish) for wish in by] for one in able}
        able.sort(key=lambda one: (places[one.point.number], one.point.number))
        best = able[0] if able else None
        ties = tuple(one for one in able[1:] if places[one.point.number] == places[able[0].point.number])
        found.append(Scenario(values=values, points=tuple(members), best=best, ties=ties))
    return tuple(found)


def ranked_by(study: Study, points: Sequence[PointSummary]) -> list[tuple[str, str]]:
    """By which figures, one after the other, the best point of a scenario is chosen: metric and goal."""
    wishes = [(one.metric, one.goal) for one in study.objectives]
    cost: list[tuple[str, str]] = [(cost_of(points), "min")]
    return list(dict.fromkeys([*(cost if study.constraints or not wishes else []), *wishes]))


def _placed(one: PointSummary, wish: tuple[str, str]) -> float:
    metric, goal = wish
    value = one.mean(metric)
    return float("inf") if value is None else -value if goal == "max" else value


def _by_load(study: Study, points: Sequence[PointSummary]) -> dict[str, list[PointSummary]]:
    paths = load_paths(study)
    found: dict[str, list[PointSummary]] = {}
    for one in points:
        found.setdefault(json.dumps([one.coordinates.get(path) for path in paths]), []).append(one)
    return found
