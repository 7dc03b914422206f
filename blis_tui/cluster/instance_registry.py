"""The instances of a cluster: which exist, which may be chosen for what, and which requests are where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum
from blis_tui.cluster.routed_request import QUEUED
from blis_tui.cluster.signals import Fleet, SignalBoard
from blis_tui.engine.counts import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.factory import InstanceFactory
    from blis_tui.cluster.routed_request import RoutedRequest
    from blis_tui.cluster.router import Router
    from blis_tui.cluster.stages import DepartureListener
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.options.tier_store import TierStore
    from blis_tui.model import Experiment, Pool

ALL_ROLES: Final = frozenset({"any", "prefill", "decode", "whole"})
"""The roles of instances that can serve a whole request, if every role can."""
PREFILLING: Final = frozenset({"any", "prefill"})
DECODING: Final = frozenset({"any", "decode"})


class Count(NamedTuple):
    """A count that is kept up to date as requests come and go (for invariants)."""

    what: str
    kept: int
    found: int
    """The value found by recounting."""


@mypyc_attr(allow_interpreted_subclasses=True)
class InstanceRegistry(Picklable):
    """All instances, and the fleets that routers choose from.

    Attributes:
        instances: by index; more may be added during a run.
        pools: the pool of each instance.
        models: the names of the models that any of them serves.
        board: the instances' signals as the control plane sees them.
        fleets: groups of instances that may be chosen for something, with the required roles.
        routers: all routers except those of single models.
        slots: the sum of ``max_num_seqs`` over the instances that may be chosen.
        watched: whether instances report about their requests, because some stage needs it.
        watch: reports not processed yet.
        followers: the stages that get these reports, in this order.
        in_flight: requests on all instances or on the way to their queues, if watched.
        counts_tenants: whether these are also counted by tenant.
        of_tenants: their number by tenant.
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
        self.followers: list[DepartureListener] = []
        self.in_flight = 0
        self.counts_tenants = False
        self.of_tenants: dict[str, int] = {}
        self._factory = factory
        self._prompts = factory.prompt_keys(experiment.pools[0].engine.block_size_tokens)
        for pool in experiment.pools:
            for _ in range(pool.instances):
                self.create(pool)
                self.slots += pool.engine.max_num_seqs

    def fixed_parts(self) -> dict[str, object]:
        """Return parts that no event changes and that need not be in checkpoints, by name."""
        return self._factory.fixed_parts()

    def create(self, pool: Pool) -> Instance:
        """Create an empty instance of a pool; no requests are routed to it yet."""
        instance = self._factory.create(len(self.instances), pool)
        self.instances.append(instance)
        self.pools.append(pool)
        self.models[pool.model.name] = None
        self.board.add(instance)
        if self.watched:
            instance.watch(self.watch)
        return instance

    def fleet_of(self, roles: frozenset[str]) -> Fleet:
        """Return the fleet of instances with one of these roles, which later instances join."""
        members = [index for index, pool in enumerate(self.pools) if pool.role in roles]
        fleet = Fleet(self.board, members, self._prompts)
        self.fleets.append((fleet, roles))
        return fleet

    def enable_reports(self) -> None:
        """Let instances report about their requests from now on."""
        self.watched = True
        for instance in self.instances:
            instance.watch(self.watch)

    # ---- instances that come and go ----

    def include(self, index: int) -> None:
        """Make an instance available for requests."""
        self.slots += self.pools[index].engine.max_num_seqs
        for fleet, roles in self.fleets:
            if self.pools[index].role in roles:
                fleet.include(index)

    def exclude(self, index: int) -> None:
        """Make an instance unavailable for requests."""
        self.slots -= self.pools[index].engine.max_num_seqs
        for fleet, roles in self.fleets:
            if self.pools[index].role in roles:
                fleet.exclude(index)

    def forget(self, index: int) -> None:
        """Let routers forget an instance that is gone with everything it had cached."""
        self.board.touched[index] = None
        for router in self.routers:
            router.forget(index)

    # ---- requests that come and go ----

    def commit(self, routed: RoutedRequest, index: int) -> None:
        """Count a request as in flight on an instance from now on."""
        request, instance = routed.request, self.instances[index]
        request.instance = routed.instance_index = index
        instance.routed += 1
        instance.seen.in_flight += 1
        if self.watched:
            self.in_flight += 1
            self.board.touched[index] = None
            if self.counts_tenants:
                self.of_tenants[request.tenant] = self.of_tenants.get(request.tenant, 0) + 1

    def note_departures(self, now: int) -> None:
        """Pass the reports since the last call to the stages that follow them."""
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
        """Return in-flight counts by instance, in total and by tenant, each with the value found by recounting."""
        bound = [0] * len(self.instances)
        for *_, event in queue.heap:
            if event.kind == QUEUED and event.instance_index is not None:
                bound[event.instance_index] += 1
        counts = [
            Count(
                f"requests in flight on instance {instance.index}",
                instance.seen.in_flight,
                bound[instance.index] + instance.seen.served,
            )
            for instance in self.instances
        ]
        total = whole_sum([count.found for count in counts])
        if self.watched:
            counts.append(Count("requests in flight", self.in_flight, total))
        if self.counts_tenants:
            of_tenants = whole_sum(self.of_tenants.values())
            counts.append(Count("requests in flight of all tenants", of_tenants, total))
        return counts


def shared_stores(instances: Sequence[Instance]) -> dict[TierStore, int]:
    """Return the shared KV tiers of these instances, in their order, and how many blocks these have put there."""
    stores: dict[TierStore, int] = {}
    for instance in instances:
        tiers = instance.pool.tiers
        if tiers is not None and (store := tiers.store) is not None:
            stores[store] = stores.get(store, 0) + tiers.tiers[-1].stored
    return stores
