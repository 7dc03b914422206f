"""The instances of a cluster: who there is, who may be chosen for what, and which requests are where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, mypyc_attr
from blis_tui.cluster.passage import QUEUED
from blis_tui.cluster.signals import Fleet, SignalBoard
from blis_tui.engine.seen import Watch
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from blis_tui.cluster.factory import InstanceFactory
    from blis_tui.cluster.passage import Passage
    from blis_tui.cluster.router import Router
    from blis_tui.cluster.stages import Follower
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.instance import Instance
    from blis_tui.spec.model import Experiment, Pool

ALL: Final = frozenset({"any", "prefill", "decode", "whole"})
"""The roles of instances that can serve a request as a whole, where every role can."""
PREFILLING: Final = frozenset({"any", "prefill"})
DECODING: Final = frozenset({"any", "decode"})


class Count(NamedTuple):
    """A figure that is kept while requests come and go (for invariants)."""

    what: str
    kept: int
    found: int
    """What counting again, one by one, finds."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Roster(Kept):
    """All instances, and the fleets that routers choose from.

    Attributes:
        instances: by index; they may become more during a run.
        pools: the pool of each instance.
        models: the names of the models that any of them serves.
        board: what instances report, as the control plane sees it.
        fleets: who may be chosen for something, each with the roles that can do it.
        routers: who chooses, but for the routers of single models.
        slots: the sum of ``max_num_seqs`` over the instances that may be chosen.
        watched: whether instances tell of their requests; if no stage asks for that, they keep it to themselves.
        watch: what they have told since it was last looked at.
        followers: the stages that hear of it, in this order.
        in_flight: requests on all instances, or on the way to their queues, if they are watched.
        counts_tenants: whether they are counted by tenant, too.
        of_tenants: how many each tenant has.
    """

    def __init__(self, experiment: Experiment, factory: InstanceFactory) -> None:
        settings = experiment.cluster
        split = settings.disaggregation
        self.instances: list[Instance] = []
        self.pools: list[Pool] = []
        self.models: dict[str, None] = {}
        self.board = SignalBoard(settings.signals)
        self.fleets: list[tuple[Fleet, frozenset[str]]] = []
        self.routers: list[Router] = []
        self.slots = 0
        self.watched = False
        self.watch = Watch(
            early=settings.signals.results == "step-start",
            early_transfers=split is not None and split.transfer.starts == "step-start",
            touched=self.board.touched,
        )
        self.followers: list[Follower] = []
        self.in_flight = 0
        self.counts_tenants = False
        self.of_tenants: dict[str, int] = {}
        self._factory = factory
        self._prompts = factory.prompts_of(experiment.pools[0])
        for pool in experiment.pools:
            for _ in range(pool.instances):
                self.create(pool)
                self.slots += pool.engine.max_num_seqs

    def fixed_parts(self) -> dict[str, object]:
        """What no event changes and need not be part of checkpoints, by name."""
        return self._factory.fixed_parts()

    def create(self, pool: Pool) -> Instance:
        """One more instance of a pool, empty; no requests are routed to it yet."""
        instance = self._factory.create(len(self.instances), pool)
        self.instances.append(instance)
        self.pools.append(pool)
        self.models[pool.model.name] = None
        self.board.add(instance)
        if self.watched:
            instance.watch(self.watch)
        return instance

    def fleet_of(self, roles: frozenset[str]) -> Fleet:
        """The instances that have one of these roles, those that will come among them."""
        members = [index for index, pool in enumerate(self.pools) if pool.role in roles]
        fleet = Fleet(self.board, members, self._prompts)
        self.fleets.append((fleet, roles))
        return fleet

    def watch_all(self) -> None:
        """From now on instances tell of their requests."""
        self.watched = True
        for instance in self.instances:
            instance.watch(self.watch)

    # ---- instances that come and go ----

    def include(self, index: int) -> None:
        """From now on an instance may get requests."""
        self.slots += self.pools[index].engine.max_num_seqs
        for fleet, roles in self.fleets:
            if self.pools[index].role in roles:
                fleet.include(index)

    def exclude(self, index: int) -> None:
        """From now on an instance gets no requests."""
        self.slots -= self.pools[index].engine.max_num_seqs
        for fleet, roles in self.fleets:
            if self.pools[index].role in roles:
                fleet.exclude(index)

    def forget(self, index: int) -> None:
        """An instance has gone with all that it had cached: routers do not count on that any more."""
        self.board.touched[index] = None
        for router in self.routers:
            router.forget(index)

    # ---- requests that come and go ----

    def commit(self, passage: Passage, index: int) -> None:
        """From now on a request counts as in flight on that instance."""
        request, instance = passage.request, self.instances[index]
        request.instance = passage.instance_index = index
        instance.routed += 1
        instance.seen.in_flight += 1
        if self.watched:
            self.in_flight += 1
            self.board.touched[index] = None
            if self.counts_tenants:
                self.of_tenants[request.tenant] = self.of_tenants.get(request.tenant, 0) + 1

    def note_departures(self, now: int) -> None:
        """Requests have left instances since this was called last: the stages that follow them hear of it."""
        departed, prefilled = self.watch.departed, self.watch.prefilled
        self.in_flight -= len(departed)
        if self.counts_tenants:
            for request in departed:
                self.of_tenants[request.tenant] -= 1
        for follower in self.followers:
            follower.departed(departed, prefilled, now)
        departed.clear()
        prefilled.clear()

    def counts(self, queue: EventQueue) -> list[Count]:
        """Requests in flight, on each instance, on all of them and of all tenants, and what counting again finds."""
        bound = [0] * len(self.instances)
        for *_, event in queue.heap:
            if event.kind == QUEUED and event.instance_index is not None:
                bound[event.instance_index] += 1
        counts = [
            Count(
                f"requests in flight on instance {one.index}",
                one.seen.in_flight,
                bound[one.index] + len(one.waiting.items) + one.seen.running,
            )
            for one in self.instances
        ]
        total = 0
        for count in counts:
            total += count.found
        if self.watched:
            counts.append(Count("requests in flight", self.in_flight, total))
        if self.counts_tenants:
            of_tenants = 0
            for there in self.of_tenants.values():
                of_tenants += there
            counts.append(Count("requests in flight of all tenants", of_tenants, total))
        return counts
