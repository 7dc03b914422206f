"""``vllm-dp``: as vLLM balances data-parallel engines: a queued request weighs four running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, FigureScorer, Weight, least_first

if TYPE_CHECKING:
    from collections.abc import Sequence


@SCORING.plugin("vllm-dp", "4 x queue + batch, between the smallest and the largest.", Weight)
class VllmDp(FigureScorer):
    """4 x queue + batch, between the smallest and the largest."""

    figure = "vllm_dp"

    def grades(self, values: Sequence[float]) -> list[float]:
        """1 for the least burdened, 0 for the most."""
        return least_first(values)
