"""The plug point of saturation detectors: while the fleet is saturated, the gateway dispatches nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.registry import PlugPoint

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet


class Saturation(Protocol):
    """Says how busy the instances are."""

    rule: str
    """How, with its settings, in a sentence for explanations."""

    def level(self, fleet: Fleet) -> float:
        """0 = idle; from 1 on they are saturated."""


SATURATION: Final = PlugPoint[[], Saturation]("policy.gateway.saturation", "saturation detector", Saturation)
