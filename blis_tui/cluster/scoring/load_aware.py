"""``load-aware``: the shorter the queue the better, 128 being full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.cluster.scoring.scorer import SCORING, Forgetful, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


_FULL: Final = 128


@SCORING.plugin("load-aware", "Half of what is left of a queue of 128.", Weight)
class LoadAware(Forgetful):
    """Half of what is left of a queue of 128."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """0.5 for an empty queue, 0 for one of 128 requests or more."""
        return [0.5 * (1.0 - min(waiting, _FULL) / _FULL) for waiting in fleet.column("waiting")]
