"""``weighted``: scorers, each with its weight, decide together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.cluster.policy import ROUTING, pick
from blis_tui.cluster.scoring.scorer import SCORING, Scorer
from blis_tui.errors import PolicyError
from blis_tui.registry import nested

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of weighted routing."""

    scorers: tuple[Scorer, ...] = nested(
        "The scorers and their weights. Default: as in llm-d.",
        SCORING,
        "#/$defs/scorers",
        {"kind": "precise-prefix-cache", "weight": 2.0},
        {"kind": "queue-depth", "weight": 1.0},
        {"kind": "kv-utilization", "weight": 1.0},
    )


@ROUTING.plugin("weighted", "The instance with the highest weighted sum of scores.", Settings)
class Weighted:
    """The highest sum of weight / all weights x score, added up in the order of the scorers; ties are drawn."""

    rule = "Weighted routing takes the instance with the highest weighted sum of scores."

    def __init__(self, settings: Settings) -> None:
        self._scorers = settings.scorers
        if not settings.scorers:
            raise PolicyError("`weighted` routing needs at least one scorer")
        total = 0.0
        for scorer in settings.scorers:
            total += scorer.weight
        self._shares = [scorer.weight / total for scorer in settings.scorers]

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """The best place, and its score."""
        sums = [0.0] * len(fleet)
        for share, scorer in zip(self._shares, self._scorers, strict=True):
            scores = scorer.scores(request, fleet)
            sums = [
                total + share * (0.0 if score < 0.0 else min(score, 1.0))
                for total, score in zip(sums, scores, strict=True)
            ]
        best = max(sums)
        place = pick([at for at, total in enumerate(sums) if total == best], context)
        for scorer in self._scorers:
            scorer.routed(request, fleet, place)
        return place, f"score {best:.6f}"

    def state(self) -> tuple[object, ...]:
        """What the scorers remember."""
        return tuple(scorer.state() for scorer in self._scorers)
