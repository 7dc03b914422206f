"""The plug point of scorers: what ``weighted`` routing adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.classes import dataclass
from blis_tui.registry import PlugPoint, setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


class FigureScorer:
    """A scorer that looks at one figure of each instance and remembers nothing: the smaller the better.

    ``weighted`` need not ask it about every instance: of equal figures one is enough.

    Attributes:
        figure: which one, of ``signals.FIGURES``.
    """

    figure: str

    def __init__(self, settings: Weight) -> None:
        self.weight = settings.weight

    def grades(self, values: Sequence[float]) -> list[float]:
        """The scores for these values, which are all that there are; the larger a value, the lower its score."""
        raise NotImplementedError

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """The grade of each instance's figure."""
        return self.grades(fleet.column(self.figure))

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Nothing to remember."""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()


class SparseScorer:
    """A scorer that says the same about most instances.

    ``weighted`` looks at the others one by one.
    """

    def __init__(self, settings: Weight) -> None:
        self.weight = settings.weight

    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        """The usual score, and the places that have another one."""
        raise NotImplementedError

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        """The usual score, or a place's own."""
        usual, others = self.sparse(request, fleet)
        return [others.get(place, usual) for place in range(len(fleet))]

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Nothing to remember."""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()


def least_first(values: Sequence[float]) -> list[float]:
    """1 for the smallest value, 0 for the largest, in proportion between; 1 for all where they are equal."""
    low, high = min(values), max(values)
    if low == high:
        return [1.0] * len(values)
    span = high - low
    return [(high - value) / span for value in values]
