"""What those who let instances come and go need of the cluster, and of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.disaggregation import Splitter
    from blis_tui.cluster.lives import Life
    from blis_tui.cluster.passage import Passage
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.ledger import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Failure, Pool


class Host(Protocol):
    """The cluster, as far as they are concerned."""

    arrived: int
    instances: list[Instance]
    ledger: Ledger
    now: int
    observers: Observers
    queue: EventQueue
    splitter: Splitter | None

    @property
    def finished(self) -> bool:
        """Whether all requests have ended and none will come."""

    @property
    def held_back(self) -> int:
        """Requests that the gateway holds."""

    def wake_gateway(self, slots: int, now: int) -> None:
        """An instance for so many requests has come up."""

    def closed(self) -> int:
        """Requests in a terminal state, rejected ones included."""

    def create_instance(self, pool: Pool) -> Instance:
        """One more instance of a pool, empty; no requests are routed to it yet."""

    def set_candidates(self, indices: Sequence[int]) -> None:
        """From now on these instances may get requests."""

    def include(self, index: int) -> None:
        """From now on an instance may get requests."""

    def exclude(self, index: int) -> None:
        """From now on an instance gets no requests."""

    def forget(self, index: int) -> None:
        """An instance has gone with all that it had cached."""

    def go_on(self, passage: Passage, now: int) -> None:
        """A request that was stranded goes where it was going."""

    def route_again(self, request: Request, now: int) -> None:
        """A request that was on an instance goes to the router once more."""

    def reject(self, request: Request, who: str, reason: str, now: int) -> None:
        """Turn a request away."""


class Lives(Protocol):
    """All instances' lives."""

    lives: list[Life]
    parked: dict[int, Passage]

    def cost_per_hour(self, pool: Pool) -> float | None:
        """What an instance costs; None = not known."""

    def pool_of(self, index: int) -> Pool:
        """The pool of an instance."""

    def of_pool(self, pool: int, states: frozenset[str]) -> list[int]:
        """The instances of a pool that are in one of these states."""

    def can_fail(self, index: int) -> bool:
        """Whether there is an instance that can die."""

    def fail(self, index: int, now: int, failure: Failure, reason: str) -> None:
        """An instance dies."""

    def drain(self, index: int, now: int, reason: str) -> None:
        """An instance gets no more requests."""

    def add(self, pool: int, now: int, reason: str) -> None:
        """One more instance of a pool."""
