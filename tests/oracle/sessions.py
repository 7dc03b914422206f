"""Sessions, written as plainly as possible, and a client of the engine with the same sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from blis_tui.cluster.records import SessionBegun, SessionContinued
from blis_tui.engine.request import Request, RequestState
from blis_tui.workload.arrivals import ConstantGaps
from blis_tui.workload.interactive import ClosedLoop, ClosedLoopSettings, InteractiveSource
from blis_tui.workload.sessions import Call, SessionRun

from . import draws as st
from .fleets import draw_fleet
from .instance import Job
from .oracle import _ALIVE, ARRIVAL, Event, Oracle
from .strategies import Scenario, draw_scenario, thought

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Segments
    from blis_tui.model import Experiment
    from blis_tui.workload.arrivals import Gaps

    from .draws import Draw
    from .strategies import Asked

_BACK_OFF_US: Final = 1_000_000


@dataclass(frozen=True)
class PlannedCall:
    """One call, from the request of another scenario, whose prompt is only the new text of the call."""

    asked: Asked
    wait_us: int
    after: tuple[int, ...]
    history: bool


class SessionScenario(Scenario):
    """Sessions instead of requests.

    ``users`` repeat the sessions one after the other; 0 = each starts once, at its time. With ``by_clock`` users do
    not wait for answers. There are at most ``most`` requests.
    """

    def __init__(
        self,
        experiment: Experiment,
        asked: tuple[Asked, ...],
        sessions: tuple[tuple[PlannedCall, ...], ...],
        *,
        users: int,
        by_clock: bool,
        most: int,
    ) -> None:
        super().__init__(experiment, asked)
        self.sessions = sessions
        self.users = users
        self.by_clock = by_clock
        self.most = most

    @property
    def tokens(self) -> int:
        """Upper bound for a prompt: everything said in a session."""
        longest = max(
            sum(one.asked.input_tokens + one.asked.output_tokens + 1 for one in session) for session in self.sessions
        )
        return longest * self.most

    def __repr__(self) -> str:
        listed = [f"{session}" for session in self.sessions]
        how = f"users: {self.users}, by the clock: {self.by_clock}, at most {self.most}"
        return "\n  ".join([super().__repr__(), how, *listed])

    def source(self) -> InteractiveSource:
        """The same for the engine."""
        return InteractiveSource([_SessionClient(self)], self.most)


def draw_sessions(draw: Draw) -> SessionScenario:
    """The requests of a scenario, combined into sessions."""
    kind = draw(st.integers(0, 2))
    scenario = draw_fleet(draw) if kind == 2 else draw_scenario(draw, starved=kind == 1)
    asked, found = list(scenario.asked), []
    while asked:
        count = draw(st.integers(1, min(4, len(asked))))
        calls: list[PlannedCall] = []
        for number, one in enumerate(asked[:count]):
            after: tuple[int, ...] = (number - 1,) if number else ()
            if number and not draw(st.integers(0, 2)):
                after = tuple(draw(st.lists(st.integers(0, number - 1), unique=True, max_size=number)))
            wait_us = draw(st.sampled_from((0, 0, 3, 40))) if after else 0
            calls.append(PlannedCall(one, wait_us, after, bool(draw(st.integers(0, 4)))))
        found.append(tuple(calls))
        del asked[:count]
    return SessionScenario(
        scenario.experiment,
        scenario.asked,
        tuple(found),
        users=draw(st.sampled_from((0, 0, 1, 3))),
        by_clock=not draw(st.integers(0, 4)),
        most=draw(st.integers(1, len(scenario.asked))),
    )


def _request(one: Asked, index: int, now: int, tokens: int, segments: Segments, session: str, number: int) -> Request:
    patience = one.deadline_us - one.arrival_us if one.deadline_us else 0
    made = Request(
        index,
        f"{one.name[0]}{index}",
        now,
        tokens,
        one.output_tokens,
        segments,
        one.slo_class,
        one.tenant,
        max(1, now + patience) if patience else 0,
        session,
        number,
    )
    made.declare(one.declared_tokens or None)
    made.reasoning = thought(index, one.output_tokens)
    return made


class _SessionClient:
    """The engine's client, its sessions and their start times."""

    def __init__(self, scenario: SessionScenario) -> None:
        self.gaps: Gaps = ConstantGaps(None, 1.0)  # type: ignore[arg-type]
        if scenario.users:
            self.gaps = ClosedLoop(ClosedLoopSettings(users=scenario.users), 0.0)
        self.sessions = self
        self._scenario = scenario
        self._begun = self._announced = self._last_us = 0

    def next_gap_us(self) -> int:
        if self._scenario.users:
            return 0
        if self._announced == len(self._scenario.sessions):
            return -1
        start = self._scenario.sessions[self._announced][0].asked.arrival_us
        self._announced += 1
        gap, self._last_us = start - self._last_us, start
        return gap

    def begin(self, user: int) -> SessionRun:
        session = self._scenario.sessions[self._begun % len(self._scenario.sessions)]
        name = f"talk-{self._begun}"
        self._begun += 1
        calls = [
            Call(
                one.asked.input_tokens,
                one.asked.output_tokens,
                one.wait_us,
                one.after,
                one.after[0] if one.after and one.history else -1,
            )
            for one in session
        ]
        return SessionRun(name, user, (), calls, paced_by_answers=not self._scenario.by_clock)

    def call(self, index: int, arrival_us: int, session: SessionRun, number: int) -> Request:
        segments, _ = session.send(number)
        scenario = self._scenario
        one = scenario.sessions[int(session.name.partition("-")[2]) % len(scenario.sessions)][number].asked
        tokens = sum(length for _, length in segments)
        made = _request(one, index, arrival_us, tokens, segments, session.name, number)
        made.content = session.content(number)
        return made

    def request(self, index: int, arrival_us: int, user: int) -> Request:
        raise AssertionError((index, arrival_us, user))

    def state(self) -> tuple[object, ...]:
        return (self._begun, self._announced, self._last_us)


class OpenSession:
    """A session in progress."""

    def __init__(self, number: int, user: int, calls: Sequence[PlannedCall]) -> None:
        self.number = number
        self.user = user
        self.calls = calls
        self.sent: dict[int, Job] = {}
        self.over: dict[int, int] = {}
        """Which calls have ended, and when."""
        self.broken = False


class Due(NamedTuple):
    """A prompt with a time; talk 0 = the beginning of one."""

    time_us: int
    user: int
    session: int
    call: int


class SessionOracle(Oracle):
    """A cluster whose clients hold sessions."""

    def __init__(self, scenario: SessionScenario, max_steps: int) -> None:
        super().__init__(scenario.experiment, [], max_steps)
        self._scenario = scenario
        self._sessions: dict[int, OpenSession] = {}
        self._whose: dict[Job, tuple[OpenSession, int]] = {}
        self._tokens: dict[Job, list[str]] = {}
        self._due: list[Due] = []
        if scenario.users:
            for user in range(scenario.users):
                self._when(Due(0, user, 0, -1))
        else:
            self._when(Due(scenario.sessions[0][0].asked.arrival_us, -1, 0, -1))

    @classmethod
    def of(cls, scenario: Scenario, max_steps: int) -> Self:
        assert isinstance(scenario, SessionScenario)
        return cls(scenario, max_steps)

    def _when(self, due: Due) -> None:
        self._due.append(due)
        self._plan(due.time_us, ARRIVAL, None)

    def _is_stale(self, event: Event) -> bool:
        if event.kind == ARRIVAL and event.instance < 0:
            return (
                len(self.jobs) == self._scenario.most or min(self._due, default=(event.time_us + 1,))[0] > event.time_us
            )
        return super()._is_stale(event)

    def _send_next(self, now: int) -> None:
        due = min(self._due)
        self._due.remove(due)
        assert due.time_us == now
        sessions = self._scenario.sessions
        if due.session:
            session = self._sessions[due.session]
            call = due.call
        else:
            number = len(self._sessions) + 1
            session = self._sessions[number] = OpenSession(number, due.user, sessions[(number - 1) % len(sessions)])
            call, *others = (place for place, one in enumerate(session.calls) if not one.after)
            for other in others:
                self._when(Due(now, due.user, number, other))
            if not self._scenario.users and number < len(sessions):
                self._when(Due(sessions[number][0].asked.arrival_us, -1, 0, -1))
        self._send_call(session, call, now)

    def _send_call(self, session: OpenSession, call: int, now: int) -> None:
        plan = session.calls[call]
        heard = session.sent[plan.after[0]] if plan.after and plan.history else None
        tokens: list[str] = []
        if heard is not None:
            tokens += self._tokens[heard][: heard.request.input_tokens + self._answer_tokens(heard)]
            for other in plan.after[1:]:
                answer = session.sent[other]
                prompt = answer.request.input_tokens
                tokens += self._tokens[answer][prompt : prompt + self._answer_tokens(answer)]
        tokens += [f"said {session.number} {call} {place}" for place in range(plan.asked.input_tokens)]
        # For comparisons of prompts: one segment per token, so that equal tokens are equal segments.
        segments = tuple((token, 1) for token in tokens)
        request = _request(plan.asked, len(self.jobs), now, len(tokens), segments, f"talk-{session.number - 1}", call)
        job = Job(request)
        tokens += [f"answered {session.number} {call} {place}" for place in range(request.output_tokens)]
        job.tokens = [(f"segment {token}", 0) for token in tokens]
        self._tokens[job] = tokens
        job.continued = True
        session.sent[call] = job
        self._whose[job] = (session, call)
        self.jobs.append(job)
        self._unanswered.append(job)
        self._arrival(job, now)
        name, after = request.session_id, tuple(session.sent[one].name for one in plan.after)
        if after:
            sent_us = {one: sent.request.arrival_us for one, sent in session.sent.items()}
            heard_us = sent_us if self._scenario.by_clock else session.over
            latest = max((one for one in heard_us if one in plan.after), key=lambda one: heard_us[one])
            details = (name, call, after, session.sent[latest].name, now - heard_us[latest])
            known = len(segments) - plan.asked.input_tokens
            self.records.append(SessionContinued(self.events, now, job.name, *details, known))
        else:
            self.records.append(SessionBegun(self.events, now, job.name, name, len(session.calls)))
        if self._scenario.by_clock:
            for later, one in enumerate(session.calls):
                if call in one.after and all(before in session.sent for before in one.after):
                    start = max(session.sent[before].request.arrival_us for before in one.after)
                    self._when(Due(start + one.wait_us, session.user, session.number, later))

    def _answer_tokens(self, job: Job) -> int:
        return job.request.output_tokens if self._scenario.by_clock else job.answer_tokens

    def _answer(self, now: int) -> None:
        ended = [job for job in self._unanswered if job.state not in _ALIVE]
        self._unanswered = [job for job in self._unanswered if job.state in _ALIVE]
        for job in ended:
            session, call = self._whose[job]
            done = job.state is RequestState.COMPLETED
            at = max(now, job.request.arrival_us + job.e2e_us(self.instances[job.instance].latency)) if done else now
            if session.broken:
                continue
            session.over[call] = at
            if not done and not self._scenario.by_clock:
                session.broken = True
                self._due = [due for due in self._due if due.session != session.number]
            elif not self._scenario.by_clock:
                for later, one in enumerate(session.calls):
                    if call in one.after and all(before in session.over for before in one.after):
                        start = max(session.over[before] for before in one.after)
                        self._when(Due(start + one.wait_us, session.user, session.number, later))
            if (session.broken or len(session.over) == len(session.calls)) and session.user >= 0:
                wait_us = 0 if done or job.state is RequestState.TIMED_OUT else _BACK_OFF_US
                self._when(Due(max(session.over.values()) + wait_us, session.user, 0, -1))
