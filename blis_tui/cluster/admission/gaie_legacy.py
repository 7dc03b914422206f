"""``gaie-legacy``: sheddable classes are turned away while the fleet is saturated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.policy import ADMISSION
from blis_tui.cluster.saturation import utilization
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What counts as saturated."""

    queue_depth_threshold: float = setting(
        "Queue of an instance that counts as saturated.", default=5.0, exclusiveMinimum=0, maximum=1e9
    )
    kv_utilization_threshold: float = setting(
        "Share of its KV blocks in use that counts as saturated.", default=0.8, exclusiveMinimum=0, maximum=1
    )


@ADMISSION.plugin(
    "gaie-legacy", "While the instances are saturated, classes of a priority below 0 are rejected.", Settings
)
class GaieLegacy:
    """As the Gateway API inference extension did: the mean over instances of the larger of two ratios."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.rule = (
            "Classes of priority below 0 are turned away while, in the mean over instances, the larger of queue /"
            f" {settings.queue_depth_threshold:g} and KV utilization / {settings.kv_utilization_threshold:g} is at"
            " least 1."
        )

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:
        """``saturated`` for a sheddable class."""
        if context.priority(request) >= 0:
            return ""
        settings = self._settings
        level = utilization(fleet, settings.queue_depth_threshold, settings.kv_utilization_threshold)
        return "saturated" if level >= 1.0 else ""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
