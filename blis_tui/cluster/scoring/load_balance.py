"""``load-balance``: the fewer requests the better, whatever the others have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, FigureScorer, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence


@SCORING.plugin("load-balance", "1 / (1 + queue + batch + in flight).", Weight)
class LoadBalance(FigureScorer):
    """1 / (1 + queue + batch + in flight)."""

    figure = "load"

    def grades(self, values: Sequence[float]) -> list[float]:
        """1 for an idle instance, falling with its load."""
        return [1.0 / (1.0 + value) for value in values]
