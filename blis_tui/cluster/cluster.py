"""The cluster: one event loop, one pipeline (arrival, admission, routing, queue), N instances."""

from __future__ import annotations

from heapq import heappop, heapreplace
from typing import TYPE_CHECKING

from blis_tui.cluster.admission import create_admission
from blis_tui.cluster.boundary import is_foreign, window
from blis_tui.cluster.routing import create_routing
from blis_tui.engine.batching.registry import create_batching
from blis_tui.engine.clientview import client_e2e_us, client_ttft_us
from blis_tui.engine.events import (
    ADMISSION,
    ARRIVAL,
    QUEUED,
    REQUEST_LEFT,
    ROUTING,
    STEP,
    TIMEOUT,
    EventQueue,
    instance_order,
)
from blis_tui.engine.instance import HOLLOW, Instance
from blis_tui.engine.kv.pool import BlockPool, PromptKeys
from blis_tui.engine.latency.registry import create as create_latency
from blis_tui.engine.records import Admitted, Arrived, Completed, Rejected, Routed
from blis_tui.engine.request import Request, RequestState
from blis_tui.engine.scheduling.priority import create_priority
from blis_tui.engine.scheduling.queues import create_queue

if TYPE_CHECKING:
    from blis_tui.engine.events import Event
    from blis_tui.engine.ledger import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.spec.model import Experiment
    from blis_tui.workload.source import RequestSource


class Cluster:
    """All mutable state of a simulation. It pickles: no lambdas, files, threads or callbacks of users.

    Attributes:
        now: time of the latest processed event, in microseconds.
        events: number of processed events.
        arrived: requests that have arrived.
        rejected: those of them that admission control turned away.
        input_tokens: prompt tokens of all requests that entered a waiting queue.
        offered_output_tokens: answers that all requests that have arrived ask for, generated or not.
        present: requests in queues and batches.
        queue: pending events.
        instances: the instances, by index.
        guarded: whether policies see requests through a window that notes forbidden looks. Policies from outside this
            package always do; its own are tested that way.
        boundary_breaches: the looks noted.
        clock_went_back: how often an event lay before the one before it (never, or something is badly wrong).
        stopping: whether the loop ends after the event being processed; a signal's handler may set it.
    """

    def __init__(self, experiment: Experiment, source: RequestSource, ledger: Ledger, observers: Observers) -> None:
        self.now = 0
        self.events = 0
        self.arrived = 0
        self.rejected = 0
        self.input_tokens = 0
        self.offered_output_tokens = 0
        self.present = 0
        self._present_us = 0
        self._present_since_us = 0
        self.guarded = False
        self.boundary_breaches: list[str] = []
        self.clock_went_back = 0
        self.stopping = False
        self.horizon_us = experiment.horizon_us
        self.queue = EventQueue()
        self.ledger = ledger
        self.observers = observers
        self._source = source
        self._admission = create_admission(experiment.policy.admission)
        self._admission_name = experiment.policy.admission.kind
        self._routing = create_routing(experiment.policy.routing)
        self._routing_name = experiment.policy.routing.kind
        self._foreign = any(is_foreign(policy) for policy in (self._admission, self._routing))
        self._admission_latency_us = experiment.cluster.admission_latency_us
        self._routing_latency_us = experiment.cluster.routing_latency_us
        prompts = PromptKeys(experiment.engine.block_size_tokens)
        latency = create_latency(
            experiment.latency,
            experiment.model,
            experiment.hardware,
            tensor_parallel=experiment.cluster.tensor_parallel,
            max_num_seqs=experiment.engine.max_num_seqs,
        )
        self.instances = tuple(
            Instance(
                index,
                experiment.engine,
                latency=latency,
                batching=create_batching(experiment.policy.batching),
                waiting=create_queue(experiment.policy.scheduling),
                priority=create_priority(experiment.policy.priority),
                victim=experiment.policy.preemption_victim,
                pool=BlockPool(
                    experiment.engine.kv_blocks,
                    experiment.engine.block_size_tokens,
                    prompts,
                    caching=experiment.engine.enable_prefix_caching,
                ),
                events=self.queue,
                ledger=ledger,
                observers=observers,
            )
            for index in range(experiment.cluster.instances)
        )
        self._pull()

    def as_request(self, target: object) -> Request | None:
        """What an event is about, if it is a request."""
        return target if isinstance(target, Request) else None

    def as_instance(self, target: object) -> Instance:
        """What an event is about; it must be an instance."""
        if not isinstance(target, Instance):
            raise TypeError("the event is about a request")
        return target

    def policy_state(self) -> tuple[object, ...]:
        """What the cluster's policies and the workload remember, as plain values (for digests)."""
        return (self._admission.state(), self._routing.state(), self._source.state())

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
        limit = _earlier(self.horizon_us, until_us)
        queue = self.queue
        first = self.events
        last = first + max_events
        while self.events < last and heap:
            time, order, _, kind, target = heap[0]
            if limit is not None and time > limit:
                break
            if observers.kinds:
                observers.event = self.events + 1
            if isinstance(target, Instance):
                upcoming = target.step(time)
                if upcoming >= 0:
                    # The Step event is still the first: what a step schedules lies after it.
                    queue.seq += 1
                    heapreplace(heap, (upcoming, order, queue.seq, STEP, target))
                else:
                    heappop(heap)
                    target.step_pending = False
                    if upcoming == HOLLOW:
                        continue
            else:
                heappop(heap)
                # A timeout that comes too late is no event: it must not move the clock.
                if kind == TIMEOUT and target.state > RequestState.RUNNING:
                    continue
                self._handle(kind, target, time)
            if time < self.now:
                self.clock_went_back += 1
            self.now = time
            self.events += 1
            if self.stopping:
                break
        # Between two calls the first event is always a real one: whoever looks need not clean up, and changes nothing.
        self._drop_stale()
        return self.events - first

    def in_transit(self) -> list[Request]:
        """Requests that have arrived and are neither in a queue yet nor turned away, in order of their next event."""
        stages = (ADMISSION, ROUTING, QUEUED)
        pending = [event for event in self.queue.heap if event[3] in stages]
        pending.sort(key=_event_key)
        return [target for *_, target in pending if isinstance(target, Request)]

    def present_us(self) -> int:
        """Requests in queues and batches, counted as they come and go, added up over time until now."""
        return self._present_us + self.present * (self.now - self._present_since_us)

    def closed(self) -> int:
        """Requests in a terminal state, rejected ones included."""
        return len(self.ledger)

    def _drop_stale(self) -> None:
        """Remove events from the front that nothing will come of."""
        heap = self.queue.heap
        while heap:
            _, _, _, kind, target = heap[0]
            if isinstance(target, Instance):
                if target.running or target.waiting.items:
                    return
                target.step_pending = False
            elif kind != TIMEOUT or target.state <= RequestState.RUNNING:
                return
            heappop(heap)

    # ---- the pipeline ----

    def _handle(self, kind: int, request: Request, now: int) -> None:
        if kind == ARRIVAL:
            self._arrive(request, now)
        elif kind == ADMISSION:
            self._admit(request, now)
        elif kind == ROUTING:
            self._route(request, now)
        elif kind == QUEUED:
            self.instances[request.instance].enqueue(request, now)
            if request.state is not RequestState.DROPPED_UNSERVABLE:
                self.input_tokens += request.input_tokens
            if request.state is RequestState.WAITING:
                self._count(1, now)
        elif kind == REQUEST_LEFT:
            self._leave(request, now)
        else:
            self._count(-1, now)
            self.instances[request.instance].timeout(request, now)

    def _count(self, change: int, now: int) -> None:
        """Requests come into queues and batches, or leave them."""
        self._present_us += self.present * (now - self._present_since_us)
        self._present_since_us = now
        self.present += change

    def _shown(self, request: Request) -> Request:
        """``request`` as a policy gets to see it."""
        return window(request, self.boundary_breaches) if self.guarded or self._foreign else request

    def _pull(self) -> None:
        """Fetch the next arrival; only one is ever pending."""
        request = self._source.next_request()
        if request is not None:
            self.queue.push(request.arrival_us, ARRIVAL, ARRIVAL, request)

    def _arrive(self, request: Request, now: int) -> None:
        self.arrived += 1
        budget = request.max_output_tokens
        self.offered_output_tokens += min(request.output_tokens, budget) if budget else request.output_tokens
        self._pull()
        self.queue.push(now + self._admission_latency_us, ADMISSION, ADMISSION, request)
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

    def _admit(self, request: Request, now: int) -> None:
        observers = self.observers
        reason = self._admission.refusal(self._shown(request), now)
        if reason:
            self.rejected += 1
            request.state = RequestState.REJECTED
            if Rejected in observers.kinds:
                observers.emit(Rejected(observers.event, now, request.request_id, self._admission_name, reason))
            self.ledger.close(request)
            return
        self.queue.push(now + self._routing_latency_us, ROUTING, ROUTING, request)
        if Admitted in observers.kinds:
            observers.emit(Admitted(observers.event, now, request.request_id, self._admission_name))

    def _route(self, request: Request, now: int) -> None:
        instance, reason = self._routing.choose(self._shown(request), self.instances)
        request.instance = instance.index
        instance.routed += 1
        delay = instance.latency.queueing_time_us(request)
        self.queue.push(now + delay, instance_order(QUEUED, instance.index), QUEUED, request)
        observers = self.observers
        if Routed in observers.kinds:
            observers.emit(Routed(observers.event, now, request.request_id, instance.index, self._routing_name, reason))

    def _leave(self, request: Request, now: int) -> None:
        self._count(-1, now)
        observers = self.observers
        if Completed in observers.kinds:
            latency = self.instances[request.instance].latency
            observers.emit(
                Completed(
                    observers.event,
                    now,
                    request.request_id,
                    request.instance,
                    request.generated_tokens,
                    client_ttft_us(request, latency),
                    client_e2e_us(request, latency),
                    request.length_capped,
                )
            )


def _event_key(event: Event) -> tuple[int, int, int]:
    return event[:3]


def _earlier(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else min(a, b)
