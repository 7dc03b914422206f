"""Runs of a study or plan that are made once more, to be looked at over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.pictures.load import LoadObserver
from blis_tui.pictures.load_pictures import compared_load_picture
from blis_tui.pictures.page import settings
from blis_tui.pictures.parts import Picture, Section, View
from blis_tui.pictures.percentiles import NAMES, curves_view
from blis_tui.pictures.points import coordinate
from blis_tui.pictures.run_page import curves_of
from blis_tui.simulation import Simulation
from blis_tui.spec.study.document import experiment_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.pictures.load import LoadTable
    from blis_tui.pictures.percentiles import Curve
    from blis_tui.pictures.points import Points
    from blis_tui.spec.model import Experiment
    from blis_tui.study.summary import PointSummary

MOST: Final = 4
"""So many points are chosen by default."""


class Chosen(NamedTuple):
    """A run that was made once more."""

    name: str
    experiment: Experiment
    load: LoadTable
    end_us: int
    curves: dict[str, Curve]
    """Latency (a key of ``percentiles.NAMES``) -> its curve."""


def rerun(name: str, experiment: Experiment) -> Chosen:
    """Make a run and remember it over time.

    Args:
        name: how pictures call it.
        experiment: what to run.

    Raises:
        SimulationError: it cannot be simulated to its end.
    """
    simulation = Simulation(experiment)
    observer = LoadObserver(simulation)
    simulation.run()
    report = simulation.report()
    rows = list(report.rows.plain())
    curves = {latency: found["all requests"] for latency, found in curves_of(simulation, report.rows, rows).items()}
    return Chosen(name, experiment, observer.table(simulation, report.duration_us), report.duration_us, curves)


def choose(points: Points, numbers: Sequence[int] = ()) -> list[tuple[str, Experiment]]:
    """The experiments to make once more, with their names: the first seed of each point.

    Args:
        points: of a study.
        numbers: of the points that are wanted; none = some of the front, from one end to the other, or where there is
            none the first that meet all bounds.

    Raises:
        SpecError: one of them is no experiment.
    """
    wanted = [one for one in points.all if one.point.number in numbers] if numbers else _usual(points)
    found = []
    for one in wanted:
        experiment = experiment_of(points.study, one.point, one.rows[0].seed)
        values = ", ".join(coordinate(one, path) for path in points.names)
        found.append((f"point {one.point.number} ({values})", experiment))
    return found


def _usual(points: Points) -> list[PointSummary]:
    front = [one for one in points.all if one.point.number in points.front]
    if not front:
        return [one for one in points.all if one.status == "done" and one.ok is not False][:MOST]
    goal = points.study.objectives[0]
    front.sort(key=lambda one: one.mean(goal.metric) or 0.0, reverse=goal.goal == "max")
    last = len(front) - 1
    places = dict.fromkeys(last * number // (MOST - 1) for number in range(MOST))
    return [front[place] for place in places]


def chosen_section(chosen: Sequence[Chosen]) -> Section:
    """What happened in these runs, side by side, and their settings."""
    seen = {one.name: (one.load, one.end_us) for one in chosen if one.end_us and one.load.instances}
    content: list[str | Picture] = []
    if seen:
        curves = {latency: {one.name: one.curves[latency] for one in chosen} for latency in NAMES}
        content.append(
            Picture(
                name="runs-percentiles",
                title="Latency by percentile, compared",
                description="A curve of each latency for each run: " + "; ".join(seen) + ".",
                views={"": View(*curves_view(curves))},
                height=640,
                note="Each further nine takes as much room.",
            )
        )
        content.append(compared_load_picture(seen))
    content += [settings(one.experiment, f"All settings of {one.name}") for one in chosen]
    return Section(name="runs", title="Chosen runs over time", content=content)
