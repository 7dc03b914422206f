"""The simulation behind the endpoint: requests enter and tokens come out at given times.

It does not use the wall clock, so equal arrivals give equal tokens at equal times. A step is simulated when it begins;
its tokens come out when it ends, plus the step-time model's streaming overhead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.cluster.records import Lost
from blis_tui.engine.events import Timeout, instance_order
from blis_tui.engine.records import Completed, Dropped, Rejected, Routed, StepFinished
from blis_tui.engine.request import Request, RequestState, under_adapter
from blis_tui.model import Workload
from blis_tui.runs.simulation import Simulation
from blis_tui.workload.interactive import InteractiveSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.live.serving.shared_prefixes import Content
    from blis_tui.model import Experiment


_TIMEOUT: Final = 5
"""Priority of a deadline among the events of an instance."""

OVER: Final = "over"
REJECTED: Final = "rejected"
UNSERVABLE: Final = "unservable"
LOST: Final = "lost"
ABORTED: Final = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedRequest:
    """A request as parsed by the endpoint."""

    prompt_tokens: int
    output_tokens: int
    content: Content
    tenant: str = ""
    model: str = ""
    adapter: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUpdate:
    """An update about a request at a time."""

    number: int
    time_us: int
    tokens: int
    """Number of its tokens that have come by then."""
    end: str = ""
    """How it ended: ``over``, ``rejected``, ``unservable``, ``lost`` or ``aborted``; empty = it has not."""
    reason: str = ""


@dataclass(slots=True)
class _LiveRequest:
    """A request in progress."""

    request: Request
    instance: int = -1
    announced_tokens: int = 0
    """Number of tokens whose time has been announced."""


class Core:
    """Requests in progress in one simulation.

    Args:
        experiment: the serving configuration; its workload and horizon are ignored.

    Attributes:
        simulation: the simulation.
        requests: all submitted requests, in order.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._source = LiveSource(self._ended)
        made = replace(experiment, workload=Workload(name="live"), horizon_us=None, warm_up_us=0, expect=())
        self.simulation = Simulation(made, check="off", source=self._source)
        self.requests: list[Request] = []
        self._live: dict[int, _LiveRequest] = {}
        self._at: dict[int, dict[int, _LiveRequest]] = {}
        self._numbers: dict[str, int] = {}
        self._news: list[tuple[int, int, RequestUpdate]] = []
        self._order = 0
        self._gone: dict[int, None] = {}
        self._reached_us = -1
        for kind, listen in (
            (Routed, self._routed),
            (StepFinished, self._stepped),
            (Completed, self._completed),
            (Rejected, self._rejected),
            (Dropped, self._dropped),
            (Lost, self._lost),
        ):
            self.simulation.subscribe(kind, listen)  # type: ignore[arg-type]  # each listener gets its own kind

    @property
    def now_us(self) -> int:
        """The time up to which everything has happened."""
        return self._reached_us

    @property
    def running(self) -> int:
        """Number of requests in progress."""
        return len(self._live)

    def submit(self, asked: SubmittedRequest, time_us: int) -> Request:
        """Let a request arrive at ``time_us``, or as soon as possible if the simulation is beyond that."""
        number = len(self.requests)
        arrival_us = max(time_us, self._reached_us + 1, self.requests[-1].arrival_us if self.requests else 0)
        content = asked.content
        request = Request(
            number,
            f"request_{number}",
            arrival_us,
            asked.prompt_tokens,
            asked.output_tokens,
            content.segments,
            tenant=asked.tenant,
            session_id=asked.session_id,
            model=asked.model,
            adapter=asked.adapter,
        )
        whole = (*content.segments, (content.answer, asked.output_tokens))
        request.content = under_adapter(asked.adapter, whole)
        self.requests.append(request)
        self._live[number] = _LiveRequest(request)
        self._numbers[request.request_id] = number
        self._source.give(request)
        self.simulation.cluster.pull_requests()
        return request

    def abort(self, number: int, time_us: int) -> None:
        """End the request of a client that is gone, like one whose deadline has come."""
        live = self._live.get(number)
        if live is None:
            return
        request = live.request
        at_us = max(time_us, self._reached_us + 1)
        request.deadline_us = at_us
        cluster = self.simulation.cluster
        if request.state in (RequestState.WAITING, RequestState.RUNNING):
            instance = cluster.instances[request.instance]
            timeout = Timeout("timeout", request, instance.timeout, instance.index)
            cluster.queue.push(at_us, instance_order(_TIMEOUT, instance.index), timeout)

    def next_us(self) -> int | None:
        """Time of the next event or output; None = there is none unless a request comes."""
        upcoming = self.simulation.peek()
        times = [] if upcoming is None else [upcoming.time_us]
        times += [self._news[0][0]] if self._news else []
        return min(times, default=None)

    def advance(self, until_us: int) -> list[RequestUpdate]:
        """Simulate up to ``until_us``; return the updates until then, in order.

        Raises:
            SimulationError: the simulation cannot go on.
        """
        self.simulation.run(until_us=until_us)
        self._reached_us = max(self._reached_us, until_us)
        if self._live and (self.simulation.cluster.pipeline.finished or self.simulation.peek() is None):
            self._strand()
        updates = []
        while self._news and self._news[0][0] <= until_us:
            news = heappop(self._news)[2]
            if news.end or news.number not in self._gone:
                updates.append(news)
        return updates

    def close(self) -> None:
        """Accept no more requests."""
        self._source.closed = True

    def _strand(self) -> None:
        """Tell the clients of all requests that nothing will happen to: no instance is up, and none will be."""
        for live in list(self._live.values()):
            self._end(live.request.request_id, self._reached_us, LOST, "no instance is up, and none will be")

    # ---- output of the simulation ----

    def _tell(self, number: int, time_us: int, tokens: int, end: str = "", reason: str = "") -> None:
        self._order += 1
        news = RequestUpdate(number=number, time_us=time_us, tokens=tokens, end=end, reason=reason)
        heappush(self._news, (time_us, self._order, news))

    def _routed(self, record: Routed) -> None:
        live = self._known(record.request_id)
        if live is not None:
            self._at.get(live.instance, {}).pop(live.request.index, None)
            live.instance = record.instance
            self._at.setdefault(record.instance, {})[live.request.index] = live

    def _stepped(self, record: StepFinished) -> None:
        """Announce the tokens of a step for its end."""
        instance = self.simulation.cluster.instances[record.instance]
        cohort, overhead_us = instance.batch.cohort, instance.latency.output_token_overhead_us
        end_us = record.time_us + record.duration_us
        for number, live in self._at.get(record.instance, {}).items():
            tokens = cohort.generated_tokens(live.request)
            if tokens > live.announced_tokens:
                live.announced_tokens = tokens
                self._tell(number, end_us + tokens * overhead_us, tokens)

    def _completed(self, record: Completed) -> None:
        self._end(record.request_id, record.time_us, OVER, "")

    def _rejected(self, record: Rejected) -> None:
        self._end(record.request_id, record.time_us, REJECTED, record.reason)

    def _dropped(self, record: Dropped) -> None:
        self._end(record.request_id, record.time_us, UNSERVABLE, record.reason)

    def _lost(self, record: Lost) -> None:
        self._end(record.request_id, record.time_us, LOST, record.reason)

    def _ended(self, request: Request, e2e_us: int) -> None:
        """Report aborted requests, which appear as timed out, and completed ones; records report the others."""
        if request.state is RequestState.TIMED_OUT:
            self._end(request.request_id, self.simulation.now_us, ABORTED, "")
        elif e2e_us >= 0 and (live := self._live.get(request.index)) is not None:
            self._tell(
                request.index, request.arrival_us + e2e_us, max(request.generated_tokens, live.announced_tokens), OVER
            )

    def _end(self, name: str, time_us: int, end: str, reason: str) -> None:
        live = self._known(name)
        if live is None:
            return
        del self._live[live.request.index], self._numbers[name]
        self._at.get(live.instance, {}).pop(live.request.index, None)
        if end != OVER:
            self._gone[live.request.index] = None  # tokens of the step in flight are not delivered any more
            self._tell(live.request.index, time_us, live.announced_tokens, end, reason)

    def _known(self, name: str) -> _LiveRequest | None:
        number = self._numbers.get(name)
        return None if number is None else self._live.get(number)


# Requests that come from outside while the simulation runs.


class LiveSource(InteractiveSource):
    """Delivers submitted requests in order; the submitter must also notify the cluster.

    Args:
        ended: called with each ended request and what its client measured; -1 = no answer.
    """

    def __init__(self, ended: Callable[[Request, int], None]) -> None:
        super().__init__((), None)
        self.closed = False
        self._ended = ended
        self._given: deque[Request] = deque()
        self._produced_so_far = 0

    def give(self, request: Request) -> None:
        """Add a request, which must not arrive before earlier ones."""
        self._given.append(request)
        self._due.append(request.arrival_us)

    @property
    def exhausted(self) -> bool:
        """Whether no request will come, which is so only when the endpoint has closed."""
        return self.closed and not self._given

    @property
    def silent(self) -> bool:
        """Whether no future request is known."""
        return not self._given

    @property
    def next_us(self) -> int:
        """Time of the next request."""
        return self._given[0].arrival_us if self._given else 1 << 62

    def next_request(self) -> Request | None:
        """Return the next request."""
        if not self._given:
            return None
        self._produced_so_far += 1
        self.sent = None
        return self._given.popleft()

    def on_ended(self, request: Request, e2e_us: int, now: int) -> None:  # noqa: ARG002  (the protocol's signature)
        """Pass on an ended request."""
        self._ended(request, e2e_us)

    def state(self) -> tuple[object, ...]:
        """Return how many requests there were, and which are to come."""
        return (self._produced_so_far, tuple((request.index, request.arrival_us) for request in self._given))
