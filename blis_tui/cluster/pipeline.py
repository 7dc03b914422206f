"""A request's path through the control plane: arrival, admission, and dispatch to an instance's queue."""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.cluster.decisions import ALTERNATIVES, CapturedDecision, Regrets
from blis_tui.cluster.records import RoutingDecision
from blis_tui.cluster.routed_request import (
    ADMISSION,
    ARRIVAL,
    NO_NEXT_STAGE,
    QUEUED,
    ROUTING,
    RoutedRequest,
    emit_arrival,
    put_off,
)
from blis_tui.cluster.router import NAME as ROUTER
from blis_tui.cluster.stages import NoDeferral, NoGateway, NoLifecycle, Transfers
from blis_tui.engine.records import Admitted, Rejected, Routed
from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.admission_control import AdmissionControl
    from blis_tui.cluster.decisions import Reroute
    from blis_tui.cluster.instance_registry import InstanceRegistry
    from blis_tui.cluster.router import Router
    from blis_tui.engine.counts import Ledger
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment
    from blis_tui.workload.interactive import SessionCounts
    from blis_tui.workload.source import RequestSource


@mypyc_attr(allow_interpreted_subclasses=True)
class Pipeline(Picklable):
    """What the stages share: time, events, books, instances, and each other.

    Attributes:
        now: time of the latest processed event, in microseconds.
        events: number of processed events.
        arrived: requests that have arrived.
        offered_output_tokens: output tokens that all of them ask for, generated or not.
        rejected: number of arrived requests that were rejected.
        rejections: number of rejections by cause.
        elsewhere: arrived requests that another process simulates.
        queue: pending events.
        observers: receive the records.
        ledger: the books of requests that have ended.
        registry: the instances and fleets.
        arrivals, deferral, admission, gateway, dispatcher: the stages, in the order of a request's path.
        lifecycle: the instances' life cycles, which accompany the stages.
    """

    arrivals: Arrivals
    admission: Admission
    dispatcher: Dispatcher

    def __init__(self, queue: EventQueue, observers: Observers, ledger: Ledger, registry: InstanceRegistry) -> None:
        self.now = 0
        self.events = 0
        self.arrived = 0
        self.offered_output_tokens = 0
        self.rejected = 0
        self.rejections: dict[str, int] = {}
        self.elsewhere = 0
        self.queue = queue
        self.observers = observers
        self.ledger = ledger
        self.registry = registry
        self.deferral = NoDeferral()
        self.gateway = NoGateway()
        self.lifecycle = NoLifecycle()

    @property
    def can_run_ahead(self) -> bool:
        """Whether events on an instance affect others only through events that are pending already."""
        return not self.registry.followers

    @property
    def finished(self) -> bool:
        """Whether all requests have ended or wait for what will never happen, and no more will come."""
        if not self.arrivals.silent:
            return False
        left = self.arrived - len(self.ledger) - self.elsewhere
        return self.lifecycle.never_progresses(left) if left else self.arrivals.exhausted

    def closed(self) -> int:
        """Number of requests in a terminal state, rejected ones included."""
        return len(self.ledger)

    def reject(self, request: Request, who: str, reason: str, now: int, cause: str = "") -> None:
        """Reject a request; ``cause`` is what it is counted under, by default ``who``."""
        self.rejected += 1
        cause = cause or who
        self.rejections[cause] = self.rejections.get(cause, 0) + 1
        request.state = RequestState.REJECTED
        self.observers.tell(Rejected, now, request.request_id, who, reason)
        self.ledger.close(request)


@mypyc_attr(allow_interpreted_subclasses=True)
class Arrivals(Picklable):
    """Lets requests arrive when the workload says so; there is always one pending arrival.

    Args:
        experiment: sets the admission latency.
        source: the workload.
        pipeline: the pipeline that it belongs to.
        entrance: the first stage, which requests reach after the admission latency.

    Attributes:
        ended: ended requests that clients have yet to learn of, with what the clients measured.
        source: as above.
    """

    def __init__(
        self,
        experiment: Experiment,
        source: RequestSource,
        pipeline: Pipeline,
        entrance: Callable[[RoutedRequest, int], int],
    ) -> None:
        self.source = source
        self.ended: list[tuple[Request, int]] = []
        self._ahead: list[RoutedRequest] = []
        """Fetched requests that are not pending yet, the next one last."""
        self._at_once: int = getattr(source, "at_once", 1)
        self._pipeline = pipeline
        self._entrance = entrance
        self._latency_us = experiment.cluster.admission_latency_us
        self._exhausted = False

    @property
    def await_answers(self) -> bool:
        """Whether requests come when others have ended."""
        return False

    @property
    def silent(self) -> bool:
        """Whether no request will come unless one ends."""
        return self._exhausted

    @property
    def exhausted(self) -> bool:
        """Whether no request will come, whatever ends."""
        return self._exhausted

    @property
    def sessions(self) -> SessionCounts | None:
        """Session counts so far; None = there are no sessions."""
        return None

    def pull(self) -> None:
        """Schedule the next arrival."""
        ahead = self._ahead
        if not ahead:
            self._fetch(ahead)
        if ahead:
            routed = ahead.pop()
            self._pipeline.queue.push(routed.request.arrival_us, ARRIVAL, routed)
        else:
            self._exhausted = True

    def _fetch(self, ahead: list[RoutedRequest]) -> None:
        source, arrive = self.source, self.arrive
        while len(ahead) < self._at_once and (request := source.next_request()) is not None:
            ahead.append(RoutedRequest(request, arrive))
        ahead.reverse()

    def answer(self, now: int) -> None:
        """Tell clients about ended requests; they may send new ones."""

    def arrive(self, routed: RoutedRequest, now: int) -> int:
        """Let a request arrive."""
        request, pipeline = routed.request, self._pipeline
        pipeline.arrived += 1
        tokens, budget = request.output_tokens, request.max_output_tokens
        pipeline.offered_output_tokens += budget if 0 < budget < tokens else tokens
        self.pull()
        routed.kind = "admission"
        routed.handler = self._entrance
        routed.order = ADMISSION
        if pipeline.observers.kinds:
            emit_arrival(pipeline.observers, request, now)
        return now + self._latency_us


@mypyc_attr(allow_interpreted_subclasses=True)
class Admission(Picklable):
    """Admits or rejects requests.

    Args:
        pipeline: the pipeline that it belongs to.
        control: decides.

    Attributes:
        control: as above.
        onward: the next stage.
    """

    onward: Callable[[RoutedRequest, int], int]

    def __init__(self, pipeline: Pipeline, control: AdmissionControl) -> None:
        self.control = control
        self._pipeline = pipeline
        self._registry = pipeline.registry

    def enter(self, routed: RoutedRequest, now: int) -> int:
        """Pass a request on, or reject it."""
        pipeline, registry, control = self._pipeline, self._registry, self.control
        if registry.watched and (control.reads_signals or registry.board.ages):
            registry.board.read(now)
        if control.asks:
            who, reason = control.refusal(routed.incoming, now)
            if reason:
                pipeline.reject(routed.request, who, reason, now)
                return NO_NEXT_STAGE
        pipeline.observers.tell(Admitted, now, routed.request.request_id, control.name)
        return self.onward(routed, now)


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher(Picklable):
    """Sends each request to the instance that the router chooses.

    Args:
        experiment: sets the routing latency.
        pipeline: the pipeline that it belongs to.
        router: chooses instances for requests.
        routes: routing decisions to override, by the request's name.

    Attributes:
        router: as above.
        route_overrides: entries of ``routes`` not used so far, because the instance was never among the candidates.
        split_requests: split requests that have not reached their decode instance, by their index.
        link: the transfers of KV blocks between the two instances.
        split: number of requests that were split.
        dropped: those of them whose KV blocks did not fit on the decode instance.
        arrived: number of finished transfers.
        broken_off: number of transfers that ended with the loss of an instance.
        regrets: regret of all decisions; None = the experiment does not ask for it.
    """

    def __init__(self, experiment: Experiment, pipeline: Pipeline, router: Router, routes: dict[str, Reroute]) -> None:
        self.router = router
        self.route_overrides = routes
        self.split_requests: dict[int, RoutedRequest] = {}
        self.link = Transfers()
        self.split = 0
        self.dropped = 0
        self.arrived = 0
        self.broken_off = 0
        self.regrets = Regrets() if experiment.counterfactual else None
        self._alternatives = experiment.counterfactual or ALTERNATIVES
        self._pipeline = pipeline
        self._registry = pipeline.registry
        self._latency_us = experiment.cluster.routing_latency_us
        self._varies = experiment.cluster.varies
        self._fronted = False
        """Whether an instance with a front end has had a request."""

    @property
    def splits(self) -> bool:
        """Whether requests may run on two instances, one after the other."""
        return False

    # ---- to the router ----

    def dispatch(self, routed: RoutedRequest, now: int) -> int:
        """Send on an admitted request."""
        routed.kind = "routing"
        routed.handler = self.route
        routed.order = ROUTING
        return now + self._latency_us

    def dispatch_again(self, request: Request, now: int) -> None:
        """Route a request that was on an instance once more."""
        routed = RoutedRequest(request, self.route)
        self._pipeline.queue.push(self.dispatch(routed, now), routed.order, routed)

    def go_on(self, routed: RoutedRequest, now: int) -> None:
        """Resume a request that waited for an instance to come up."""
        routed.kind = "routing"
        routed.handler = self.route
        routed.order = ROUTING
        self._pipeline.queue.push(now, ROUTING, routed)

    def route(self, routed: RoutedRequest, now: int) -> int:
        """Choose an instance and send the request there."""
        checked = self._registry.watched or self._varies or routed.request.model
        if checked and not self._can_route(routed, self.router, now):
            return NO_NEXT_STAGE
        return self.deliver(routed, self.choose(routed, self.router, now), now)

    def _can_route(self, routed: RoutedRequest, router: Router, now: int) -> bool:
        """Whether there is an instance for a request; if not, reject it or let it wait for one to come up."""
        registry = self._registry
        if registry.watched:
            registry.board.read(now)
        request = routed.request
        if request.model and request.model not in registry.models:
            self._pipeline.reject(request, ROUTER, f"no instance serves {request.model}", now)
            return False
        return not self._pipeline.lifecycle.park_if_stranded(routed, router, now)

    def choose(self, routed: RoutedRequest, router: Router, now: int) -> int:
        """Let a router choose an instance for a request; return its index."""
        observers = self._pipeline.observers
        if self.regrets is None and not self.route_overrides and not observers.kinds:
            return router.choose(routed.incoming, now, False)[0]
        regrets, recorded = self.regrets, RoutingDecision in observers.kinds
        incoming, instances = routed.incoming, self._registry.instances
        weighed = (
            CapturedDecision(router.of(incoming), incoming, instances, now) if recorded or regrets is not None else None
        )
        index, reason = router.choose(incoming, now)
        if self.route_overrides:
            index, reason = self._apply_override(routed, router, index, reason)
        if Routed in observers.kinds:
            request_id = routed.request.request_id
            observers.emit(Routed(observers.event, now, request_id, index, router.name, reason))
        if weighed is not None:
            if recorded:
                observers.emit(weighed.to_record(observers.event, now, index, self._alternatives))
            if regrets is not None:
                regrets.add(weighed, index)
        return index

    def _apply_override(self, routed: RoutedRequest, router: Router, index: int, reason: str) -> tuple[int, str]:
        """Return the overriding instance, if it is a candidate, instead of the policy's own choice."""
        name = routed.request.request_id
        wanted = self.route_overrides.get(name)
        if wanted is None or wanted.event not in (None, self._pipeline.events + 1):
            return index, reason
        forced = wanted.instance
        if forced not in router.of(routed.incoming).fleet.members:
            return index, reason
        del self.route_overrides[name]
        return forced, reason if forced == index else f"forced; the policy chose instance {index}: {reason}"

    # ---- to the instance ----

    def deliver(self, routed: RoutedRequest, index: int, now: int) -> int:
        """Send a request to an instance's queue; return when it gets there."""
        self._registry.commit(routed, index)
        instance = self._registry.instances[index]
        routed.kind = QUEUED
        routed.handler = self._enqueue
        routed.order = instance.order_queued
        self._fronted = self._fronted or instance.front_end is not None
        return now + instance.intake_us(routed.request, now)

    def correct_intake(self) -> None:
        """Give each request in a front end its time, which others may have put off: for those who look."""
        if not self._fronted:
            return
        heap, instances = self._pipeline.queue.heap, self._registry.instances
        for at, (time, order, seq, event) in enumerate(heap):
            if event.kind == QUEUED and type(event) is RoutedRequest and event.instance_index is not None:
                end_us = instances[event.instance_index].intake_end_us(event.request)
                if end_us > time:
                    heap[at] = (end_us, order, seq, event)
        heapify(heap)

    def _enqueue(self, routed: RoutedRequest, now: int) -> int:
        request = routed.request
        instance = self._registry.instances[request.instance]
        if (front_end := instance.front_end) is not None:
            if (end_us := instance.intake_end_us(request)) > now:
                return put_off(end_us)
            front_end.forget(request)
        if not self._varies or self._pipeline.lifecycle.may_enqueue(request, now):
            instance.enqueue(request, now)
        return NO_NEXT_STAGE

    # ---- for requests on two instances; here there are none ----

    def is_transferring(self, index: int) -> bool:  # noqa: ARG002
        """Whether KV blocks are being transferred from or to an instance, or soon will be."""
        return False

    def break_off(self, index: int, now: int) -> None:
        """Break off all transfers to or from an instance that is gone with its KV cache."""

    def forget(self, request: Request, now: int) -> None:
        """Forget a request that ended between its instances."""

    def undo_split(self, request: Request, now: int) -> None:
        """Undo the split of a request that starts over; the decider will be asked again."""

    def between_instances_us(self, now: int) -> int:  # noqa: ARG002
        """Total time of requests between their two instances until now; negative where they overlap."""
        return 0

    def transferring(self) -> list[Request]:
        """Return requests whose prompt is computed and that have not reached their decode instance."""
        return []

    def expected(self) -> list[Request]:
        """Return requests that wait for room on their decode instance before their prompts are computed."""
        return []

    def bytes_of(self, request: Request) -> int:  # noqa: ARG002
        """Bytes of a prompt's KV blocks to transfer."""
        return 0

    def state(self) -> tuple[object, ...]:
        """Return what it remembers besides its router, as plain values (for digests)."""
        return ()
