"""``running-requests``: the smaller the batch the better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, FigureScorer, Weight, least_first

if TYPE_CHECKING:
    from collections.abc import Sequence


@SCORING.plugin("running-requests", "Requests in the batch, between the smallest and the largest.", Weight)
class RunningRequests(FigureScorer):
    """Requests in the batch, between the smallest and the largest."""

    figure = "running"

    def grades(self, values: Sequence[float]) -> list[float]:
        """1 for the smallest batch, 0 for the largest."""
        return least_first(values)
