"""The plug point of deciders: which requests are split into prefill and decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.registry import PlugPoint

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet, IncomingRequest


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


DECIDER: Final = PlugPoint[[], Decider]("cluster.disaggregation.decider", "disaggregation decider", Decider)
