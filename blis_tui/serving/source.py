"""Requests that come from outside while the simulation runs."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from blis_tui.workload.interactive import InteractiveSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.request import Request


class LiveSource(InteractiveSource):
    """Hands over what it was given, in order; what gives it a request also tells the cluster.

    Args:
        ended: called with each request that has come to its end, and what its client measured; -1 = no answer.
    """

    __slots__ = ("_ended", "_given", "_produced_so_far", "closed")

    def __init__(self, ended: Callable[[Request, int], None]) -> None:
        super().__init__((), None)
        self.closed = False
        self._ended = ended
        self._given: deque[Request] = deque()
        self._produced_so_far = 0

    def give(self, request: Request) -> None:
        """One more; it does not arrive before those that were given already."""
        self._given.append(request)
        self._due.append(request.arrival_us)

    @property
    def exhausted(self) -> bool:
        """Whether no request will come: only when the endpoint has closed."""
        return self.closed and not self._given

    @property
    def silent(self) -> bool:
        """Whether no request is known that will come."""
        return not self._given

    @property
    def next_us(self) -> int:
        """When the next one comes."""
        return self._given[0].arrival_us if self._given else 1 << 62

    def next_request(self) -> Request | None:
        """The next one."""
        if not self._given:
            return None
        self._produced_so_far += 1
        self.sent = None
        return self._given.popleft()

    def on_ended(self, request: Request, e2e_us: int, now: int) -> None:
        """A request has come to its end."""
        del now
        self._ended(request, e2e_us)

    def state(self) -> tuple[object, ...]:
        """How many there were, and which are to come."""
        return (self._produced_so_far, tuple((one.index, one.arrival_us) for one in self._given))
