"""``running-requests``: the smaller the batch the better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, Forgetful, Weight, least_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@SCORING.plugin("running-requests", "Requests in the batch, between the smallest and the largest.", Weight)
class RunningRequests(Forgetful):
    """Requests in the batch, between the smallest and the largest."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """1 for the smallest batch, 0 for the largest."""
        return least_first(fleet.column("running"))
