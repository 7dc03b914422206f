"""A whole run in a few hundred time buckets, and its latencies: the data behind timelines and plots.

Buckets start narrow. Whenever the run outgrows them, neighbours merge, so that every bucket is twice as wide. A merged
bucket still holds true maxima and sums, so a plot loses no short peak.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.records import Completed, FirstToken, StepFinished

BUCKETS: Final = 512
_FIRST_WIDTH_US: Final = 1000


@dataclass(slots=True)
class Bucket:
    """What happened in an interval of time. ``*_max``: the largest value in it, over all instances."""

    arrivals: int = 0
    completions: int = 0
    losses: int = 0
    """Requests rejected, dropped or timed out."""
    preemptions: int = 0
    tokens: int = 0
    """Prompt and output tokens computed."""
    batch_tokens_max: int = 0
    waiting_max: int = 0
    running_max: int = 0
    kv_used_max: int = 0
    step_us_max: int = 0
    ttft_us_max: int = 0

    def absorb(self, other: Bucket) -> None:
        """Merge the bucket that follows into this one."""
        for name in self.__slots__:
            own, its = getattr(self, name), getattr(other, name)
            setattr(self, name, max(own, its) if name.endswith("_max") else own + its)


class Overview:
    """Buckets of equal width from time 0 on.

    Attributes:
        width_us: simulated time that a bucket covers, in microseconds.
        buckets: the buckets so far; the last one may still be filling.
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
        """Number of instances seen so far."""
        return len(self._load)

    def register_instance(self, instance: int) -> None:
        """Register an instance, and all with lower indices."""
        while len(self._load) <= instance:
            self._load.append(0)
            self._kv.append(0)
            self._load_max.append(array("q"))
            self._kv_max.append(array("q"))

    def load_of(self, instance: int) -> Sequence[int]:
        """Return, for each bucket, the most requests waiting and running at an instance after any of its steps."""
        return _filled(self._load_max[instance], self._load[instance], len(self.buckets))

    def kv_of(self, instance: int) -> Sequence[int]:
        """Return, for each bucket, the most KV blocks in use at an instance after any of its steps."""
        return _filled(self._kv_max[instance], self._kv[instance], len(self.buckets))

    def step(self, record: StepFinished, batch_tokens: int, totals: tuple[int, int, int]) -> None:
        """Count a step that ended.

        Args:
            record: the step.
            batch_tokens: tokens that it computed.
            totals: requests waiting, requests running, and KV blocks in use after it, over all instances.
        """
        bucket = self._at(record.time_us)
        self._totals = totals
        waiting, running, kv_used = totals
        index = record.instance
        if index >= len(self._load):
            self.register_instance(index)
        place = len(self.buckets) - 1
        _raise_max(self._load_max[index], place, self._load[index], record.waiting + record.running)
        _raise_max(self._kv_max[index], place, self._kv[index], record.kv_used_blocks)
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
        """Count an arrival."""
        self._at(time_us).arrivals += 1

    def completion(self, time_us: int) -> None:
        """Count a completion."""
        self._at(time_us).completions += 1

    def loss(self, time_us: int) -> None:
        """Count a request that was rejected, dropped or timed out."""
        self._at(time_us).losses += 1

    def first_token(self, time_us: int, ttft_us: int) -> None:
        """Count a first token."""
        bucket = self._at(time_us)
        bucket.ttft_us_max = max(bucket.ttft_us_max, ttft_us)

    def _at(self, time_us: int) -> Bucket:
        place = time_us // self.width_us
        while place >= BUCKETS:
            self._widen()
            place = time_us // self.width_us
        buckets = self.buckets
        while len(buckets) <= place:
            # A new bucket starts with the state in which the previous one ended.
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


def _raise_max(series: array[int], place: int, before: int, value: int) -> None:
    """Raise the maximum of the last bucket; buckets without a step get the value from before."""
    while len(series) <= place:
        series.append(before)
    series[place] = max(series[place], value)


def _filled(series: array[int], last: int, buckets: int) -> Sequence[int]:
    return [*series, *[last] * (buckets - len(series))]


class Latencies:
    """The latencies of every request so far; requests are identified by their numbers."""

    def __init__(self) -> None:
        self._ttft_events = array("q")
        self._ttfts = array("q")
        self._ttfts_lost = array("q")
        self._ttft_times = array("q")
        self._places: dict[int, int] = {}
        self._done_events = array("q")
        self._done = array("i")
        self._e2es = array("q")
        self._slowest: Sequence[int] = ()
        """Places of completions, the slowest first; sorted when somebody asks after further ones."""

    def first_token(self, number: int, record: FirstToken) -> None:
        """Note a request's first token."""
        self._ttft_events.append(record.event)
        self._places[number] = len(self._ttfts)
        self._ttfts.append(record.ttft_us)
        self._ttfts_lost.append(0)
        self._ttft_times.append(record.first_token_us)

    def lose(self, number: int, event: int) -> None:
        """Discard a request's first token, if it had one, because of a preemption or a restart."""
        place = self._places.pop(number, None)
        if place is not None:
            self._ttfts_lost[place] = event

    def completed(self, number: int, record: Completed) -> None:
        """Note a completion."""
        self._done_events.append(record.event)
        self._done.append(number)
        self._e2es.append(record.e2e_us)

    def cut(self, event: int) -> None:
        """Forget everything after an event."""
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
        self._slowest = ()

    def ttfts_of(self, first: int, last: int, now_us: int | None) -> list[int]:
        """Return the TTFTs of the events in a range, including those of tokens that were discarded later."""
        places = range(bisect_left(self._ttft_events, first), bisect_right(self._ttft_events, last))
        return [self._ttfts[place] for place in places if now_us is None or self._ttft_times[place] <= now_us]

    def ttfts_us(self, until: int, count: int, settled: int | None = None, now_us: int | None = None) -> list[int]:
        """Return the latest ``count`` TTFTs up to an event, oldest first, in microseconds.

        First tokens that a preemption or a restart had discarded by then do not count. ``settled``: as for
        ``EventStore.life``. ``now_us``: tokens of steps that end later do not count yet, either.
        """
        ttfts: list[int] = []
        for place in range(bisect_right(self._ttft_events, until if settled is None else settled) - 1, -1, -1):
            if len(ttfts) == count:
                break
            out = now_us is None or self._ttft_times[place] <= now_us
            if out and not 0 < self._ttfts_lost[place] <= until:
                ttfts.append(self._ttfts[place])
        return ttfts[::-1]

    def slowest(self, until: int, count: int) -> list[tuple[int, int]]:
        """Return the slowest of the requests completed up to an event, with their end-to-end times in microseconds."""
        end = bisect_right(self._done_events, until)
        if len(self._slowest) != len(self._e2es):
            self._slowest = sorted(range(len(self._e2es)), key=self._e2es.__getitem__, reverse=True)
        order = islice((place for place in self._slowest if place < end), count)
        return [(self._done[place], self._e2es[place]) for place in order]
