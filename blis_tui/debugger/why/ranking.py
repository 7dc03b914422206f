"""Requests ranked by a figure, such as latency: the place where most questions begin."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import compress, islice, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from blis_tui.base.classes import dataclass
from blis_tui.debugger.why.lifespans import read_life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.why.lifespans import RequestLife

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A request and the figure it is ranked by: microseconds, or the number of preemptions."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Position:
    """The current position: the last event, and the last whose results are in effect (``DebuggerState.settled``)."""

    event: int
    settled: int


@dataclass(frozen=True, slots=True)
class Order:
    """A figure to rank by."""

    title: str
    scope: str
    """The requests that have the figure."""
    read: Callable[[RequestLife, Steps], int | None]
    """Returns the figure of a life; None if it has none."""


class Lives(Generic[_T]):
    """What is read from the lives of requests, a few at a time: they are many, and each takes a while.

    Lives of requests that have ended do not change any more and are read once; all others at each position.

    Args:
        tape: the recorded run.
        of: what is read from a life.
    """

    def __init__(self, tape: EventStore, of: Callable[[RequestLife], _T]) -> None:
        self._tape = tape
        self._of = of
        self._ended: dict[int, _T] = {}
        self._last = array("q")
        """By number: the last event of a life in ``_ended``; later than any event for all others."""
        self._recorded = 0
        """Number of events that were recorded when ``_last`` was compared with them."""
        self._here = Position(0, 0)
        self._live: dict[int, _T | None] = {}
        """By number: what was read at ``_here`` from lives that had not ended; None = it had not begun."""

    def unread(self, here: Position, numbers: Sequence[int] | None = None) -> Sequence[int]:
        """Go to a position; return the requests whose lives are to be read to know them there.

        ``numbers``: those of the requests in order of arrival; None = of all that have arrived.
        """
        self._go(here)
        numbers = range(self._tape.arrived_by(here.event)) if numbers is None else numbers
        unread = compress(numbers, map(here.settled.__lt__, map(self._last.__getitem__, numbers)))
        return [number for number in dict.fromkeys(unread) if number not in self._live]

    def read(self, number: int) -> None:
        """Read a life at the position."""
        here, name = self._here, self._tape.name(number)
        life = read_life(self._tape, name, here.event, here.settled)
        value = None if life is None else self._of(life)
        last = self._tape.last_event_of(name)
        ended = life is not None and life.end is not None and not any(span.open for span in life.spans)
        if value is not None and ended and last <= here.settled:
            self._keep(number, last, value)
        else:
            self._live[number] = value

    def values(self, numbers: Iterable[int]) -> list[_T]:
        """Return what was read from the lives of requests at the latest position."""
        settled, last = self._here.settled, self._last
        read = (self._ended[number] if last[number] <= settled else self._live.get(number) for number in numbers)
        return [value for value in read if value is not None]

    def live(self) -> Iterator[tuple[int, _T]]:
        """Yield what was read at the latest position of requests that had not ended, with their numbers."""
        return ((number, value) for number, value in self._live.items() if value is not None)

    def has_ended(self, number: int) -> bool:
        """Return whether what was read from a life holds at the latest position because it had ended."""
        return self._last[number] <= self._here.settled

    def _go(self, here: Position) -> None:
        tape = self._tape
        if here != self._here or len(tape) != self._recorded:
            self._live.clear()
        self._here = here
        if len(tape) == self._recorded:
            return
        self._recorded = len(tape)
        del self._last[tape.requests :]
        self._last.extend([_NEVER] * (tape.requests - len(self._last)))
        for number in [number for number in self._ended if tape.last_event_of(tape.name(number)) != self._last[number]]:
            self._forget(number)

    def _forget(self, number: int) -> None:
        del self._ended[number]
        self._last[number] = _NEVER

    def _keep(self, number: int, last: int, value: _T) -> None:
        self._ended[number] = value
        self._last[number] = last


_NEVER: Final = 2**62


class Ranking(Lives[int]):
    """The requests of a run, ranked by a figure.

    Args:
        tape: the recorded run.
        by: a key of ``ORDERS``.
    """

    def __init__(self, tape: EventStore, by: str) -> None:
        steps = Steps(tape)
        read = ORDERS[by].read

        def figure(life: RequestLife) -> int:
            value = read(life, steps)
            return _NONE if value is None else value

        super().__init__(tape, figure)
        self._order: list[int] = []
        self._sorted = True

    def largest(self, count: int | None = None) -> list[Ranked]:
        """Return the requests that have the figure at the latest position, as far as they are read, largest first.

        Equal ones are in order of arrival. ``count``: maximum number of requests; None = all.
        """
        if not self._sorted:
            self._order.sort(key=lambda number: (-self._ended[number], number))
            self._sorted = True
        ended = ((number, self._ended[number]) for number in self._order if self.has_ended(number))
        live = ((number, value) for number, value in self.live() if value != _NONE)
        ranked = sorted((*islice(ended, count), *live), key=lambda ranked: (-ranked[1], ranked[0]))
        return [Ranked(self._tape.name(number), value) for number, value in ranked[:count]]

    def _keep(self, number: int, last: int, value: int) -> None:
        super()._keep(number, last, value)
        if value != _NONE:
            self._order.append(number)
            self._sorted = False

    def _forget(self, number: int) -> None:
        super()._forget(number)
        self._order = [other for other in self._order if other != number]


_NONE: Final = -1


def ranking(tape: EventStore, by: str, here: Position, count: int | None = None) -> list[Ranked]:
    """Return the requests that have a figure, largest first; equal ones in order of arrival.

    Args:
        tape: the recorded run.
        by: a key of ``ORDERS``.
        here: the current position.
        count: maximum number of requests; None = all.
    """
    if by == "e2e":
        return slowest(tape, here, count)
    ranked = Ranking(tape, by)
    for number in ranked.unread(here):
        ranked.read(number)
    return ranked.largest(count)


def slowest(tape: EventStore, here: Position, count: int | None = None) -> list[Ranked]:
    """Return the ranking by end-to-end latency, which needs no lives."""
    return [Ranked(name, us) for name, us in tape.slowest(here.event, tape.requests if count is None else count)]


class Steps:
    """Events, starts and durations of the steps of each instance."""

    def __init__(self, tape: EventStore) -> None:
        self._tape = tape
        self._read = 0
        self._by_instance: dict[int, tuple[array[int], array[int], array[int]]] = {}

    def of(self, instance: int, until: int) -> tuple[array[int], array[int], array[int]]:
        """Return events, starts and durations in microseconds, at least of all steps up to an event."""
        tape = self._tape
        if until > self._read:
            first, self._read = self._read + 1, min(max(until, self._read + _STEPS_AT_ONCE), len(tape))
            for event, on, duration_us in tape.steps_in(first, self._read, "duration_us"):
                events, starts, durations = self._by_instance.setdefault(on, (array("q"), array("q"), array("q")))
                events.append(event)
                starts.append(tape.time_us(event))
                durations.append(duration_us)
        return self._by_instance.get(instance, _NO_STEPS)


_STEPS_AT_ONCE: Final = 4096
"""Minimum number of events that are read for further steps."""
_NO_STEPS: Final = (array("q"), array("q"), array("q"))


# ---- the figures ----


def _e2e(life: RequestLife, _steps: Steps) -> int | None:
    end = life.end
    return None if end is None or end.what != "completed" else end.second


def _ttft(life: RequestLife, _steps: Steps) -> int | None:
    first = life.first_token
    return None if first is None else first.second


def _tpot(life: RequestLife, _steps: Steps) -> int | None:
    """Return the time per output token as in the report, rounded to microseconds."""
    end, first = life.end, life.first_token
    if end is None or end.what != "completed" or first is None or end.first < 2:
        return None
    gaps = end.first - 1
    return (2 * (end.second - first.second) + gaps) // (2 * gaps)


def token_times_us(life: RequestLife, steps: Steps) -> Iterator[int]:
    """Yield when each of the tokens that a request has was computed, at the engine."""
    decodes = {span.start_us: span for span in life.spans if span.what == "decode" and not span.gone}
    handed = next((span for span in decodes.values() if span.handed), None)
    # If a preemption discards the output, only the tokens of the last attempt are left.
    kept = life.prefilled_us if life.keeps_output else life.prefilled_us[-1:] if life.first_token else ()
    for start_us in (time_us for time_us in kept if time_us >= life.began_us):
        yield start_us
        span = decodes.get(start_us) or handed
        if span is None:
            continue
        until = life.settled if span.open else life.entries[-1].event
        events, starts, durations = steps.of(span.instance, until)
        last = min(bisect_left(starts, span.end_us), bisect_right(events, life.settled))
        for place in range(bisect_left(starts, span.start_us), last):
            if not any(since <= starts[place] < until for since, until in life.stalls):
                yield starts[place] + durations[place]


def _longest_gap(life: RequestLife, steps: Steps) -> int | None:
    """Return the longest time between two tokens at the engine, of the tokens that the request has."""
    return max((after - before for before, after in pairwise(token_times_us(life, steps))), default=None)


def _queued(life: RequestLife, _steps: Steps) -> int | None:
    waits = [span.duration_us for span in life.spans if span.what == "wait"]
    return sum(waits) if any(entry.what == "queued" for entry in life.entries) else None


def _preemptions(life: RequestLife, _steps: Steps) -> int | None:
    return len(life.preemptions) or None


ORDERS: Final[Mapping[str, Order]] = MappingProxyType(
    {
        "e2e": Order("end-to-end latency", "of those completed", _e2e),
        "ttft": Order("time to first token", "of those that have one", _ttft),
        "tpot": Order("time per output token", "of those completed", _tpot),
        "gap": Order("longest gap between tokens", "at the engine", _longest_gap),
        "queue": Order("time in the queue", "so far", _queued),
        "preemptions": Order("preemptions", "so far", _preemptions),
    }
)
"""Figures by which requests can be ranked."""
