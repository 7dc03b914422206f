"""``kv-utilization``: free KV blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, FigureScorer, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence


@SCORING.plugin("kv-utilization", "The share of KV blocks that is free.", Weight)
class KvUtilization(FigureScorer):
    """The share of KV blocks that is free."""

    figure = "kv_utilization"

    def grades(self, values: Sequence[float]) -> list[float]:
        """1 - the share in use."""
        return [1.0 - value for value in values]
