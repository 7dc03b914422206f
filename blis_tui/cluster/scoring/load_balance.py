"""``load-balance``: the fewer requests the better, whatever the others have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, Forgetful, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@SCORING.plugin("load-balance", "1 / (1 + queue + batch + in flight).", Weight)
class LoadBalance(Forgetful):
    """1 / (1 + queue + batch + in flight)."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """1 for an idle instance, falling with its load."""
        return [1.0 / (1.0 + load) for load in fleet.loads()]
