"""The plug point of scorers: what ``weighted`` routing adds up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.registry import PlugPoint, setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What every scorer is told; those that need more inherit from it."""

    weight: float = setting("How much it counts, relative to the others.", default=1.0, exclusiveMinimum=0, maximum=1e6)


class Scorer(Protocol):
    """Says how good each instance is for a request."""

    weight: float
    """How much it counts, relative to the others."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        """A score between 0 and 1 for every place in ``fleet``; it must not change what it remembers."""

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """``request`` goes to that place."""

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""


SCORING: Final = PlugPoint[[], Scorer]("policy.routing.scorers", "scorer", Scorer)


class Forgetful:
    """A scorer that remembers nothing."""

    def __init__(self, settings: Weight) -> None:
        self.weight = settings.weight

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Nothing to remember."""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()


def least_first(values: Sequence[int]) -> list[float]:
    """1 for the smallest value, 0 for the largest, in proportion between; 1 for all where they are equal."""
    low, high = min(values), max(values)
    if low == high:
        return [1.0] * len(values)
    span = high - low
    return [(high - value) / span for value in values]
