"""Drives a debugger's journeys a little at a time, so that keys are answered while it runs."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.debugger.breakpoints import Watch
    from blis_tui.debugger.debugger import Arrival, Debugger, Journey, Progress

AT_ONCE_S: Final = 0.05
"""How long a journey may take before the screen goes on without waiting for it, in seconds."""
SLICE_S: Final = 0.008
"""How much of a tick the simulation may take; the rest is for keys and painting."""
TICK_S: Final = 1 / 60
"""How often it gets a slice."""
SPEEDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
"""Speeds of play, in events a second; beyond the last one there is no limit."""
FACTORS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
"""Speeds of play, in simulated time for each second watched; beyond the last one there is no limit."""


class Speed:
    """How fast a run is played: by events or by simulated time."""

    def __init__(self) -> None:
        self.by_time = False
        self._events = SPEEDS.index(1_000)
        self._factor = FACTORS.index(1)

    @property
    def _table(self) -> tuple[float, ...]:
        return FACTORS if self.by_time else SPEEDS

    @property
    def value(self) -> float | None:
        """Events a second, or simulated seconds a second; None = as fast as possible."""
        place = self._factor if self.by_time else self._events
        return self._table[place] if place < len(self._table) else None

    def change(self, by: int) -> None:
        """Faster or slower by some places of the table."""
        if self.by_time:
            self._factor = max(0, min(self._factor + by, len(FACTORS)))
        else:
            self._events = max(0, min(self._events + by, len(SPEEDS)))

    def text(self) -> str:
        """As shown: ``1,000 events/s``, ``x 0.5 time``, ``full speed``."""
        value = self.value
        if value is None:
            return "full speed"
        return f"time x {value:g}" if self.by_time else f"{value:,.0f} events/s"

    def state(self) -> str:
        """For remembering."""
        return f"{'time' if self.by_time else 'events'} {self._events} {self._factor}"

    def restore(self, state: str) -> None:
        """As remembered; nonsense changes nothing."""
        words = state.split()
        if len(words) == 3 and all(word.isdecimal() for word in words[1:]):  # a mode and two places
            self.by_time = words[0] == "time"
            self._events = min(int(words[1]), len(SPEEDS))
            self._factor = min(int(words[2]), len(FACTORS))


class Driver:
    """At most one journey of a debugger, under way.

    Attributes:
        label: what the journey is, in a word or two; empty when none is under way.
        progress: where it last was.
        speed: how fast a run is played.
    """

    def __init__(self, debugger: Debugger, *, clock: Callable[[], float] = perf_counter) -> None:
        self.debugger = debugger
        self.label = ""
        self.progress: Progress | None = None
        self.speed = Speed()
        self._clock = clock
        self._journey: Journey | None = None
        self._watch: Watch | None = None
        self._playing = False
        self._played_from = (0.0, 0, 0)

    @property
    def busy(self) -> bool:
        """Whether a journey is under way."""
        return self._journey is not None or self._playing

    @property
    def playing(self) -> bool:
        """Whether a run is being played."""
        return self._playing

    def go(self, journey: Journey, label: str) -> Arrival | None:
        """Begin a journey; one that takes a moment only is over when this returns. Another one is given up."""
        self.stop()
        self._journey = journey
        self.label = label
        return self.drive(AT_ONCE_S)

    def play(self, watch: Watch | None) -> None:
        """Begin to play forward, at the speed set, to the next breakpoint or the end."""
        self.stop()
        self._playing = True
        self._watch = watch
        self.label = "running"
        self.pace()

    def pace(self) -> None:
        """Count the speed from here: it has changed."""
        self._played_from = (self._clock(), self.debugger.event, self.debugger.time_us)

    def stop(self) -> bool:
        """Give up the journey; the debugger stays where it has got to. Returns whether there was one."""
        was = self.busy
        if self._journey is not None:
            self._journey.close()
        self._journey = None
        self._playing = False
        self.label = ""
        self.progress = None
        return was

    def drive(self, seconds: float) -> Arrival | None:
        """Go on for a while; returns how the journey ended, if it did."""
        until = self._clock() + seconds
        while True:
            if self._journey is None and not self._begin_stretch():
                return None
            arrival = self._advance(until)
            if arrival is None:
                return None
            self._journey = None
            if not (self._playing and arrival.reason == "there"):
                self.stop()
                return arrival
            if self._clock() >= until:
                return None

    def _advance(self, until: float) -> Arrival | None:
        journey = self._journey
        while journey is not None:
            try:
                self.progress = next(journey)
            except StopIteration as stop:
                arrival: Arrival = stop.value
                return arrival
            except BaseException:
                self._journey = None
                self.stop()
                raise
            if self._clock() >= until:
                break
        return None

    def _begin_stretch(self) -> bool:
        """While playing: the journey to where the run should be by now."""
        if not self._playing:
            return False
        debugger = self.debugger
        value = self.speed.value
        began, event, time_us = self._played_from
        if value is None:
            self._journey = debugger.run(self._watch)
            return True
        passed = self._clock() - began
        if self.speed.by_time:
            # From one event to the next may take longer than anybody waits: the time is what runs.
            goal_us = time_us + int(passed * value * 1e6)
            upcoming = debugger.upcoming()
            if upcoming is not None and upcoming.time_us > goal_us:
                return False
            self._journey = debugger.run(self._watch, until_us=goal_us)
            return True
        goal = event + int(passed * value)
        if goal <= debugger.event and not debugger.at_end:
            return False
        self._journey = debugger.run(self._watch, until=goal)
        return True
