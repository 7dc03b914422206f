"""``concurrency``: requests in flight decide whether the fleet is saturated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.gateway.saturation import SATURATION
from blis_tui.cluster.saturation import concurrency
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What counts as saturated."""

    max_concurrency: int = setting(
        "Requests in flight an instance should have at most.", default=100, minimum=1, maximum=10**9
    )


@SATURATION.plugin("concurrency", "By requests in flight, of all instances together.", Settings)
class Concurrency:
    """In flight / (instances x what each should have at most)."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_concurrency
        self.rule = f"Saturation is requests in flight / (instances x {self._most})."

    def level(self, fleet: Fleet) -> float:
        """The share of what may be in flight."""
        return concurrency(fleet, self._most)
