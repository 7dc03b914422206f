"""The load that arrived beside what was served of it, and how many requests were where, on average."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.request import RequestState
from blis_tui.metrics.request_columns import happened, split, where
from blis_tui.metrics.stats import whole_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.metrics.request_columns import Block

THRASHING: Final = 3
"""Preemptions of one request from which on it is said to thrash."""
_SERVED: Final = (RequestState.WAITING, RequestState.RUNNING, RequestState.COMPLETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The load that arrived, served or not, between the first arrival and the last.

    Rates are the mean over the gaps between arrivals; None where all requests arrived at once.
    """

    requests_per_s: float | None
    """Requests that arrived, per second: (requests - 1) / time from the first arrival to the last."""
    input_tokens_per_s: float | None
    """Prompt tokens of these requests per second: ``requests_per_s`` times their mean prompt."""
    output_tokens_per_s: float | None
    """Output tokens that these requests ask for, per second; what they got is in ``throughput``."""
    first_arrival_us: int | None
    """When the first request arrived; None when none did."""
    last_arrival_us: int | None
    """When the last request arrived; None when none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What arrived and what was completed in the second half of the arrivals: without the start and the drain.

    Over the whole run, throughput is lower than the offered load even where every request is served at once: batches
    fill at the start, and after the last arrival they drain. Everything is None where all requests arrived at once.
    """

    start_us: int | None
    """Halfway between the first arrival and the last."""
    end_us: int | None
    """The last arrival."""
    offered_requests_per_s: float | None
    """Requests that arrived from ``start_us`` to ``end_us``, per second of that time. Where it is well above
    ``requests_per_s``, a queue grows."""
    requests_per_s: float | None
    """Requests completed from ``start_us`` to ``end_us``, per second of that time."""
    output_tokens_per_s: float | None
    """Output tokens of the requests completed from ``start_us`` to ``end_us``, per second of that time; tokens of
    theirs generated before it count, and those of requests that complete later do not."""


class Presence:
    """How many requests were somewhere, from when each came and when each left (both in ascending order)."""

    def __init__(self, came_us: list[int], left_us: list[int]) -> None:
        self._came = came_us
        self._left = left_us

    def total_us(self, until_us: int) -> int:
        """The number present, added up over time until a moment: all stays until then."""
        came = bisect_right(self._came, until_us)
        left = bisect_right(self._left, until_us)
        return (came - left) * until_us - whole_sum(self._came[:came]) + whole_sum(self._left[:left])

    def means(self, cuts_us: Sequence[int]) -> list[float]:
        """The mean number present between each moment of these and the next, which is later."""
        totals = [(at, self.total_us(at)) for at in cuts_us]
        return [(total - before) / (end - start) for (start, before), (end, total) in pairwise(totals)]


class Flow:
    """What the requests' books say about a run, some thousand rows at a time.

    Args:
        held: whether requests wait in a gateway's queue, too, which counts as waiting from their arrival on.

    Attributes:
        states: requests by state.
        first: the first request to end in each state.
        input_tokens: prompt tokens of all requests.
        answer_tokens: output tokens of the completed ones.
        cached_tokens: those of them found in the cache.
        thrashed: requests preempted ``THRASHING`` times or more.
        worst: the most preemptions of a request, and its number.
    """

    def __init__(self, *, held: bool = False) -> None:
        self._held = held
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
        """Where requests wait in the instances' queues alone, they are ``_queued_us``."""
        self._queued_us = array("q")
        self._scheduled_us = array("q")
        self._turned_down_us = array("q")
        self._completed_us = array("q")
        self._answer_tokens = array("q")
        self._sorted: dict[str, list[int]] = {}
        """What has been sorted for one check serves the others."""

    def add(self, block: Block) -> None:
        """Take in requests."""
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
                if preemptions > self.worst[0]:
                    self.worst = (preemptions, number)
        for state, part in split(block, block.state):
            if not self.states[state]:
                self.first[state] = part.number[0]
            self.states[state] += len(part.number)
            self._add_times(state, part)

    def _add_times(self, state: int, block: Block) -> None:
        """Note when requests in this state were where."""
        if self._held and (state == RequestState.CREATED or state in _SERVED):
            self._waiting_us.extend(block.arrival_us)
        if state == RequestState.CREATED:
            # A prompt that was computed for another instance may be on its way there.
            block = where(block, block.queued_us)
        elif state == RequestState.DROPPED_UNSERVABLE:
            # It may also not have fitted there.
            block = where(block, block.first_token_us)
            self._turned_down_us.extend(block.first_token_us)
            if self._held:
                self._waiting_us.extend(block.arrival_us)
        elif state not in _SERVED:
            return
        self._queued_us.extend(block.queued_us)
        self._scheduled_us.extend(happened(block.scheduled_us))
        if state == RequestState.COMPLETED:
            self._completed_us.extend(block.completed_us)
            self._answer_tokens.extend(block.output_tokens)
            self.answer_tokens += whole_sum(block.output_tokens)

    # No book says when a request timed out: the three below are without those.

    def present(self) -> Presence:
        """Requests in queues, batches and transfers."""
        return Presence(self._in_order("queued"), self._in_order("left"))

    def waiting(self) -> Presence:
        """Requests in queues that have never run yet."""
        return Presence(self._in_order("waiting" if self._held else "queued"), self._in_order("scheduled"))

    def running(self) -> Presence:
        """Requests from the first step that worked on them to their last token."""
        return Presence(self._in_order("scheduled"), self._in_order("left"))

    def _in_order(self, what: str) -> list[int]:
        """Moments of all requests, in ascending order."""
        if what not in self._sorted:
            moments = {
                "queued": self._queued_us,
                "waiting": self._waiting_us,
                "scheduled": self._scheduled_us,
                "left": self._completed_us + self._turned_down_us,
            }
            self._sorted[what] = sorted(moments[what])
        return self._sorted[what]

    def mean_run_us(self, now_us: int) -> int:
        """How long a request has run on average, from its first step to its last token or to now, rounded down."""
        return self.running().total_us(now_us) // max(len(self._scheduled_us), 1)

    # ---- arrivals ----

    @property
    def total(self) -> int:
        """Requests that have arrived."""
        return len(self._arrivals_us)

    def arrivals(self) -> tuple[int, int] | None:
        """The first arrival and the last; None when no time lies between them."""
        if self._span is None:
            return None
        first, last = self._span
        return (first, last) if last > first else None

    def offered(self, output_tokens: int) -> Offered:
        """The load that arrived; ``output_tokens``: those of the answers asked for."""
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

    def steady(self) -> Steady:
        """What arrived and was completed in the second half of the arrivals."""
        span = self.arrivals()
        if span is None:
            return Steady(
                start_us=None, end_us=None, offered_requests_per_s=None, requests_per_s=None, output_tokens_per_s=None
            )
        first, end = span
        start = first + (end - first) // 2
        answers = [
            tokens
            for completed, tokens in zip(self._completed_us, self._answer_tokens, strict=True)
            if start < completed <= end
        ]
        arrived = len([arrival for arrival in self._arrivals_us if arrival > start])
        tokens = whole_sum(answers)
        seconds = (end - start) / 1e6
        return Steady(
            start_us=start,
            end_us=end,
            offered_requests_per_s=arrived / seconds,
            requests_per_s=len(answers) / seconds,
            output_tokens_per_s=tokens / seconds,
        )
