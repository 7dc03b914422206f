"""The first tokens and the completions of a run, in order of time, with what their clients measured."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from heapq import nlargest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.records import Completed, FirstToken


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
