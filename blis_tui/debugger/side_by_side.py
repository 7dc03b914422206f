"""Two runs at one time, aligned: the figures of their instances, and the state of each request on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.debugger.moment import live
from blis_tui.engine.records import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot, Snapshot
    from blis_tui.debugger.tape import Tape

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
    sides = [{one.index: one for one in side.instances} for side in (left, right)]

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

    def __init__(self, tape: Tape, snapshot: Snapshot) -> None:
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
        found = () if session is None else self._calls(session)
        return next((self._tape.name(sent) for call, sent in found if call == wanted), "")

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
        states = (_AFTER.get(one.what) or described(one.what).state for one in reversed(life))
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


def _arrival(one: tuple[Identity, RequestSnapshot]) -> tuple[int, int, str]:
    request = one[1]
    return request.arrival_us, len(request.request_id), request.request_id
