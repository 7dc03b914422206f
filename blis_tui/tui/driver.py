"""Moves a run a little at a time, so that keys are handled meanwhile, and plays it at a given speed."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.debugger.history import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.history import Move, Stop
    from blis_tui.results.conditions.breakpoints import Watch

_T = TypeVar("_T")

AT_ONCE_S: Final = 0.05
"""Maximum time in seconds that a move may block the screen at first."""
SLICE_S: Final = 0.008
"""Share of a tick for a run that is played, in seconds; the rest is for keys and painting."""
MOVE_SLICE_S: Final = 0.03
"""The same for a move, whose end the reader waits for: nearly two ticks, so that little but keys comes between."""
TICK_S: Final = 1 / 60
"""Interval of ticks, in seconds."""
TRACE_S: Final = 1 / 30
"""Interval of ticks in which values of watches are found, in seconds."""
GOING: Final = "going there"
"""Label of a move to a place that the user named."""
TO_END: Final = "to the end"
"""Label of a move to the last event."""
TO_LAST_CHANGE: Final = "to the last change"
TO_NEXT_CHANGE: Final = "to the next change"
"""Labels of moves to where something changes."""
TO_BREAKPOINT: Final = "to the next breakpoint"
"""Label of a move to the next hit."""
BACK_TO_BREAKPOINT: Final = "back to a breakpoint"
"""Label of a move back to the last hit."""
SPEEDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
"""Speeds in events per second; the position after the last one means no limit."""
FACTORS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
"""Speeds in simulated seconds per second; the position after the last one means no limit."""
_TABLES: Final[Mapping[bool, Sequence[float]]] = {False: SPEEDS, True: FACTORS}


class Speed:
    """The speed of a run: by events or by simulated time."""

    def __init__(self) -> None:
        self.by_time = False
        self._places = {False: SPEEDS.index(1_000), True: FACTORS.index(1)}

    @property
    def value(self) -> float | None:
        """Events per second, or simulated seconds per second; None = as fast as possible."""
        table, place = _TABLES[self.by_time], self._places[self.by_time]
        return table[place] if place < len(table) else None

    def change(self, by: int) -> None:
        """Change the speed by some positions of the table."""
        self._put(self.by_time, self._places[self.by_time] + by)

    def _put(self, by_time: bool, place: int) -> None:
        self._places[by_time] = max(0, min(place, len(_TABLES[by_time])))

    def text(self) -> str:
        """Return the display form: ``1,000 events/s``, ``time x 0.5``, ``full speed``."""
        value = self.value
        if value is None:
            return "full speed"
        return f"time x {value:g}" if self.by_time else f"{value:,.0f} events/s"

    def state(self) -> str:
        """Return the state to remember."""
        return f"{'time' if self.by_time else 'events'} {self._places[False]} {self._places[True]}"

    def restore(self, state: str) -> None:
        """Restore a remembered state; ignore an invalid one."""
        words = state.split()
        if len(words) == 3 and all(word.isdecimal() for word in words[1:]):  # a mode and two positions
            self.by_time = words[0] == "time"
            self._put(False, int(words[1]))
            self._put(True, int(words[2]))


class Pump:
    """At most one move in progress, and the action after it.

    Attributes:
        label: the move in a word or two; empty if none is in progress.
        progress: its latest progress.
    """

    def __init__(self, *, clock: Callable[[], float] = perf_counter) -> None:
        self.label = ""
        self.progress: Progress | None = None
        self._clock = clock
        self._move: Generator[Progress | None, None, Callable[[], None]] | None = None

    @property
    def busy(self) -> bool:
        """Whether a move is in progress."""
        return self._move is not None

    def start(self, move: Generator[Progress | None, None, _T], label: str, then: Callable[[_T], None]) -> None:
        """Start a move instead of the current one. ``then`` is called with its result.

        A move that yields None has nothing to do until the next :meth:`drive`.
        """
        self.stop()
        self._move = _followed(move, then)
        self.label = label

    def stop(self) -> bool:
        """Stop the move where it is; return whether there was one."""
        move = self._move
        self._move = None
        self.label = ""
        self.progress = None
        if move is not None:
            move.close()
        return move is not None

    def drive(self, seconds: float) -> None:
        """Continue for some time, until there is nothing to do at present, or to the end."""
        until = self._clock() + seconds
        while self._move is not None and self._clock() < until:
            try:
                progress = next(self._move)
                if progress is None:
                    return
                self.progress = progress
            except StopIteration as stop:
                self.stop()
                stop.value()
            except BaseException:
                self.stop()
                raise


def _followed(
    move: Generator[Progress | None, None, _T], then: Callable[[_T], None]
) -> Generator[Progress | None, None, Callable[[], None]]:
    return partial(then, (yield from move))


class Driver(Pump):
    """At most one move of a debugger in progress; it can also play a run at a given speed.

    Attributes:
        speed: the speed of play.
        playing: whether a run is being played.
    """

    def __init__(self, debugger: Debugger, *, clock: Callable[[], float] = perf_counter) -> None:
        super().__init__(clock=clock)
        self.speed = Speed()
        self.playing = False
        self._debugger = debugger
        self._played_from = (0.0, 0, 0)

    def play(self, watch: Watch | None, then: Callable[[Stop], None]) -> None:
        """Play forward at the current speed, to the next breakpoint or the end."""
        self.start(self._played(watch), "running", then)
        self.playing = True
        self.pace()

    def pace(self) -> None:
        """Restart the measurement of speed, after it has changed."""
        self._played_from = (self._clock(), self._debugger.event, self._debugger.time_us)

    def stop(self) -> bool:
        """Stop like any pump."""
        self.playing = False
        return super().stop()

    def _played(self, watch: Watch | None) -> Generator[Progress | None, None, Stop]:
        """Run one interval after the other, each to where the run should be by now."""
        while True:
            stretch = self._stretch(watch)
            if stretch is None:
                yield None
                continue
            stop = yield from stretch
            if stop.reason != "there":
                return stop
            yield Progress(self._debugger.event, self._debugger.time_us, None)

    def _stretch(self, watch: Watch | None) -> Move | None:
        """Return the move to where the run should be by now; None if it is there already."""
        debugger = self._debugger
        value = self.speed.value
        began, event, time_us = self._played_from
        if value is None:
            return debugger.run(watch)
        passed = self._clock() - began
        if self.speed.by_time:
            # The gap between two events may be longer than a reader would wait, so simulated time advances instead of
            # events.
            goal_us = time_us + int(passed * value * 1e6)
            upcoming = debugger.upcoming()
            wait = upcoming is not None and upcoming.time_us > goal_us
            return None if wait else debugger.run(watch, until_us=goal_us)
        goal = event + int(passed * value)
        wait = goal <= debugger.event and not debugger.at_end
        return None if wait else debugger.run(watch, until=goal)
