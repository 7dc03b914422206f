"""What lets clients wait for their answers: the workload hears of every request that comes to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from blis_tui.cluster.passage import ARRIVAL, Passage
from blis_tui.cluster.records import SessionBegun, SessionContinued

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.ledger import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.workload.interactive import SessionCounts
    from blis_tui.workload.sessions import Sent


class FeedbackSource(Protocol):
    """A source of requests that depends on what becomes of them."""

    @property
    def exhausted(self) -> bool:
        """Whether no request will come, whatever ends."""

    @property
    def silent(self) -> bool:
        """Whether no request will come, unless one ends."""

    @property
    def next_us(self) -> int:
        """When the next request comes, as far as is known."""

    @property
    def sessions(self) -> SessionCounts | None:
        """What became of the sessions so far; ``None`` where nobody holds any."""

    @property
    def sent(self) -> Sent | None:
        """What there is to tell of the latest request; ``None`` = it belongs to no session."""

    def take_due(self) -> list[int]:
        """Times of arrivals, in microseconds, that have become known since it was asked last."""

    def next_request(self) -> Request | None:
        """The earliest request that is known so far; ``None`` where there is none."""

    def on_ended(self, request: Request, e2e_us: int, now: int) -> None:
        """A request has come to its end, or is known to; ``e2e_us`` is what its client measured, -1 = no answer."""


class Listening:
    """Books that remember who has come to an end since the last look.

    Attributes:
        ended: requests and what their clients measured from end to end, in microseconds; -1 = no answer.
    """

    __slots__ = ("_books", "ended")

    def __init__(self, books: Ledger) -> None:
        self._books = books
        self.ended: list[tuple[Request, int]] = []

    def close(self, request: Request, ttft_us: int = -1, e2e_us: int = -1) -> None:
        """``request`` has reached a terminal state."""
        self._books.close(request, ttft_us, e2e_us)
        self.ended.append((request, e2e_us))

    @property
    def contradictions(self) -> Sequence[str]:
        """Requests whose times contradict each other, in words."""
        return self._books.contradictions

    def __len__(self) -> int:
        return len(self._books)

    def fingerprint(self) -> str:
        """A digest of all books."""
        return self._books.fingerprint()


class Sending:
    """A client sends its next request. What it asks for is decided then: others may send before."""

    __slots__ = ("feedback", "time_us")

    kind = "arrival"
    request: Request | None = None
    instance_index: int | None = None

    def __init__(self, feedback: Feedback, time_us: int) -> None:
        self.feedback = feedback
        self.time_us = time_us

    @property
    def stale(self) -> bool:
        """Whether no request will arrive then: there are enough, or its session has ended before."""
        return self.feedback.source.next_us > self.time_us

    def happen(self, now: int) -> bool:
        """Let it arrive."""
        request = None if self.stale else self.feedback.source.next_request()
        if request is None:
            return False
        self.feedback.arrive(Passage(request, self.feedback.arrive), now)
        self.feedback.tell(request, now)
        return True

    def drop(self) -> None:
        """Nothing depends on it."""


class Feedback:
    """What clients send, and what they hear of it.

    Attributes:
        source: their requests.
        ledger: the books, through which they hear.
        arrive: what happens to a request that arrives.
    """

    __slots__ = ("_observers", "_queue", "arrive", "ledger", "source")

    def __init__(
        self,
        source: FeedbackSource,
        books: Ledger,
        queue: EventQueue,
        observers: Observers,
        arrive: Callable[[Passage, int], None],
    ) -> None:
        self._observers = observers
        self.source = source
        self.ledger = Listening(books)
        self.arrive = arrive
        self._queue = queue

    def pull(self) -> None:
        """Wait for every arrival that is known."""
        for time_us in self.source.take_due():
            self._queue.push(time_us, ARRIVAL, Sending(self, time_us))

    def tell(self, request: Request, now: int) -> None:
        """Emit the record of a request that belongs to a session."""
        observers, sent = self._observers, self.source.sent
        if sent is None:
            return
        if not sent.after:
            if SessionBegun in observers.kinds:
                observers.emit(SessionBegun(observers.event, now, request.request_id, sent.session, sent.calls))
        elif SessionContinued in observers.kinds:
            told = (sent.session, sent.call, sent.after, sent.last, sent.waited_us, sent.said_tokens)
            observers.emit(SessionContinued(observers.event, now, request.request_id, *told))

    def answer(self, now: int) -> None:
        """Whoever has an answer may send the next prompt."""
        for request, e2e_us in self.ledger.ended:
            self.source.on_ended(request, e2e_us, now)
        self.ledger.ended.clear()
        self.pull()
