"""What a tape remembers of sessions and of each request's sender, in a few integers each."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from blis_tui.base.classes import NamedTuple, dataclass

_WIDTH: Final = 6


class SentCall(NamedTuple):
    """A call of a session that was sent; requests are identified by their numbers."""

    event: int
    request: int
    call: int
    """Its position in the session, from 0; -1 = a call that starts the session."""
    last: int
    """The last of the requests that it waited for; -1 = none."""
    waited_us: int
    """Time between that request and this one, in microseconds."""
    history_tokens: int
    """Prompt tokens that earlier calls of the session already contained."""


@dataclass(slots=True)
class _Open:
    """What decides how a session ends, as far as it is known at the tape's end."""

    unanswered: int
    failed: bool = False


class SessionLog:
    """The sessions of a run in order of their start; each is identified by its index.

    Args:
        paced_by_clock: clients whose sessions continue whether or not their calls are answered.
    """

    def __init__(self, paced_by_clock: frozenset[str] = frozenset()) -> None:
        self._paced_by_clock = paced_by_clock
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._begun = array("q")
        self._lengths = array("q")
        self._ended = array("q")
        self._completed = array("b")
        self._calls: list[array[int]] = []
        self._of: dict[int, int] = {}
        self._open: dict[int, _Open] = {}
        self._sent = array("q")
        self._answers = array("q")

    def __len__(self) -> int:
        return len(self._names)

    # ---- queries ----

    def begun(self, event: int) -> int:
        """Return the number of sessions that had started by an event."""
        return bisect_right(self._begun, event)

    def name(self, session: int) -> str:
        """Return the name of a session."""
        return self._names[session]

    def place(self, name: str) -> int | None:
        """Return the index of the session with that name; None = no such session has started."""
        return self._places.get(name)

    def of_request(self, request: int) -> int | None:
        """Return the session that a request belongs to."""
        return self._of.get(request)

    def length(self, session: int) -> int:
        """Return the number of calls that a session has if each is answered."""
        return self._lengths[session]

    def began(self, session: int) -> int:
        """Return the event in which a session started."""
        return self._begun[session]

    def end(self, session: int, until: int) -> tuple[int, bool] | None:
        """Return the event in which a session ended, and whether all calls were answered; None = not ended yet."""
        ended = self._ended[session]
        return (ended, bool(self._completed[session])) if 0 < ended <= until else None

    def calls(self, session: int) -> list[SentCall]:
        """Return every call of a session that was sent, in the order of sending."""
        flat = self._calls[session]
        return [SentCall._make(flat[at : at + _WIDTH]) for at in range(0, len(flat), _WIDTH)]

    def in_flight(self, event: int) -> int:
        """Return how many calls of all sessions were sent but not ended by an event."""
        return bisect_right(self._sent, event) - bisect_right(self._answers, event)

    # ---- recording ----

    def send(self, name: str, sent: SentCall, calls: int = 0) -> None:
        """Record that a session sends a call. The first call starts the session, which then has ``calls`` calls."""
        place = self._places.setdefault(name, len(self._names))
        if place == len(self._names):
            self._names.append(name)
            self._begun.append(sent.event)
            self._lengths.append(calls)
            self._ended.append(0)
            self._completed.append(0)
            self._calls.append(array("q"))
            self._open[place] = _Open(calls)
        self._calls[place].extend(sent)
        self._of[sent.request] = place
        self._sent.append(sent.event)

    def end_call(self, request: int, event: int, *, answered: bool) -> None:
        """Record the end of a request, and of its session if that was its last call."""
        place = self._of.get(request)
        if place is None:
            return
        self._answers.append(event)
        state = self._open.get(place)
        if state is None:
            return
        state.unanswered -= 1
        state.failed = state.failed or not answered
        goes_on = self._names[place].rpartition("-")[0] in self._paced_by_clock
        if not state.unanswered or (state.failed and not goes_on):
            self._ended[place], self._completed[place] = event, not state.failed
            del self._open[place]

    def cut(self, event: int) -> None:
        """Forget everything after an event, for good: nothing is recorded after a cut."""
        kept = self.begun(event)
        for name in self._names[kept:]:
            del self._places[name]
        for rows in (self._names, self._begun, self._lengths, self._ended, self._completed, self._calls):
            del rows[kept:]
        for place, flat in enumerate(self._calls):
            while flat and flat[-_WIDTH] > event:
                del flat[-_WIDTH:]
            if self._ended[place] > event:
                self._ended[place] = self._completed[place] = 0
        for events in (self._sent, self._answers):
            del events[bisect_right(events, event) :]
        self._of = {flat[at + 1]: place for place, flat in enumerate(self._calls) for at in range(0, len(flat), _WIDTH)}


class ArrivalLog:
    """The arrival events of each client's, or each tenant's, requests."""

    def __init__(self) -> None:
        self._events: dict[str, dict[str, array[int]]] = {"client": {}, "tenant": {}}

    def names(self, by: str) -> tuple[str, ...]:
        """Return all senders, in order of their first requests. ``by``: ``client`` or ``tenant``."""
        return tuple(self._events[by])

    def until(self, by: str, name: str, event: int) -> int:
        """Return how many requests of a sender had arrived by an event."""
        return bisect_right(self._events[by].get(name, ()), event)

    def sender(self, by: str, event: int) -> str | None:
        """Return whose request arrived in an event; None if it has no sender of that kind."""
        for name, events in self._events[by].items():
            place = bisect_left(events, event)
            if place < len(events) and events[place] == event:
                return name
        return None

    def add(self, by: str, name: str, event: int) -> None:
        """Record the arrival of a sender's request; an empty name is not counted."""
        if name:
            self._events[by].setdefault(name, array("q")).append(event)

    def cut(self, event: int) -> None:
        """Forget everything after an event."""
        for by, by_name in self._events.items():
            for events in by_name.values():
                del events[bisect_right(events, event) :]
            self._events[by] = {name: events for name, events in by_name.items() if events}
