"""``active-requests``: the fewer requests in flight the better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, FigureScorer, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence


@SCORING.plugin("active-requests", "In flight, relative to the instance that has most.", Weight)
class ActiveRequests(FigureScorer):
    """In flight, relative to the instance that has most."""

    figure = "in_flight"

    def grades(self, values: Sequence[float]) -> list[float]:
        """0 for whoever has most in flight, 1 for whoever has none."""
        most = max(values)
        return [(most - value) / most for value in values] if most else [1.0] * len(values)
