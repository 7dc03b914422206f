"""A request's way through the control plane: arrival, and, behind admission, its dispatch to an instance's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import mypyc_attr
from blis_tui.cluster.decisions import ALTERNATIVES, Regrets, Weighed
from blis_tui.cluster.passage import ADMISSION, ARRIVAL, QUEUED, ROUTING, STAYS, Passage, tell_arrival
from blis_tui.cluster.records import RoutingDecision
from blis_tui.cluster.router import NAME as ROUTER
from blis_tui.cluster.stages import AlwaysUp, NoDeferral, OpenGateway, Transfers
from blis_tui.engine.records import Admitted, Rejected, Routed
from blis_tui.engine.request import RequestState
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.admission_control import AdmissionControl
    from blis_tui.cluster.reroute import Reroute
    from blis_tui.cluster.roster import Roster
    from blis_tui.cluster.router import Router
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.engine.seen import Ledger
    from blis_tui.spec.model import Experiment
    from blis_tui.workload.interactive import SessionCounts
    from blis_tui.workload.source import RequestSource


@mypyc_attr(allow_interpreted_subclasses=True)
class Pipeline(Kept):
    """What the stages share: time, events, books, instances, and each other.

    Attributes:
        now: time of the latest processed event, in microseconds.
        events: number of processed events.
        arrived: requests that have arrived.
        offered_output_tokens: answers that all of them ask for, generated or not.
        rejected: those of them that were turned away.
        rejections: how many each cause turned away.
        queue: pending events.
        observers: who hears of what happens.
        ledger: the books of requests that have ended.
        roster: the instances.
        arrivals, deferral, admission, gateway, dispatcher: the stages, in the order of a request's way.
        lifecycle: the stage beside them.
    """

    arrivals: Arrivals
    admission: Admission
    dispatcher: Dispatcher

    def __init__(self, queue: EventQueue, observers: Observers, ledger: Ledger, roster: Roster) -> None:
        self.now = 0
        self.events = 0
        self.arrived = 0
        self.offered_output_tokens = 0
        self.rejected = 0
        self.rejections: dict[str, int] = {}
        self.queue = queue
        self.observers = observers
        self.ledger = ledger
        self.roster = roster
        self.deferral = NoDeferral()
        self.gateway = OpenGateway()
        self.lifecycle = AlwaysUp()

    @property
    def foresees(self) -> bool:
        """Whether what happens on an instance reaches others only through events that are pending already."""
        return not self.roster.followers and not self.arrivals.await_answers

    @property
    def finished(self) -> bool:
        """Whether all requests have ended, or wait for what will never be, and none will come."""
        if not self.arrivals.silent:
            return False
        left = self.arrived - len(self.ledger)
        return self.lifecycle.hopeless(left) if left else self.arrivals.exhausted

    def closed(self) -> int:
        """Requests in a terminal state, rejected ones included."""
        return len(self.ledger)

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


@mypyc_attr(allow_interpreted_subclasses=True)
class Arrivals(Kept):
    """Requests come when the workload says so: the next one is pending when one comes.

    Args:
        experiment: how long admission takes.
        source: the workload.
        pipeline: what they come to.
        entrance: the first stage, which they reach after the admission latency.

    Attributes:
        ended: requests whose clients wait to hear of their end, and what these measured.
        source: as above.
    """

    def __init__(
        self,
        experiment: Experiment,
        source: RequestSource,
        pipeline: Pipeline,
        entrance: Callable[[Passage, int], int],
    ) -> None:
        self.source = source
        self.ended: list[tuple[Request, int]] = []
        self._ahead: list[Passage] = []
        """Those that have been fetched and are not pending yet, the next one last."""
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
        """Whether no request will come, unless one ends."""
        return self._exhausted

    @property
    def exhausted(self) -> bool:
        """Whether no request will come, whatever ends."""
        return self._exhausted

    @property
    def sessions(self) -> SessionCounts | None:
        """What became of the sessions so far; None where there are none."""
        return None

    def pull(self) -> None:
        """What comes next is pending from now on."""
        ahead = self._ahead
        if not ahead:
            self._fetch(ahead)
        if ahead:
            passage = ahead.pop()
            self._pipeline.queue.push(passage.request.arrival_us, ARRIVAL, passage)
        else:
            self._exhausted = True

    def _fetch(self, ahead: list[Passage]) -> None:
        source, arrive = self.source, self.arrive
        while len(ahead) < self._at_once and (request := source.next_request()) is not None:
            ahead.append(Passage(request, arrive))
        ahead.reverse()

    def answer(self, now: int) -> None:
        """Clients hear of requests that have ended, and may send others."""

    def arrive(self, passage: Passage, now: int) -> int:
        """A request comes."""
        request, pipeline = passage.request, self._pipeline
        pipeline.arrived += 1
        budget = request.max_output_tokens
        pipeline.offered_output_tokens += min(request.output_tokens, budget) if budget else request.output_tokens
        self.pull()
        passage.kind = "admission"
        passage.handler = self._entrance
        passage.order = ADMISSION
        if pipeline.observers.kinds:
            tell_arrival(pipeline.observers, request, now)
        return now + self._latency_us


@mypyc_attr(allow_interpreted_subclasses=True)
class Admission(Kept):
    """Lets requests in, or turns them away.

    Args:
        pipeline: what it is a part of.
        control: who decides.

    Attributes:
        control: as above.
        onward: the next stage.
    """

    onward: Callable[[Passage, int], int]

    def __init__(self, pipeline: Pipeline, control: AdmissionControl) -> None:
        self.control = control
        self._pipeline = pipeline
        self._roster = pipeline.roster

    def enter(self, passage: Passage, now: int) -> int:
        """A request has come: it goes on, or is turned away."""
        pipeline, roster, control = self._pipeline, self._roster, self.control
        if roster.watched and (control.reads_signals or roster.board.ages):
            roster.board.read(now)
        who, reason = control.refusal(passage.incoming, now)
        if reason:
            pipeline.reject(passage.request, who, reason, now)
            return STAYS
        observers = pipeline.observers
        if Admitted in observers.kinds:
            observers.emit(Admitted(observers.event, now, passage.request.request_id, control.name))
        return self.onward(passage, now)


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher(Kept):
    """Sends each request to one instance, which the router chooses.

    Args:
        experiment: how long routing takes.
        pipeline: what it is a part of.
        router: chooses instances for requests.
        routes: routing decisions to overrule, by the request's name.

    Attributes:
        router: as above.
        overruled: those of ``routes`` that have not been: the instance was never among the candidates.
        passages: requests that are split and have not reached their second instance, by their index.
        link: the transfers of KV blocks between the two.
        split: requests that were split.
        dropped: those of them whose KV blocks did not fit where they were to decode.
        arrived: transfers that are over.
        broken_off: transfers that ended with one of their instances.
        regrets: of all decisions; None = the experiment does not ask for it.
    """

    def __init__(self, experiment: Experiment, pipeline: Pipeline, router: Router, routes: dict[str, Reroute]) -> None:
        self.router = router
        self.overruled = routes
        self.passages: dict[int, Passage] = {}
        self.link = Transfers()
        self.split = 0
        self.dropped = 0
        self.arrived = 0
        self.broken_off = 0
        self.regrets = Regrets() if experiment.counterfactual else None
        self._alternatives = experiment.counterfactual or ALTERNATIVES
        self._pipeline = pipeline
        self._roster = pipeline.roster
        self._latency_us = experiment.cluster.routing_latency_us
        self._varies = experiment.cluster.varies

    @property
    def splits(self) -> bool:
        """Whether requests may run on two instances, one after the other."""
        return False

    # ---- to the router ----

    def dispatch(self, passage: Passage, now: int) -> int:
        """An admitted request has come."""
        passage.kind = "routing"
        passage.handler = self.route
        passage.order = ROUTING
        return now + self._latency_us

    def dispatch_again(self, request: Request, now: int) -> None:
        """A request that was on an instance comes once more."""
        passage = Passage(request, self.route)
        self._pipeline.queue.push(self.dispatch(passage, now), passage.order, passage)

    def go_on(self, passage: Passage, now: int) -> None:
        """A request that waited for an instance to come up goes where it was going."""
        passage.kind = "routing"
        passage.handler = self.route
        passage.order = ROUTING
        self._pipeline.queue.push(now, ROUTING, passage)

    def route(self, passage: Passage, now: int) -> int:
        """Choose an instance, and send the request there."""
        checked = self._roster.watched or self._varies or passage.request.model
        if checked and not self._can_route(passage, self.router, now):
            return STAYS
        return self.deliver(passage, self.choose(passage, self.router, now), now)

    def _can_route(self, passage: Passage, router: Router, now: int) -> bool:
        """Whether there is an instance for a request; if not, it is turned away, or waits for one to come up."""
        roster = self._roster
        if roster.watched:
            roster.board.read(now)
        request = passage.request
        if request.model and request.model not in roster.models:
            self._pipeline.reject(request, ROUTER, f"no instance serves {request.model}", now)
            return False
        return not self._pipeline.lifecycle.strands(passage, router, now)

    def choose(self, passage: Passage, router: Router, now: int) -> int:
        """Let a router choose an instance for a request; returns its index."""
        observers = self._pipeline.observers
        if self.regrets is None and not self.overruled and not observers.kinds:
            return router.choose(passage.incoming, now)[0]
        regrets, told = self.regrets, RoutingDecision in observers.kinds
        incoming, instances = passage.incoming, self._roster.instances
        weighed = Weighed(router.of(incoming), incoming, instances, now) if told or regrets is not None else None
        index, reason = router.choose(incoming, now)
        if self.overruled:
            index, reason = self._overrule(passage, router, index, reason)
        if Routed in observers.kinds:
            request_id = passage.request.request_id
            observers.emit(Routed(observers.event, now, request_id, index, router.name, reason))
        if weighed is not None:
            if told:
                observers.emit(weighed.decided(observers.event, now, index, self._alternatives))
            if regrets is not None:
                regrets.add(weighed, index)
        return index

    def _overrule(self, passage: Passage, router: Router, index: int, reason: str) -> tuple[int, str]:
        """The instance that a request has to go to, if it is a candidate; the policy's own choice is left aside."""
        name = passage.request.request_id
        wanted = self.overruled.get(name)
        if wanted is None or wanted.event not in (None, self._pipeline.events + 1):
            return index, reason
        forced = wanted.instance
        if forced not in router.of(passage.incoming).fleet.members:
            return index, reason
        del self.overruled[name]
        return forced, reason if forced == index else f"forced; the policy chose instance {index}: {reason}"

    # ---- to the instance ----

    def deliver(self, passage: Passage, index: int, now: int) -> int:
        """A request is on its way to an instance's queue; returns when it is there."""
        self._roster.commit(passage, index)
        instance = self._roster.instances[index]
        passage.kind = QUEUED
        passage.handler = self._enqueue
        passage.order = instance.order_queued
        return now + instance.intake_us(passage.request, now)

    def _enqueue(self, passage: Passage, now: int) -> int:
        request = passage.request
        if not self._varies or self._pipeline.lifecycle.lets_in(request, now):
            self._roster.instances[request.instance].enqueue(request, now)
        return STAYS

    # ---- what follows for requests on two instances; here there are none ----

    def serves(self, index: int) -> bool:  # noqa: ARG002
        """Whether KV blocks are on their way from or to an instance, or about to be."""
        return False

    def break_off(self, index: int, now: int) -> None:
        """An instance has gone with its KV cache: nothing is transferred to it or from it any more."""

    def forget(self, request: Request, now: int) -> None:
        """A request has ended between its instances."""

    def take_back(self, request: Request, now: int) -> None:
        """A request starts again: whether it is split will be decided anew."""

    def away_us(self, now: int) -> int:  # noqa: ARG002
        """Time of requests between their two instances, added up until now; negative where they overlap."""
        return 0

    def transferring(self) -> list[Request]:
        """Requests whose prompt is computed and that have not reached their second instance."""
        return []

    def bytes_of(self, request: Request) -> int:  # noqa: ARG002
        """What the KV blocks of a prompt amount to that travel."""
        return 0

    def state(self) -> tuple[object, ...]:
        """What it remembers beside its router, as plain values (for digests)."""
        return ()
