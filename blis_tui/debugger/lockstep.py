"""Two simulations moved together by simulated time, and the first event at which they part.

Whatever the two do at one time is paired by order: the first event of one with the first of the other, and so on. So
going back is the exact reverse of going forward.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from blis_tui.debugger.debugger import SLICE, Arrival, Debugger, Progress, arrive
from blis_tui.engine.records import StepFinished
from blis_tui.errors import InvariantError, SimulationError
from blis_tui.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Generator

    from blis_tui.debugger.debugger import Journey
    from blis_tui.engine.records import Record
    from blis_tui.spec.model import Experiment

NEIGHBOURS: Final = 3
"""Records both sides share that are remembered before the first that differs."""
_BURSTS: Final = 32
"""Turns of one side or the other between two looks at whether to go on."""
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that two records of one kind disagree about."""

    name: str
    left: object
    right: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where the records of two runs first differ; None for a side whose run has ended there."""

    event: int
    left: Record | None
    right: Record | None
    before: tuple[Record, ...]
    """The last records that both sides share."""

    @property
    def fields(self) -> tuple[FieldChange, ...]:
        """What differs in the two records, where they are of one kind."""
        left, right = self.left, self.right
        if left is None or type(left) is not type(right):
            return ()
        pairs = ((one.name, getattr(left, one.name), getattr(right, one.name)) for one in fields(left))
        return tuple(FieldChange(name, old, new) for name, old, new in pairs if old != new)


if TYPE_CHECKING:
    # The way to the first divergence; None when the two runs do the same.
    Search = Generator[Progress, None, Divergence | None]


class Lockstep:
    """Two runs side by side.

    Args:
        left: one experiment.
        right: the other.

    Attributes:
        left: the debugger of the one.
        right: the debugger of the other.
    """

    def __init__(self, left: Experiment, right: Experiment) -> None:
        self.left = Debugger(left)
        self.right = Debugger(right)

    @property
    def sides(self) -> tuple[Debugger, Debugger]:
        """Both."""
        return self.left, self.right

    @property
    def time_us(self) -> int:
        """Simulated time: that of the later side, in microseconds."""
        return max(side.time_us for side in self.sides)

    @property
    def at_start(self) -> bool:
        """Whether nothing has happened on either side."""
        return not any(side.event for side in self.sides)

    @property
    def at_end(self) -> bool:
        """Whether nothing follows on either side."""
        return all(side.at_end for side in self.sides)

    # ---- one move ----

    def step(self) -> tuple[bool, bool]:
        """The earlier of the two next events, or both where they are simultaneous; returns which sides moved."""
        times = [_next_us(side) for side in self.sides]
        earliest = min(times)
        moves = [earliest < _NEVER and time == earliest for time in times]
        left, right = (moves and side.step() for side, moves in zip(self.sides, moves, strict=True))
        return left, right

    def step_batch(self) -> Journey:
        """Forward to the end of the next engine step of either side."""
        for count in range(1, _NEVER):
            moved = self.step()
            if not any(moved):
                return self._end()
            if any(
                went and isinstance(record, StepFinished)
                for went, side in zip(moved, self.sides, strict=True)
                for record in side.records_of(side.event)
            ):
                break
            if not count % SLICE:
                yield self._progress()
        return Arrival("there")

    def back(self) -> Journey:
        """Undo one move."""
        latest = max(_last(side) for side in self.sides)
        for side in [side for side in self.sides if side.event and _last(side) == latest]:
            yield from side.seek(side.event - 1)
        return Arrival("start" if self.at_start else "there")

    # ---- journeys ----

    def run(self, until_us: int | None = None) -> Journey:
        """Forward to a time, that microsecond included, or to the end of both."""
        goal = _NEVER - 1 if until_us is None else until_us
        while True:
            for _ in range(_BURSTS):
                if not self._burst(goal):
                    return self._end() if self.at_end else Arrival("there")
            yield self._progress()

    def seek_time(self, time_us: int) -> Journey:
        """To the last events that are not later than a time."""
        if time_us >= self.time_us and not all(_knows(side, time_us) for side in self.sides):
            return (yield from self.run(time_us))
        for side in self.sides:
            yield from side.seek_time(time_us)
        return self._end() if self.at_end else Arrival("there")

    def seek_event(self, event: int) -> Journey:
        """To the event of that number on each side; their times may differ."""
        for side in self.sides:
            yield from side.seek(event)
        return self._end() if self.at_end else Arrival("there")

    def seek_request(self, name: str) -> Journey:
        """To the time at which a request arrives, on the first side that has one of that name."""
        for side in self.sides:
            arrival = yield from side.seek_request(name)
            if arrival.reason != "unknown":
                return (yield from self.seek_time(side.time_us))
        return Arrival("unknown")

    def to_start(self) -> Journey:
        """To before the first event."""
        yield from self.seek_event(0)
        return Arrival("start")

    def to_end(self) -> Journey:
        """To the end of both runs."""
        return (yield from self.seek_time(_NEVER - 1))

    def first_divergence(self) -> Search:
        """Look for the first event whose records differ, from the beginning; the position stays."""
        left, right = (_Stream(side.experiment) for side in self.sides)
        shared: deque[Record] = deque(maxlen=NEIGHBOURS)
        while not (left.over and right.over):
            ours, theirs = left.more(), right.more()
            if ours == theirs:
                shared.extend(ours[-NEIGHBOURS:])
                yield Progress(left.events, left.time_us, None)
                continue
            for old, new in zip_longest(ours, theirs):
                if old != new:
                    event = min(record.event for record in (old, new) if record is not None)
                    return Divergence(event=event, left=old, right=new, before=tuple(shared))
                shared.append(old)
        return None

    # ---- underneath ----

    def _burst(self, goal: int) -> bool:
        """What follows on the side that is behind, until the other one's turn; False = nothing up to ``goal``."""
        left, right = self.sides
        left_us, right_us = _next_us(left), _next_us(right)
        if min(left_us, right_us) > goal:
            return False
        if left_us == right_us:
            for side in self.sides:
                arrive(side.run(until_us=left_us))
        else:
            behind, other_us = (left, right_us) if left_us < right_us else (right, left_us)
            arrive(behind.run(until=behind.event + SLICE, until_us=min(goal, other_us - 1)))
        return True

    def _end(self) -> Arrival:
        return Arrival("failed" if any(side.failure is not None for side in self.sides) else "end")

    def _progress(self) -> Progress:
        return Progress(sum(side.event for side in self.sides), self.time_us, None)


def _next_us(side: Debugger) -> int:
    """When a side's next event happens."""
    upcoming = side.upcoming()
    return _NEVER if upcoming is None else upcoming.time_us


def _last(side: Debugger) -> tuple[int, int]:
    """A side's latest event: its time, and its number among those of that time."""
    if not side.event:
        return (-1, 0)
    time_us = side.tape.time_us(side.event)
    return time_us, side.event - side.tape.at_time(time_us - 1)


def _knows(side: Debugger, time_us: int) -> bool:
    """Whether it is known what a side does up to a time."""
    return side.complete or side.tape.at_time(time_us) < side.frontier


class _Stream:
    """The records of a fresh run, a few events at a time."""

    __slots__ = ("_records", "_simulation", "over")

    def __init__(self, experiment: Experiment) -> None:
        self._simulation = Simulation(experiment, check="off")
        self._records: list[Record] = []
        self._simulation.subscribe("all", self._records.append)
        self.over = False

    @property
    def events(self) -> int:
        """Events so far."""
        return self._simulation.events

    @property
    def time_us(self) -> int:
        """Time of the latest event."""
        return self._simulation.now_us

    def more(self) -> list[Record]:
        """The records of the next events; of one that fails halfway, none."""
        self._records.clear()
        if self.over:
            return []
        simulation = self._simulation
        try:
            simulation.run(max_events=SLICE)
            self.over = simulation.done
        except SimulationError as error:
            self.over = True
            last = error.event - 1 if isinstance(error, InvariantError) else simulation.events
            return [record for record in self._records if record.event <= last]
        return list(self._records)
