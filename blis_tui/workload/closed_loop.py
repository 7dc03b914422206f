"""A closed loop: users who send their next prompt when the answer to the last one is complete.

So the load follows the cluster: slower answers, fewer requests. This is how ``vllm bench serve --max-concurrency`` and
GuideLLM's concurrent profile load a server. Clients with other arrivals may stand beside such users.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.engine.request import RequestState
from blis_tui.registry import setting
from blis_tui.workload.arrivals import ARRIVALS, CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Request
    from blis_tui.engine.streams import Stream
    from blis_tui.workload.arrivals import Gaps

BACK_OFF_US: Final = 1_000_000
"""A user whose prompt was turned away or lost waits this long: at once, it would be turned away for ever."""

_NOBODY: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoopSettings:
    """Of a closed loop."""

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
    """So many users.

    Attributes:
        users: how many.
    """

    __slots__ = ("users",)

    def __init__(self, settings: ClosedLoopSettings, mean_us: float) -> None:
        del mean_us  # the rate is what the cluster makes it
        self.users = settings.users

    def sample(self, stream: Stream) -> int:  # noqa: ARG002  (one signature for all)
        """From the end of an answer to the user's next prompt, in microseconds: nothing."""
        return 0


class Sender(Protocol):
    """A client."""

    @property
    def gaps(self) -> Gaps:
        """Its arrival process."""

    def next_gap_us(self) -> int:
        """Time to its next request, from the last arrival or, in a closed loop, answer; -1 = there is none."""

    def request(self, index: int, arrival_us: int, user: int) -> Request:
        """The request that arrives then, from that user; -1 = there are no users."""

    def state(self) -> tuple[object, ...]:
        """What decides all further requests, as plain values (for digests)."""


class ClosedLoopSource:
    """Requests of a workload in which users wait for their answers.

    Whose turn it is at the same microsecond: the clients', then the users', in order. A client's prompts are drawn in
    the order in which they are sent, whoever sends them.

    Args:
        clients: the clients of the workload; one's arrivals, at least, are a closed loop.
        requests_limit: stop after so many; ``None`` = never.
    """

    __slots__ = ("_clients", "_due", "_limit", "_next", "_produced", "_senders")

    def __init__(self, clients: Sequence[Sender], requests_limit: int | None) -> None:
        self._clients = clients
        self._limit = requests_limit
        self._produced = 0
        self._senders: dict[int, tuple[int, int]] = {}
        self._next: list[tuple[int, int, int]] = []
        for number, client in enumerate(self._clients):
            if isinstance(client.gaps, ClosedLoop):
                self._next += [(0, number, user) for user in range(client.gaps.users)]
            elif (gap := client.next_gap_us()) >= 0:
                self._next.append((gap, number, _NOBODY))
        heapify(self._next)
        self._due = [time_us for time_us, _, _ in sorted(self._next)]

    @property
    def exhausted(self) -> bool:
        """Whether no request will come, whatever ends."""
        return self._produced == self._limit or not (self._next or self._senders)

    @property
    def silent(self) -> bool:
        """Whether no request will come, unless one ends."""
        return self._produced == self._limit or not self._next

    def take_due(self) -> list[int]:
        """Times of arrivals, in microseconds, that have become known since it was asked last."""
        due, self._due = self._due, []
        return due

    def next_request(self) -> Request | None:
        """The earliest request that is known so far; ``None`` where there is none."""
        if self.exhausted or not self._next:
            return None
        index = self._produced
        self._produced = index + 1
        arrival_us, number, user = heappop(self._next)
        client = self._clients[number]
        if user >= 0:
            self._senders[index] = (number, user)
        elif (gap := client.next_gap_us()) >= 0:
            self._wait_until(arrival_us + gap, number, user)
        return client.request(index, arrival_us, user)

    def on_ended(self, request: Request, e2e_us: int, now: int) -> None:
        """A request has come to its end, or is known to; ``e2e_us`` is what its client measured, -1 = no answer."""
        sender = self._senders.pop(request.index, None)
        if sender is None:
            return
        number, user = sender
        if e2e_us >= 0:
            now = max(now, request.arrival_us + e2e_us)
        elif request.state is not RequestState.TIMED_OUT:
            now += BACK_OFF_US
        self._wait_until(now + self._clients[number].next_gap_us(), number, user)

    def _wait_until(self, time_us: int, number: int, user: int) -> None:
        heappush(self._next, (time_us, number, user))
        self._due.append(time_us)

    def state(self) -> tuple[object, ...]:
        """Requests so far, who sends when, who waits for which answer, and where the streams stand."""
        return (
            self._produced,
            tuple(sorted(self._next)),
            tuple(self._senders.items()),
            tuple(client.state() for client in self._clients),
        )
