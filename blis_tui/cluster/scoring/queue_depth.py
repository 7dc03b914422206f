"""``queue-depth``: the shorter the queue the better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, Forgetful, Weight, least_first
from blis_tui.registry import setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Weight):
    """Which queue is meant."""

    signal: str = setting(
        "What is compared: the waiting queue, or (as in older BLIS versions) queue + batch + in flight.",
        default="queue-depth",
        enum=("queue-depth", "effective-load"),
    )


@SCORING.plugin("queue-depth", "The length of the queue, between the shortest and the longest.", Settings)
class QueueDepth(Forgetful):
    """The length of the queue, between the shortest and the longest."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._signal = settings.signal

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """1 for the shortest, 0 for the longest."""
        return least_first(fleet.loads() if self._signal == "effective-load" else fleet.column("waiting"))
