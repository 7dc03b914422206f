"""The list of warnings."""

from __future__ import annotations

from asyncio import timeout
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explain import explain_event
from blis_tui.results.lints.table import LINTS
from blis_tui.tui.panes.instances import instances_lines
from blis_tui.tui.panes.warnings import WarningsPane, warnings_page
from tests.tui.debugging import NARROW, NORMAL, debugging
from tests.tui.pane_harness import OnePane, debugger, text_of, view_at
from tests.tui.screens import check_screen, press, screen_text, settle

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

END = 10**9


@pytest.fixture(scope="module")
def pressed() -> Debugger:
    return debugger("kv-pressure", END)


@pytest.fixture(scope="module")
def calm() -> Debugger:
    return debugger("quickstart", 400)


# ---- the text ----


@pytest.mark.parametrize("width", [30, 38, 78, 138])
def test_lines_fit(width: int, pressed: Debugger) -> None:
    for chosen in (None, 1):
        page = warnings_page(pressed.checkup(), width, chosen=chosen)
        assert all(line.cell_length <= width for line in page.lines)
        assert len(page.places) == 2
        for first, end in page.places:
            assert page.lines[first].plain.startswith("! ")
            assert not page.lines[first - 1].plain.strip()
            assert not page.lines[end].plain.strip()


def test_every_check_is_accounted_for(pressed: Debugger) -> None:
    text = warnings_page(pressed.checkup(), 200, chosen=None).content.plain
    lines = text.splitlines()
    assert sum(line.startswith(("! ", "✗ ", "✓ ", "- ")) for line in lines) == len(LINTS)
    assert lines[0] == "2 warnings, 21 checks passed in the whole run (6,183 events)"


def test_how_far_it_looks_is_said(calm: Debugger) -> None:
    text = warnings_page(calm.checkup(), 200, chosen=None).content.plain
    assert text.startswith("no warnings: ")
    assert "up to event 400" in text


def test_a_run_without_events_has_its_warnings() -> None:
    made = Debugger(blis_tui.load("kv-pressure", set={"horizon_us": 1}))
    assert made.at_end
    page = warnings_page(made.checkup(), 200, chosen=None)
    assert page.content.plain.startswith("1 warning, ")
    assert "in the whole run (0 events)" in page.content.plain
    assert "The run ends without an event." in explain_event(made, 0).to_text()


async def test_back_in_the_middle_of_a_step_the_checks_look_at_its_middle() -> None:
    made = debugger("kv-pressure", 400)
    event = next(one for one in range(400, 0, -1) if made.tape.is_step(one))
    app = OnePane(WarningsPane(), view_at(made, event))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        assert f"up to event {event}" in screen_text(app)
        run_to_stop(made.back_phase())
        made.phase = 0
        made._moment = None
        app.pane.view = view_at(made)
        await settle(pilot)
        assert f"up to event {event - 1}" in screen_text(app)


def test_in_the_middle_of_a_step_the_run_is_not_over_although_no_event_waits() -> None:
    made = debugger("pipeline-bubble", END, workload__requests=20)
    for event in range(made.frontier - 200, made.frontier):
        run_to_stop(made.seek(event - 1))
        made.step_phase()
        if made.phase == 0:
            text = warnings_page(made.checkup(), 200, chosen=None).content.plain
            assert f"up to event {event - 1:,}" in text.splitlines()[0]
            assert "The run is over." not in text_of(instances_lines(view_at(made), 100))


def test_a_failure_stands_above_all_warnings(pressed: Debugger) -> None:
    failure = "instance 0 cannot go on at t=5 us\n  |\n  = help: raise kv_blocks"
    page = warnings_page(pressed.checkup(), 80, chosen=None, failure=failure)
    lines = [line.plain.rstrip() for line in page.lines]
    assert lines[:4] == ["✗ instance 0 cannot go on at t=5 us", "  help: raise kv_blocks", "", lines[3]]
    assert lines[3].startswith("2 warnings")
    assert all(lines[first].startswith("! ") for first, _ in page.places)


def test_before_the_first_event() -> None:
    text = warnings_page(None, 200, chosen=None).content.plain
    assert "Nothing has happened yet" in text
    assert "Press n" in text


# ---- the pane ----


def titled() -> WarningsPane:
    """With the title that the debugger's screen gives it."""
    pane = WarningsPane()
    pane.border_title = "Warnings"
    return pane


@pytest.mark.parametrize("size", [NARROW, NORMAL, (38, 6)])
async def test_warnings(size: tuple[int, int], pressed: Debugger, file_regression: FileRegressionFixture) -> None:
    app = OnePane(titled(), view_at(pressed))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "warnings")


async def test_no_warnings(calm: Debugger, file_regression: FileRegressionFixture) -> None:
    app = OnePane(titled(), view_at(calm))
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "warnings-none")


async def test_the_cursor_picks(pressed: Debugger) -> None:
    pane = WarningsPane()
    app = OnePane(pane, view_at(pressed))
    async with app.run_test(size=(80, 17)) as pilot:
        await settle(pilot)
        assert pane.count == 2
        await press(pilot, "enter", "down", "enter")  # no mark, then a warning without a place
        assert app.picked == []
        await press(pilot, "down", "enter")
        assert (app.picked[0].request, app.picked[0].go) == ("request_116", True)
        await press(pilot, "down", "down", "down", "down")  # behind the last one there is only text
        assert "✓" in screen_text(app)
        await press(pilot, "up", "down", "enter")
        assert app.picked[1].request == "request_116"


async def test_the_mouse_picks(pressed: Debugger) -> None:
    pane = WarningsPane()
    app = OnePane(pane, view_at(pressed))
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        row = next(y for y, line in enumerate(screen_text(app).splitlines()) if "request_116" in line)
        await pilot.click(offset=(20, row))
        await settle(pilot)
        assert (app.picked[0].request, app.picked[0].go) == ("request_116", False)
        await pilot.click(offset=(20, row), times=2)
        await settle(pilot)
        assert app.picked[-1].go


async def test_while_playing_it_looks_now_and_then(pressed: Debugger) -> None:
    pane = WarningsPane()
    app = OnePane(pane, view_at(pressed, 100, playing=True))
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        assert pane.checkup is not None
        pane._checked.done_s = perf_counter() + 60  # it has just looked
        pane.view = view_at(pressed, END, playing=True)
        await settle(pilot)
        assert pane.checkup.event == 100
        assert "up to event 100" in screen_text(app)
        pane.view = view_at(pressed)
        await settle(pilot)
        assert pane.checkup == pressed.checkup()


async def test_checks_that_take_long_wait_for_a_pause(pressed: Debugger) -> None:
    pane = WarningsPane()
    app = OnePane(pane, view_at(pressed, 100))
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        pane._checked.took_s = 1e10
        pane.view = view_at(pressed, END)
        assert pane.checkup is not None
        assert pane.checkup.event == 100
        wanted = pressed.checkup()
        async with timeout(20):
            while pane.checkup != wanted:
                await pilot.pause(0.02)
        assert "in the whole run" in screen_text(app)


async def test_another_run_begins_anew(pressed: Debugger, calm: Debugger) -> None:
    pane = WarningsPane()
    app = OnePane(pane, view_at(pressed))
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        await press(pilot, "down", "down", "down")
        pane.view = view_at(calm)
        await settle(pilot)
        assert pane.count == 0
        assert "no warnings" in screen_text(app)


async def test_what_is_shown_is_past() -> None:
    made = debugger("kv-pressure", END)
    pane = WarningsPane()
    app = OnePane(pane, view_at(made))
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        before = screen_text(app)
        pane.view = view_at(made, 100)
        await settle(pilot)
        assert "no warnings" in screen_text(app)
        assert "up to event 100" in screen_text(app)
        pane.view = view_at(made, END)
        await settle(pilot)
        assert screen_text(app) == before


async def test_in_the_debugger_the_count_is_shown() -> None:
    async with debugging("kv-pressure", requests=None) as open_:
        await open_.press("end")
        assert open_.event > 6000
        await settle(open_.pilot)
        assert "! 2" in screen_text(open_.app).splitlines()[0]
