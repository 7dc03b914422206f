"""The plug points of the control plane, in the order of a request's way. ``policies`` has what this package brings."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from blis_tui.registry import PlugPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest


class AdmissionPolicy(Protocol):
    """Decides about each request once, when it arrives."""

    rule: str
    """How it decides, with its settings, in a sentence for explanations; empty where its name says it."""

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:
        """Why ``request`` is turned away; empty when it may enter."""

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""


class Saturation(Protocol):
    """Says how busy the instances are."""

    rule: str
    """How, with its settings, in a sentence for explanations."""

    def level(self, fleet: Fleet) -> float:
        """0 = idle; from 1 on they are saturated. Who only wants to know it asks a copy."""


class RoutingPolicy(Protocol):
    """Decides about each admitted request once.

    One that has a method ``forget`` is told the index of each instance that has gone with all that it had cached.
    """

    rule: str
    """How it decides, with its settings, in a sentence for explanations; empty where its name says it."""

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """The place in ``fleet`` of the instance that serves ``request``, and the reason in a few words."""

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""


@runtime_checkable
class Forgetful(Protocol):
    """A routing policy or a scorer that remembers what it has sent to an instance."""

    def forget(self, instance: int) -> None:
        """The instance of that index has gone with all that it had cached."""


class Scorer(Protocol):
    """Says how good each instance is for a request; ``forget``, where it has that, is as of a routing policy."""

    weight: float
    """How much it counts, relative to the others."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        """A score between 0 and 1 for every place in ``fleet``; it must not change what it remembers."""

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """``request`` goes to that place."""

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""


def cut(score: float) -> float:
    """A score as it is added up: between 0 and 1.

    Raises:
        ValueError: it is no number, which is neither more nor less than others.
    """
    if isnan(score):
        raise ValueError("a score is not a number")
    return 0.0 if score < 0.0 else min(score, 1.0)


class Decider(Protocol):
    """Decides about each admitted request once."""

    rule: str
    """How it decides, with its settings, in a sentence for explanations."""

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:
        """Whether its prefill runs on another instance than its decode, and why, in a few words.

        ``fleet`` are the instances that decode, ``place`` the one that it will be if that is known already.
        """

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """It was routed to its prefill instance, or, not being split, to its only one."""

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""


ADMISSION: Final = PlugPoint[[], AdmissionPolicy]("policy.admission", "admission policy", AdmissionPolicy)
SATURATION: Final = PlugPoint[[], Saturation]("policy.gateway.saturation", "saturation detector", Saturation)
ROUTING: Final = PlugPoint[[], RoutingPolicy]("policy.routing", "routing policy", RoutingPolicy)
SCORING: Final = PlugPoint[[], Scorer]("policy.routing.scorers", "scorer", Scorer)
DECIDER: Final = PlugPoint[[], Decider]("cluster.disaggregation.decider", "disaggregation decider", Decider)
