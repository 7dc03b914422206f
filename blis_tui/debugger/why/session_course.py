"""The state of a session at an event: its calls, what it waits for, and how much of its history was cached.

This is read from the tape. The experiment defines which calls a turn consists of, and which wait for which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.records import described

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.debugger.event_store import EventStore, RequestEvent
    from blis_tui.debugger.session_log import SentCall
    from blis_tui.model import Client, Experiment, Session

RUNNING: Final = "running"
THINKING: Final = "think time"
TOOL: Final = "tool wait"
COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
UNFINISHED: Final = "unfinished"
"""The run ended before the session did."""


@dataclass(frozen=True, slots=True)
class TurnCall:
    """One call of every turn."""

    name: str
    after: tuple[int, ...]
    """Indices of the calls of the turn that it waits for; empty = it starts the turn."""


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """What each turn of a client's sessions consists of."""

    calls: tuple[TurnCall, ...]
    starts: tuple[int, ...]
    """Indices of the calls that start a turn."""
    ends: tuple[int, ...]
    """Indices of the calls for which no other call of the turn waits."""
    by_clock: bool
    """Whether calls wait until the calls before them are sent, instead of until they are answered."""

    def waits_for(self, call: int) -> tuple[int, ...]:
        """Return the calls that a call waits for, all as positions in the session."""
        turn, place = divmod(call, len(self.calls))
        first = turn * len(self.calls)
        if place not in self.starts:
            return tuple(first + offset for offset in self.calls[place].after)
        return tuple(first - len(self.calls) + offset for offset in self.ends) if turn else ()


def turn_plan(session: Session) -> TurnPlan:
    """Return what a turn of such sessions consists of."""
    places: dict[str, tuple[int, ...]] = {}
    calls: list[TurnCall] = []
    for session_call in session.calls:
        first = len(calls)
        places[session_call.id] = tuple(range(first, first + session_call.parallel))
        after = tuple(place for name in session_call.after for place in places[name])
        calls += [TurnCall(session_call.id, after)] * session_call.parallel
    calls = calls or [TurnCall("", ())]
    awaited = {place for turn_call in calls for place in turn_call.after}
    return TurnPlan(
        calls=tuple(calls),
        starts=tuple(place for place, turn_call in enumerate(calls) if not turn_call.after),
        ends=tuple(place for place in range(len(calls)) if place not in awaited),
        by_clock=session.pacing == "clock",
    )


_UNKNOWN: Final = TurnPlan((TurnCall("", ()),), (0,), (0,), by_clock=False)


def plan_of(experiment: Experiment, session: str) -> TurnPlan:
    """Return what a turn of a session consists of, according to its client."""
    client = client_of(experiment.workload.clients, session)
    return _UNKNOWN if client is None or client.session is None else turn_plan(client.session)


def client_of(clients: Iterable[Client], session: str) -> Client | None:
    """Return the client of a session."""
    name = session.rpartition("-")[0]
    return next((client for client in clients if client.id == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCourse:
    """A sent call, as far as it is known at an event."""

    sent: SentCall
    call: int
    """Its position in the session, from 0."""
    name: str
    """Name of the request."""
    time_us: int
    """Time of sending."""
    input_tokens: int
    cached_tokens: int
    """Prompt tokens that were cached when it was first scheduled; -1 = not scheduled yet."""
    first_token_us: int
    """When its client received the first token; -1 = not yet."""
    end: RequestEvent | None

    @property
    def answered(self) -> bool:
        """Whether it completed."""
        return self.end is not None and described(self.end.what).ends == "done"

    @property
    def output_tokens(self) -> int:
        """Length of its answer; 0 before it completed."""
        return self.end.first if self.end is not None and self.answered else 0

    @property
    def end_us(self) -> int:
        """When its client knows how it ended; -1 = not yet."""
        if self.end is None:
            return -1
        return max(self.end.time_us, self.time_us + self.end.second) if self.answered else self.end.time_us


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCourse:
    """A session, as far as it is known at an event."""

    name: str
    plan: TurnPlan
    length: int
    """Number of calls if each is answered."""
    began_us: int
    now_us: int
    state: str
    since_us: int
    """Start of the current state, in microseconds."""
    calls: tuple[CallCourse, ...]
    """The sent calls, in the order of sending."""
    later: tuple[CallCourse, ...]
    """Calls known to be sent later, as they are at the end of the recorded run."""

    @property
    def ended(self) -> bool:
        """Whether the session does not continue in this run."""
        return self.state in (COMPLETED, CANCELLED, UNFINISHED)

    @property
    def turn(self) -> int:
        """The latest turn of which a call was sent, from 1."""
        return max(call.call for call in self.calls) // len(self.plan.calls) + 1

    @property
    def turns(self) -> int:
        """Number of turns if each call is answered."""
        return -(-self.length // len(self.plan.calls))

    @property
    def in_flight(self) -> int:
        """Number of calls that were sent and have not ended."""
        return len([call for call in self.calls if call.end is None])

    @property
    def context_tokens(self) -> int:
        """The longest prompt so far, with its answer if there is one."""
        return max(call.input_tokens + call.output_tokens for call in self.calls)

    @property
    def history(self) -> tuple[int, int]:
        """For the scheduled calls: prompt tokens from earlier calls, and how many of those were cached."""
        known = [call for call in self.calls if call.cached_tokens >= 0 and call.sent.history_tokens]
        histories = [call.sent.history_tokens for call in known]
        return sum(histories), sum(min(call.cached_tokens, call.sent.history_tokens) for call in known)


def read_session(
    tape: EventStore,
    experiment: Experiment,
    session: int,
    until: int,
    settled: int,
    *,
    over: bool = False,
    ahead: bool = False,
) -> SessionCourse:
    """Return a session that has started, as of an event.

    Args:
        tape: the recorded run.
        experiment: the simulated experiment.
        session: its index among the sessions.
        until: the last event to include.
        settled: the last event whose results are in effect.
        over: whether the run ends there.
        ahead: whether to include calls that are known to be sent later.
    """
    log = tape.sessions
    plan = plan_of(experiment, log.name(session))
    sent = log.calls(session)
    placed = list(zip(sent, _places(sent, plan), strict=True))
    calls = tuple(
        _call(tape, sent_call, place, until, settled) for sent_call, place in placed if sent_call.event <= until
    )
    end, length, now_us = log.end(session, until), log.length(session), tape.time_us(until)
    if end is not None:
        completed = end[1]
        state = COMPLETED if completed else CANCELLED
        since_us = max(call.end_us for call in calls) if completed else tape.time_us(end[0])
    elif over:
        state, since_us = UNFINISHED, now_us
    else:
        state, since_us = _state(plan, calls, length)
    return SessionCourse(
        name=log.name(session),
        plan=plan,
        length=length,
        began_us=tape.time_us(log.began(session)),
        now_us=now_us,
        state=state,
        since_us=since_us,
        calls=calls,
        later=tuple(
            _call(tape, sent_call, place, len(tape), len(tape))
            for sent_call, place in placed
            if ahead and sent_call.event > until
        ),
    )


def _places(sent: Sequence[SentCall], plan: TurnPlan) -> list[int]:
    """Return the position of each call in the session; the calls that start it are sent in order."""
    starts = iter(plan.starts)
    return [sent_call.call if sent_call.call >= 0 else next(starts, 0) for sent_call in sent]


def _call(tape: EventStore, sent: SentCall, place: int, until: int, settled: int) -> CallCourse:
    name = tape.name(sent.request)
    entries = tape.life(name, until, settled)
    again = _latest(entries, "retried")
    scheduled = next((entry for entry in entries[again:] if entry.what == "scheduled"), None)
    # A first token that was discarded is none.
    kept = again if tape.keeps_output else max(again, _latest(entries, "preempted"))
    first = next((entry for entry in reversed(entries[kept:]) if entry.what == "first-token"), None)
    return CallCourse(
        sent=sent,
        call=place,
        name=name,
        time_us=entries[0].time_us,
        input_tokens=entries[0].first,
        cached_tokens=-1 if scheduled is None else scheduled.first,
        first_token_us=-1 if first is None else entries[0].time_us + first.second,
        end=next((entry for entry in reversed(entries) if described(entry.what).ends), None),
    )


def _latest(entries: Sequence[RequestEvent], what: str) -> int:
    """Return the index of the latest entry of a kind; 0 = there is none, because a life begins with an arrival."""
    return next((at for at in range(len(entries) - 1, 0, -1) if entries[at].what == what), 0)


def _state(plan: TurnPlan, calls: Sequence[CallCourse], length: int) -> tuple[str, int]:
    """Return what an unfinished session is doing, and since when."""
    in_flight = [course.time_us for course in calls if course.end is None]
    if in_flight:
        return RUNNING, min(in_flight)
    known = {course.call: course.time_us if plan.by_clock else course.end_us for course in calls}
    latest = max(known)
    for call in range(min(length, (latest // len(plan.calls) + 2) * len(plan.calls))):
        awaited = plan.waits_for(call)
        if call not in known and awaited and all(earlier in known for earlier in awaited):
            begins = call % len(plan.calls) in plan.starts
            return (THINKING if begins else TOOL), max(known[earlier] for earlier in awaited)
    return THINKING, max(known.values())
