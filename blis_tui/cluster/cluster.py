"""The cluster: one event loop, one pipeline (arrival, admission, routing, queue), N instances."""

from __future__ import annotations

from heapq import heappop, heapreplace
from typing import TYPE_CHECKING, Final

from blis_tui.cluster.factory import InstanceFactory
from blis_tui.cluster.policy import ADMISSION, ROUTING
from blis_tui.cluster.signals import Context, Fleet, declared
from blis_tui.engine.events import EventQueue, instance_order
from blis_tui.engine.instance import NO_STEP, QUEUED, Step
from blis_tui.engine.records import Admitted, Arrived, Rejected, Routed
from blis_tui.engine.request import RequestState
from blis_tui.engine.streams import Streams
from blis_tui.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.policy import AdmissionPolicy, RoutingPolicy
    from blis_tui.engine.events import Entry
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.ledger import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Experiment, Pool
    from blis_tui.workload.source import RequestSource


# Cluster events of one microsecond: in the order of a request's way.
_ARRIVAL: Final = 0
_ADMISSION: Final = 1
_ROUTING: Final = 2
_NEVER: Final = 1 << 127
"""Beyond all times, also those too long to be reported."""
_ON_THE_WAY: Final = frozenset({"admission", "routing", "queued"})


class Passage:
    """A request on its way to a queue: one event that moves from stage to stage.

    Attributes:
        kind: the stage it comes to next.
        request: who.
        handler: what happens there.
        instance_index: where it was sent; None before that.
        incoming: the request as the control plane sees it.
    """

    __slots__ = ("handler", "incoming", "instance_index", "kind", "request")

    stale = False

    def __init__(self, request: Request, handler: Callable[[Passage, int], None]) -> None:
        self.kind = "arrival"
        self.request = request
        self.handler = handler
        self.instance_index: int | None = None
        self.incoming = declared(request)

    def happen(self, now: int) -> bool:
        """Call the handler."""
        self.handler(self, now)
        return True

    def drop(self) -> None:
        """Nothing depends on it."""


class Cluster:
    """All mutable state of a simulation. It pickles: no lambdas, files, threads or callbacks of users.

    Attributes:
        now: time of the latest processed event, in microseconds.
        events: number of processed events.
        arrived: requests that have arrived.
        rejected: those of them that admission control turned away.
        offered_output_tokens: answers that all requests that have arrived ask for, generated or not.
        queue: pending events.
        instances: the instances, by index; they may become more during a run.
        clock_went_back: how often an event lay before the one before it (never, or something is badly wrong).
        stopping: whether the loop ends after the event being processed; a signal's handler may set it.
    """

    def __init__(self, experiment: Experiment, source: RequestSource, ledger: Ledger, observers: Observers) -> None:
        self.now = 0
        self.events = 0
        self.arrived = 0
        self.rejected = 0
        self.offered_output_tokens = 0
        self.clock_went_back = 0
        self.stopping = False
        self.horizon_us = experiment.horizon_us
        self.queue = EventQueue()
        self.ledger = ledger
        self.observers = observers
        self._source = source
        policy, plugins, streams = experiment.policy, experiment.plugins, Streams(experiment.seed)
        self._admission = plugins.create(ADMISSION, policy.admission.kind, policy.admission.settings)
        self._admission_name = policy.admission.kind
        self._admission_context = Context(streams.stream("policy/admission"))
        self._routing = plugins.create(ROUTING, policy.routing.kind, policy.routing.settings)
        self._routing_name = policy.routing.kind
        self._routing_context = Context(streams.stream("policy/routing"))
        self._admission_latency_us = experiment.cluster.admission_latency_us
        self._routing_latency_us = experiment.cluster.routing_latency_us
        self._factory = InstanceFactory(experiment, self.queue, ledger, observers)
        self.instances: list[Instance] = []
        for pool in experiment.pools:
            for _ in range(pool.instances):
                self.add_instance(pool)
        self._fleet = Fleet(self.instances)
        self._pull()

    def add_instance(self, pool: Pool) -> Instance:
        """One more instance of a pool, empty; requests are routed to it from now on."""
        instance = self._factory.create(len(self.instances), pool)
        self.instances.append(instance)
        return instance

    @property
    def input_tokens(self) -> int:
        """Prompt tokens of all requests that entered a waiting queue."""
        total = 0
        for instance in self.instances:
            total += instance.input_tokens
        return total

    def policies(self) -> tuple[AdmissionPolicy, RoutingPolicy]:
        """The control plane's policies."""
        return (self._admission, self._routing)

    def policy_state(self) -> tuple[object, ...]:
        """What the control plane and the workload remember, as plain values (for digests)."""
        streams = (self._admission_context.stream.state(), self._routing_context.stream.state())
        return (self._admission.state(), self._routing.state(), self._source.state(), streams)

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
            elif type(event) is Passage:
                heappop(heap)
                event.handler(event, time)
            else:
                heappop(heap)
                if not event.happen(time):
                    event.drop()
                    continue
            if time < now:
                self.clock_went_back += 1
            self.now = now = time
            self.events = events = events + 1
            if self.stopping:
                break
        # Between two calls the first event is always a real one: whoever looks need not clean up, and changes nothing.
        while heap and heap[0][3].stale:
            heappop(heap)[3].drop()
        return events - first

    def in_transit(self) -> list[Request]:
        """Requests that have arrived and are neither in a queue yet nor turned away, in order of their next event."""
        pending = [entry for entry in self.queue.heap if entry[3].kind in _ON_THE_WAY]
        pending.sort(key=_entry_key)
        return [event.request for *_, event in pending if event.request is not None]

    def present_us(self) -> int:
        """Requests in queues and batches, counted as they come and go, added up over time until now."""
        total = 0
        for instance in self.instances:
            total += instance.present.area_us(self.now)
        return total

    def closed(self) -> int:
        """Requests in a terminal state, rejected ones included."""
        return len(self.ledger)

    # ---- the pipeline ----

    def _pull(self) -> None:
        """Fetch the next arrival; only one is ever pending."""
        request = self._source.next_request()
        if request is not None:
            self.queue.push(request.arrival_us, _ARRIVAL, Passage(request, self._arrive))

    def _arrive(self, event: Passage, now: int) -> None:
        request = event.request
        self.arrived += 1
        budget = request.max_output_tokens
        self.offered_output_tokens += min(request.output_tokens, budget) if budget else request.output_tokens
        self._pull()
        event.kind = "admission"
        event.handler = self._admit
        self.queue.push(now + self._admission_latency_us, _ADMISSION, event)
        observers = self.observers
        if Arrived in observers.kinds:
            observers.emit(
                Arrived(
                    observers.event,
                    now,
                    request.request_id,
                    request.input_tokens,
                    request.max_output_tokens,
                    request.slo_class,
                    request.tenant,
                )
            )

    def _admit(self, event: Passage, now: int) -> None:
        request = event.request
        observers = self.observers
        context = self._admission_context
        context.now_us = now
        reason = self._admission.refusal(event.incoming, self._fleet, context)
        if type(reason) is not str:
            raise SimulationError(
                f"the admission policy `{self._admission_name}` answers {reason!r} for {request.request_id}",
                help="`refusal` returns why a request is turned away, as a text, empty = it may enter",
            )
        if reason:
            self.rejected += 1
            request.state = RequestState.REJECTED
            if Rejected in observers.kinds:
                observers.emit(Rejected(observers.event, now, request.request_id, self._admission_name, reason))
            self.ledger.close(request)
            return
        event.kind = "routing"
        event.handler = self._route
        self.queue.push(now + self._routing_latency_us, _ROUTING, event)
        if Admitted in observers.kinds:
            observers.emit(Admitted(observers.event, now, request.request_id, self._admission_name))

    def _route(self, event: Passage, now: int) -> None:
        request = event.request
        context = self._routing_context
        context.now_us = now
        answer = self._routing.choose(event.incoming, self._fleet, context)
        try:
            place, reason = answer
        except (TypeError, ValueError):
            raise self._no_choice(answer, request) from None
        if type(place) is not int or type(reason) is not str or not 0 <= place < len(self.instances):
            raise self._no_choice(answer, request)
        instance = self.instances[place]
        index = request.instance = instance.index
        instance.routed += 1
        instance.in_flight += 1
        delay = instance.latency.queueing_time_us(request)
        event.kind = "queued"
        event.handler = self._enqueue
        event.instance_index = index
        self.queue.push(now + delay, instance_order(QUEUED, index), event)
        observers = self.observers
        if Routed in observers.kinds:
            observers.emit(Routed(observers.event, now, request.request_id, index, self._routing_name, reason))

    def _enqueue(self, event: Passage, now: int) -> None:
        self.instances[event.request.instance].enqueue(event.request, now)

    def _no_choice(self, answer: object, request: Request) -> SimulationError:
        return SimulationError(
            f"the routing policy `{self._routing_name}` answers {answer!r} for {request.request_id}",
            help=f"`choose` returns a place in the fleet, 0 to {len(self.instances) - 1}, and a reason",
        )


def _entry_key(entry: Entry) -> tuple[int, int, int]:
    return entry[:3]
