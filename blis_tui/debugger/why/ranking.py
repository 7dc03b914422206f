"""Requests ranked by a figure, such as latency: the place where most questions begin."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from blis_tui.base.classes import dataclass
from blis_tui.debugger.why.lifespans import read_life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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


class OfEnded(Generic[_T]):
    """What was read from the lives of requests that have ended, which do not change any more.

    Args:
        tape: the recorded run.
    """

    def __init__(self, tape: EventStore) -> None:
        self._tape = tape
        self._known: dict[str, tuple[int, _T]] = {}

    def read(self, name: str, here: Position, of: Callable[[RequestLife], _T]) -> _T | None:
        """Return what is read from a life as of a position, always by the same function; None = it has not begun."""
        last = self._tape.last_event_of(name)
        known = self._known.get(name)
        if known is not None and known[0] == last <= here.settled:
            return known[1]
        life = read_life(self._tape, name, here.event, here.settled)
        if life is None:
            return None
        value = of(life)
        if last <= here.settled and life.end is not None and not any(span.open for span in life.spans):
            self._known[name] = last, value
        return value


def ranking(
    tape: EventStore, by: str, here: Position, count: int | None = None, known: OfEnded[int | None] | None = None
) -> list[Ranked]:
    """Return the requests that have a figure, largest first; equal ones in order of arrival.

    Args:
        tape: the recorded run.
        by: a key of ``ORDERS``.
        here: the current position.
        count: maximum number of requests; None = all.
        known: what earlier calls with the same figure have read.
    """
    if by == "e2e":
        return [Ranked(name, us) for name, us in tape.slowest(here.event, tape.requests if count is None else count)]
    steps = Steps(tape, here.settled)
    known = OfEnded(tape) if known is None else known
    values = ((name, known.read(name, here, lambda life: ORDERS[by].read(life, steps))) for name in tape.names())
    ranked = [Ranked(name, value) for name, value in values if value is not None]
    ranked.sort(key=_largest_first)
    return ranked[:count]


def _largest_first(ranked: Ranked) -> int:
    return -ranked.value


_NO_STEPS: Final = (array("q"), array("q"))


class Steps:
    """Starts and durations of the steps of each instance whose results are in effect."""

    def __init__(self, tape: EventStore, settled: int) -> None:
        self._tape = tape
        self._settled = settled
        self._by_instance: dict[int, tuple[array[int], array[int]]] = {}

    def of(self, instance: int) -> tuple[array[int], array[int]]:
        """Return starts and durations, in microseconds; they are read at the first call."""
        if not self._by_instance:
            event = self._tape.next_step(0)
            while 0 < event <= self._settled:
                row = self._tape.row(event)
                starts, durations = self._by_instance.setdefault(row.instance, (array("q"), array("q")))
                starts.append(row.time_us)
                durations.append(self._tape.step(row.step).duration_us)
                event = self._tape.next_step(event)
        return self._by_instance.get(instance, _NO_STEPS)


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
        starts, durations = steps.of(span.instance)
        for place in range(bisect_left(starts, span.start_us), bisect_left(starts, span.end_us)):
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
