"""A cluster as its life cycle sees it: what follows for the rest when instances come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.admission_control import AdmissionControl
    from blis_tui.cluster.disaggregation import Splitter
    from blis_tui.cluster.gateway.gateway import GatewayControl
    from blis_tui.cluster.lifecycle import Lifecycle
    from blis_tui.cluster.passage import Passage
    from blis_tui.cluster.router import Router
    from blis_tui.cluster.signals import Fleet, SignalBoard
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Pool


class ComingAndGoing:
    """The part of a cluster that lets instances come and go. See ``Cluster`` for its attributes."""

    admission: AdmissionControl
    board: SignalBoard
    fleets: list[tuple[Fleet, frozenset[str]]]
    gateway: GatewayControl | None
    instances: list[Instance]
    lifecycle: Lifecycle | None
    pools: list[Pool]
    router: Router
    splitter: Splitter | None

    def go_to_router(self, passage: Passage, time_us: int) -> None:
        """Route a request then."""
        raise NotImplementedError

    def set_candidates(self, indices: Sequence[int]) -> None:
        """From now on these instances may get requests."""
        slots = 0
        for index in indices:
            slots += self.instances[index].batch.limits.max_num_seqs
        self.admission.slots = slots
        for fleet, roles in self.fleets:
            fleet.change([index for index in indices if self.pools[index].role in roles])

    def include(self, index: int) -> None:
        """From now on an instance may get requests."""
        self.admission.slots += self.instances[index].batch.limits.max_num_seqs
        for fleet, roles in self.fleets:
            if self.pools[index].role in roles:
                fleet.include(index)

    def exclude(self, index: int) -> None:
        """From now on an instance gets no requests."""
        self.admission.slots -= self.instances[index].batch.limits.max_num_seqs
        for fleet, roles in self.fleets:
            if self.pools[index].role in roles:
                fleet.exclude(index)

    def forget(self, index: int) -> None:
        """An instance has gone with all that it had cached: routers do not count on that any more."""
        self.board.touched[index] = None
        for router in self.routers():
            router.forget(index)

    def routers(self) -> tuple[Router, ...]:
        """All of them, but for those of single models."""
        split = () if self.splitter is None else (self.splitter.prefill, self.splitter.decode)
        return (self.router, *split)

    @property
    def held_back(self) -> int:
        """Requests that the gateway holds."""
        return 0 if self.gateway is None else len(self.gateway.queue)

    def wake_gateway(self, slots: int, now: int) -> None:
        """An instance for so many requests has come up."""
        if self.gateway is not None:
            self.gateway.wake(slots, now)

    def go_on(self, passage: Passage, now: int) -> None:
        """A request that was stranded goes where it was going."""
        if self.splitter is not None and passage.request.handover is not None:
            self.splitter.go(passage, now)
        else:
            self.go_to_router(passage, now)

    def strands(self, passage: Passage, router: Router, now: int) -> bool:
        """Whether no instance is up that a request could be sent to: it waits for one."""
        if self.lifecycle is None or router.of(passage.incoming).fleet.members:
            return False
        roles = next(roles for fleet, roles in self.fleets if fleet is router.fleet)
        self.lifecycle.park(passage, roles, now)
        return True

    def lets_in(self, request: Request, now: int) -> bool:
        """Whether a request that has come to its instance gets into the queue there."""
        return self.lifecycle is None or self.lifecycle.lets_in(request, now)

    def transfer_over(self, index: int, now: int) -> None:
        """A transfer from or to an instance is over: if it is draining, it may go."""
        if self.lifecycle is not None:
            self.lifecycle.end_if_empty(index, now)

    def start_again(self, request: Request, index: int, now: int, *, down: bool) -> None:
        """A request cannot go on between two instances; ``down``: because instance ``index`` has gone."""
        if self.lifecycle is not None:
            self.lifecycle.start_again(request, index, now, down=down)
