"""Requests of clients that wait for answers: closed-loop users, and clients with sessions."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.engine.request import RequestState
from blis_tui.model.plug_ins import setting
from blis_tui.workload.arrivals import ARRIVALS, CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.streams import Stream
    from blis_tui.engine.request import Request
    from blis_tui.workload.arrivals import Gaps
    from blis_tui.workload.sessions import Sent, SessionRun


BACK_OFF_US: Final = 1_000_000
"""Waiting time of a user whose prompt was rejected or lost; without it, rejections could repeat for ever."""

_NO_USER: Final = -1
_NONE: Final = 0
"""Number that stands for no session."""
_START: Final = -1
"""Call number of a session that has not begun."""
_NEVER: Final = 1 << 62


class Sessions(Protocol):
    """The sessions of a client."""

    def begin(self, user: int) -> SessionRun:
        """Begin the next session, held by that user; -1 = no particular user."""


class Sender(Protocol):
    """A client."""

    @property
    def gaps(self) -> Gaps:
        """Its arrival process."""

    @property
    def sessions(self) -> Sessions | None:
        """Its sessions; ``None`` = its requests are independent."""

    def next_gap_us(self) -> int:
        """Time to its next request, from the last arrival or, in a closed loop, from the answer; -1 = there is none."""

    def request(self, index: int, arrival_us: int, user: int) -> Request:
        """Return the request that arrives at that time from that user; -1 = there are no users."""

    def call(self, index: int, arrival_us: int, session: SessionRun, number: int) -> Request:
        """Return a call of a session that arrives at that time."""

    def state(self) -> tuple[object, ...]:
        """Return everything that determines further requests, as plain values (for digests)."""


class Due(NamedTuple):
    """A prompt whose time is known; sorts in the order of sending."""

    time_us: int
    client: int
    user: int
    session: int
    call: int


class SessionCounts(NamedTuple):
    """Session counts so far.

    Attributes:
        started: sessions whose first prompt was sent.
        completed: sessions of which every call was answered.
        cancelled: sessions that ended because a call was not answered.
        unfinished: the names of the others.
        planned: all calls of the started sessions, sent or not.
        first_us: when the first session started.
        last_us: when the latest one did; -1 = none has, or a user starts them after the answers to others.
    """

    started: int
    completed: int
    cancelled: int
    unfinished: tuple[str, ...]
    planned: int
    first_us: int
    last_us: int

    @property
    def due_calls_per_s(self) -> float | None:
        """Calls due per second: sessions started per second (from the first to the latest) x calls that each has.

        It does not depend on answers. None = no time lies between two starts, or these depend on answers.
        """
        if self.last_us <= self.first_us:
            return None
        return 1_000_000 * (self.started - 1) * self.planned / (self.started * (self.last_us - self.first_us))


class InteractiveSource:
    """Requests of a workload in which clients wait for answers.

    At the same microsecond, clients come first, then users, then sessions, each in order. A client's prompts outside
    sessions are drawn in the order in which they are sent, by any user.

    Args:
        clients: the clients of the workload; some of them wait for answers.
        requests_limit: stop after this number of requests; ``None`` = never.
        sessions_limit: number of sessions to begin; ``None`` = unlimited.

    Attributes:
        sent: details of the latest request for its record; ``None`` = it belongs to no session.
    """

    def __init__(
        self, clients: Sequence[Sender], requests_limit: int | None, sessions_limit: int | None = None
    ) -> None:
        self._clients = clients
        self._limit = requests_limit
        self._sessions_limit = sessions_limit
        self._produced = self._started = self._completed = self._cancelled = 0
        self._planned = 0
        self._first_us = self._last_us = -1
        self.sent: Sent | None = None
        self._senders: dict[int, Due] = {}
        self._sessions: dict[int, SessionRun] = {}
        self._next: list[Due] = []
        for number, client in enumerate(self._clients):
            if isinstance(client.gaps, ClosedLoop):
                self._next += [Due(0, number, user, _NONE, _START) for user in range(client.gaps.users)]
            elif (gap := client.next_gap_us()) >= 0:
                self._next.append(Due(gap, number, _NO_USER, _NONE, _START))
        heapify(self._next)
        self._due = [due.time_us for due in sorted(self._next)]

    @property
    def exhausted(self) -> bool:
        """Whether no request will come, whatever ends."""
        return self._produced == self._limit or not (self._next or self._senders)

    @property
    def silent(self) -> bool:
        """Whether no request will come unless one ends."""
        return self._produced == self._limit or not self._next

    @property
    def next_us(self) -> int:
        """Time of the next known request."""
        return _NEVER if self.silent else self._next[0].time_us

    @property
    def sessions(self) -> SessionCounts | None:
        """Session counts so far; ``None`` = no client has sessions."""
        if all(client.sessions is None for client in self._clients):
            return None
        unfinished = tuple(session.name for session in self._sessions.values())
        spread = (self._planned, self._first_us, self._last_us)
        return SessionCounts(self._started, self._completed, self._cancelled, unfinished, *spread)

    def audit(self) -> str:
        """Check the books of sessions; return what is wrong, or an empty string."""
        ended, going = self._completed + self._cancelled, len(self._sessions)
        if self._started != ended + going:
            return f"{self._started} sessions began, but {ended} have ended and {going} have not"
        alive = {due.session: None for due in (*self._next, *self._senders.values())}
        stuck = [session.name for number, session in self._sessions.items() if number not in alive]
        return f"session {stuck[0]} has not ended, and no call of it is sent or will be" if stuck else ""

    def pop_due(self) -> list[int]:
        """Return arrival times, in microseconds, that have become known since the last call."""
        due, self._due = self._due, []
        return due

    def next_request(self) -> Request | None:
        """Return the earliest known request; ``None`` = there is none."""
        if self.silent:
            return None
        index = self._produced
        self._produced = index + 1
        due = heappop(self._next)
        arrival_us, number, user, _, call = due
        client = self._clients[number]
        if call == _START and user < 0 and (gap := client.next_gap_us()) >= 0:
            self._schedule(Due(arrival_us + gap, number, user, _NONE, _START))
        if client.sessions is None:
            if user >= 0:
                self._senders[index] = due
            self.sent = None
            return client.request(index, arrival_us, user)
        if call == _START:
            due = self._begin(due, client.sessions)
        session = self._sessions[due.session]
        self._senders[index] = due
        request = client.call(index, arrival_us, session, due.call)
        self.sent = session.tell(due.call, request)
        if not session.paced_by_answers:
            self._follow(due, session.follow(due.call, arrival_us))
        return request

    def on_ended(self, request: Request, e2e_us: int, now: int) -> None:
        """Handle the end of a request, which may lie ahead; ``e2e_us`` is what its client measured, -1 = no answer."""
        due = self._senders.pop(request.index, None)
        if due is None:
            return
        answered = e2e_us >= 0
        if answered:
            now = max(now, request.arrival_us + e2e_us)
        if due.session != _NONE:
            session = self._sessions.get(due.session)
            if session is None or not self._end_call(due, session, request, now, answered=answered):
                return
            now = max(now, session.ended_us)
        if due.user >= 0:
            wait_us = 0 if answered or request.state is RequestState.TIMED_OUT else BACK_OFF_US
            start = now + wait_us + self._clients[due.client].next_gap_us()
            self._schedule(Due(start, due.client, due.user, _NONE, _START))

    def _begin(self, start: Due, sessions: Sessions) -> Due:
        """Begin a session: send its first call at once, and schedule others that wait for no call."""
        self._started += 1
        if self._started == self._sessions_limit:
            self._keep([due for due in self._next if not self._begins_session(due)])
        session = self._sessions[self._started] = sessions.begin(start.user)
        self._planned += session.unanswered
        if start.user == _NO_USER:
            self._first_us = start.time_us if self._first_us < 0 else self._first_us
            self._last_us = start.time_us
        first, *others = (start._replace(session=self._started, call=call) for call in session.begin())
        for other in others:
            self._schedule(other._replace(time_us=start.time_us + session.offset_us(other.call)))
        return first

    def _end_call(self, due: Due, session: SessionRun, request: Request, now: int, *, answered: bool) -> bool:
        """Handle the end of a session's call; return whether the session has ended, too."""
        session.unanswered -= 1
        session.ended_us = max(session.ended_us, now)
        session.failed = session.failed or not answered
        if session.paced_by_answers:
            if not answered:
                self._cancel(due.session, session)
                return True
            self._follow(due, session.follow(due.call, now, request.answer_tokens))
        if session.unanswered:
            return False
        del self._sessions[due.session]
        if session.failed:
            self._cancelled += 1
        else:
            self._completed += 1
        return True

    def _cancel(self, number: int, session: SessionRun) -> None:
        """Cancel the rest of a session."""
        del self._sessions[number]
        self._cancelled += 1
        if session.scheduled:
            self._keep([due for due in self._next if due.session != number])

    def _keep(self, due: list[Due]) -> None:
        """Keep only these of all scheduled prompts."""
        self._next = due
        heapify(due)

    def _begins_session(self, due: Due) -> bool:
        return due.session == _NONE and self._clients[due.client].sessions is not None

    def _follow(self, before: Due, calls: Sequence[tuple[int, int]]) -> None:
        for call, time_us in calls:
            self._schedule(before._replace(time_us=time_us, call=call))

    def _schedule(self, due: Due) -> None:
        if self._started == self._sessions_limit and self._begins_session(due):
            return
        heappush(self._next, due)
        self._due.append(due.time_us)

    def state(self) -> tuple[object, ...]:
        """Return requests so far, schedules, pending answers, and stream positions."""
        return (
            self._produced,
            tuple(sorted(self._next)),
            tuple(self._senders.items()),
            tuple(client.state() for client in self._clients),
            (self._started, self._completed, self._cancelled),
            tuple((number, session.state()) for number, session in self._sessions.items()),
        )


# A closed loop: users who send their next prompt when the answer to the last one is complete.
#
# The load therefore follows the cluster: slower answers, fewer requests. ``vllm bench serve --max-concurrency`` and
# GuideLLM's concurrent profile load a server this way. A workload may also have clients with other arrivals.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoopSettings:
    """Settings of a closed loop."""

    users: int = setting(
        "Users; all send their first prompt at the start, and the next one when the answer is complete.",
        default=1,
        minimum=1,
        maximum=1_000_000,
        examples=(64,),
    )


@ARRIVALS.plugin(
    CLOSED_LOOP, "Users who each send the next prompt when the answer to the last is complete.", ClosedLoopSettings
)
class ClosedLoop:
    """A fixed number of users.

    Attributes:
        users: how many.
    """

    def __init__(self, settings: ClosedLoopSettings, mean_us: float) -> None:  # noqa: ARG002
        self.users = settings.users

    def sample(self, stream: Stream) -> int:  # noqa: ARG002  (the protocol's signature)
        """Return 0, the time in microseconds from the end of an answer to the user's next prompt."""
        return 0
