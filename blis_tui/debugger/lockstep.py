"""Two simulations that advance together by simulated time, and the first event at which they diverge.

Events at the same time are paired by order: the first event of one side with the first of the other, and so on.
Therefore going back exactly reverses going forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.compare.divergence import record_stream, search
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import SLICE, Progress, Stop, run_to_stop
from blis_tui.engine.records import StepFinished
from blis_tui.records.tables import record_dict

if TYPE_CHECKING:
    from collections.abc import Generator

    from blis_tui.cluster.reroute import RouteOverrides
    from blis_tui.compare.divergence import Divergence
    from blis_tui.debugger.history import Move
    from blis_tui.spec.model import Experiment

_BURSTS: Final = 32
"""Alternations between the two sides between two yields of a move."""
_NEVER: Final = 1 << 62


if TYPE_CHECKING:
    # The search for the first divergence; its result is None if the two runs are the same.
    Search = Generator[Progress, None, Divergence | None]


class Lockstep:
    """Two runs side by side.

    Args:
        left: one experiment.
        right: the other experiment.
        routes: routing decisions to override on the right side, as for ``Simulation``.

    Attributes:
        left: the debugger of the left side.
        right: the debugger of the right side.
    """

    def __init__(self, left: Experiment, right: Experiment, routes: RouteOverrides | None = None) -> None:
        self.left = Debugger(left)
        self.right = Debugger(right, routes=routes)

    @property
    def sides(self) -> tuple[Debugger, Debugger]:
        """The left and the right debugger."""
        return self.left, self.right

    @property
    def time_us(self) -> int:
        """Simulated time of the side that is further ahead, in microseconds."""
        return max(side.time_us for side in self.sides)

    @property
    def at_start(self) -> bool:
        """Whether neither side has had an event."""
        return not any(side.event for side in self.sides)

    @property
    def at_end(self) -> bool:
        """Whether no event follows on either side."""
        return all(side.at_end for side in self.sides)

    # ---- single moves ----

    def step(self) -> tuple[bool, bool]:
        """Run the earlier of the two next events, or both if they are simultaneous; return which sides moved."""
        times = [_next_us(side) for side in self.sides]
        earliest = min(times)
        moves = [earliest < _NEVER and time == earliest for time in times]
        left, right = (moves and side.step() for side, moves in zip(self.sides, moves, strict=True))
        return left, right

    def step_batch(self) -> Move:
        """Go forward to the end of the next engine step of either side."""
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
        return Stop("there")

    def back(self) -> Move:
        """Undo the latest step."""
        latest = max(_last(side) for side in self.sides)
        for side in [side for side in self.sides if side.event and _last(side) == latest]:
            yield from side.seek(side.event - 1)
        return Stop("start" if self.at_start else "there")

    # ---- moves ----

    def run(self, until_us: int | None = None) -> Move:
        """Run forward up to and including a time, or to the end of both sides."""
        goal = _NEVER - 1 if until_us is None else until_us
        while True:
            for _ in range(_BURSTS):
                if not self._run_behind(goal):
                    return self._end() if self.at_end else Stop("there")
            yield self._progress()

    def seek_time(self, time_us: int) -> Move:
        """Go to the last events at or before a time."""
        if time_us >= self.time_us and not all(_knows(side, time_us) for side in self.sides):
            return (yield from self.run(time_us))
        for side in self.sides:
            yield from side.seek_time(time_us)
        return self._end() if self.at_end else Stop("there")

    def seek(self, event: int) -> Move:
        """Go to the event with the given number on each side; their times may differ."""
        for side in self.sides:
            yield from side.seek(event)
        return self._end() if self.at_end else Stop("there")

    def seek_request(self, name: str) -> Move:
        """Go to the time at which a request arrives, on the first side that has a request of that name."""
        for side in self.sides:
            stop = yield from side.seek_request(name)
            if stop.reason != "unknown":
                return (yield from self.seek_time(side.time_us))
        return Stop("unknown")

    def to_start(self) -> Move:
        """Go to the start, before the first event."""
        yield from self.seek(0)
        return Stop("start")

    def to_end(self) -> Move:
        """Go to the end of both runs."""
        return (yield from self.seek_time(_NEVER - 1))

    def first_divergence(self) -> Search:
        """Search from the beginning for the first event whose records differ, without moving."""
        left, right = (record_stream(side.experiment, routes=side.routes) for side in self.sides)
        looking = search(left, right, record_dict)
        while True:
            try:
                record = next(looking)
            except StopIteration as end:
                found: Divergence | None = end.value
                return found
            yield Progress(record.event, record.time_us, None)

    # ---- implementation ----

    def _run_behind(self, goal: int) -> bool:
        """Run the side that is behind until the other side's turn; return False if nothing happens up to ``goal``."""
        left, right = self.sides
        left_us, right_us = _next_us(left), _next_us(right)
        if min(left_us, right_us) > goal:
            return False
        if left_us == right_us:
            for side in self.sides:
                run_to_stop(side.run(until_us=left_us))
        else:
            behind, other_us = (left, right_us) if left_us < right_us else (right, left_us)
            run_to_stop(behind.run(until=behind.event + SLICE, until_us=min(goal, other_us - 1)))
        return True

    def _end(self) -> Stop:
        return Stop("failed" if any(side.failure is not None for side in self.sides) else "end")

    def _progress(self) -> Progress:
        return Progress(sum(side.event for side in self.sides), self.time_us, None)


def _next_us(side: Debugger) -> int:
    """Return the time of a side's next event."""
    upcoming = side.upcoming()
    return _NEVER if upcoming is None else upcoming.time_us


def _last(side: Debugger) -> tuple[int, int]:
    """Return the time of a side's latest event, and its number among the events at that time."""
    if not side.event:
        return (-1, 0)
    time_us = side.tape.time_us(side.event)
    return time_us, side.event - side.tape.at_time(time_us - 1)


def _knows(side: Debugger, time_us: int) -> bool:
    """Return whether all of a side's events up to a time are recorded."""
    return side.complete or side.tape.at_time(time_us) < side.frontier
