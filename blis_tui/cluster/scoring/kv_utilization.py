"""``kv-utilization``: free KV blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, Forgetful, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@SCORING.plugin("kv-utilization", "The share of KV blocks that is free.", Weight)
class KvUtilization(Forgetful):
    """The share of KV blocks that is free."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """1 - the share in use."""
        return [
            1.0 - used / total for used, total in zip(fleet.column("kv_used"), fleet.column("kv_total"), strict=True)
        ]
