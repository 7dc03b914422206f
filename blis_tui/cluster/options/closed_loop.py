"""Closed-loop workloads: clients that wait for answers learn when each request ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.pipeline import Arrivals
from blis_tui.cluster.records import SessionBegun, SessionContinued
from blis_tui.cluster.routed_request import ARRIVAL, RoutedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.engine.counts import Ledger
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment
    from blis_tui.workload.interactive import InteractiveSource, SessionCounts


class NotifyingLedger:
    """A ledger that also notes ended requests for clients that wait for them.

    Args:
        books: the ledger.
        ended: receives each ended request with its client's end-to-end latency; -1 = no answer.
    """

    def __init__(self, books: Ledger, ended: list[tuple[Request, int]]) -> None:
        self._books = books
        self._ended = ended

    def close(self, request: Request, ttft_us: int = -1, e2e_us: int = -1) -> None:
        """Record ``request``, which has reached a terminal state."""
        self._books.close(request, ttft_us, e2e_us)
        self._ended.append((request, e2e_us))

    @property
    def contradictions(self) -> Sequence[str]:
        """Describe requests whose times contradict each other."""
        return self._books.contradictions

    def __len__(self) -> int:
        return len(self._books)

    def fingerprint(self) -> str:
        """Return a digest of all books."""
        return self._books.fingerprint()


class SendEvent:
    """The event of a client sending its next request, whose content is decided then, as others may send before."""

    __slots__ = ("feedback", "time_us")

    kind = "arrival"
    request: Request | None = None
    instance_index: int | None = None

    def __init__(self, feedback: Feedback, time_us: int) -> None:
        self.feedback = feedback
        self.time_us = time_us

    @property
    def stale(self) -> bool:
        """Whether no request will be sent then: the limit is reached, or its session has ended."""
        return self.feedback.clients.next_us > self.time_us

    def fire(self, now: int) -> bool:
        """Let the request arrive."""
        request = None if self.stale else self.feedback.clients.next_request()
        if request is None:
            return False
        routed = RoutedRequest(request, self.feedback.arrive)
        self.feedback.send(routed, self.feedback.arrive(routed, now))
        self.feedback.tell(request, now)
        return True

    def drop(self) -> None:
        """Do nothing: no other state depends on it."""


class Feedback(Arrivals):
    """Lets requests arrive as clients send them, which may wait for answers. See ``Arrivals`` for the arguments."""

    def __init__(
        self,
        experiment: Experiment,
        source: InteractiveSource,
        pipeline: Pipeline,
        entrance: Callable[[RoutedRequest, int], int],
        ended: list[tuple[Request, int]],
    ) -> None:
        super().__init__(experiment, source, pipeline, entrance)
        self.clients = source
        self.ended = ended

    @property
    def await_answers(self) -> bool:
        """Return True: clients wait for answers."""
        return True

    @property
    def silent(self) -> bool:
        """Whether no request will come unless one ends."""
        return self.clients.silent

    @property
    def exhausted(self) -> bool:
        """Whether no request will come, whatever ends."""
        return self.clients.exhausted

    @property
    def sessions(self) -> SessionCounts | None:
        """Session counts so far; None = there are no sessions."""
        return self.clients.sessions

    def pull(self) -> None:
        """Schedule every known arrival."""
        for time_us in self.clients.pop_due():
            self._pipeline.queue.push(time_us, ARRIVAL, SendEvent(self, time_us))

    def send(self, routed: RoutedRequest, time_us: int) -> None:
        """Let an arrived request reach the next stage at ``time_us``."""
        self._pipeline.queue.push(time_us, routed.order, routed)

    def answer(self, now: int) -> None:
        """Tell clients about ended requests; they may send new ones."""
        for request, e2e_us in self.ended:
            self.clients.on_ended(request, e2e_us, now)
        self.ended.clear()
        self.pull()

    def tell(self, request: Request, now: int) -> None:
        """Emit the record of a request that belongs to a session."""
        observers, sent = self._pipeline.observers, self.clients.sent
        if sent is None:
            return
        if not sent.after:
            observers.tell(SessionBegun, now, request.request_id, sent.session, sent.calls)
        else:
            details = (sent.session, sent.call, sent.after, sent.last, sent.waited_us, sent.earlier_tokens)
            observers.tell(SessionContinued, now, request.request_id, *details)
