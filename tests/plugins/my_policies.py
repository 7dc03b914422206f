"""A routing policy in a script: to where most of the prompt is cached, then to where there is least to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.plugins import ROUTING, setting

if TYPE_CHECKING:
    from blis_tui.plugins import Context, Fleet, IncomingRequest, InstanceSignals


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of this policy: what a spec may say beside its name."""

    cached_token_worth: float = setting(
        "Requests in flight that one cached token outweighs.", default=0.01, minimum=0, maximum=1000
    )


@ROUTING.plugin("cache-then-least", "Most of the prompt cached, then fewest requests in flight.", Settings)
class CacheThenLeast:
    """Scores each instance; equal ones are drawn from by the policy's own random stream."""

    rule = "The instance with the best score: cached tokens against requests in flight; equal ones by lot."

    def __init__(self, settings: Settings) -> None:
        self._worth = settings.cached_token_worth

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """The best score."""
        scores = [self._score(request, signals) for signals in fleet]
        best = max(scores)
        equal = [place for place, score in enumerate(scores) if score == best]
        place = equal[int(context.stream.uniform() * len(equal))] if len(equal) > 1 else equal[0]
        return place, f"score {best:.2f}, {len(equal)} alike"

    def state(self) -> tuple[object, ...]:
        """Nothing: all it needs is in the signals."""
        return ()

    def _score(self, request: IncomingRequest, signals: InstanceSignals) -> float:
        return self._worth * signals.cache.cached_tokens(request.segments) - signals.in_flight
