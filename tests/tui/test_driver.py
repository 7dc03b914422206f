"""Playing a run at a pace, against a clock of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import Stop
from blis_tui.results.conditions.breakpoints import Watch, parse_breakpoint
from blis_tui.tui.driver import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPERIMENT = blis_tui.load("quickstart", set={"workload.requests": 20})


class Clock:
    """Stands still unless told; each look takes a microsecond."""

    def __init__(self) -> None:
        self.now = 0.0
        self._looks: Iterator[int] = iter(range(10**9))

    def __call__(self) -> float:
        return self.now + next(self._looks) * 1e-6


def test_events_come_at_the_speed_set_and_none_are_hurried() -> None:
    clock, ended = Clock(), list[Stop]()
    driver = Driver(Debugger(EXPERIMENT), clock=clock)
    debugger = driver._debugger
    driver.play(None, ended.append)
    assert driver.speed.text() == "1,000 events/s"
    driver.drive(0.01)
    assert debugger.event <= 1
    for tenth in range(1, 4):
        clock.now = tenth / 10
        driver.drive(0.01)
        assert 100 * tenth <= debugger.event <= 100 * tenth + 5
    assert driver.playing
    assert not ended
    driver.speed.change(-3)
    driver.pace()
    before = debugger.event
    clock.now += 0.1
    driver.drive(0.01)
    assert 9 <= debugger.event - before <= 12
    assert driver.stop()
    assert not driver.busy


def test_a_run_that_is_played_stops_at_a_breakpoint_and_says_so() -> None:
    clock, ended = Clock(), list[Stop]()
    driver = Driver(Debugger(EXPERIMENT), clock=clock)
    driver.play(Watch([parse_breakpoint("event 50", EXPERIMENT)]), ended.append)
    clock.now = 10.0
    driver.drive(0.5)
    assert [arrival.reason for arrival in ended] == ["breakpoint"]
    assert driver._debugger.event == 50
    assert not driver.playing
    assert not driver.label
