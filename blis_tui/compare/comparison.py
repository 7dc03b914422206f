"""Load two experiments, simulate both, and put side by side what came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.compare.documents import Difference, experiment_differences
from blis_tui.compare.metrics import Row, rows
from blis_tui.compare.requests import RequestChanges, request_changes
from blis_tui.simulation import Simulation

if TYPE_CHECKING:
    from blis_tui.metrics.report import Report
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two experiments."""

    experiment: Experiment
    source: str
    """What the user called it."""
    overrides: tuple[str, ...] = ()
    """What was replaced in it on the command line."""
    report: Report

    def to_dict(self) -> dict[str, object]:
        """As plain data."""
        return {
            "experiment": self.experiment.name,
            "source": self.source,
            "overrides": list(self.overrides),
            "spec_sha256": self.experiment.sha256,
            "seed": self.experiment.seed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two experiments, and everything that differs between them."""

    a: Side
    b: Side
    spec: tuple[Difference, ...]
    metrics: tuple[Row, ...]
    requests: RequestChanges
    notes: tuple[str, ...] = ()
    """What the reader should know about the comparison itself."""

    @property
    def results_differ(self) -> bool:
        """Whether any figure differs, or any request fared differently."""
        requests = self.requests
        return (
            any(row.differs for row in self.metrics)
            or bool(requests.different_ends or requests.most_affected)
            or requests.common < max(len(self.a.report.rows), len(self.b.report.rows))
        )

    def shown_metrics(self, *, everything: bool) -> list[Row]:
        """The main figures that differ, or all figures. A group of all requests says nothing new."""
        if everything:
            return list(self.metrics)
        only_groups = tuple(
            f"{part}."
            for part in ("slo_classes", "tenants")
            if max(len(getattr(side.report, part)) for side in (self.a, self.b)) < 2
        )
        return [row for row in self.metrics if row.differs and row.main and not row.metric.startswith(only_groups)]

    def to_dict(self, *, everything: bool = False) -> dict[str, object]:
        """As plain data; ``everything`` includes figures that are equal or of minor interest."""
        return {
            "a": self.a.to_dict(),
            "b": self.b.to_dict(),
            "notes": list(self.notes),
            "spec": [one.to_dict() for one in self.spec],
            "results_differ": self.results_differ,
            "metrics_differing": sum(row.differs for row in self.metrics),
            "metrics": [row.to_dict() for row in self.shown_metrics(everything=everything)],
            "requests": self.requests.to_dict(),
        }


def simulate(a: Experiment, b: Experiment) -> tuple[Report, Report]:
    """The reports of both; equal experiments are simulated once, for their reports are the same.

    Raises:
        SimulationError: one of them cannot go on.
        TraceError: rows of a recorded workload are wrong.
    """
    report = _report(a)
    return (report, report if (a.sha256, a.seed) == (b.sha256, b.seed) else _report(b))


def _report(experiment: Experiment) -> Report:
    simulation = Simulation(experiment)
    simulation.run()
    return simulation.report()


def compare(a: Side, b: Side, notes: tuple[str, ...] = ()) -> Comparison:
    """Everything that differs between two simulated experiments."""
    return Comparison(
        a=a,
        b=b,
        spec=tuple(experiment_differences(a.experiment.document, b.experiment.document)),
        metrics=tuple(rows(a.report.to_dict(), b.report.to_dict())),
        requests=request_changes(a.report.rows, b.report.rows),
        notes=notes,
    )
