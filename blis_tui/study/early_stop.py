"""Placeholder until the bounds land: nothing is ever stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.simulation import Simulation
    from blis_tui.spec.model import Expectation, Experiment


@dataclass(frozen=True, slots=True)
class Broken:
    """A constraint that can no longer hold."""

    sentence: str


class EarlyStop:
    """Watches a run."""

    def __init__(self, experiment: Experiment, constraints: Sequence[Expectation]) -> None:
        self.broken: Broken | None = None

    def watch(self, simulation: Simulation) -> None:
        """Listen to a simulation."""
