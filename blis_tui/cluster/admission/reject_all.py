"""``reject-all``: every request is rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.policy import ADMISSION

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@ADMISSION.plugin("reject-all", "Every request is rejected.")
class RejectAll:
    """Every request is rejected."""

    reads_signals = False

    rule = ""

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:  # noqa: ARG002
        """Always."""
        return "reject-all"

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
