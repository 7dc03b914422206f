"""``always``: every request is split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.deciders.decider import DECIDER

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@DECIDER.plugin("always", "Every request is split.")
class Always:
    """Every request is split."""

    rule = "Every request is split."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:  # noqa: ARG002
        """Yes."""
        return True, "always"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Nothing to remember."""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
