"""Figures over a whole run: their values after every event, and what an expression is at each hit of a breakpoint.

Both are found after the fact, in a replay of what is recorded.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from dataclasses import replace
from functools import cached_property
from math import isnan, nan
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import InputError
from blis_tui.debugger.history import SLICE, Progress
from blis_tui.engine.records import streamed_kinds
from blis_tui.output.tables import csv_line
from blis_tui.results.conditions.breakpoints import RecordMatch, Watch, parse_breakpoint
from blis_tui.results.conditions.language import ConditionError, parse_expression
from blis_tui.results.conditions.vocabulary import subject_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
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
        return max((value for value in self._values[start:stop] if not isnan(value)), default=nan)

    @property
    def top(self) -> float:
        """The largest value so far; 0 if there is none."""
        return max((value for value in self._values if not isnan(value)), default=0)


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
        for kind in sorted(frozenset[str]().union(*(trace.figure.needs for trace in self.traces))):
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


AT: Final = " at "
"""Between an expression and the breakpoint at which it is printed."""


@dataclass(frozen=True, slots=True)
class Print:
    """A wish to know what an expression is at each hit of a breakpoint."""

    figure: Expression
    stop: Breakpoint

    def __str__(self) -> str:
        return f"{self.figure}{AT}{self.stop.text}"


def parse_print(text: str, experiment: Experiment) -> Print:
    """Parse ``EXPRESSION at BREAKPOINT``. Raises ConditionError if it is invalid."""
    figure, at, stop = text.partition(AT)
    if not at:
        hint = "such as `kv.utilization at preempted`"
        raise ConditionError("`at` and a breakpoint are missing", text, len(text), help=hint)
    try:
        return Print(
            parse_expression(figure, instances=experiment.instance_numbers),
            parse_breakpoint(" " * (len(text) - len(stop)) + stop, experiment),
        )
    except ConditionError as error:
        raise ConditionError(error.message, text, error.column, error.end_column, help=error.help) from error


class Printed(NamedTuple):
    """What an expression was at a hit of a breakpoint."""

    event: int
    time_us: int
    value: float
    request: str
    """The request that the event is about; empty = none."""


COLUMNS: Final = Printed._fields


def printed_csv(wish: Print, rows: Iterable[Printed]) -> Iterator[str]:
    """Yield the lines of a CSV file; an undefined value is an empty cell."""
    yield csv_line(COLUMNS)
    for row in rows:
        yield csv_line((row.event, row.time_us, wish.figure.plain_text(row.value), row.request))


def printed(
    simulation: Simulation, wish: Print, until: int | None = None
) -> Generator[Progress, None, tuple[Printed, ...]]:
    """Run a simulation, and return what an expression is at each hit of a breakpoint.

    Args:
        simulation: the simulation, before its first event.
        wish: the expression and the breakpoint.
        until: the last event; None = run to the end.

    Raises:
        SimulationError: the simulation cannot go on.
    """
    stop, figure = wish.stop, wish.figure
    watch = Watch((stop,))
    watch.reset(simulation)
    rows: list[Printed] = []
    records: list[Record] = []
    ends = [
        simulation.subscribe(kind, records.append) for kind in sorted({*streamed_kinds(), *watch.needs, *figure.needs})
    ]
    while not simulation.done and (until is None or simulation.events < until):
        simulation.run(max_events=1)
        if watch.check(simulation, records):
            value = float(figure.measure(simulation, records))
            rows.append(Printed(simulation.events, simulation.now_us, value, _request_of(records, stop)))
            if stop.once:
                break
        records.clear()
        if not simulation.events % SLICE:
            yield Progress(simulation.events, simulation.now_us, until)
    for end in ends:
        end()
    return tuple(rows)


def _request_of(records: Sequence[Record], stop: Breakpoint) -> str:
    """Return the request that a breakpoint stops for; else that of the record that names the event."""
    condition = stop.condition
    if isinstance(condition, RecordMatch):
        if condition.request:
            return condition.request
        return next((name for name in map(subject_of, filter(condition.fits, records)) if name), "")
    return next((subject_of(record) for record in records if record.shown.own_event), "")


# ---- the table ----

_LIMIT: Final = re.compile(r"(<=|>=|==|!=|<|>)\s*(-?[0-9.]+)")
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": float.__lt__,
    "<=": float.__le__,
    ">": float.__gt__,
    ">=": float.__ge__,
    "==": float.__eq__,
    "!=": float.__ne__,
}


@dataclass(frozen=True, kw_only=True)
class Printout:
    """The values, and how the reader wants to see them."""

    wish: Print
    rows: tuple[Printed, ...]
    order: str = COLUMNS[0]
    """The column by which they are sorted."""
    reverse: bool = False
    wanted: str = ""
    """The filter, as written."""

    @cached_property
    def shown(self) -> Sequence[Printed]:
        """The rows that match, in their order; equal ones by event."""
        fits = parse_wanted(self.wanted)
        rows = [row for row in self.rows if fits(self, row)]
        at = COLUMNS.index(self.order)
        return sorted(rows, key=lambda row: (row[at] != row[at], row[at]), reverse=self.reverse)

    def arranged(self, how: str) -> Printout:
        """Return them sorted by the ``next`` or ``previous`` column, or in ``reverse``."""
        if how == "reverse":
            return replace(self, reverse=not self.reverse)
        step = 1 if how == "next" else -1
        return replace(self, order=COLUMNS[(COLUMNS.index(self.order) + step) % len(COLUMNS)])

    def text(self, row: Printed) -> str:
        """Return a value with its unit."""
        return self.wish.figure.text_of(row.value)


def parse_wanted(text: str) -> Callable[[Printout, Printed], bool]:
    """Parse a filter: comparisons of the value, and parts of requests' names or values; all must match.

    Raises:
        InputError: a comparison has no number.
    """
    limits = [(_COMPARE[sign], _number(number)) for sign, number in _LIMIT.findall(text)]
    words = _LIMIT.sub(" ", text).split()
    if any(word[0] in "<>=!" for word in words):
        raise InputError("a number is missing", help="such as `> 0.9`")

    def fits(printout: Printout, row: Printed) -> bool:
        content = f"{row.request} {printout.text(row)}"
        return all(compare(row.value, limit) for compare, limit in limits) and all(word in content for word in words)

    return fits


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"`{text}` is no number", help="such as `> 0.9`") from error
