"""``never``: the gateway lets everybody through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.gateway.saturation import SATURATION

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet
    from blis_tui.registry import NoSettings


@SATURATION.plugin("never", "The instances never count as saturated.")
class Never:
    """Never saturated."""

    rule = "The instances never count as saturated."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def level(self, fleet: Fleet) -> float:  # noqa: ARG002
        """Always 0."""
        return 0.0
