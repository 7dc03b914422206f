"""``power-of-two``: the less loaded of two instances drawn at random (Mitzenmacher, 2001)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.policy import ROUTING
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of the draw."""

    choices: int = setting("Instances drawn, all different.", default=2, minimum=1, maximum=100)


@ROUTING.plugin("power-of-two", "The least loaded of a few instances drawn at random.", Settings)
class PowerOfTwo:
    """Draws a few different instances and takes the one with the least load; of equals the first drawn."""

    def __init__(self, settings: Settings) -> None:
        self._choices = settings.choices
        self.rule = f"Draws {settings.choices} instances and takes the one with the fewest requests."

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:  # noqa: ARG002
        """The least loaded of those drawn."""
        loads = fleet.loads()
        places = list(range(len(loads)))
        for drawn in range(min(self._choices, len(places))):  # the first part of a shuffle
            other = drawn + context.stream.below(len(places) - drawn)
            places[drawn], places[other] = places[other], places[drawn]
        candidates = places[: self._choices]
        best = min(candidates, key=loads.__getitem__)
        return best, f"load {loads[best]} of {len(candidates)} drawn"

    def state(self) -> tuple[object, ...]:
        """Nothing: the stream's position is in the context."""
        return ()
