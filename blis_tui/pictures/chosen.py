"""Repeats runs of a study or plan, to show them over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.pictures.arrivals import NAMES, curves_view
from blis_tui.pictures.load_pictures import LoadObserver, compared_load_picture
from blis_tui.pictures.page import Picture, PictureView, Section, settings
from blis_tui.pictures.points import coordinate
from blis_tui.pictures.run_page import curves_of
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.study.document import experiment_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.model import Experiment
    from blis_tui.pictures.arrivals import Curve
    from blis_tui.pictures.load_pictures import LoadTable
    from blis_tui.pictures.points import Points
    from blis_tui.study.point_summary import PointSummary

MOST: Final = 4
"""Default number of points."""


class Chosen(NamedTuple):
    """A repeated run."""

    name: str
    experiment: Experiment
    load: LoadTable
    end_us: int
    curves: dict[str, Curve]
    """Latency (a key of ``percentiles.NAMES``) -> its curve."""


def rerun(name: str, experiment: Experiment) -> Chosen:
    """Run an experiment and record it over time.

    Args:
        name: its name in pictures.
        experiment: the experiment.

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
    """Return the experiments to repeat, with their names: the first seed of each point.

    Args:
        points: points of a study.
        numbers: numbers of the selected points; empty = some of the front, from one end to the other, or without a
            front the first that meet all bounds.

    Raises:
        SpecError: one of them is no valid experiment.
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
    """Return a section with these runs side by side, and their settings."""
    seen = {one.name: (one.load, one.end_us) for one in chosen if one.end_us and one.load.instances}
    content: list[str | Picture] = []
    if seen:
        curves = {latency: {one.name: one.curves[latency] for one in chosen} for latency in NAMES}
        content.append(
            Picture(
                name="runs-percentiles",
                title="Latency by percentile, compared",
                description="A curve of each latency for each run: " + "; ".join(seen) + ".",
                views={"": PictureView(*curves_view(curves))},
                height=640,
                note="Each further nine takes as much room.",
            )
        )
        content.append(compared_load_picture(seen))
    content += [settings(one.experiment, f"All settings of {one.name}") for one in chosen]
    return Section(name="runs", title="Chosen runs over time", content=content)
