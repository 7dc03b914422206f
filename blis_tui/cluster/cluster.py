"""The cluster: one event loop, one pipeline (arrival, admission, gateway, routing, queue), its instances."""

from __future__ import annotations

from heapq import heappop, heapreplace
from typing import TYPE_CHECKING, Final

from blis_tui.cluster.accounts import Count, recount
from blis_tui.cluster.admission_control import AdmissionControl
from blis_tui.cluster.comings import ComingAndGoing
from blis_tui.cluster.decisions import Weighed
from blis_tui.cluster.disaggregation import Splitter
from blis_tui.cluster.factory import InstanceFactory
from blis_tui.cluster.feedback import Feedback
from blis_tui.cluster.gateway.gateway import GatewayControl
from blis_tui.cluster.lifecycle import Lifecycle
from blis_tui.cluster.passage import ADMISSION, ARRIVAL, ROUTING, Passage, tell_arrival
from blis_tui.cluster.records import Deferred, Resumed, RoutingDecision
from blis_tui.cluster.router import NAME as ROUTER
from blis_tui.cluster.router import Router
from blis_tui.cluster.signals import Fleet, SignalBoard
from blis_tui.cluster.warm_up import WarmUp
from blis_tui.engine.events import EventQueue, instance_order
from blis_tui.engine.instance import QUEUED
from blis_tui.engine.records import Admitted, Rejected, Routed
from blis_tui.engine.request import RequestState
from blis_tui.engine.step_event import NO_STEP, Step
from blis_tui.engine.streams import Streams
from blis_tui.engine.watch import Watch
from blis_tui.workload.interactive import InteractiveSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.cluster.reroute import Reroute
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.kv.prompt_keys import PromptKeys
    from blis_tui.engine.ledger import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Experiment, Pool
    from blis_tui.workload.interactive import SessionCounts
    from blis_tui.workload.source import RequestSource


_NEVER: Final = 1 << 127
"""Beyond all times, also those too long to be reported."""
_ON_THE_WAY: Final = frozenset({"admission", "routing", "prefill-routing", "queued"})
_DEFERRABLE: Final = frozenset({"batch", "background"})
_EVERYBODY: Final = frozenset({"any", "prefill", "decode", "whole"})
_PREFILLING: Final = frozenset({"any", "prefill"})
_DECODING: Final = frozenset({"any", "decode"})


class Cluster(ComingAndGoing):
    """All mutable state of a simulation. It pickles: no lambdas, files, threads or callbacks of users.

    Attributes:
        now: time of the latest processed event, in microseconds.
        events: number of processed events.
        arrived: requests that have arrived.
        rejected: those of them that admission control or the gateway turned away.
        rejections: how many each cause turned away.
        deferrals: how often a request was put off until the cluster is idle.
        offered_output_tokens: answers that all requests that have arrived ask for, generated or not.
        source: where requests come from.
        queue: pending events.
        instances: the instances, by index; they may become more during a run.
        board: what instances report, as the control plane sees it.
        admission: who may enter.
        router: chooses instances for requests that are not split.
        pools: the pool of each instance.
        fleets: who may be chosen for something, each with the roles that can do it.
        overruled: requests of whom a routing decision is already made, if that instance is among its candidates.
        splitter: sends requests over two instances; None = all run on one.
        gateway: holds requests back while the instances are busy; None = there is none.
        lifecycle: instances that come and go; None = none does.
        clock_went_back: how often an event lay before the one before it (never, or something is badly wrong).
        warm_up: what the latencies leave out; None = nothing.
        stopping: whether the loop ends after the event being processed; a signal's handler may set it.
    """

    def __init__(
        self,
        experiment: Experiment,
        source: RequestSource,
        ledger: Ledger,
        observers: Observers,
        routes: Mapping[str, Reroute] | None = None,
    ) -> None:
        self.now: int = 0
        self.events: int = 0
        self.arrived: int = 0
        self.rejected: int = 0
        self.rejections: dict[str, int] = {}
        self.deferrals = 0
        self.offered_output_tokens = 0
        self.clock_went_back = 0
        self.stopping = False
        self.horizon_us = experiment.horizon_us
        self.queue = EventQueue()
        self.observers = observers
        self.source = source
        # Who waits for answers must hear of them; all others cost nothing.
        waits = source if isinstance(source, InteractiveSource) else None
        self._feedback = None if waits is None else Feedback(waits, ledger, self.queue, observers, self._arrive)
        self.ledger = ledger if self._feedback is None else self._feedback.ledger
        self._exhausted = False
        settings, policy, streams = experiment.cluster, experiment.policy, Streams(experiment.seed)
        self._admission_latency_us = settings.admission_latency_us
        self._routing_latency_us = settings.routing_latency_us
        self._defers = policy.deferral == "idle-only"
        self._deferred: list[Passage] = []
        self._in_flight = 0
        self.overruled = dict(routes or {})
        self._watches = False
        split = settings.disaggregation
        self._watch = Watch(
            early=settings.signals.results == "step-start",
            early_transfers=split is not None and split.transfer.starts == "step-start",
        )
        self.board = SignalBoard(settings.signals)
        self._factory = InstanceFactory(experiment, self.queue, self.ledger, observers)
        self.instances: list[Instance] = []
        self.pools: list[Pool] = []
        self._models: dict[str, None] = {}
        self.fleets: list[tuple[Fleet, frozenset[str]]] = []
        for pool in experiment.pools:
            for _ in range(pool.instances):
                self.create_instance(pool)
        prompts = self._factory.prompts_of(experiment.pools[0])
        whole = _EVERYBODY if split is None or split.undisaggregated == "all" else _DECODING
        self._fleet = self._fleet_of(_EVERYBODY, prompts)
        self.admission = AdmissionControl(experiment, self._fleet, streams)
        self.router = Router(experiment, policy.routing, self._fleet_of(whole, prompts), streams)
        self.gateway = None if policy.gateway is None else GatewayControl(policy.gateway, experiment, self, self._fleet)
        self.splitter: Splitter | None = None
        if split is not None:
            prefill, decode = (
                Router(experiment, config, self._fleet_of(members, prompts), streams, f"policy/{role}-routing")
                for role, config, members in (
                    ("prefill", split.prefill_routing, _PREFILLING),
                    ("decode", split.decode_routing, _DECODING),
                )
            )
            self.splitter = Splitter(experiment, split, self, prefill, decode)
        self.lifecycle = Lifecycle(experiment, self, streams) if settings.varies else None
        parts = (self.admission, self.router)
        self._watches = (
            self._watch.early
            or any(part.reads_signals for part in parts)
            or self.admission.counts_tenants
            or self._defers
            or any(part is not None for part in (self.gateway, self.splitter, self.lifecycle))
        )
        if self._watches:
            for instance in self.instances:
                instance.watch(self._watch)
        self.warm_up = WarmUp(self, experiment.warm_up_us) if experiment.warm_up_us else None
        self._pull()
        if self.lifecycle is not None:
            self.lifecycle.begin()

    def create_instance(self, pool: Pool) -> Instance:
        """One more instance of a pool, empty; no requests are routed to it yet."""
        instance = self._factory.create(len(self.instances), pool)
        self.instances.append(instance)
        self.pools.append(pool)
        self._models[pool.model.name] = None
        self.board.add(instance)
        if self._watches:
            instance.watch(self._watch)
        return instance

    def add_instance(self, pool: Pool) -> Instance:
        """One more instance of a pool, empty; requests are routed to it from now on."""
        instance = self.create_instance(pool)
        self.set_candidates([*self._fleet.members, instance.index])
        return instance

    def _fleet_of(self, roles: frozenset[str], prompts: PromptKeys) -> Fleet:
        members = [index for index, pool in enumerate(self.pools) if pool.role in roles]
        fleet = Fleet(self.board, members, prompts)
        self.fleets.append((fleet, roles))
        return fleet

    @property
    def finished(self) -> bool:
        """Whether all requests have ended, or wait for what will never be, and none will come."""
        source = None if self._feedback is None else self._feedback.source
        if not (self._exhausted if source is None else source.silent):
            return False
        left = self.arrived - len(self.ledger)
        if not left:
            return source is None or source.exhausted
        return self.lifecycle is not None and self.lifecycle.hopeless(left)

    @property
    def sessions(self) -> SessionCounts | None:
        """What became of the sessions so far; None where nobody holds any."""
        return None if self._feedback is None else self._feedback.source.sessions

    @property
    def deferred(self) -> int:
        """Requests put off until the cluster is idle."""
        return len(self._deferred)

    @property
    def input_tokens(self) -> int:
        """Prompt tokens of all requests that entered a waiting queue."""
        total = 0
        for instance in self.instances:
            total += instance.input_tokens
        return total

    def policies(self) -> tuple[object, ...]:
        """The control plane's policies."""
        return (self.admission.policy, *(policy for router in self.routers() for policy in router.policies()))

    def rules(self) -> tuple[str, str]:
        """How admission and routing decide, a sentence each; empty where the policy's name says it."""
        return self.admission.policy.rule, self.router.policy.rule

    def policy_state(self) -> tuple[object, ...]:
        """What the control plane and the workload remember, as plain values (for digests)."""
        admission, admission_stream, *tenants = self.admission.state()
        routing, routing_stream = self.router.state()
        more = [] if not self._watches else [self.board.state(), tenants, self._in_flight]
        more += [[one.request.index for one in self._deferred]] if self._deferred else []
        more += [tuple(part.items()) for part in (self.rejections, self.overruled) if part]
        more += [part.state() for part in (self.gateway, self.splitter, self.lifecycle) if part is not None]
        return (admission, routing, self.source.state(), (admission_stream, routing_stream), *more)

    # ---- the loop ----

    def next_event_us(self) -> int | None:
        """Time of the next event; None when there is none, or it lies beyond the horizon."""
        heap = self.queue.heap
        if not heap or (self.horizon_us is not None and heap[0][0] > self.horizon_us):
            return None
        return heap[0][0]

    def run(self, max_events: int, until_us: int | None = None) -> int:
        """Process up to ``max_events`` events that are not later than ``until_us`` and the horizon.

        Returns the number of events processed; fewer than ``max_events`` means that no further event is due, or that
        ``stopping`` was set meanwhile.
        """
        heap = self.queue.heap
        observers = self.observers
        limit = min(_NEVER if end is None else end for end in (self.horizon_us, until_us))
        queue = self.queue
        watches, watch, touched = self._watches, self._watch, self.board.touched
        ended = None if self._feedback is None else self._feedback.ledger.ended
        now, events = self.now, self.events
        first, last = events, events + max_events
        while events < last and heap:
            time, order, _, event = heap[0]
            if time > limit:
                break
            if observers.kinds:
                observers.event = events + 1
            if type(event) is Step:  # as nearly always
                upcoming = event.instance.step(time)
                if upcoming >= 0:
                    # The Step event is still the first: what a step schedules lies after it.
                    queue.seq += 1
                    heapreplace(heap, (upcoming, order, queue.seq, event))
                else:
                    heappop(heap)
                    event.drop()
                    if upcoming == NO_STEP:
                        continue
            else:
                heappop(heap)
                if type(event) is Passage:
                    event.handler(event, time)
                elif not event.happen(time):
                    event.drop()
                    continue
            if time < now:
                self.clock_went_back += 1
            self.now = now = time
            if watches:
                if (index := event.instance_index) is not None:
                    touched[index] = None
                if watch.departed or watch.prefilled:
                    self._note_departures(time)
            if ended and self._feedback is not None:
                self._feedback.answer(time)
            self.events = events = events + 1
            if self.stopping:
                break
        # Between two calls the first event is always a real one: whoever looks need not clean up, and changes nothing.
        while heap and heap[0][3].stale:
            heappop(heap)[3].drop()
        return events - first

    def in_transit(self) -> list[Request]:
        """Requests that have arrived and are neither on an instance nor turned away, in order of their next event.

        Those that wait for others come last: deferred ones, those in the gateway's queue, those being transferred.
        """
        pending = [entry for entry in self.queue.heap if entry[3].kind in _ON_THE_WAY]
        pending.sort(key=lambda entry: entry[:3])
        found = [event.request for *_, event in pending if event.request is not None]
        found += [one.request for one in self._deferred]
        if self.gateway is not None:
            found += [one.passage.request for one in self.gateway.queue.held()]
        if self.splitter is not None:
            found += self.splitter.transferring()
        if self.lifecycle is not None:
            found += [passage.request for passage in self.lifecycle.parked.values()]
        return found

    def present_us(self) -> int:
        """Requests in queues, batches and transfers, counted as they come and go, added up over time until now.

        Stays that ended for nothing, with the instance, are left out: nothing in the requests' books tells of them.
        """
        total = 0 if self.splitter is None else self.splitter.away_us(self.now)
        total -= 0 if self.lifecycle is None else self.lifecycle.forfeited_us
        for instance in self.instances:
            total += instance.seen.present.area_us(self.now)
        return total

    def closed(self) -> int:
        """Requests in a terminal state, rejected ones included."""
        return len(self.ledger)

    def counts(self) -> list[Count]:
        """What it keeps count of, and what counting again finds."""
        in_flight = self._in_flight if self._watches else None
        return recount(self.queue, self.instances, in_flight, self.admission, self.gateway)

    # ---- the pipeline ----

    def _pull(self) -> None:
        """Fetch the next arrival; only one is ever pending, unless clients wait for answers."""
        if self._feedback is not None:
            self._feedback.pull()
            return
        request = self.source.next_request()
        if request is None:
            self._exhausted = True
        else:
            self.queue.push(request.arrival_us, ARRIVAL, Passage(request, self._arrive))

    def _arrive(self, passage: Passage, now: int) -> None:
        request = passage.request
        self.arrived += 1
        budget = request.max_output_tokens
        self.offered_output_tokens += min(request.output_tokens, budget) if budget else request.output_tokens
        self._pull()
        passage.kind = "admission"
        passage.handler = self._admit
        self.queue.push(now + self._admission_latency_us, ADMISSION, passage)
        tell_arrival(self.observers, request, now)

    def _admit(self, passage: Passage, now: int) -> None:
        request, incoming, observers = passage.request, passage.incoming, self.observers
        if self._defers and self._in_flight and request.slo_class in _DEFERRABLE:
            self._deferred.append(passage)
            self.deferrals += 1
            if Deferred in observers.kinds:
                observers.emit(Deferred(observers.event, now, request.request_id, self._in_flight))
            return
        if self._watches:
            self.board.read(now)
        who, reason = self.admission.refusal(incoming, now)
        if reason:
            self.reject(request, who, reason, now)
            return
        if Admitted in observers.kinds:
            observers.emit(Admitted(observers.event, now, request.request_id, self.admission.name))
        if self.gateway is None:
            self.dispatch(passage, now)
        else:
            self.gateway.offer(passage, now)

    def reject(self, request: Request, who: str, reason: str, now: int, cause: str = "") -> None:
        """Turn a request away; ``cause`` is what it counts as, by default ``who``."""
        self.rejected += 1
        cause = cause or who
        self.rejections[cause] = self.rejections.get(cause, 0) + 1
        request.state = RequestState.REJECTED
        observers = self.observers
        if Rejected in observers.kinds:
            observers.emit(Rejected(observers.event, now, request.request_id, who, reason))
        self.ledger.close(request)

    def dispatch(self, passage: Passage, now: int) -> None:
        """Send a request on to the router."""
        splitter = self.splitter
        early = splitter is not None and not splitter.decode_first and self._serves(passage.request)
        if splitter is not None and early and splitter.decide(passage, now):
            splitter.go(passage, now + self._routing_latency_us)
            return
        self.go_to_router(passage, now + self._routing_latency_us)

    def go_to_router(self, passage: Passage, time_us: int) -> None:
        """Route a request then."""
        passage.kind = "routing"
        passage.handler = self._route
        self.queue.push(time_us, ROUTING, passage)

    def route_again(self, request: Request, now: int) -> None:
        """A request that was on an instance goes to the router once more."""
        self.dispatch(Passage(request, self._route), now)

    def _route(self, passage: Passage, now: int) -> None:
        if self._watches:
            self.board.read(now)
        request = passage.request
        if request.model and not self._serves(request):
            self.reject(request, ROUTER, f"no instance serves {request.model}", now)
            return
        splitter = self.splitter
        router = self.router if splitter is None or not splitter.decode_first else splitter.decode
        if self.strands(passage, router, now):
            return
        if splitter is None:
            self.send(passage, self.router, now)
        elif splitter.decode_first:
            splitter.route_decode_first(passage, now)
        else:
            splitter.learn(passage)
            self.send(passage, self.router, now)

    def _serves(self, request: Request) -> bool:
        return not request.model or request.model in self._models

    def choose(self, passage: Passage, router: Router, now: int) -> int:
        """Let a router choose an instance for a request; returns its index."""
        observers = self.observers
        weighs = RoutingDecision in observers.kinds
        weighed = Weighed(router.of(passage.incoming), passage.incoming, self.instances, now) if weighs else None
        index, reason = router.choose(passage.incoming, now)
        if self.overruled:
            index, reason = self._overrule(passage, router, index, reason)
        if Routed in observers.kinds:
            request_id = passage.request.request_id
            observers.emit(Routed(observers.event, now, request_id, index, router.name, reason))
        if weighed is not None:
            observers.emit(weighed.decided(observers.event, now, index))
        return index

    def _overrule(self, passage: Passage, router: Router, index: int, reason: str) -> tuple[int, str]:
        """The instance that a request has to go to, if it is a candidate; the policy's own choice is left aside."""
        name = passage.request.request_id
        wanted = self.overruled.get(name)
        if wanted is None or wanted.event not in (None, self.events + 1):
            return index, reason
        forced = wanted.instance
        if forced not in router.of(passage.incoming).fleet.members:
            return index, reason
        del self.overruled[name]
        return forced, reason if forced == index else f"forced; the policy chose instance {index}: {reason}"

    def commit(self, passage: Passage, index: int) -> None:
        """From now on a request counts as in flight on that instance."""
        request, instance = passage.request, self.instances[index]
        request.instance = passage.instance_index = index
        instance.routed += 1
        instance.seen.in_flight += 1
        if self._watches:
            self._in_flight += 1
            self.board.touched[index] = None
            if self.admission.counts_tenants:
                there = self.admission.in_flight
                there[request.tenant] = there.get(request.tenant, 0) + 1

    def send(self, passage: Passage, router: Router, now: int) -> int:
        """Choose an instance for a request and send it there; returns its index."""
        index = self.choose(passage, router, now)
        self.deliver(passage, index, now)
        return index

    def deliver(self, passage: Passage, index: int, now: int) -> None:
        """A request is on its way to an instance's queue."""
        self.commit(passage, index)
        passage.kind = "queued"
        passage.handler = self._enqueue
        delay = self.instances[index].intake_us(passage.request, now)
        self.queue.push(now + delay, instance_order(QUEUED, index), passage)

    def _enqueue(self, passage: Passage, now: int) -> None:
        request = passage.request
        if self.lets_in(request, now):
            self.instances[request.instance].enqueue(request, now)

    # ---- what follows when requests leave instances ----

    def _note_departures(self, now: int) -> None:
        watch = self._watch
        left = len(watch.departed)
        self._in_flight -= left
        if self.admission.counts_tenants:
            for request in watch.departed:
                self.admission.in_flight[request.tenant] -= 1
        if self.lifecycle is not None:
            self.lifecycle.departed(tuple(watch.departed), now)
        if self.splitter is not None:
            self.splitter.hear(watch.departed, watch.prefilled, now)
        watch.departed.clear()
        watch.prefilled.clear()
        if left and self.gateway is not None:
            self.gateway.completed(left, now)
        if self._deferred and not self._in_flight:
            self._resume(now)

    def _resume(self, now: int) -> None:
        """The cluster is idle: everybody comes back who was put off."""
        observers = self.observers
        for passage in self._deferred:
            if Resumed in observers.kinds:
                observers.emit(Resumed(observers.event, now, passage.request.request_id))
            self.queue.push(now + self._admission_latency_us, ADMISSION, passage)
        self._deferred.clear()
