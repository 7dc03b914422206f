"""``no-hit-lru``: what no cache holds goes where no such request has gone for longest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.scoring.scorer import SCORING, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@SCORING.plugin(
    "no-hit-lru", "Prompts that no cache holds spread over the instances that had one least recently.", Weight
)
class NoHitLru:
    """Ranks instances by when they last got a prompt that nobody had in the cache; those that never did come first."""

    def __init__(self, settings: Weight) -> None:
        self.weight = settings.weight
        self._cold: dict[int, None] = {}

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        """0.5 for all where somebody has a block of the prompt, else 1 for the first in rank down to 0 for the last."""
        count = len(fleet)
        if _hit(request, fleet):
            return [0.5] * count
        if count == 1:
            return [1.0]
        used = {instance: at for at, instance in enumerate(self._cold)}
        ranked = sorted(range(count), key=lambda place: (used.get(fleet.members[place], -1), place))
        scores = [0.0] * count
        for rank, place in enumerate(ranked):
            scores[place] = 1.0 - rank / (count - 1)
        return scores

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Remember who got a prompt that nobody had."""
        if not _hit(request, fleet):
            instance = fleet.members[place]
            self._cold.pop(instance, None)
            self._cold[instance] = None

    def forget(self, instance: int) -> None:
        """The instance has gone: if it comes back, it never got one."""
        self._cold.pop(instance, None)

    def state(self) -> tuple[object, ...]:
        """The instances that ever got one, the latest last."""
        return tuple(self._cold)


def _hit(request: IncomingRequest, fleet: Fleet) -> bool:
    return bool(request.segments) and any(fleet.cached_blocks(request.segments))
