"""``queue-depth``: the shorter the queue the better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.scoring.scorer import SCORING, FigureScorer, Weight, least_first
from blis_tui.registry import setting

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Weight):
    """Which queue is meant."""

    signal: str = setting(
        "What is compared: the waiting queue, or (as in older BLIS versions) queue + batch + in flight.",
        default="queue-depth",
        enum=("queue-depth", "effective-load"),
    )


@SCORING.plugin("queue-depth", "The length of the queue, between the shortest and the longest.", Settings)
class QueueDepth(FigureScorer):
    """The length of the queue, between the shortest and the longest."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.figure = "load" if settings.signal == "effective-load" else "waiting"

    def grades(self, values: Sequence[float]) -> list[float]:
        """1 for the shortest, 0 for the longest."""
        return least_first(values)
