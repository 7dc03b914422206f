"""``always-admit``: every request is admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.policy import ADMISSION

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@ADMISSION.plugin("always-admit", "Every request is admitted.")
class AlwaysAdmit:
    """Every request is admitted."""

    reads_signals = False

    rule = ""

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:  # noqa: ARG002
        """Never."""
        return ""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
