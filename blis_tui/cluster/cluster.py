"""The cluster, and queries about its state between two events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum
from blis_tui.cluster.assembly import assembled
from blis_tui.cluster.instance_registry import Count
from blis_tui.cluster.loop import LoopState, run_observed, run_unobserved
from blis_tui.cluster.records import WarmUpEnded
from blis_tui.cluster.routed_request import LIFECYCLE, QUEUED, BackgroundEvent

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from blis_tui.cluster.decisions import Reroute
    from blis_tui.cluster.pipeline import Dispatcher, Pipeline
    from blis_tui.cluster.stages import NoGateway, NoLifecycle
    from blis_tui.engine.counts import Ledger
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment
    from blis_tui.workload.interactive import SessionCounts
    from blis_tui.workload.source import RequestSource


_NEVER: Final = 1 << 127
"""A time after all others, including those too large to report."""
_IN_TRANSIT_STAGES: Final = frozenset({"admission", "routing", "prefill-routing", QUEUED})


@mypyc_attr(allow_interpreted_subclasses=True)
class Cluster(LoopState):
    """All mutable state of a simulation. It can be pickled: it holds no lambdas, files, threads or user callbacks.

    Args:
        experiment: what is simulated.
        source: where requests come from.
        ledger: the books of requests that have ended.
        observers: receive the records.
        routes: routing decisions to override, by the request's name.
        share: indices of the instances to simulate, as other processes simulate the others; None = all of them.

    Attributes:
        pipeline: the stages of a request's path, and what they share.
        registry: the instances and fleets.
        instances: the instances by index; more may be added during a run.
        pools: the pool of each instance.
        queue: pending events.
        source: as above.
        horizon_us: events after this time do not happen; None = all do.
        warm_up: the initial period that latencies exclude.
        clock_went_back: how often an event was earlier than the previous one (above 0 only after a grave defect).
        one_by_one: whether events must be processed one by one even without subscribers.
        stopping: whether the loop ends after the current event; a signal handler may set it.

    Raises:
        PolicyError: a policy does not exist, or rejects its settings.
    """

    def __init__(
        self,
        experiment: Experiment,
        source: RequestSource,
        ledger: Ledger,
        observers: Observers,
        routes: Mapping[str, Reroute] | None = None,
        share: Collection[int] | None = None,
    ) -> None:
        pipeline = self.pipeline = assembled(experiment, source, ledger, observers, routes or {}, share)
        self.registry = pipeline.registry
        self.instances = pipeline.registry.instances
        self.pools = pipeline.registry.pools
        self.queue = pipeline.queue
        self.source = source
        self.horizon_us = experiment.horizon_us
        self.clock_went_back = 0
        self.one_by_one = False
        self.stopping = False
        self.warm_up = WarmUp(pipeline, experiment.warm_up_us)
        pipeline.registry.board.deferring = pipeline.can_run_ahead
        pipeline.arrivals.pull()
        pipeline.lifecycle.begin()

    # ---- the loop ----

    def pull_requests(self) -> None:
        """Pull requests that the source got from outside between two runs."""
        self.pipeline.arrivals.pull()

    def next_event_us(self) -> int | None:
        """Time of the next event; None = there is none within the horizon."""
        head = self.queue.head()
        return None if head is None or (self.horizon_us is not None and head[0] > self.horizon_us) else head[0]

    def run(self, max_events: int, until_us: int | None = None, *, exact: bool = True) -> int:
        """Process up to ``max_events`` events no later than ``until_us`` and the horizon.

        Without ``exact``, it may exceed ``max_events`` slightly: see ``loop.run_unobserved``.

        Returns the number of events processed; fewer than ``max_events`` means that no further event is due, or that
        ``stopping`` was set meanwhile.
        """
        if max_events <= 0:
            return 0
        pipeline = self.pipeline
        limit = min(_NEVER if end is None else end for end in (self.horizon_us, until_us))
        first = pipeline.events
        if self.one_by_one or pipeline.observers.kinds:
            run_observed(self, first + max_events, limit)
        else:
            # An override names a decision by its event number, so events must be counted exactly.
            exact = exact or not pipeline.can_run_ahead or bool(self.dispatcher.route_overrides)
            run_unobserved(self, first + max_events, limit, exact=exact)
        # Between two calls the first event is never stale, so that looking at it changes nothing.
        self.dispatcher.correct_intake()
        self.queue.drop_stale()
        return pipeline.events - first

    def take_over(self, other: Cluster, share: Collection[int]) -> None:
        """Take over a share of the instances, with all that is pending there, from where it was simulated."""
        for index in share:
            self.instances[index] = other.instances[index]
            self.warm_up.take_over(other.warm_up, index)
        pipeline, queue = self.pipeline, self.queue
        pipeline.now = max(pipeline.now, other.now)
        self.clock_went_back += other.clock_went_back
        queue.take_over(other.queue, share)

    # ---- queries ----

    @property
    def now(self) -> int:
        """Time of the latest processed event, in microseconds."""
        return self.pipeline.now

    @property
    def events(self) -> int:
        """Number of processed events."""
        return self.pipeline.events

    @property
    def arrived(self) -> int:
        """Number of requests that have arrived."""
        return self.pipeline.arrived

    @property
    def rejected(self) -> int:
        """Number of arrived requests that were rejected."""
        return self.pipeline.rejected

    @property
    def ledger(self) -> Ledger:
        """The books of requests that have ended."""
        return self.pipeline.ledger

    @property
    def gateway(self) -> NoGateway:
        """The stage that may hold back admitted requests."""
        return self.pipeline.gateway

    @property
    def dispatcher(self) -> Dispatcher:
        """The stage that sends requests to instances."""
        return self.pipeline.dispatcher

    @property
    def lifecycle(self) -> NoLifecycle:
        """The life cycles of the instances."""
        return self.pipeline.lifecycle

    @property
    def sessions(self) -> SessionCounts | None:
        """Session counts so far; None = there are no sessions."""
        return self.pipeline.arrivals.sessions

    @property
    def input_tokens(self) -> int:
        """Prompt tokens of all requests that entered a waiting queue."""
        return whole_sum([instance.input_tokens for instance in self.instances])

    def closed(self) -> int:
        """Number of requests in a terminal state, rejected ones included."""
        return self.pipeline.closed()

    def policies(self) -> tuple[object, ...]:
        """The control plane's policies."""
        routers = self.registry.routers
        return (self.pipeline.admission.control.policy, *(policy for router in routers for policy in router.policies()))

    def rules(self) -> tuple[str, dict[str, str]]:
        """Rules of admission, and of routing policies by name, one sentence each.

        A rule is empty if the policy's name suffices, or if routers with that policy have different settings.
        """
        routing: dict[str, str] = {}
        for router in self.registry.routers:
            rule = router.policy.rule
            routing[router.name] = rule if routing.get(router.name, rule) == rule else ""
        return self.pipeline.admission.control.policy.rule, routing

    def in_transit(self) -> list[Request]:
        """Return arrived requests that are neither on an instance nor rejected, in order of their next event.

        Those without an event of their own come last: deferred requests, those held by the gateway, those being
        transferred or about to be, and those that wait for an instance.
        """
        pending = [entry for entry in self.queue.heap if entry[3].kind in _IN_TRANSIT_STAGES]
        pending.sort(key=lambda entry: entry[:3])
        requests = [event.request for *_, event in pending if event.request is not None]
        requests += [routed.request for routed in (*self.pipeline.deferral.waiting, *self.gateway.held())]
        requests += self.dispatcher.transferring()
        requests += self.dispatcher.expected()
        requests += [routed.request for routed in self.lifecycle.parked.values()]
        return requests

    def present_us(self) -> int:
        """Number of requests in queues, batches and transfers, integrated over time until now.

        Stays that an instance's end cut short are left out, as the requests' books do not contain them.
        """
        return (
            self.dispatcher.between_instances_us(self.now)
            - self.lifecycle.forfeited_us
            + whole_sum([instance.seen.present_us(self.now) for instance in self.instances])
        )

    def counts(self) -> list[Count]:
        """Return kept counts, each with the value found by recounting."""
        gateway = self.gateway
        held = Count("requests that the gateway holds", gateway.waiting, len(gateway.held()))
        return [*self.registry.counts(self.queue), *([held] if gateway.holds else [])]

    def policy_state(self) -> tuple[object, ...]:
        """Return what the control plane and the workload remember, as plain values (for digests)."""
        pipeline, registry = self.pipeline, self.registry
        admission, admission_stream = pipeline.admission.control.state()
        routing, routing_stream = pipeline.dispatcher.router.state()
        more: list[object] = []
        if registry.watched:
            tenants = [tuple(sorted(registry.of_tenants.items()))] if registry.of_tenants else []
            more += [registry.board.state(), tenants, registry.in_flight]
        if pipeline.deferral.waiting:
            more.append([routed.request.index for routed in pipeline.deferral.waiting])
        more += [tuple(part.items()) for part in (pipeline.rejections, pipeline.dispatcher.route_overrides) if part]
        if (regrets := pipeline.dispatcher.regrets) is not None:
            more.append(regrets.state())
        more += [state for part in (self.gateway, self.dispatcher, self.lifecycle) if (state := part.state())]
        return (admission, routing, self.source.state(), (admission_stream, routing_stream), *more)


# The initial period of a run that latencies exclude.


@mypyc_attr(allow_interpreted_subclasses=True)
class WarmUp(Picklable):
    """Remembers the inter-token gaps counted when the period ended; requests have their times in the books.

    Args:
        pipeline: the pipeline that warms up.
        until_us: when the period ends; 0 = there is none.

    Attributes:
        counted: gaps (microseconds -> count) of each instance when the period ended; None = it has not ended.
    """

    def __init__(self, pipeline: Pipeline, until_us: int) -> None:
        self._pipeline = pipeline
        self._registry = pipeline.registry
        self.counted: list[dict[int, int]] | None = None if until_us else []
        if until_us:
            pipeline.queue.push(until_us, LIFECYCLE, BackgroundEvent("warm-up-over", pipeline, None, self._end))

    def _end(self, event: BackgroundEvent, now: int) -> bool:  # noqa: ARG002  (the protocol's signature)
        pipeline = self._pipeline
        pipeline.observers.tell(WarmUpEnded, now, pipeline.arrived - pipeline.closed())
        self.count()
        return True

    def count(self) -> list[dict[int, int]]:
        """Count now unless the period has ended; return what was counted."""
        if self.counted is None:
            self.counted = [dict(instance.tallies.itl_us) for instance in self._registry.instances]
        return self.counted

    def replaced(self, counted: list[dict[int, int]]) -> list[dict[int, int]] | None:
        """Let the period end where these gaps had been counted; return what was counted before."""
        before, self.counted = self.counted, counted
        return before

    def take_over(self, other: WarmUp, index: int) -> None:
        """Take over an instance; the period did not end where all requests had ended before."""
        if self.counted or other.counted:
            self.count()[index] = other.count()[index]

    def gaps_since(self, instance: Instance) -> dict[int, int]:
        """Inter-token gaps of an instance (microseconds -> count) since the period's end; before that, none."""
        if self.counted is None:
            return {}
        gaps = instance.tallies.itl_us
        if instance.index >= len(self.counted):
            return gaps
        before = self.counted[instance.index]
        left = {gap: count - before.get(gap, 0) for gap, count in gaps.items()}
        return {gap: count for gap, count in left.items() if count}
