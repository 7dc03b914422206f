"""``always-busiest``: the instance with the most load: the worst case, for tests of alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.policy import ROUTING

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@ROUTING.plugin("always-busiest", "The instance with the most load: the worst case, for tests of alarms.")
class AlwaysBusiest:
    """The instance with the most load: the worst case, for tests of alarms."""

    rule = "Always-busiest takes the instance with the most requests: queue + batch + in flight."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:  # noqa: ARG002
        """The first of the most loaded ones."""
        loads = fleet.loads()
        most = max(loads)
        return loads.index(most), f"load {most}"

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
