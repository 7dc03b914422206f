"""``weighted`` routing: scorers, each with a weight, decide together.

It finds the instance with the highest weighted score without examining all of them: see ``Ranking``.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final, SupportsFloat, cast

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError, SimulationError
from blis_tui.base.pickling import is_internal_class
from blis_tui.cluster.policies.ranking import Ranking, can_rank
from blis_tui.cluster.policies.routing import pick
from blis_tui.cluster.policies.scoring import FigureScorer, SparseScorer
from blis_tui.cluster.policy import ROUTING, SCORING, Scorer, TracksInstances, clamp_score
from blis_tui.model.plug_ins import nested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest


_MEMORYLESS: Final = (FigureScorer.routed, SparseScorer.routed)
"""The ``routed`` methods of scorers without memory."""
_SHOWN: Final = 200
"""Number of characters of an invalid answer that errors quote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSettings:
    """Settings of weighted routing."""

    scorers: tuple[tuple[str, Scorer], ...] = nested(
        "The scorers and their weights; without it, those of llm-d.",
        SCORING,
        "#/$defs/scorers",
        default=(
            {"kind": "precise-prefix-cache", "weight": 2.0},
            {"kind": "queue-depth", "weight": 1.0},
            {"kind": "kv-utilization", "weight": 1.0},
        ),
    )


@ROUTING.plugin("weighted", "The instance with the highest weighted sum of scores.", WeightedSettings)
class Weighted:
    """Chooses the highest sum of weight / all weights x score, added up in scorer order; ties are drawn at random.

    Attributes:
        shares: weight / all weights, of each scorer.
    """

    rule = "Weighted routing takes the instance with the highest weighted sum of scores."

    def __init__(self, settings: WeightedSettings) -> None:
        self._names = [name for name, _ in settings.scorers]
        self._scorers = [scorer for _, scorer in settings.scorers]
        if not settings.scorers:
            raise PolicyError("`weighted` routing needs at least one scorer")
        total = 0.0
        for scorer in self._scorers:
            total += scorer.weight
        self.shares = [scorer.weight / total for scorer in self._scorers]
        self._remembering = [scorer for scorer in self._scorers if type(scorer).routed not in _MEMORYLESS]
        self._ranking: Ranking | None = None
        self._can_rank = can_rank(self._scorers)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_ranking": None}  # an index, rebuilt when needed

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """Return the best place, and its score."""
        if self._can_rank:
            if self._ranking is None:
                self._ranking = Ranking(self._scorers, self.shares, fleet)
            best, indices = self._ranking.best(request, fleet)
            place = fleet.place(pick(indices, context))
        else:
            sums = self.sums(request, fleet)
            best = max(sums)
            place = pick([at for at, total in enumerate(sums) if total == best], context)
        for scorer in self._remembering:
            scorer.routed(request, fleet, place)
        return place, f"score {best:.6f}" if context.told else ""

    def sums(self, request: IncomingRequest, fleet: Fleet) -> list[float]:
        """Return the weighted sum of each place; scores are clamped to 0 to 1."""
        sums = [0.0] * len(fleet)
        for name, share, scorer in zip(self._names, self.shares, self._scorers, strict=True):
            scores = _validated_scores(name, scorer, scorer.scores(request, fleet), len(fleet))
            sums = [total + share * clamp_score(score) for total, score in zip(sums, scores, strict=True)]
        return sums

    def explain(self, request: IncomingRequest, fleet: Fleet) -> tuple[tuple[str, list[float]], ...]:
        """Return every scorer's name and its unweighted scores by place, without changing anything."""
        scores = (list(scorer.scores(request, fleet)) for scorer in self._scorers)
        return tuple(zip(self._names, scores, strict=True))

    def forget(self, instance: int) -> None:
        """Forget an instance that is gone with its cache."""
        for scorer in self._scorers:
            if isinstance(scorer, TracksInstances):
                scorer.forget(instance)

    def state(self) -> tuple[object, ...]:
        """Return what the scorers remember."""
        return tuple(scorer.state() for scorer in self._scorers)


def _validated_scores(name: str, scorer: Scorer, scores: object, places: int) -> Sequence[float]:
    """Return a scorer's answer, after checking it if the scorer is a plug-in's.

    Raises:
        SimulationError: it is not a number for each place.
    """
    numbers = cast("Sequence[float]", scores)
    if is_internal_class(type(scorer)) or (
        hasattr(scores, "__len__")
        and len(numbers) == places
        and all(isinstance(number, SupportsFloat) for number in numbers)
        and not any(isnan(number) for number in numbers)
    ):
        return numbers
    raise SimulationError(
        f"the scorer `{name}` answers {repr(scores)[:_SHOWN]} for {places} places",
        help="`scores` returns a number between 0 and 1 for every place in the fleet",
    )
