"""The points of a study for pictures: their names and figures, and repeated runs to show over time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.pictures.arrivals import NAMES, curves_view
from blis_tui.pictures.load_pictures import LoadObserver, compared_load_picture
from blis_tui.pictures.page import Picture, PictureView, Section, settings
from blis_tui.pictures.run_page import curves_of
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.point_summary import cost_of, study_front, summaries
from blis_tui.study.study_rows import short_names, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.model import Experiment
    from blis_tui.pictures.arrivals import Curve
    from blis_tui.pictures.load_pictures import LoadTable
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.point_summary import PointSummary
    from blis_tui.study.study_rows import StudyResult

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
    curves = {latency: curve["all requests"] for latency, curve in curves_of(simulation, report.rows, rows).items()}
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
    wanted = [point for point in points.all if point.point.number in numbers] if numbers else _usual(points)
    experiments = []
    for point in wanted:
        experiment = experiment_of(points.study, point.point, point.rows[0].seed)
        values = ", ".join(coordinate(point, path) for path in points.names)
        experiments.append((f"point {point.point.number} ({values})", experiment))
    return experiments


def _usual(points: Points) -> list[PointSummary]:
    front = [point for point in points.all if point.point.number in points.front]
    if not front:
        return [point for point in points.all if point.status == "done" and point.ok is not False][:MOST]
    goal = points.study.objectives[0]
    front.sort(key=lambda point: point.mean(goal.metric) or 0.0, reverse=goal.goal == "max")
    last = len(front) - 1
    places = dict.fromkeys(last * number // (MOST - 1) for number in range(MOST))
    return [front[place] for place in places]


def chosen_section(chosen: Sequence[Chosen]) -> Section:
    """Return a section with these runs side by side, and their settings."""
    seen = {point.name: (point.load, point.end_us) for point in chosen if point.end_us and point.load.instances}
    content: list[str | Picture] = []
    if seen:
        curves = {latency: {point.name: point.curves[latency] for point in chosen} for latency in NAMES}
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
    content += [settings(point.experiment, f"All settings of {point.name}") for point in chosen]
    return Section(name="runs", title="Chosen runs over time", content=content)


_LATENCIES: Final = ("latency.ttft_ms.p99", "latency.itl_ms.p99", "latency.e2e_ms.p99")
_LARGE: Final = ("throughput.", "slo.", "kv.hit_rate")
"""Figures to maximise unless a study says otherwise."""
_THROUGHPUT: Final = "throughput.output_tokens_per_s"
_ENERGY: Final = "cost.wh_per_million_output_tokens"


@dataclass(frozen=True, slots=True)
class Points:
    """A study's points with their names.

    Attributes:
        study: the study.
        all: every point that has a row, in order.
        front: the numbers of the points on the Pareto front.
        names: path -> short name.
        values: path -> its values as texts, in the order of the points.
    """

    study: Study
    all: tuple[PointSummary, ...]
    front: frozenset[int]
    names: dict[str, str]
    values: dict[str, list[str]]

    @classmethod
    def of(cls, result: StudyResult) -> Points:
        """Return the points of a study's result."""
        study, points = result.study, summaries(result)
        front = study_front(study, points)
        values = {path: [*dict.fromkeys(coordinate(point, path) for point in points)] for path in study.paths}
        return cls(study, points, frozenset(point.point.number for point in front), short_names(study.paths), values)

    @property
    def has_front(self) -> bool:
        """Whether there are several objectives; with a single one, ``front`` only has the best points."""
        return len(self.study.objectives) > 1

    def name(self, point: PointSummary) -> str:
        """Return the name of a point, from its coordinates."""
        parts = [f"{name} {value_text(point.coordinates[path])}" for path, name in self.names.items()]
        return ", ".join(parts) or f"point {point.point.number}"

    def figure(self, metric: str) -> bool:
        """Return whether any point has that figure as a number."""
        return any(point.mean(metric) is not None for point in self.all)

    @property
    def metrics(self) -> list[str]:
        """Return the numeric figures to show: the objectives, the constraints' figures, then the usual ones."""
        study = self.study
        asked = [
            *(objective.metric for objective in study.objectives),
            *(constraint.metric for constraint in study.constraints),
        ]
        usual = (*_LATENCIES, _THROUGHPUT, self.cost, _ENERGY)
        return [metric for metric in dict.fromkeys([*asked, *usual]) if self.figure(metric)]

    @property
    def latencies(self) -> list[str]:
        """Return the metrics without costs, those with a bound first."""
        metrics = [metric for metric in self.metrics if not metric.startswith("cost.")]
        return sorted(metrics, key=lambda metric: self.bound(metric) is None)

    @property
    def cost(self) -> str:
        """Return the cost figure: money if all points have a price, else GPUs."""
        return cost_of(self.all)

    def goal(self, metric: str) -> Literal["min", "max"]:
        """Return whether a figure should be small (``min``) or large (``max``)."""
        stated = next((objective.goal for objective in self.study.objectives if objective.metric == metric), None)
        return stated or ("max" if metric.startswith(_LARGE) else "min")

    def bound(self, metric: str) -> float | None:
        """Return the upper bound on a figure; None = there is none."""
        bounds = [
            constraint.max
            for constraint in self.study.constraints
            if constraint.metric == metric and constraint.max is not None
        ]
        return min(bounds, default=None)

    @property
    def varied(self) -> list[str]:
        """Return the paths that have several values."""
        return [path for path, values in self.values.items() if len(values) > 1]


def short(metric: str) -> str:
    """Return a figure's short name."""
    return metric.removeprefix("latency.").removeprefix("throughput.").removeprefix("cost.")


def coordinate(point: PointSummary, path: str) -> str:
    """Return a coordinate as a text that distinguishes it from the others of its path."""
    value = point.coordinates[path]
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)


def verdict(point: PointSummary) -> str:
    """Return the outcome of a point, in a word or two."""
    if point.status in ("failed", "invalid"):
        return point.status
    stopped = ", stopped early" if point.status == "stopped" else ""
    return {True: "holds", False: "does not hold", None: "done"}[point.ok] + stopped
