"""Recorded sessions replayed as a closed loop: the next prompt is sent after the answer to the last.

The time for thinking or tool calls is the time from an answer to the next prompt in the trace. If the file does not say
when answers were complete, the time between the prompts is used, which is too long, as it includes the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import declared_segments, under_adapter
from blis_tui.workload.arrivals import PoissonGaps
from blis_tui.workload.interactive import InteractiveSource
from blis_tui.workload.sessions import Call, SessionRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.engine.request import Request, Segments
    from blis_tui.workload.arrivals import Gaps
    from blis_tui.workload.traces.trace_table import TraceTable

_NO_GAPS: Final = PoissonGaps(None, 1.0)
"""A placeholder, as the times are recorded."""


@dataclass(frozen=True, slots=True)
class TracedSession:
    """A recorded session.

    Attributes:
        name: its name in the file.
        rows: its requests, by their rows in the table.
        calls: its requests, with what each waited for.
        declared: whether the file gives the prompts' contents; otherwise the history is derived from their lengths.
        drops_reasoning: whether prompts are too short to contain the reasoning of answers.
    """

    name: str
    rows: tuple[int, ...]
    calls: tuple[Call, ...]
    declared: bool
    drops_reasoning: bool


class TraceSessions:
    """The sessions of a trace, in order of their first prompts, and the requests that belong to none.

    Args:
        table: the trace, which is kept and never changed.
    """

    def __init__(self, table: TraceTable) -> None:
        self.table = table
        self.alone: list[int] = []
        rows: dict[str, list[int]] = {}
        for row in range(len(table)):
            name = table.session(row)
            rows.setdefault(name, []).append(row) if name else self.alone.append(row)
        timed = any(table.answered_us(row) >= 0 for row in range(len(table)))
        self.sessions = [_recorded(table, name, numbers, timed=timed) for name, numbers in rows.items()]


def _recorded(table: TraceTable, name: str, rows: list[int], *, timed: bool) -> TracedSession:
    """Infer a session from its requests; ``timed``: the trace says when answers were complete."""
    rows.sort(key=lambda row: (table.arrival_us(row), table.round(row), row))
    requests = [table.request(row) for row in rows]
    arrivals = [table.recorded_us(row) for row in rows]
    ends = [table.answered_us(row) for row in rows]
    declared = all(_length(call.segments) == call.input_tokens for call in requests)
    links = list(_links(arrivals, ends) if timed else _links_by_prompts(arrivals))
    heads = [_length(call.segments) for call in requests]
    histories = [after[0] if after else -1 for after, _ in links]
    kept = [_new_text(requests, heads, number, earlier, dropped=False) for number, earlier in enumerate(histories)]
    drops = not declared and any(length < 1 for length in kept)
    if drops:
        less = [_new_text(requests, heads, number, earlier, dropped=True) for number, earlier in enumerate(histories)]
        drops = less != kept and all(length >= 1 for length in less)
        kept = less if drops else kept
    calls = []
    for number, (after, wait_us) in enumerate(links):
        request, history = requests[number], histories[number]
        if declared:
            tokens = request.segments[-1][1]
        elif kept[number] < 1:
            tokens, history = request.input_tokens - heads[number], -1
        else:
            tokens = kept[number]
        thought = 0 if request.reasoning is None else request.reasoning.tokens
        calls.append(Call(tokens, request.output_tokens, wait_us, after, history, thought))
    return TracedSession(name, tuple(rows), tuple(calls), declared, drops)


def _new_text(requests: Sequence[Request], heads: Sequence[int], number: int, history: int, *, dropped: bool) -> int:
    """Number of a prompt's tokens in addition to its history; less than 1 = the history is not in it."""
    if history < 0:
        return max(1, requests[number].input_tokens - heads[number])
    before = requests[history]
    thought = before.reasoning.tokens if dropped and before.reasoning is not None else 0
    return requests[number].input_tokens - before.input_tokens - before.output_tokens + thought


def _links(arrivals: Sequence[int], ends: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Infer what each call waited for, and for how long: the answers that had come and that no earlier call waited for.

    Calls sent before an answer came are parallel to that call: they wait for what it waited for. Nothing waits for a
    call that never got an answer (its end is negative).
    """
    yield (), 0
    waiting = [0]
    last: tuple[int, ...] = ()
    for number in range(1, len(arrivals)):
        if came := tuple(request for request in waiting if 0 <= ends[request] <= arrivals[number]):
            last = came
            waiting = [request for request in waiting if request not in last]
        waiting.append(number)
        yield last, max(0, arrivals[number] - max((ends[earlier] for earlier in last), default=arrivals[0]))


def _links_by_prompts(arrivals: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Let each call wait for the one before it, and for the time between the two."""
    yield (), 0
    for number in range(1, len(arrivals)):
        yield (number - 1,), max(0, arrivals[number] - arrivals[number - 1])


def _length(segments: Segments) -> int:
    return whole_sum([tokens for _, tokens in segments])


class TracedRun(SessionRun):
    """A session in progress whose prompts were recorded.

    Attributes:
        recorded: the recorded session.
    """

    def __init__(self, recorded: TracedSession, head: Segments, prompts: Sequence[Segments]) -> None:
        super().__init__(recorded.name, -1, head, recorded.calls, paced_by_answers=True)
        self.recorded = recorded
        self.drops_reasoning = recorded.drops_reasoning
        self._prompts = prompts

    def send(self, number: int) -> tuple[Segments, int]:
        """Send a call: return its prompt, as recorded or built from its history."""
        segments, answer = super().send(number)
        return (self._prompts[number] if self.recorded.declared else segments), answer

    def _joining(self, call: Call) -> Segments:  # noqa: ARG002  (as of other sessions)
        """Return nothing: a prompt has its recorded length, and other answers are in its new text."""
        return ()

    def content(self, number: int) -> Segments:
        """Return the eventual content of a call's KV blocks, naming the answer as the prompts that begin with it do."""
        if not self.recorded.declared:
            return super().content(number)
        prompt, answer = self._prompts[number], self.recorded.calls[number].output_tokens
        place = len(prompt)
        for later in self._prompts[number + 1 :]:
            if later[:place] == prompt and len(later) > place and later[place][1] == answer:
                return later[: place + 1]
        return (*prompt, *super().content(number)[-1:]) if answer else prompt


class _SingleRequests:
    """Sends the requests that belong to no session, by the clock."""

    gaps: Gaps = _NO_GAPS
    sessions = None

    def __init__(self, recorded: TraceSessions) -> None:
        self._recorded = recorded
        self._announced = self._sent = self._last_us = 0

    def next_gap_us(self) -> int:
        """Time to its next request; -1 = there is none."""
        rows = self._recorded.alone
        if self._announced == len(rows):
            return -1
        arrival_us = self._recorded.table.arrival_us(rows[self._announced])
        gap, self._last_us = arrival_us - self._last_us, arrival_us
        self._announced += 1
        return gap

    def request(self, index: int, arrival_us: int, user: int) -> Request:  # noqa: ARG002  (the protocol's signature)
        """Return the next request."""
        request = self._recorded.table.request(self._recorded.alone[self._sent], index)
        self._sent += 1
        return request

    def call(self, index: int, arrival_us: int, session: SessionRun, number: int) -> Request:
        """Not supported: there are no sessions here."""
        raise NotImplementedError((index, arrival_us, session, number))

    def state(self) -> tuple[object, ...]:
        """Return its position."""
        return (self._announced, self._sent)


class _SessionRequests:
    """Sends the sessions; each begins when it did in the trace."""

    gaps: Gaps = _NO_GAPS

    def __init__(self, recorded: TraceSessions) -> None:
        self._recorded = recorded
        self._announced = self._begun = self._last_us = 0

    @property
    def sessions(self) -> _SessionRequests:
        """Return itself."""
        return self

    def next_gap_us(self) -> int:
        """Time to the beginning of its next session; -1 = there is none."""
        sessions = self._recorded.sessions
        if self._announced == len(sessions):
            return -1
        arrival_us = self._recorded.table.arrival_us(sessions[self._announced].rows[0])
        gap, self._last_us = max(0, arrival_us - self._last_us), max(arrival_us, self._last_us)
        self._announced += 1
        return gap

    def begin(self, user: int) -> TracedRun:  # noqa: ARG002  (the protocol's signature)
        """Begin the next session."""
        session = self._recorded.sessions[self._begun]
        self._begun += 1
        prompts = [declared_segments(self._recorded.table.request(row)) for row in session.rows]
        return TracedRun(session, () if session.declared else prompts[0], prompts)

    def request(self, index: int, arrival_us: int, user: int) -> Request:
        """Not supported: all requests belong to sessions."""
        raise NotImplementedError((index, arrival_us, user))

    def call(self, index: int, arrival_us: int, session: SessionRun, number: int) -> Request:
        """Return a call of a session, as recorded except for its time."""
        assert isinstance(session, TracedRun)  # noqa: S101  (it begins no other kind)
        segments, _ = session.send(number)
        request = self._recorded.table.request(session.recorded.rows[number], index)
        if request.deadline_us:
            request.deadline_us += arrival_us - request.arrival_us
        request.arrival_us = arrival_us
        request.input_tokens = request.target_tokens = max(request.input_tokens, _length(segments))
        request.segments = under_adapter(request.adapter, segments)
        request.content = under_adapter(request.adapter, session.content(number))
        return request

    def state(self) -> tuple[object, ...]:
        """Return its position."""
        return (self._announced, self._begun)


class TracedSource(InteractiveSource):
    """The requests of a trace whose sessions wait for their answers.

    Args:
        table: the trace.
        requests_limit: stop after this number of requests; ``None`` = all.
    """

    def __init__(self, table: TraceTable, requests_limit: int | None = None) -> None:
        self.fixed = TraceSessions(table)
        self._end = len(table) if requests_limit is None else min(len(table), requests_limit)
        super().__init__([_SingleRequests(self.fixed), _SessionRequests(self.fixed)], self._end)

    @property
    def table(self) -> TraceTable:
        """The trace it replays."""
        return self.fixed.table

    def __len__(self) -> int:
        return self._end
