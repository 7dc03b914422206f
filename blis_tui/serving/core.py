"""The simulation behind the endpoint: requests go in at their times, tokens come out at theirs.

Nothing here knows the clock of the wall, so equal arrivals give equal tokens at equal times. A step is simulated when
it begins; its tokens come out when it ends, and to that comes what the step-time model says of streaming.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.cluster.records import Lost
from blis_tui.engine.events import Timeout, instance_order
from blis_tui.engine.records import Completed, Dropped, Rejected, Routed, StepFinished
from blis_tui.engine.request import Request, RequestState, under_adapter
from blis_tui.simulation import Simulation
from blis_tui.spec.model import Workload
from blis_tui.workload.interactive import InteractiveSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.serving.content import Content
    from blis_tui.spec.model import Experiment


_TIMEOUT: Final = 5
"""The priority of a deadline among the events of an instance."""

OVER: Final = "over"
REJECTED: Final = "rejected"
UNSERVABLE: Final = "unservable"
LOST: Final = "lost"
ABORTED: Final = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as the endpoint understood it."""

    prompt_tokens: int
    output_tokens: int
    content: Content
    tenant: str = ""
    model: str = ""
    adapter: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What comes of a request at a time."""

    number: int
    time_us: int
    tokens: int
    """How many of its tokens have come by then."""
    end: str = ""
    """How it has ended: ``over``, ``rejected``, ``unservable``, ``lost`` or ``aborted``; empty = it has not."""
    reason: str = ""


@dataclass(slots=True)
class _Live:
    """A request under way."""

    request: Request
    instance: int = -1
    told: int = 0
    """Tokens whose time has been announced."""


class Core:
    """Requests under way in one simulation.

    Args:
        experiment: what serves; its workload and horizon do not count.

    Attributes:
        simulation: the simulation.
        requests: all that were asked for, in order.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._source = LiveSource(self._ended)
        made = replace(experiment, workload=Workload(name="live"), horizon_us=None, warm_up_us=0, expect=())
        self.simulation = Simulation(made, check="off", source=self._source)
        self.requests: list[Request] = []
        self._live: dict[int, _Live] = {}
        self._at: dict[int, dict[int, _Live]] = {}
        self._numbers: dict[str, int] = {}
        self._news: list[tuple[int, int, News]] = []
        self._order = 0
        self._gone: dict[int, None] = {}
        self._reached_us = -1
        for kind, listen in (
            (Routed, self._routed),
            (StepFinished, self._stepped),
            (Completed, self._completed),
            (Rejected, self._turned_away),
            (Dropped, self._dropped),
            (Lost, self._lost),
        ):
            self.simulation.subscribe(kind, listen)  # type: ignore[arg-type]  # each hears its own kind

    @property
    def now_us(self) -> int:
        """Up to when everything has happened."""
        return self._reached_us

    @property
    def running(self) -> int:
        """Requests under way."""
        return len(self._live)

    def submit(self, asked: Asked, time_us: int) -> Request:
        """A request arrives, then or as soon as the simulation has not got beyond that."""
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
        self._live[number] = _Live(request)
        self._numbers[request.request_id] = number
        self._source.give(request)
        self.simulation.cluster.hear()
        return request

    def abort(self, number: int, time_us: int) -> None:
        """A client has gone: its request ends then, as one whose deadline has come."""
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
        """When something happens or comes out next; None = nothing will, unless a request comes."""
        upcoming = self.simulation.peek()
        times = [] if upcoming is None else [upcoming.time_us]
        times += [self._news[0][0]] if self._news else []
        return min(times, default=None)

    def advance(self, until_us: int) -> list[News]:
        """Let everything happen up to then; returns what has come out, in order.

        Raises:
            SimulationError: the simulation cannot go on.
        """
        self.simulation.run(until_us=until_us)
        self._reached_us = max(self._reached_us, until_us)
        found = []
        while self._news and self._news[0][0] <= until_us:
            news = heappop(self._news)[2]
            if news.end or news.number not in self._gone:
                found.append(news)
        return found

    def close(self) -> None:
        """No request will come any more."""
        self._source.closed = True

    # ---- what the simulation tells ----

    def _tell(self, number: int, time_us: int, tokens: int, end: str = "", reason: str = "") -> None:
        self._order += 1
        news = News(number=number, time_us=time_us, tokens=tokens, end=end, reason=reason)
        heappush(self._news, (time_us, self._order, news))

    def _routed(self, record: Routed) -> None:
        live = self._known(record.request_id)
        if live is not None:
            self._at.get(live.instance, {}).pop(live.request.index, None)
            live.instance = record.instance
            self._at.setdefault(record.instance, {})[live.request.index] = live

    def _stepped(self, record: StepFinished) -> None:
        """Announce the tokens of a step, for when it ends."""
        instance = self.simulation.cluster.instances[record.instance]
        cohort, overhead_us = instance.batch.cohort, instance.latency.output_token_overhead_us
        end_us = record.time_us + record.duration_us
        for number, live in self._at.get(record.instance, {}).items():
            tokens = cohort.generated_tokens(live.request)
            if tokens > live.told:
                live.told = tokens
                self._tell(number, end_us + tokens * overhead_us, tokens)

    def _completed(self, record: Completed) -> None:
        self._end(record.request_id, record.time_us, OVER, "")

    def _turned_away(self, record: Rejected) -> None:
        self._end(record.request_id, record.time_us, REJECTED, record.reason)

    def _dropped(self, record: Dropped) -> None:
        self._end(record.request_id, record.time_us, UNSERVABLE, record.reason)

    def _lost(self, record: Lost) -> None:
        self._end(record.request_id, record.time_us, LOST, record.reason)

    def _ended(self, request: Request, e2e_us: int) -> None:
        """Requests that timed out were aborted: others are told of by their records."""
        if request.state is RequestState.TIMED_OUT:
            self._end(request.request_id, self.simulation.now_us, ABORTED, "")
        elif e2e_us >= 0 and (live := self._live.get(request.index)) is not None:
            self._tell(request.index, request.arrival_us + e2e_us, max(request.generated_tokens, live.told), OVER)

    def _end(self, name: str, time_us: int, end: str, reason: str) -> None:
        live = self._known(name)
        if live is None:
            return
        del self._live[live.request.index], self._numbers[name]
        self._at.get(live.instance, {}).pop(live.request.index, None)
        if end != OVER:
            self._gone[live.request.index] = None  # tokens of the step under way do not come any more
            self._tell(live.request.index, time_us, live.told, end, reason)

    def _known(self, name: str) -> _Live | None:
        number = self._numbers.get(name)
        return None if number is None else self._live.get(number)


# Requests that come from outside while the simulation runs.


class LiveSource(InteractiveSource):
    """Hands over what it was given, in order; what gives it a request also tells the cluster.

    Args:
        ended: called with each request that has come to its end, and what its client measured; -1 = no answer.
    """

    __slots__ = ("_ended", "_given", "_produced_so_far", "closed")

    def __init__(self, ended: Callable[[Request, int], None]) -> None:
        super().__init__((), None)
        self.closed = False
        self._ended = ended
        self._given: deque[Request] = deque()
        self._produced_so_far = 0

    def give(self, request: Request) -> None:
        """One more; it does not arrive before those that were given already."""
        self._given.append(request)
        self._due.append(request.arrival_us)

    @property
    def exhausted(self) -> bool:
        """Whether no request will come: only when the endpoint has closed."""
        return self.closed and not self._given

    @property
    def silent(self) -> bool:
        """Whether no request is known that will come."""
        return not self._given

    @property
    def next_us(self) -> int:
        """When the next one comes."""
        return self._given[0].arrival_us if self._given else 1 << 62

    def next_request(self) -> Request | None:
        """The next one."""
        if not self._given:
            return None
        self._produced_so_far += 1
        self.sent = None
        return self._given.popleft()

    def on_ended(self, request: Request, e2e_us: int, now: int) -> None:
        """A request has come to its end."""
        del now
        self._ended(request, e2e_us)

    def state(self) -> tuple[object, ...]:
        """How many there were, and which are to come."""
        return (self._produced_so_far, tuple((one.index, one.arrival_us) for one in self._given))
