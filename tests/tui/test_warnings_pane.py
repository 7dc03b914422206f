"""The list of warnings."""

from __future__ import annotations

from asyncio import timeout
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explain import explain_event
from blis_tui.debugger.why.explanation import Subject
from blis_tui.results.lints.table import LINTS
from blis_tui.tui.boxes import Box, Rows, RowsBox
from blis_tui.tui.panes.instances import instances_lines
from blis_tui.tui.panes.warnings import PANE, warning_lines
from tests.tui.debugging import NARROW, NORMAL, debugging
from tests.tui.pane_harness import OnePane, debugger, text_of, view_at
from tests.tui.screens import check_screen, press, screen_text, settle

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.tui.view import View

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
    lines = warning_lines(pressed.checkup(), width)
    texts = [line.draw().plain for line in lines]
    assert all(line.draw().cell_length <= width for line in lines)
    subjects = [line.subject for line in lines]
    for number in ("0", "1"):
        about = Subject("finding", number)
        first, count = subjects.index(about), subjects.count(about)
        assert subjects[first : first + count] == [about] * count
        assert texts[first].startswith("! ")
        assert not texts[first - 1].strip()
        assert not texts[first + count].strip()
    assert {subject.value for subject in subjects if subject is not None} == {"0", "1"}


def test_every_check_is_accounted_for(pressed: Debugger) -> None:
    lines = text_of(warning_lines(pressed.checkup(), 200)).splitlines()
    assert sum(line.startswith(("! ", "✗ ", "✓ ", "- ")) for line in lines) == len(
        [lint for lint in LINTS if lint.common]
    )
    assert lines[0] == "2 warnings, 22 checks passed in the whole run (6,183 events)"


def test_how_far_it_looks_is_said(calm: Debugger) -> None:
    text = text_of(warning_lines(calm.checkup(), 200))
    assert text.startswith("no warnings: ")
    assert "up to event 400" in text


def test_a_run_without_events_has_its_warnings() -> None:
    made = Debugger(blis_tui.load("kv-pressure", set={"horizon_us": 1}))
    assert made.at_end
    text = text_of(warning_lines(made.checkup(), 200))
    assert text.startswith("1 warning, ")
    assert "in the whole run (0 events)" in text
    assert "The run ends without an event." in explain_event(made, 0).to_text()


def test_back_in_the_middle_of_a_step_the_checks_look_at_its_middle() -> None:
    made = debugger("kv-pressure", 400)
    event = next(one for one in range(400, 0, -1) if made.tape.is_step(one))
    assert f"up to event {event}" in text_of(warning_lines(view_at(made, event).checkup(), 100))
    run_to_stop(made.back_phase())
    made.phase = 0
    made._moment = None
    assert f"up to event {event - 1}" in text_of(warning_lines(view_at(made).checkup(), 100))


def test_in_the_middle_of_a_step_the_run_is_not_over_although_no_event_waits() -> None:
    made = debugger("pipeline-bubble", END, workload__requests=20)
    for event in range(made.frontier - 200, made.frontier):
        run_to_stop(made.seek(event - 1))
        made.step_phase()
        if made.phase == 0:
            text = text_of(warning_lines(made.checkup(), 200))
            assert f"up to event {event - 1:,}" in text.splitlines()[0]
            assert "The run is over." not in text_of(instances_lines(view_at(made), 100))


def test_a_failure_stands_above_all_warnings(pressed: Debugger) -> None:
    failure = "instance 0 cannot go on at t=5 us\n  |\n  = help: raise kv_blocks"
    found = warning_lines(pressed.checkup(), 80, failure)
    lines = text_of(found).splitlines()
    assert lines[:4] == ["✗ instance 0 cannot go on at t=5 us", "  help: raise kv_blocks", "", lines[3]]
    assert lines[3].startswith("2 warnings")
    assert all(line.subject is None for line in found[:4])


def test_before_the_first_event() -> None:
    text = text_of(warning_lines(None, 200))
    assert "Nothing has happened yet" in text
    assert "Press n" in text


# ---- the pane ----


def pane() -> RowsBox:
    """With the title that the debugger's screen gives it."""
    made = RowsBox.of(PANE)
    made.border_title = "Warnings"
    return made


def checked(made: Debugger, event: int | None = None) -> View:
    """A view with its checks, as the debugger's screen has it."""
    view = view_at(made, event)
    return replace(view, checked=view.checkup())


@pytest.mark.parametrize("size", [NARROW, NORMAL, (38, 6)])
async def test_warnings(size: tuple[int, int], pressed: Debugger, file_regression: FileRegressionFixture) -> None:
    app = OnePane(pane(), checked(pressed))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "warnings")


async def test_no_warnings(calm: Debugger, file_regression: FileRegressionFixture) -> None:
    app = OnePane(pane(), checked(calm))
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "warnings-none")


async def test_the_cursor_selects_and_enter_goes_there(pressed: Debugger) -> None:
    app = OnePane(pane(), checked(pressed))
    async with app.run_test(size=(80, 17)) as pilot:
        await settle(pilot)
        assert PANE.badge(app.shown) == 2
        await press(pilot, "enter", "enter")  # to the first warning, which is about nothing in particular
        assert app.picked == []
        await press(pilot, "down", "enter")
        assert [(one.request, one.go) for one in app.picked] == [("request_116", False), ("request_116", True)]
        await press(pilot, "down", "down", "down", "down")  # behind the last one there is only text
        assert "✓" in screen_text(app)
        await press(pilot, "up", "down", "enter")
        assert (app.picked[-1].request, app.picked[-1].go) == ("request_116", True)


async def test_all_lines_of_a_warning_are_marked(pressed: Debugger) -> None:
    shown = pane()
    app = OnePane(shown, checked(pressed))
    async with app.run_test(size=(60, 30)) as pilot:
        await press(pilot, "down", "down")
        rows = shown.query_one(Rows)
        about = Subject("finding", "1")
        lines = [at for at, line in enumerate(rows.lines) if line.subject == about]
        assert len(lines) > 2
        colours = {str(rows.render_line(at)._segments[-1].style.bgcolor) for at in lines}  # type: ignore[union-attr]
        assert len(colours) == 1
        assert str(rows.render_line(lines[0] - 1)._segments[-1].style.bgcolor) not in colours  # type: ignore[union-attr]


async def test_the_mouse_picks(pressed: Debugger) -> None:
    app = OnePane(pane(), checked(pressed))
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        row = next(y for y, line in enumerate(screen_text(app).splitlines()) if "request_116" in line)
        await pilot.click(offset=(20, row))
        await settle(pilot)
        assert (app.picked[0].request, app.picked[0].go) == ("request_116", False)
        await pilot.click(offset=(20, row), times=2)
        await settle(pilot)
        assert app.picked[-1].go


async def test_what_is_shown_is_past(pressed: Debugger, calm: Debugger) -> None:
    shown = pane()
    app = OnePane(shown, checked(pressed))
    async with app.run_test(size=NORMAL) as pilot:
        await press(pilot, "down", "down", "down")
        shown.view = checked(calm)  # another run has fewer warnings than the cursor's
        await settle(pilot)
        assert "no warnings" in screen_text(app)
        assert shown.at_cursor() is None
        shown.view = checked(pressed, 100)
        await settle(pilot)
        assert "no warnings" in screen_text(app)
        assert "up to event 100" in screen_text(app)


async def test_in_the_debugger_the_count_is_shown() -> None:
    async with debugging("kv-pressure", requests=None) as open_:
        await open_.press("end")
        assert open_.event > 6000
        await settle(open_.pilot)
        assert "! 2" in screen_text(open_.app).splitlines()[0]


async def test_checks_that_take_long_are_shown_in_a_pause_and_only_where_they_are_told() -> None:
    async with debugging("kv-pressure", requests=None) as here:
        await here.press("end", "7")
        screen, checks = here.screen, here.screen._checks
        assert checks.value is not None
        checks.took_s = 1e10
        await here.press("home")
        painted: list[str | None] = []
        for box in screen.query(Box):
            box.refresh_view = partial(painted.append, box.id)  # type: ignore[method-assign]
        assert "! 2" in screen_text(here.app).splitlines()[0]
        async with timeout(20):
            while checks.value.event:
                await here.pilot.pause(0.02)
        await settle(here.pilot)
        assert painted == ["warnings"]
        assert "! 2" not in screen_text(here.app).splitlines()[0]
