"""``tier-shed``: under load the less urgent classes are turned away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.policy import ADMISSION
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """When which classes are shed."""

    overload_threshold: int = setting(
        "Load (queue + batch + in flight) of the busiest instance above which requests are shed.",
        default=0,
        minimum=0,
        maximum=10**9,
    )
    min_priority: int = setting(
        "Priority (see `slo_priorities`) from which on a class is never shed.", default=3, minimum=-100, maximum=101
    )


@ADMISSION.plugin("tier-shed", "While an instance is overloaded, less urgent SLO classes are rejected.", Settings)
class TierShed:
    """Rejects classes below a priority while the busiest instance is above a load."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.rule = (
            f"While the busiest instance has a load above {settings.overload_threshold}, classes of priority below"
            f" {settings.min_priority} are turned away."
        )

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:
        """``tier shed`` for a less urgent class under load."""
        if context.priority(request) >= self._settings.min_priority:
            return ""
        return "tier shed" if max(fleet.loads(), default=0) > self._settings.overload_threshold else ""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
