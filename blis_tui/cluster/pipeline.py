"""What the parts of the control plane ask of the cluster around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.admission_control import AdmissionControl
    from blis_tui.cluster.passage import Passage
    from blis_tui.cluster.router import Router
    from blis_tui.cluster.signals import SignalBoard
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Pool


class Pipeline(Protocol):
    """The way of requests through the cluster."""

    queue: EventQueue
    observers: Observers
    board: SignalBoard
    admission: AdmissionControl
    pools: list[Pool]

    @property
    def instances(self) -> Sequence[Instance]:
        """All instances, by index."""

    def reject(self, request: Request, who: str, reason: str, now: int, cause: str = "") -> None:
        """Turn a request away; ``cause`` is what it counts as, by default ``who``."""

    def dispatch(self, passage: Passage, now: int) -> None:
        """Send a request on to the router."""

    def strands(self, passage: Passage, router: Router, now: int) -> bool:
        """Whether no instance is up that a request could be sent to: it waits for one."""

    def lets_in(self, request: Request, now: int) -> bool:
        """Whether a request that has come to its instance gets into the queue there; if not, it is looked after."""

    def transfer_over(self, index: int, now: int) -> None:
        """A transfer from or to an instance is over."""

    def start_again(self, request: Request, index: int, now: int, *, down: bool) -> None:
        """A request cannot go on between two instances; ``down``: because instance ``index`` has gone."""

    def choose(self, passage: Passage, router: Router, now: int) -> int:
        """Let a router choose an instance for a request; returns its index."""

    def commit(self, passage: Passage, index: int) -> None:
        """From now on a request counts as in flight on that instance."""

    def deliver(self, passage: Passage, index: int, now: int) -> None:
        """A request is on its way to an instance's queue."""

    def send(self, passage: Passage, router: Router, now: int) -> int:
        """Choose an instance for a request and send it there; returns its index."""
