"""The cluster, and what can be asked of it between two events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import mypyc_attr
from blis_tui.cluster.assembly import assembled
from blis_tui.cluster.loop import heard, unheard
from blis_tui.cluster.passage import LIFECYCLE, QUEUED, Background
from blis_tui.cluster.roster import Count
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.cluster.pipeline import Dispatcher, Pipeline
    from blis_tui.cluster.reroute import Reroute
    from blis_tui.cluster.stages import AlwaysUp, OpenGateway
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.engine.seen import Ledger
    from blis_tui.spec.model import Experiment
    from blis_tui.workload.interactive import SessionCounts
    from blis_tui.workload.source import RequestSource


_NEVER: Final = 1 << 127
"""Beyond all times, also those too long to be reported."""
_ON_THE_WAY: Final = frozenset({"admission", "routing", "prefill-routing", QUEUED})


@mypyc_attr(allow_interpreted_subclasses=True)
class Cluster(Kept):
    """All mutable state of a simulation. It pickles: no lambdas, files, threads or callbacks of users.

    Args:
        experiment: what is simulated.
        source: where requests come from.
        ledger: the books of requests that have ended.
        observers: who hears of what happens.
        routes: routing decisions to overrule, by the request's name.

    Attributes:
        pipeline: the stages of a request's way, and what they share.
        roster: the instances.
        instances: the same, by index; they may become more during a run.
        pools: the pool of each instance.
        queue: pending events.
        source: as above.
        horizon_us: events after it do not happen; None = all do.
        warm_up: what the latencies leave out.
        clock_went_back: how often an event lay before the one before it (never, or something is badly wrong).
        one_by_one: whether each event has to be seen by itself, even without subscribers.
        stopping: whether the loop ends after the event being processed; a signal's handler may set it.

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
    ) -> None:
        pipeline = self.pipeline = assembled(experiment, source, ledger, observers, routes or {})
        self.roster = pipeline.roster
        self.instances = pipeline.roster.instances
        self.pools = pipeline.roster.pools
        self.queue = pipeline.queue
        self.source = source
        self.horizon_us = experiment.horizon_us
        self.clock_went_back = 0
        self.one_by_one = False
        self.stopping = False
        self.warm_up = WarmUp(pipeline, experiment.warm_up_us)
        pipeline.roster.board.deferring = pipeline.foresees
        pipeline.arrivals.pull()
        pipeline.lifecycle.begin()

    # ---- the loop ----

    def hear(self) -> None:
        """Between two runs: its source has been given requests from outside."""
        self.pipeline.arrivals.pull()

    def next_event_us(self) -> int | None:
        """Time of the next event; None when there is none, or it lies beyond the horizon."""
        head = self.queue.head()
        return None if head is None or (self.horizon_us is not None and head[0] > self.horizon_us) else head[0]

    def run(self, max_events: int, until_us: int | None = None, *, exact: bool = True) -> int:
        """Process up to ``max_events`` events that are not later than ``until_us`` and the horizon.

        Without ``exact``, there may be some more than ``max_events``: see ``loop.unheard``.

        Returns the number of events processed; fewer than ``max_events`` means that no further event is due, or that
        ``stopping`` was set meanwhile.
        """
        if max_events <= 0:
            return 0
        pipeline = self.pipeline
        limit = min(_NEVER if end is None else end for end in (self.horizon_us, until_us))
        first = pipeline.events
        if self.one_by_one or pipeline.observers.kinds:
            heard(self, first + max_events, limit)
        else:
            # What overrules a decision names it by its event.
            exact = exact or not pipeline.foresees or bool(self.dispatcher.overruled)
            unheard(self, first + max_events, limit, exact=exact)
        # Between two calls the first event is always a real one: looking at it changes nothing.
        self.queue.drop_stale()
        return pipeline.events - first

    # ---- what can be asked of it ----

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
        """Requests that have arrived."""
        return self.pipeline.arrived

    @property
    def rejected(self) -> int:
        """Those of them that were turned away."""
        return self.pipeline.rejected

    @property
    def ledger(self) -> Ledger:
        """The books of requests that have ended."""
        return self.pipeline.ledger

    @property
    def gateway(self) -> OpenGateway:
        """Where admitted requests may be held back."""
        return self.pipeline.gateway

    @property
    def dispatcher(self) -> Dispatcher:
        """Who sends them to instances."""
        return self.pipeline.dispatcher

    @property
    def lifecycle(self) -> AlwaysUp:
        """How instances come and go."""
        return self.pipeline.lifecycle

    @property
    def sessions(self) -> SessionCounts | None:
        """What became of the sessions so far; None where there are none."""
        return self.pipeline.arrivals.sessions

    @property
    def input_tokens(self) -> int:
        """Prompt tokens of all requests that entered a waiting queue."""
        total = 0
        for instance in self.instances:
            total += instance.input_tokens
        return total

    def closed(self) -> int:
        """Requests in a terminal state, rejected ones included."""
        return self.pipeline.closed()

    def policies(self) -> tuple[object, ...]:
        """The control plane's policies."""
        routers = self.roster.routers
        return (self.pipeline.admission.control.policy, *(one for router in routers for one in router.policies()))

    def rules(self) -> tuple[str, str]:
        """How admission and routing decide, a sentence each; empty where the policy's name says it."""
        return self.pipeline.admission.control.policy.rule, self.dispatcher.router.policy.rule

    def in_transit(self) -> list[Request]:
        """Requests that have arrived and are neither on an instance nor turned away, in order of their next event.

        Those that wait for others come last: deferred ones, those in the gateway's queue, those being transferred.
        """
        pending = [entry for entry in self.queue.heap if entry[3].kind in _ON_THE_WAY]
        pending.sort(key=lambda entry: entry[:3])
        found = [event.request for *_, event in pending if event.request is not None]
        found += [passage.request for passage in (*self.pipeline.deferral.waiting, *self.gateway.held())]
        found += self.dispatcher.transferring()
        found += [passage.request for passage in self.lifecycle.parked.values()]
        return found

    def present_us(self) -> int:
        """Requests in queues, batches and transfers, counted as they come and go, added up over time until now.

        Stays that ended for nothing, with the instance, are left out: nothing in the requests' books tells of them.
        """
        total = self.dispatcher.away_us(self.now) - self.lifecycle.forfeited_us
        for instance in self.instances:
            total += instance.seen.present_us(self.now)
        return total

    def counts(self) -> list[Count]:
        """What it keeps count of, and what counting again finds."""
        gateway = self.gateway
        held = Count("requests that the gateway holds", gateway.waiting, len(gateway.held()))
        return [*self.roster.counts(self.queue), *([held] if gateway.holds else [])]

    def policy_state(self) -> tuple[object, ...]:
        """What the control plane and the workload remember, as plain values (for digests)."""
        pipeline, roster = self.pipeline, self.roster
        admission, admission_stream = pipeline.admission.control.state()
        routing, routing_stream = pipeline.dispatcher.router.state()
        more: list[object] = []
        if roster.watched:
            tenants = [tuple(sorted(roster.of_tenants.items()))] if roster.of_tenants else []
            more += [roster.board.state(), tenants, roster.in_flight]
        if pipeline.deferral.waiting:
            more.append([passage.request.index for passage in pipeline.deferral.waiting])
        more += [tuple(part.items()) for part in (pipeline.rejections, pipeline.dispatcher.overruled) if part]
        if (regrets := pipeline.dispatcher.regrets) is not None:
            more.append(regrets.state())
        more += [state for part in (self.gateway, self.dispatcher, self.lifecycle) if (state := part.state())]
        return (admission, routing, self.source.state(), (admission_stream, routing_stream), *more)


# The time at the beginning of a run that its latencies leave out.


@mypyc_attr(allow_interpreted_subclasses=True)
class WarmUp(Kept):
    """It remembers what gaps between tokens had been counted when it was over: requests have their times in the books.

    Args:
        pipeline: what warms up.
        until_us: when it is over; 0 = there is none.
    """

    __slots__ = ("_counted", "_over", "_roster")

    def __init__(self, pipeline: Pipeline, until_us: int) -> None:
        self._roster = pipeline.roster
        self._over = not until_us
        self._counted: tuple[dict[int, int], ...] = ()
        if until_us:
            pipeline.queue.push(until_us, LIFECYCLE, Background("warm-up-over", pipeline, None, self._end))

    def _end(self, event: Background, now: int) -> bool:
        del event, now
        self._counted = tuple(dict(instance.tallies.itl_us) for instance in self._roster.instances)
        self._over = True
        return True

    def gaps_since(self, instance: Instance) -> dict[int, int]:
        """Gaps between tokens of an instance, in microseconds, that it has counted since; none before the end."""
        if not self._over:
            return {}
        gaps = instance.tallies.itl_us
        if instance.index >= len(self._counted):
            return gaps
        before = self._counted[instance.index]
        left = {gap: count - before.get(gap, 0) for gap, count in gaps.items()}
        return {gap: count for gap, count in left.items() if count}
