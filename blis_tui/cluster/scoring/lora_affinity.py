"""``lora-affinity``: requests go where their LoRA adapter is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, SparseScorer, Weight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@SCORING.plugin("lora-affinity", "1 where the request's LoRA adapter is on the accelerators, else 0.", Weight)
class LoraAffinity(SparseScorer):
    """1 where its adapter is, as the instances report it; 1 everywhere for requests without an adapter."""

    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        """0, and 1 for those that have it."""
        if not request.adapter:
            return 1.0, {}
        return 0.0, dict.fromkeys(fleet.with_adapter(request.adapter), 1.0)
