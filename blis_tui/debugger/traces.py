"""Figures over a whole run: their values after every event, and what an expression is at each hit of a breakpoint.

Both are found after the fact, in a replay of what is recorded.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from math import isnan, nan
from typing import TYPE_CHECKING

from blis_tui.base.classes import NamedTuple
from blis_tui.debugger.history import SLICE, Progress, watched
from blis_tui.results.conditions.breakpoints import RecordMatch, Watch
from blis_tui.results.conditions.vocabulary import subject_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.results.conditions.breakpoints import Breakpoint
    from blis_tui.results.conditions.language import Expression
    from blis_tui.runs.simulation import Simulation


class Trace:
    """The values of a figure: only where it changes.

    Attributes:
        figure: the figure.
        until: the last event whose value is known.
    """

    def __init__(self, figure: Expression) -> None:
        self.figure = figure
        self.until = -1
        self._events = array("q")
        self._values = array("d")

    def add(self, event: int, value: float) -> None:
        """Note the value after the next event."""
        self.until = event
        before = self._values[-1] if self._values else None
        if before is None or (value != before and not (isnan(value) and isnan(before))):
            self._events.append(event)
            self._values.append(value)

    def at(self, event: int) -> float:
        """Return the value after an event; NaN = it is undefined, or not known yet."""
        place = bisect_right(self._events, event) - 1
        return nan if place < 0 or event > self.until else self._values[place]

    def largest(self, first: int, last: int) -> float:
        """Return the largest value in a range of events; NaN if it has none there."""
        start = max(bisect_right(self._events, first) - 1, 0)
        stop = bisect_right(self._events, min(last, self.until))
        return max((one for one in self._values[start:stop] if not isnan(one)), default=nan)

    @property
    def top(self) -> float:
        """The largest value so far; 0 if there is none."""
        return max((one for one in self._values if not isnan(one)), default=0)


class Tracer:
    """Follows figures through a run, as far as it is recorded.

    Args:
        simulation: a simulation of the run, before its first event, for the tracer alone.
        figures: the figures.
    """

    def __init__(self, simulation: Simulation, figures: Iterable[Expression]) -> None:
        self._simulation = simulation
        self.traces = tuple(map(Trace, figures))
        self._records: list[Record] = []
        for kind in sorted(frozenset[str]().union(*(one.figure.needs for one in self.traces))):
            simulation.subscribe(kind, self._records.append)
        self._note()

    def _note(self) -> None:
        for trace in self.traces:
            trace.add(self._simulation.events, float(trace.figure.measure(self._simulation, self._records)))
        self._records.clear()

    @property
    def until(self) -> int:
        """The last event that it has followed."""
        return self._simulation.events

    def follow(self, event: int) -> Generator[Progress, None, None]:
        """Follow the run up to an event."""
        simulation = self._simulation
        while simulation.events < event:
            simulation.run(max_events=1)
            self._note()
            if not simulation.events % SLICE:
                yield Progress(simulation.events, simulation.now_us, event)


class Printed(NamedTuple):
    """What an expression was at a hit of a breakpoint."""

    event: int
    time_us: int
    value: float
    request: str
    """The request that the event is about; empty = none."""


def printed(
    simulation: Simulation, stop: Breakpoint, figure: Expression, until: int | None = None
) -> Generator[Progress, None, tuple[Printed, ...]]:
    """Run a simulation, and return what an expression is at each hit of a breakpoint.

    Args:
        simulation: the simulation, before its first event.
        stop: the breakpoint.
        figure: the expression.
        until: the last event; None = run to the end.

    Raises:
        SimulationError: the simulation cannot go on.
    """
    watch = Watch((stop,))
    needs = figure.needs - watch.needs
    found: list[Printed] = []
    with watched(simulation, watch) as records:
        others: list[Record] = []
        ends = [simulation.subscribe(kind, others.append) for kind in sorted(needs)]
        while not simulation.done and (until is None or simulation.events < until):
            simulation.run(max_events=1)
            if watch.check(simulation, records):
                value = float(figure.measure(simulation, (*records, *others)))
                found.append(Printed(simulation.events, simulation.now_us, value, _request_of(records, stop)))
            records.clear()
            others.clear()
            if not simulation.events % SLICE:
                yield Progress(simulation.events, simulation.now_us, until)
        for end in ends:
            end()
    return tuple(found)


def _request_of(records: Sequence[Record], stop: Breakpoint) -> str:
    """Return the first request that the records are about for which a breakpoint stops."""
    condition = stop.condition
    if isinstance(condition, RecordMatch):
        records = [record for record in records if condition.fits(record)]
        if condition.request:
            return condition.request
    return next((name for name in map(subject_of, records) if name), "")
