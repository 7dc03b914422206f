"""``load-aware``: the shorter the queue the better, 128 being full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.cluster.scoring.scorer import SCORING, FigureScorer, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence


_FULL: Final = 128


@SCORING.plugin("load-aware", "Half of what is left of a queue of 128.", Weight)
class LoadAware(FigureScorer):
    """Half of what is left of a queue of 128."""

    figure = "waiting"

    def grades(self, values: Sequence[float]) -> list[float]:
        """0.5 for an empty queue, 0 for one of 128 requests or more."""
        return [0.5 * (1.0 - min(value, _FULL) / _FULL) for value in values]
