"""The plug points of the control plane: what an admission policy and a routing policy are."""

from __future__ import annotations

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


class RoutingPolicy(Protocol):
    """Decides about each admitted request once."""

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


ADMISSION: Final = PlugPoint[[], AdmissionPolicy]("policy.admission", "admission policy", AdmissionPolicy)
ROUTING: Final = PlugPoint[[], RoutingPolicy]("policy.routing", "routing policy", RoutingPolicy)


def pick(places: Sequence[int], context: Context) -> int:
    """One of these equally good places, drawn where there are several."""
    return places[0] if len(places) == 1 else places[context.stream.below(len(places))]
