"""``vllm-dp``: as vLLM balances data-parallel engines: a queued request weighs four running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, Forgetful, Weight, least_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@SCORING.plugin("vllm-dp", "4 x queue + batch, between the smallest and the largest.", Weight)
class VllmDp(Forgetful):
    """4 x queue + batch, between the smallest and the largest."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """1 for the least burdened, 0 for the most."""
        pairs = zip(fleet.column("waiting"), fleet.column("running"), strict=True)
        return least_first([4 * waiting + running for waiting, running in pairs])
