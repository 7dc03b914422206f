"""The load that arrived beside what was served of it, and how many requests were where, on average."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.request import RequestState
from blis_tui.metrics.stats import whole_sum

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    """How many requests were somewhere, from when each came and when each left (in any order)."""

    def __init__(self, came_us: Iterable[int], left_us: Iterable[int]) -> None:
        self._came = sorted(came_us)
        self._came_us = [0, *accumulate(self._came)]
        self._left = sorted(left_us)
        self._left_us = [0, *accumulate(self._left)]

    def total_us(self, until_us: int) -> int:
        """The number present, added up over time until a moment: all stays until then."""
        came = bisect_right(self._came, until_us)
        left = bisect_right(self._left, until_us)
        return (came - left) * until_us - self._came_us[came] + self._left_us[left]

    def mean(self, start_us: int, end_us: int) -> float:
        """The mean number present in a time that is not empty."""
        return (self.total_us(end_us) - self.total_us(start_us)) / (end_us - start_us)


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
        self._arrivals_us = array("q")
        self._waiting_us = array("q")
        self._queued_us = array("q")
        self._scheduled_us = array("q")
        self._left_us = array("q")
        self._completed_us = array("q")
        self._answer_tokens = array("q")
        self._waiting: Presence | None = None
        """More than one check asks for it, and it takes sorting."""

    def add(self, block: Block) -> None:
        """Take in requests."""
        self._waiting = None
        states = block.state
        for state in dict.fromkeys(states):
            if not self.states[state]:
                self.first[state] = block.number[states.index(state)]
            self.states[state] += states.count(state)
        self.input_tokens += whole_sum(block.input_tokens)
        self.cached_tokens += whole_sum(block.cached_tokens)
        self._arrivals_us.extend(block.arrival_us)
        if any(block.preemptions):
            for number, preemptions in zip(block.number, block.preemptions, strict=True):
                self.thrashed += preemptions >= THRASHING
                if preemptions > self.worst[0]:
                    self.worst = (preemptions, number)
        self._add_times(block)

    def _add_times(self, block: Block) -> None:
        """Note when they were where."""
        states, queued_us, first_us = block.state, block.queued_us, block.first_token_us
        completed = [state == RequestState.COMPLETED for state in states]
        # A prompt that was computed for another instance may be on its way there, or may not have fitted there.
        halfway = [state == RequestState.CREATED and at >= 0 for state, at in zip(states, queued_us, strict=True)]
        turned_down = [
            state == RequestState.DROPPED_UNSERVABLE and at >= 0 for state, at in zip(states, first_us, strict=True)
        ]
        served = [
            state in _SERVED or on_its_way or gone
            for state, on_its_way, gone in zip(states, halfway, turned_down, strict=True)
        ]
        self._queued_us.extend(compress(queued_us, served))
        if self._held:
            waited = [one or state == RequestState.CREATED for one, state in zip(served, states, strict=True)]
            self._waiting_us.extend(compress(block.arrival_us, waited))
        else:
            self._waiting_us.extend(compress(queued_us, served))
        self._scheduled_us.extend([at for at in compress(block.scheduled_us, served) if at >= 0])
        self._left_us.extend(compress(first_us, turned_down))
        self._left_us.extend(compress(block.completed_us, completed))
        self._completed_us.extend(compress(block.completed_us, completed))
        self._answer_tokens.extend(compress(block.output_tokens, completed))
        self.answer_tokens += whole_sum(compress(block.output_tokens, completed))

    # No book says when a request timed out: the three below are without those.

    def present(self) -> Presence:
        """Requests in queues, batches and transfers."""
        return Presence(self._queued_us, self._left_us)

    def waiting(self) -> Presence:
        """Requests in queues that have never run yet."""
        if self._waiting is None:
            self._waiting = Presence(self._waiting_us, self._scheduled_us)
        return self._waiting

    def running(self) -> Presence:
        """Requests from the first step that worked on them to their last token."""
        return Presence(self._scheduled_us, self._left_us)

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
        first, last = min(self._arrivals_us, default=0), max(self._arrivals_us, default=0)
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
        *_, tokens = accumulate(answers, initial=0)
        seconds = (end - start) / 1e6
        return Steady(
            start_us=start,
            end_us=end,
            offered_requests_per_s=arrived / seconds,
            requests_per_s=len(answers) / seconds,
            output_tokens_per_s=tokens / seconds,
        )
