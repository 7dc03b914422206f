"""``round-robin``: instances take turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.policy import ROUTING

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@ROUTING.plugin("round-robin", "Instances take turns.")
class RoundRobin:
    """Each instance in turn."""

    rule = "Round-robin takes the instances in turn; it does not look at their load."
    reads_signals = False

    def __init__(self, settings: NoSettings) -> None:
        del settings
        self._turn = 0

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:  # noqa: ARG002
        """The next one in line."""
        turn = self._turn
        self._turn = turn + 1
        return turn % len(fleet), f"turn {turn}"

    def state(self) -> tuple[object, ...]:
        """Whose turn it is."""
        return (self._turn,)
