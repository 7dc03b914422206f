"""``utilization``: queues and KV caches decide whether the fleet is saturated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.gateway.saturation import SATURATION
from blis_tui.cluster.saturation import utilization
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What counts as saturated."""

    queue_depth_threshold: float = setting(
        "Queue of an instance that counts as saturated.", default=5.0, exclusiveMinimum=0, maximum=1e9
    )
    kv_utilization_threshold: float = setting(
        "Share of its KV blocks in use that counts as saturated.", default=0.8, exclusiveMinimum=0, maximum=1
    )


@SATURATION.plugin("utilization", "By queues and KV caches, in the mean over instances.", Settings)
class Utilization:
    """The mean over instances of the larger of two ratios."""

    def __init__(self, settings: Settings) -> None:
        self._queue, self._kv = settings.queue_depth_threshold, settings.kv_utilization_threshold
        self.rule = (
            f"Saturation is the mean of the larger of queue / {self._queue:g} and KV utilization / {self._kv:g}."
        )

    def level(self, fleet: Fleet) -> float:
        """The mean of max(queue / threshold, KV utilization / threshold)."""
        return utilization(fleet, self._queue, self._kv)
