"""Two simulations that advance together by simulated time, aligned, and the first event at which they differ.

Events at the same time are paired by order: the first event of one side with the first of the other, and so on.
Therefore going back exactly reverses going forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import SLICE, Progress, Stop, run_to_stop
from blis_tui.debugger.state import live
from blis_tui.engine.records import StepFinished, described
from blis_tui.results.record_lines import record_dict
from blis_tui.runs.divergence import record_stream, search

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot, Snapshot
    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.history import Move
    from blis_tui.model import Experiment
    from blis_tui.runs.divergence import Divergence


_BURSTS: Final = 32
"""Alternations between the two sides between two yields of a move."""
_NEVER: Final = 1 << 62


if TYPE_CHECKING:
    # The search for the first divergence; its result is None if the two runs are the same.
    Search = Generator[Progress, None, Divergence | None]


class Lockstep:
    """Two runs side by side.

    Args:
        left: one experiment.
        right: the other experiment.
        routes: routing decisions to override on the right side, as for ``Simulation``.

    Attributes:
        left: the debugger of the left side.
        right: the debugger of the right side.
    """

    def __init__(self, left: Experiment, right: Experiment, routes: RouteOverrides | None = None) -> None:
        self.left = Debugger(left)
        self.right = Debugger(right, routes=routes)

    @property
    def sides(self) -> tuple[Debugger, Debugger]:
        """The left and the right debugger."""
        return self.left, self.right

    @property
    def time_us(self) -> int:
        """Simulated time of the side that is further ahead, in microseconds."""
        return max(side.time_us for side in self.sides)

    @property
    def at_start(self) -> bool:
        """Whether neither side has had an event."""
        return not any(side.event for side in self.sides)

    @property
    def at_end(self) -> bool:
        """Whether no event follows on either side."""
        return all(side.at_end for side in self.sides)

    # ---- single moves ----

    def step(self) -> tuple[bool, bool]:
        """Run the earlier of the two next events, or both if they are simultaneous; return which sides moved."""
        times = [_next_us(side) for side in self.sides]
        earliest = min(times)
        moves = [earliest < _NEVER and time == earliest for time in times]
        left, right = (moves and side.step() for side, moves in zip(self.sides, moves, strict=True))
        return left, right

    def step_batch(self) -> Move:
        """Go forward to the end of the next engine step of either side."""
        for count in range(1, _NEVER):
            moved = self.step()
            if not any(moved):
                return self._end()
            if any(
                went and isinstance(record, StepFinished)
                for went, side in zip(moved, self.sides, strict=True)
                for record in side.records_of(side.event)
            ):
                break
            if not count % SLICE:
                yield self._progress()
        return Stop("there")

    def back(self) -> Move:
        """Undo the latest step."""
        latest = max(_last(side) for side in self.sides)
        for side in [side for side in self.sides if side.event and _last(side) == latest]:
            yield from side.seek(side.event - 1)
        return Stop("start" if self.at_start else "there")

    # ---- moves ----

    def run(self, until_us: int | None = None) -> Move:
        """Run forward up to and including a time, or to the end of both sides."""
        goal = _NEVER - 1 if until_us is None else until_us
        while True:
            for _ in range(_BURSTS):
                if not self._run_behind(goal):
                    return self._end() if self.at_end else Stop("there")
            yield self._progress()

    def seek_time(self, time_us: int) -> Move:
        """Go to the last events at or before a time."""
        if time_us >= self.time_us and not all(_knows(side, time_us) for side in self.sides):
            return (yield from self.run(time_us))
        for side in self.sides:
            yield from side.seek_time(time_us)
        return self._end() if self.at_end else Stop("there")

    def seek(self, event: int) -> Move:
        """Go to the event with the given number on each side; their times may differ."""
        for side in self.sides:
            yield from side.seek(event)
        return self._end() if self.at_end else Stop("there")

    def seek_request(self, name: str) -> Move:
        """Go to the time at which a request arrives, on the first side that has a request of that name."""
        for side in self.sides:
            stop = yield from side.seek_request(name)
            if stop.reason != "unknown":
                return (yield from self.seek_time(side.time_us))
        return Stop("unknown")

    def to_start(self) -> Move:
        """Go to the start, before the first event."""
        yield from self.seek(0)
        return Stop("start")

    def to_end(self) -> Move:
        """Go to the end of both runs."""
        return (yield from self.seek_time(_NEVER - 1))

    def first_divergence(self) -> Search:
        """Search from the beginning for the first event whose records differ, without moving."""
        left, right = (record_stream(side.experiment, routes=side.routes) for side in self.sides)
        looking = search(left, right, record_dict)
        while True:
            try:
                record = next(looking)
            except StopIteration as end:
                divergence: Divergence | None = end.value
                return divergence
            yield Progress(record.event, record.time_us, None)

    # ---- implementation ----

    def _run_behind(self, goal: int) -> bool:
        """Run the side that is behind until the other side's turn; return False if nothing happens up to ``goal``."""
        left, right = self.sides
        left_us, right_us = _next_us(left), _next_us(right)
        if min(left_us, right_us) > goal:
            return False
        if left_us == right_us:
            for side in self.sides:
                run_to_stop(side.run(until_us=left_us))
        else:
            behind, other_us = (left, right_us) if left_us < right_us else (right, left_us)
            run_to_stop(behind.run(until=behind.event + SLICE, until_us=min(goal, other_us - 1)))
        return True

    def _end(self) -> Stop:
        return Stop("failed" if any(side.failure is not None for side in self.sides) else "end")

    def _progress(self) -> Progress:
        return Progress(sum(side.event for side in self.sides), self.time_us, None)


def _next_us(side: Debugger) -> int:
    """Return the time of a side's next event."""
    upcoming = side.upcoming()
    return _NEVER if upcoming is None else upcoming.time_us


def _last(side: Debugger) -> tuple[int, int]:
    """Return the time of a side's latest event, and its number among the events at that time."""
    if not side.event:
        return (-1, 0)
    time_us = side.tape.time_us(side.event)
    return time_us, side.event - side.tape.at_time(time_us - 1)


def _knows(side: Debugger, time_us: int) -> bool:
    """Return whether all of a side's events up to a time are recorded."""
    return side.complete or side.tape.at_time(time_us) < side.frontier


FIGURES: Final[Mapping[str, Callable[[InstanceSnapshot], int]]] = {
    "running": lambda instance: instance.running_count,
    "waiting": lambda instance: instance.waiting_count,
    "kv": lambda instance: instance.kv.used_blocks,
    "preemptions": lambda instance: instance.preemptions,
}
"""Figures compared for each instance: requests running and waiting, KV blocks used, preemptions so far."""


@dataclass(frozen=True, slots=True)
class FigurePair:
    """A figure of an instance on both sides; None if a side has no such instance."""

    instance: int
    name: str
    """A key of ``FIGURES``."""
    left: int | None
    right: int | None

    @property
    def differs(self) -> bool:
        """Whether the two sides differ."""
        return self.left != self.right

    @property
    def delta(self) -> int | None:
        """The right value minus the left one; None if either is missing."""
        return None if self.left is None or self.right is None else self.right - self.left


def figure_pairs(left: Snapshot, right: Snapshot) -> tuple[FigurePair, ...]:
    """Return the figures of all instances of either side, one tuple per instance."""
    sides = [{instance.index: instance for instance in side.instances} for side in (left, right)]

    def figure(side: Mapping[int, InstanceSnapshot], index: int, of: Callable[[InstanceSnapshot], int]) -> int | None:
        return of(side[index]) if index in side else None

    return tuple(
        FigurePair(index, name, figure(sides[0], index, of), figure(sides[1], index, of))
        for index in sorted({**sides[0], **sides[1]})
        for name, of in FIGURES.items()
    )


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """The state of a request.

    ``state``: ``not arrived``, ``in transit``, ``waiting``, ``prefill``, ``decode``, ``stalled``, ``running`` (the
    progress is unknown), or the kind of record that ended it, such as ``completed``. ``done`` and ``goal`` depend on
    it: prefill (tokens computed, tokens to compute), decode and stalled (tokens generated, -), completed (end-to-end
    time in microseconds, -).
    """

    state: str
    done: int = 0
    goal: int = 0


Identity = str | tuple[str, int]
"""What a request is in two runs: its name, or the name of its session and the number of the call in it."""
NOT_ARRIVED: Final = RequestStatus("not arrived")
_AFTER: Final[Mapping[str, str]] = {
    "started": "running",
    "chunk": "running",
    "stalled": "stalled",
    "resumed": "running",
}
"""Maps the last thing a step did to a request to the request's state; other records name the state themselves."""


@dataclass(frozen=True, slots=True)
class RequestPair:
    """A request and its state on both sides."""

    name: str
    """Its name on the left, or on the right if it is not there."""
    left: RequestStatus
    right: RequestStatus
    right_name: str = ""
    """Its name on the right; empty if it is not on both sides."""


class RequestStatuses:
    """The states of one side's requests at its current position."""

    def __init__(self, tape: EventStore, snapshot: Snapshot) -> None:
        self._tape = tape
        self._event = snapshot.event
        self.live = {request.request_id: request for request in live(snapshot)}

    def identity(self, name: str) -> Identity:
        """Return what a request is on both sides: a call of a session, as names count arrivals; otherwise its name."""
        sessions, number = self._tape.sessions, self._tape.number(name)
        session = None if number is None else sessions.of_request(number)
        if session is None:
            return name
        return sessions.name(session), next(call for call, sent in self._calls(session) if sent == number)

    def name_of(self, identity: Identity) -> str:
        """Return the name of a request on this side; empty if it has not arrived."""
        if isinstance(identity, str):
            return identity
        sessions = self._tape.sessions
        session, wanted = sessions.place(identity[0]), identity[1]
        calls = () if session is None else self._calls(session)
        return next((self._tape.name(sent) for call, sent in calls if call == wanted), "")

    def _calls(self, session: int) -> Iterator[tuple[int, int]]:
        """Yield the calls of a session that were sent so far: a number that is the same in every run, and the request.

        Calls that start a session are sent in order, and their numbers are negative.
        """
        starts = 0
        for sent in self._tape.sessions.calls(session):
            starts -= sent.call < 0
            if sent.event <= self._event:
                yield (sent.call if sent.call >= 0 else starts), sent.request

    def standing(self, name: str) -> RequestStatus:
        """Return the state of a request."""
        request = self.live.get(name)
        return self._recorded_status(name) if request is None else _live_status(request)

    def _recorded_status(self, name: str) -> RequestStatus:
        """Return the state of a request that has ended or lies outside the snapshot's window."""
        life = self._tape.life(name, self._event)
        if not life:  # there is none of an empty name
            return NOT_ARRIVED
        if life[-1].what == "completed":
            return RequestStatus("completed", life[-1].second)
        states = (_AFTER.get(event.what) or described(event.what).state for event in reversed(life))
        return RequestStatus(next(state for state in states if state))


def _live_status(request: RequestSnapshot) -> RequestStatus:
    if request.phase == "prefill":
        return RequestStatus("prefill", request.computed_tokens, request.target_tokens)
    if request.phase in ("decode", "stalled"):
        return RequestStatus(request.phase, request.generated_tokens)
    return RequestStatus(request.phase.replace("-", " "))


def differing_requests(left: RequestStatuses, right: RequestStatuses) -> Iterator[RequestPair]:
    """Yield the requests that live on at least one side and have different states, in order of arrival."""
    either: dict[Identity, RequestSnapshot] = {}
    for side in (right, left):
        either.update((side.identity(name), request) for name, request in side.live.items())
    for identity, _ in sorted(either.items(), key=_arrival):
        there, here = left.name_of(identity), right.name_of(identity)
        pair = RequestPair(there or here, left.standing(there), right.standing(here), here if there else "")
        if pair.left != pair.right:
            yield pair


def _arrival(pair: tuple[Identity, RequestSnapshot]) -> tuple[int, int, str]:
    request = pair[1]
    return request.arrival_us, len(request.request_id), request.request_id
