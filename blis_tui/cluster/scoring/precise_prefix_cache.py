"""``precise-prefix-cache``: the more of the prompt is in an instance's prefix cache the better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.scoring.scorer import SCORING, SparseScorer, Weight
from blis_tui.registry import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Weight):
    """What a miss everywhere is worth."""

    nobody_has_it: float = setting(
        "The score of all instances where none has any of the prompt.", default=1.0, minimum=0, maximum=1
    )


@SCORING.plugin("precise-prefix-cache", "Cached blocks of the prompt, between the fewest and the most.", Settings)
class PrecisePrefixCache(SparseScorer):
    """Cached blocks of the prompt, between the fewest and the most, as the instances report them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._nobody = settings.nobody_has_it

    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        """1 for the most cached blocks, 0 for the fewest; 1 for all where they have equally many."""
        if not request.segments:
            return self._nobody, {}
        blocks = fleet.cached_blocks(request.segments)
        low, high = min(blocks), max(blocks)
        if low == high:
            return (1.0 if high else self._nobody), {}
        span = high - low
        return 0.0, {place: (count - low) / span for place, count in enumerate(blocks) if count > low}
