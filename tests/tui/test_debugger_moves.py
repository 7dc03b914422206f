"""Every key that moves the debugger, by where it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.actions import parse

import blis_tui
from blis_tui.tui.actions import of_scope
from blis_tui.tui.screens import stage
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.stage import Stage
from tests.tui.debugging import debugging, experiment

if TYPE_CHECKING:
    import pytest


def test_every_action_of_the_table_is_handled() -> None:
    names = {action.name: parse(action.handler)[1] for action in of_scope("debugger")}
    missing = [name for name, handler in names.items() if not hasattr(DebuggerScreen, f"action_{handler}")]
    assert not missing


async def test_events_forwards_and_backwards() -> None:
    async with debugging() as here:
        await here.press("n", "n", "]")
        assert here.event == 3
        await here.press("[")
        assert here.event == 2
        await here.press("home")
        assert here.event == 0
        await here.press("[")
        assert here.event == 0
        assert "This is the start" in here.said()


async def test_phases_of_a_step() -> None:
    async with debugging() as here:
        while not (here.event and here.debugger.tape.is_step(here.event)):
            await here.press("s")
        step = here.event
        assert here.debugger.phase == 0
        await here.press("s", "}", "s")
        assert (here.event, here.debugger.phase) == (step, 3)
        await here.press("{")
        assert (here.event, here.debugger.phase) == (step, 2)
        await here.press("f")
        assert (here.event, here.debugger.phase) == (step, 3)
        await here.press("s")
        assert here.event == step + 1
        await here.press("{")
        assert (here.event, here.debugger.phase) == (step, 3)


async def test_batches() -> None:
    async with debugging() as here:
        await here.press("f", "f")
        assert here.debugger.tape.is_step(here.event)
        second = here.event
        await here.press("F")
        assert here.debugger.tape.is_step(here.event)
        assert here.event < second
        await here.press("f")
        assert here.event == second


async def test_to_the_end_and_beyond() -> None:
    async with debugging(requests=20) as here:
        await here.press("end")
        assert here.debugger.at_end
        end = here.event
        report = here.debugger.report().to_json()
        plain = blis_tui.Simulation(experiment("kv-pressure", 20))
        plain.run()
        assert report == plain.report().to_json()
        await here.press("n")
        assert here.event == end
        assert "end of the run" in here.said()
        await here.press("home", "end")
        assert here.event == end
        assert here.debugger.report().to_json() == report


async def test_play_and_pause() -> None:
    async with debugging(requests=None) as here:
        await here.pilot.press("c")
        assert here.session.driver.playing
        while here.event < 20:
            await here.pilot.pause(0.02)
        await here.pilot.press("space")
        assert not here.session.driver.busy
        stopped = here.event
        await here.pilot.pause(0.1)
        assert here.event == stopped
        await here.pilot.press("c")
        await here.pilot.press("escape")
        assert not here.session.driver.busy


async def test_a_run_waits_while_a_question_is_answered_and_then_goes_on() -> None:
    async with debugging(requests=None) as here:
        await here.pilot.press("c")
        while here.event < 20:
            await here.pilot.pause(0.02)
        await here.pilot.press("?")
        assert not here.on_top
        asked = here.event
        await here.pilot.pause(0.1)
        assert here.event == asked
        await here.pilot.press("escape")
        assert here.session.driver.playing
        for _ in range(100):
            await here.pilot.pause(0.02)
            if here.event > asked:
                break
        assert here.event > asked


async def test_speed() -> None:
    async with debugging() as here:
        speed = here.session.driver.speed
        assert speed.text() == "1,000 events/s"
        await here.press(">")
        assert speed.text() == "2,000 events/s"
        await here.press("<", "<")
        assert speed.text() == "500 events/s"
        await here.press("=")
        assert speed.text() == "time x 1"
        await here.press(">")
        assert speed.text() == "time x 2"
        for _ in range(20):
            await here.press(">")
        assert speed.text() == "full speed"


async def test_escape_stops_a_long_way() -> None:
    async with debugging("quickstart", requests=4000) as here:
        await here.pilot.press("end")
        busy = [here.session.driver.busy]
        await here.pilot.press("escape")
        busy.append(here.session.driver.busy)
        assert busy == [True, False]
        assert not here.debugger.at_end
        moment = here.debugger.moment()
        assert moment.event == here.event


async def test_play_stops_at_a_breakpoint() -> None:
    async with debugging(breaks=("preempted",)) as here:
        for _ in range(20):
            await here.press(">")
        await here.press("c")
        assert any(record.kind == "preempted" for record in here.debugger.moment().records)
        assert "preempted" in here.said()


async def test_go_to() -> None:
    async with debugging(requests=40) as here:
        for text, event in (("1234", 1234), ("1,000", 1000), ("0", 0)):
            await here.press("g")
            await here.type(text)
            assert here.event == event
        await here.press("g")
        await here.type("request_31")
        assert here.debugger.tape.row(here.event).kind == "arrived"
        assert here.session.selection.request == "request_31"
        assert here.debugger.tape.life("request_31")[0].event == here.event
        await here.press("g")
        await here.type("99999999")
        assert here.debugger.at_end


async def test_go_to_a_time_and_through_time() -> None:
    async with debugging(requests=40) as here:
        await here.press("g")
        await here.type("1.5s")
        tape = here.debugger.tape
        assert here.debugger.time_us <= 1_500_000
        assert here.debugger.simulation.peek() is not None
        upcoming = here.debugger.upcoming()
        assert upcoming is not None
        assert upcoming.time_us > 1_500_000
        first = here.debugger.time_us
        await here.press("M")
        assert here.event == tape.at_time(first + 100_000)
        await here.press("o")
        assert here.debugger.time_us <= first + 100_000 - 1_000_000 + 100_000
        await here.press("O")
        await here.press("m")
        assert abs(here.debugger.time_us - first) < 150_000


async def test_a_place_that_is_none_is_said_before_enter() -> None:
    async with debugging() as here:
        await here.press("g")
        await here.type("request_9999")
        assert here.event == 0
        assert "No request of this run is named" in here.said()


async def test_jumps_are_remembered() -> None:
    async with debugging() as here:
        await here.press("n", "n", "n", "end", "backspace")
        assert here.event == 3
        await here.press("backspace")
        assert "no earlier place" in here.said()


async def test_to_the_cursor() -> None:
    async with debugging(at="500") as here:
        await here.press("1", "up", "up", "up", "t")
        assert here.event == 497
        await here.press("down", "down", "enter")
        assert here.event == 499


async def test_breakpoints_forwards_and_backwards() -> None:
    async with debugging() as here:
        await here.press("r")
        assert "no breakpoint" in here.said()
        await here.press("B")
        await here.type("preempted")
        await here.press("r")
        first = here.event
        await here.press("r", "r")
        third = here.event
        assert first < third
        await here.press("ctrl+r", "ctrl+r")
        assert here.event == first
        await here.press("ctrl+r")
        assert here.event == 0


async def test_hits_of_a_filter() -> None:
    async with debugging(at="300") as here:
        await here.press("/")
        await here.type("completed")
        await here.press("full_stop")
        found = here.event
        assert found > 300
        assert here.debugger.tape.row(found).kind == "completed" or here.debugger.moment().step is not None
        await here.press("full_stop")
        assert here.event > found
        await here.press("comma")
        assert here.event == found


async def test_where_painting_is_slow_a_run_gets_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with debugging(requests=None) as here:
        screen = here.screen
        now_s, paints = 1e9, 0
        monkeypatch.setattr(stage, "perf_counter", lambda: now_s)

        def drive(seconds: float) -> None:
            nonlocal now_s
            now_s += seconds

        def paint(painted: Stage) -> None:
            nonlocal now_s, paints
            paints += 1
            painted._painted_s, painted._just_painted = now_s, True
            now_s += 2.0

        monkeypatch.setattr(here.session.driver, "drive", drive)
        monkeypatch.setattr(Stage, "_paint", paint)
        here.session.driver.start(here.debugger.run(), "to the end", lambda _stop: None)
        began_s = screen._painted_s = now_s
        while now_s < began_s + 100:
            screen._tick()
        here.session.driver.stop()
        assert paints > 5
        assert 2.0 * paints <= 2.0 + 100 / 4
