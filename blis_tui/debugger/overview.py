"""A whole run in a few hundred buckets of time, and its latencies: what timelines and plots are drawn from.

Buckets start narrow; whenever the run outgrows them, neighbours merge and every bucket is twice as wide. A bucket then
still holds true maxima and sums, so nothing short is lost between two dots of a plot.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.records import Completed, FirstToken, StepFinished

BUCKETS: Final = 512
_FIRST_WIDTH_US: Final = 1000


@dataclass(slots=True)
class Bucket:
    """What happened in a stretch of time. ``*_max``: the largest value that held in it, over all instances."""

    arrivals: int = 0
    completions: int = 0
    losses: int = 0
    """Requests rejected, dropped or timed out."""
    preemptions: int = 0
    tokens: int = 0
    """Tokens computed, prompts and answers."""
    batch_tokens_max: int = 0
    waiting_max: int = 0
    running_max: int = 0
    kv_used_max: int = 0
    step_us_max: int = 0
    ttft_us_max: int = 0

    def absorb(self, other: Bucket) -> None:
        """Take in the bucket that follows."""
        for name in self.__slots__:
            own, its = getattr(self, name), getattr(other, name)
            setattr(self, name, max(own, its) if name.endswith("_max") else own + its)


class Overview:
    """Buckets of equal width from time 0 on.

    Attributes:
        width_us: how much simulated time a bucket covers, in microseconds.
        buckets: those so far; the last one may still be filling.
    """

    def __init__(self) -> None:
        self.width_us = _FIRST_WIDTH_US
        self.buckets: list[Bucket] = []
        self._totals = (0, 0, 0)
        self._load: list[int] = []
        self._kv: list[int] = []
        self._load_max: list[array[int]] = []
        self._kv_max: list[array[int]] = []

    @property
    def instances(self) -> int:
        """How many instances there have been: they come in when they are first heard of."""
        return len(self._load)

    def heard_of(self, instance: int) -> None:
        """An instance is there, and all with lower numbers."""
        while len(self._load) <= instance:
            self._load.append(0)
            self._kv.append(0)
            self._load_max.append(array("q"))
            self._kv_max.append(array("q"))

    def load_of(self, instance: int) -> Sequence[int]:
        """For each bucket, the most requests that wait and run at an instance after one of its steps."""
        return _filled(self._load_max[instance], self._load[instance], len(self.buckets))

    def kv_of(self, instance: int) -> Sequence[int]:
        """For each bucket, the most KV blocks that are in use at an instance after one of its steps."""
        return _filled(self._kv_max[instance], self._kv[instance], len(self.buckets))

    def step(self, record: StepFinished, batch_tokens: int, totals: tuple[int, int, int]) -> None:
        """A step ended.

        Args:
            record: the step.
            batch_tokens: tokens it computed.
            totals: requests waiting and running and KV blocks in use after it, over all instances.
        """
        bucket = self._at(record.time_us)
        self._totals = totals
        waiting, running, kv_used = totals
        index = record.instance
        if index >= len(self._load):
            self.heard_of(index)
        place = len(self.buckets) - 1
        _raise(self._load_max[index], place, self._load[index], record.waiting + record.running)
        _raise(self._kv_max[index], place, self._kv[index], record.kv_used_blocks)
        self._load[index] = record.waiting + record.running
        self._kv[index] = record.kv_used_blocks
        bucket.tokens += batch_tokens
        bucket.preemptions += len(record.preempted)
        bucket.batch_tokens_max = max(bucket.batch_tokens_max, batch_tokens)
        bucket.step_us_max = max(bucket.step_us_max, record.duration_us)
        bucket.waiting_max = max(bucket.waiting_max, waiting)
        bucket.running_max = max(bucket.running_max, running)
        bucket.kv_used_max = max(bucket.kv_used_max, kv_used)

    def arrival(self, time_us: int) -> None:
        """A request arrived."""
        self._at(time_us).arrivals += 1

    def completion(self, time_us: int) -> None:
        """A request completed."""
        self._at(time_us).completions += 1

    def loss(self, time_us: int) -> None:
        """A request was rejected, dropped or timed out."""
        self._at(time_us).losses += 1

    def first_token(self, time_us: int, ttft_us: int) -> None:
        """A request got its first token."""
        bucket = self._at(time_us)
        bucket.ttft_us_max = max(bucket.ttft_us_max, ttft_us)

    def _at(self, time_us: int) -> Bucket:
        place = time_us // self.width_us
        while place >= BUCKETS:
            self._widen()
            place = time_us // self.width_us
        buckets = self.buckets
        while len(buckets) <= place:
            # Nothing has changed in it yet: it starts as the last one ended.
            waiting, running, kv_used = self._totals
            buckets.append(Bucket(waiting_max=waiting, running_max=running, kv_used_max=kv_used))
        return buckets[place]

    def _widen(self) -> None:
        buckets = self.buckets
        for place in range(0, len(buckets) - 1, 2):
            buckets[place].absorb(buckets[place + 1])
        del buckets[1::2]
        for series in (*self._load_max, *self._kv_max):
            for place in range(0, len(series) - 1, 2):
                series[place] = max(series[place], series[place + 1])
            del series[1::2]
        self.width_us *= 2


def _raise(series: array[int], place: int, before: int, value: int) -> None:
    """Note a value in the last bucket; buckets without a step hold what was there before."""
    while len(series) <= place:
        series.append(before)
    series[place] = max(series[place], value)


def _filled(series: array[int], last: int, buckets: int) -> Sequence[int]:
    return [*series, *[last] * (buckets - len(series))]


class Latencies:
    """What every request so far has waited; requests are told by their numbers."""

    def __init__(self) -> None:
        self._ttft_events = array("q")
        self._ttfts = array("q")
        self._ttfts_lost = array("q")
        self._ttft_times = array("q")
        self._places: dict[int, int] = {}
        self._done_events = array("q")
        self._done = array("i")
        self._e2es = array("q")

    def first_token(self, number: int, record: FirstToken) -> None:
        """A request got its first token."""
        self._ttft_events.append(record.event)
        self._places[number] = len(self._ttfts)
        self._ttfts.append(record.ttft_us)
        self._ttfts_lost.append(0)
        self._ttft_times.append(record.first_token_us)

    def lose(self, number: int, event: int) -> None:
        """A preemption took a request's first token back, if it had one."""
        place = self._places.pop(number, None)
        if place is not None:
            self._ttfts_lost[place] = event

    def completed(self, number: int, record: Completed) -> None:
        """A request completed."""
        self._done_events.append(record.event)
        self._done.append(number)
        self._e2es.append(record.e2e_us)

    def cut(self, event: int) -> None:
        """Forget what stands behind an event."""
        keep = bisect_right(self._ttft_events, event)
        del self._ttft_events[keep:]
        del self._ttfts[keep:]
        del self._ttfts_lost[keep:]
        del self._ttft_times[keep:]
        for place, lost in enumerate(self._ttfts_lost):
            if lost > event:
                self._ttfts_lost[place] = 0
        done = bisect_right(self._done_events, event)
        del self._done_events[done:]
        del self._done[done:]
        del self._e2es[done:]

    def ttfts_of(self, first: int, last: int, now_us: int | None) -> list[int]:
        """The times to first token of the events from one to another, also of tokens that were taken back later."""
        places = range(bisect_left(self._ttft_events, first), bisect_right(self._ttft_events, last))
        return [self._ttfts[place] for place in places if now_us is None or self._ttft_times[place] <= now_us]

    def ttfts_us(self, until: int, count: int, settled: int | None = None, now_us: int | None = None) -> list[int]:
        """The latest ``count`` times to first token up to an event, oldest first, in microseconds.

        First tokens that a preemption had taken back by then do not count. ``settled``: as for ``Tape.life``.
        ``now_us``: tokens of steps that end later do not count yet, either.
        """
        found: list[int] = []
        for place in range(bisect_right(self._ttft_events, until if settled is None else settled) - 1, -1, -1):
            if len(found) == count:
                break
            out = now_us is None or self._ttft_times[place] <= now_us
            if out and not 0 < self._ttfts_lost[place] <= until:
                found.append(self._ttfts[place])
        return found[::-1]

    def slowest(self, until: int, count: int) -> list[tuple[int, int]]:
        """Of the requests completed up to an event, those that took longest, with their end-to-end times in us."""
        end = bisect_right(self._done_events, until)
        order = nlargest(count, range(end), key=self._e2es.__getitem__)
        return [(self._done[place], self._e2es[place]) for place in order]
