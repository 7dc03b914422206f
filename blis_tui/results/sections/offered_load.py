"""The load that arrived and what was served of it, and the mean number of requests in each state."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import RequestState
from blis_tui.results.request_log import happened, split, where
from blis_tui.results.stationary import Flux

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.results.request_log import Block

THRASHING: Final = 3
"""Minimum number of preemptions of one request that count as thrashing."""
_SERVED: Final = (RequestState.WAITING, RequestState.RUNNING, RequestState.COMPLETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The load that arrived, served or not, between the first and the last arrival.

    Rates are means over the gaps between arrivals; None if all requests arrived at once.
    """

    requests_per_s: float | None
    """Requests that arrived, per second: (requests - 1) / time from the first arrival to the last."""
    input_tokens_per_s: float | None
    """Prompt tokens of these requests per second: ``requests_per_s`` times their mean prompt length."""
    output_tokens_per_s: float | None
    """Output tokens that these requests ask for, per second; what they received is in ``throughput``."""
    first_arrival_us: int | None
    """When the first request arrived; None when none did."""
    last_arrival_us: int | None
    """When the last request arrived; None when none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Arrivals and completions in the second half of the arrivals, without the ramp-up and the drain.

    Over the whole run, throughput is lower than the offered load even if every request is served at once: batches fill
    at the start, and drain after the last arrival. All fields are None if all requests arrived at once.
    """

    start_us: int | None
    """Halfway between the first arrival and the last."""
    end_us: int | None
    """The last arrival."""
    offered_requests_per_s: float | None
    """Requests that arrived from ``start_us`` to ``end_us``, per second of that time. If it is well above
    ``requests_per_s``, a queue grows."""
    requests_per_s: float | None
    """Requests completed from ``start_us`` to ``end_us``, per second of that time."""
    output_tokens_per_s: float | None
    """Output tokens of the requests completed from ``start_us`` to ``end_us``, per second of that time. All tokens of
    these requests count, even those generated earlier; tokens of requests that complete later do not."""


class Occupancy:
    """How many requests were in some state, given the times at which they entered and left it, both ascending."""

    def __init__(self, came_us: list[int], left_us: list[int]) -> None:
        self._came = came_us
        self._left = left_us
        self._summed: tuple[list[int], list[int]] | None = None

    def total_us(self, until_us: int) -> int:
        """Return the total time spent in the state by all requests until a moment."""
        came = bisect_right(self._came, until_us)
        left = bisect_right(self._left, until_us)
        if self._summed is None:
            self._summed = [*accumulate(self._came, initial=0)], [*accumulate(self._left, initial=0)]
        return (came - left) * until_us - self._summed[0][came] + self._summed[1][left]

    def means(self, cuts_us: Sequence[int]) -> list[float]:
        """Return the mean number present between each moment and the next; moments must increase."""
        totals = [(at, self.total_us(at)) for at in cuts_us]
        return [(total - before) / (end - start) for (start, before), (end, total) in pairwise(totals)]

    def fluxes(self, cuts_us: Sequence[int]) -> list[Flux]:
        """Return how many came and how many left between each moment and the next."""
        totals = [(bisect_right(self._came, at), bisect_right(self._left, at)) for at in cuts_us]
        return [Flux(came - before, left - gone) for (before, gone), (came, left) in pairwise(totals)]

    def __len__(self) -> int:
        return len(self._came)


class Throughflow:
    """Collects figures of a run from the requests' books, a few thousand rows at a time.

    Attributes:
        states: number of requests by state.
        first: the first request in each state, in order of arrival.
        input_tokens: prompt tokens of all requests.
        answer_tokens: output tokens of the completed requests.
        cached_tokens: prompt tokens found in the prefix cache.
        thrashed: requests preempted ``THRASHING`` times or more.
        worst: the most preemptions of a request, and the number of the first one with as many, in order of arrival.
    """

    def __init__(self) -> None:
        self.states = dict.fromkeys(map(int, RequestState), 0)
        self.first: dict[int, int] = {}
        self.input_tokens = 0
        self.answer_tokens = 0
        self.cached_tokens = 0
        self.thrashed = 0
        self.worst = (0, -1)
        self._span: tuple[int, int] | None = None
        self._arrivals_us = array("q")
        self._waiting_us = array("q")
        """Arrivals of the requests that wait or have waited to be scheduled."""
        self._queued_us = array("q")
        self._scheduled_us = array("q")
        self._turned_down_us = array("q")
        self._completed_us = array("q")
        self._answer_tokens = array("q")
        self._sorted: dict[str, list[int]] = {}
        """Sorted times, shared between checks."""

    def add(self, block: Block) -> None:
        """Add a block of requests."""
        self._sorted.clear()
        self.input_tokens += whole_sum(block.input_tokens)
        self.cached_tokens += whole_sum(block.cached_tokens)
        arrivals = block.arrival_us
        first, last = min(arrivals), max(arrivals)
        self._span = (first, last) if self._span is None else (min(first, self._span[0]), max(last, self._span[1]))
        self._arrivals_us.extend(arrivals)
        if any(block.preemptions):
            for number, preemptions in zip(block.number, block.preemptions, strict=True):
                self.thrashed += preemptions >= THRASHING
                if preemptions > self.worst[0] or (preemptions == self.worst[0] and number < self.worst[1]):
                    self.worst = (preemptions, number)
        for state, part in split(block, block.state):
            self.first[state] = min(self.first.get(state, part.number[0]), *part.number)
            self.states[state] += len(part.number)
            self._add_times(state, part)

    def _add_times(self, state: int, block: Block) -> None:
        """Note when requests in this state entered and left queues and batches."""
        if state == RequestState.CREATED or state in _SERVED:
            self._waiting_us.extend(block.arrival_us)
        if state == RequestState.CREATED:
            # If the prompt was computed on another instance, the KV blocks may be in transit.
            block = where(block, block.queued_us)
        elif state == RequestState.DROPPED_UNSERVABLE:
            # A request may also be dropped because its KV blocks do not fit on the decode instance.
            block = where(block, block.first_token_us)
            self._turned_down_us.extend(block.first_token_us)
            self._waiting_us.extend(block.arrival_us)
        elif state not in _SERVED:
            return
        self._queued_us.extend(block.queued_us)
        self._scheduled_us.extend(happened(block.scheduled_us))
        if state == RequestState.COMPLETED:
            self._completed_us.extend(block.completed_us)
            self._answer_tokens.extend(block.output_tokens)
            self.answer_tokens += whole_sum(block.output_tokens)

    # Books do not say when a request timed out, so the four methods below exclude requests that did.

    def present(self) -> Occupancy:
        """Return the requests in queues, batches and transfers."""
        return Occupancy(self._in_order("queued"), self._in_order("left"))

    def waiting(self, since: Literal["arrived", "queued"] = "arrived") -> Occupancy:
        """Return the requests that have never run yet: all that have arrived, or those in an instance's queue."""
        return Occupancy(self._in_order(since), self._in_order("scheduled"))

    def in_system(self) -> Occupancy:
        """Return the requests that have arrived and not left."""
        return Occupancy(self._in_order("arrived"), self._in_order("left"))

    def running(self) -> Occupancy:
        """Return the requests that are running, from their first step to their last token."""
        return Occupancy(self._in_order("scheduled"), self._in_order("left"))

    def _in_order(self, what: str) -> list[int]:
        """Return the times of all requests, in ascending order."""
        if what not in self._sorted:
            moments = {
                "queued": self._queued_us,
                "arrived": self._waiting_us,
                "scheduled": self._scheduled_us,
                "left": self._completed_us + self._turned_down_us,
            }
            self._sorted[what] = sorted(moments[what])
        return self._sorted[what]

    def mean_run_us(self, now_us: int) -> int:
        """Return the mean time a request has run, from its first step to its last token or to now, rounded down."""
        return self.running().total_us(now_us) // max(len(self._scheduled_us), 1)

    # ---- arrivals ----

    @property
    def total(self) -> int:
        """Number of requests that have arrived."""
        return len(self._arrivals_us)

    def arrivals(self) -> tuple[int, int] | None:
        """Return the first and the last arrival; None if no time lies between them."""
        if self._span is None:
            return None
        first, last = self._span
        return (first, last) if last > first else None

    def offered(self, output_tokens: int) -> Offered:
        """Return the load that arrived; ``output_tokens``: total output tokens asked for."""
        span = self.arrivals()
        if span is None:
            only = self._arrivals_us[0] if self._arrivals_us else None
            return Offered(
                requests_per_s=None,
                input_tokens_per_s=None,
                output_tokens_per_s=None,
                first_arrival_us=only,
                last_arrival_us=only,
            )
        first, last = span
        gaps = 1_000_000 * (self.total - 1)
        requests_us = self.total * (last - first)
        return Offered(
            requests_per_s=gaps / (last - first),
            input_tokens_per_s=gaps * self.input_tokens / requests_us,
            output_tokens_per_s=gaps * output_tokens / requests_us,
            first_arrival_us=first,
            last_arrival_us=last,
        )

    def steady(self, until_us: int | None = None) -> Steady:
        """Return arrivals and completions in the second half of the arrivals; ``until_us``: of those until then."""
        span = self.arrivals()
        if span is None:
            return Steady(
                start_us=None, end_us=None, offered_requests_per_s=None, requests_per_s=None, output_tokens_per_s=None
            )
        first, end = span
        end = end if until_us is None else until_us
        start = first + (end - first) // 2
        answers = [
            tokens
            for completed, tokens in zip(self._completed_us, self._answer_tokens, strict=True)
            if start < completed <= end
        ]
        arrived = len([arrival for arrival in self._arrivals_us if start < arrival <= end])
        tokens = whole_sum(answers)
        seconds = (end - start) / 1e6
        return Steady(
            start_us=start,
            end_us=end,
            offered_requests_per_s=arrived / seconds,
            requests_per_s=len(answers) / seconds,
            output_tokens_per_s=tokens / seconds,
        )
