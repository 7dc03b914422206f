"""``least-loaded``: the instance with the least load; ties are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.policy import ROUTING, pick

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@ROUTING.plugin("least-loaded", "The instance with the least load; ties are drawn.")
class LeastLoaded:
    """The instance with the least load; ties are drawn."""

    rule = "Least-loaded takes the instance with the fewest requests: queue + batch + in flight."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:  # noqa: ARG002
        """The least loaded one."""
        loads = fleet.loads()
        least = min(loads)
        return pick([place for place, load in enumerate(loads) if load == least], context), f"load {least}"

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
