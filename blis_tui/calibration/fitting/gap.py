"""The gap between steps: requests wait for it, but the engine's log of step durations does not contain it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.fitting.laws import Term

if TYPE_CHECKING:
    from blis_tui.calibration.fitting.laws import Array, Law, Loads
    from blis_tui.spec.model import PluginConfig, Pool

GAP: Final = "gap_us"
_SPREAD_US: Final = 3000.0
"""Prior spread; measured servers on CPUs had 2.4 to 2.9 ms per step."""


def gap_of(law: Law, values: Array) -> float:
    """Return the gap coefficient in microseconds; 0 if a law has none."""
    return float(values[-1]) if law.terms[-1].name == GAP else 0.0


class Gapped:
    """A law with the gap as an additional coefficient, seen in requests but not in logs; models add it to each step."""

    def __init__(self, law: Law) -> None:
        self._law = law
        self.kind = law.kind
        self.kept = law.kept
        self.constant = law.constant
        self.terms = (*law.terms, Term(GAP, 0.0, _SPREAD_US, 0.0))
        self._at = [one.name for one in law.terms].index(law.constant)

    def config(self, values: Array) -> PluginConfig:
        """Return the step-time model with these coefficients."""
        inner = values[:-1].copy()
        inner[self._at] += values[-1]
        return self._law.config(inner)

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:
        """Return the law's slopes, and 1."""
        slopes = self._law.steps(values[:-1], pool, loads)
        return np.column_stack([slopes, np.ones(len(slopes))])

    def logged(self, slopes: Array) -> Array:
        """Return the slopes without the gap."""
        return np.column_stack([slopes[:, :-1], np.zeros(len(slopes))])

    def queue(self, tokens: Array) -> Array:
        """Return the law's slopes."""
        return np.column_stack([self._law.queue(tokens), np.zeros(len(tokens))])

    def client_us(self, tokens: Array) -> Array:
        """Return the law's time."""
        return self._law.client_us(tokens)

    def others(self, values: Array, pool: Pool) -> list[Array]:
        """Return the law's alternatives."""
        return [np.append(one, values[-1]) for one in self._law.others(values[:-1], pool)]
