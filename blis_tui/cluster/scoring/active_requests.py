"""``active-requests``: the fewer requests in flight the better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, Forgetful, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@SCORING.plugin("active-requests", "In flight, relative to the instance that has most.", Weight)
class ActiveRequests(Forgetful):
    """In flight, relative to the instance that has most."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """0 for whoever has most in flight, 1 for whoever has none."""
        counts = fleet.column("in_flight")
        most = max(counts)
        return [(most - count) / most for count in counts] if most else [1.0] * len(counts)
