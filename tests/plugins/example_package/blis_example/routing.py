"""``fewest-in-flight``: to the instance with least to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.plugins import ROUTING

if TYPE_CHECKING:
    from blis_tui.plugins import Context, Fleet, IncomingRequest, NoSettings


@ROUTING.plugin("fewest-in-flight", "The instance with the fewest requests that have not ended.")
class FewestInFlight:
    """Of equals the one with the lowest index."""

    rule = "The instance with the fewest requests that have not ended, of equals the first."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """The least loaded."""
        loads = [signals.in_flight for signals in fleet]
        return loads.index(min(loads)), f"{min(loads)} in flight"

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
