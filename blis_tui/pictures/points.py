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
        study, found = result.study, summaries(result)
        front = study_front(study, found)
        values = {path: [*dict.fromkeys(coordinate(one, path) for one in found)] for path in study.paths}
        return cls(study, found, frozenset(one.point.number for one in front), short_names(study.paths), values)

    @property
    def has_front(self) -> bool:
        """Whether there are several objectives; with a single one, ``front`` only has the best points."""
        return len(self.study.objectives) > 1

    def name(self, one: PointSummary) -> str:
        """Return the name of a point, from its coordinates."""
        parts = [f"{name} {value_text(one.coordinates[path])}" for path, name in self.names.items()]
        return ", ".join(parts) or f"point {one.point.number}"

    def figure(self, metric: str) -> bool:
        """Return whether any point has that figure as a number."""
        return any(one.mean(metric) is not None for one in self.all)

    @property
    def metrics(self) -> list[str]:
        """Return the numeric figures to show: the objectives, the constraints' figures, then the usual ones."""
        study = self.study
        asked = [*(one.metric for one in study.objectives), *(one.metric for one in study.constraints)]
        usual = (*_LATENCIES, _THROUGHPUT, self.cost, _ENERGY)
        return [one for one in dict.fromkeys([*asked, *usual]) if self.figure(one)]

    @property
    def latencies(self) -> list[str]:
        """Return the metrics without costs, those with a bound first."""
        found = [one for one in self.metrics if not one.startswith("cost.")]
        return sorted(found, key=lambda one: self.bound(one) is None)

    @property
    def cost(self) -> str:
        """Return the cost figure: money if all points have a price, else GPUs."""
        return cost_of(self.all)

    def goal(self, metric: str) -> Literal["min", "max"]:
        """Return whether a figure should be small (``min``) or large (``max``)."""
        said = next((one.goal for one in self.study.objectives if one.metric == metric), None)
        return said or ("max" if metric.startswith(_LARGE) else "min")

    def bound(self, metric: str) -> float | None:
        """Return the upper bound on a figure; None = there is none."""
        found = [one.max for one in self.study.constraints if one.metric == metric and one.max is not None]
        return min(found, default=None)

    @property
    def varied(self) -> list[str]:
        """Return the paths that have several values."""
        return [path for path, values in self.values.items() if len(values) > 1]


def short(metric: str) -> str:
    """Return a figure's short name."""
    return metric.removeprefix("latency.").removeprefix("throughput.").removeprefix("cost.")


def coordinate(one: PointSummary, path: str) -> str:
    """Return a coordinate as a text that distinguishes it from the others of its path."""
    value = one.coordinates[path]
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)


def verdict(one: PointSummary) -> str:
    """Return the outcome of a point, in a word or two."""
    if one.status in ("failed", "invalid"):
        return one.status
    stopped = ", stopped early" if one.status == "stopped" else ""
    return {True: "holds", False: "does not hold", None: "done"}[one.ok] + stopped
