"""The list of events: cursor, position, filter, and a million rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.base.units import time_text
from blis_tui.debugger.event_store import EventStore
from blis_tui.tui.drawing.event_filter import parse_filter
from blis_tui.tui.panes.events import HERE, EventList, EventRows
from tests.tui.driven_pane import DrivenPane, driven, knowing
from tests.tui.pane_harness import view_at
from tests.tui.screens import press, settle

if TYPE_CHECKING:
    from array import array

    import pytest

    from blis_tui.debugger.event_store import EventRow


def found(pane: EventList) -> array[int]:
    """The events that match the filter, after a 0 for the start."""
    index = pane.query_one(EventRows).index
    assert index is not None
    return index


def pointer_line(app: DrivenPane) -> str:
    return next(line for line in app.lines() if line.startswith(HERE))


async def test_at_the_start_it_says_what_to_do() -> None:
    async with driven(EventList(), knowing(0, at=0), (40, 6)) as (app, _):
        assert app.lines()[:2] == ["▶  start: nothing has happened yet", "   … n next event, c run"]


async def test_the_position_is_in_sight_with_what_follows_it() -> None:
    async with driven(EventList(), knowing(at=1000)) as (app, pilot):
        assert app.debugger.tape.name(app.debugger.tape.row(1000).request) in pointer_line(
            app
        ) or "step" in pointer_line(app)
        assert 0 < app.lines().index(pointer_line(app)) < 12
        app.go(1001)
        await settle(pilot)
        assert app.lines().index(pointer_line(app)) < 12


async def test_arrows_and_page_keys_move_the_cursor_and_tell() -> None:
    async with driven(EventList(), knowing(at=100)) as (app, pilot):
        await press(pilot, "down", "down", "up", "pageup")
        assert app.pointed == [101, 102, 101, 89]
        assert [line[2:15] for line in app.lines() if "▸" in line] == [
            "▸" + time_text(app.debugger.tape.time_us(89)) + " "
        ]
        assert app.debugger.event == 100


async def test_several_moves_before_the_screen_answers_are_not_undone() -> None:
    async with driven(EventList(), knowing(at=100)) as (app, pilot):
        assert isinstance(app.pane, EventList)
        for _ in range(5):
            app.pane.action_move(1)
        await settle(pilot)
        assert app.pointed == [101, 102, 103, 104, 105]
        await press(pilot, "down")
        assert app.pointed[-1] == 106


async def test_the_cursor_stops_at_both_ends() -> None:
    async with driven(EventList(), knowing(3, at=3)) as (app, pilot):
        await press(pilot, "down", "pageup", "up")
        assert app.pointed == [0]


async def test_enter_goes_to_the_event_under_the_cursor() -> None:
    async with driven(EventList(), knowing(at=100)) as (app, pilot):
        await press(pilot, "up", "up", "enter")
        assert app.went == [98]
        assert app.debugger.event == 98


async def test_a_click_points_and_a_double_click_goes() -> None:
    async with driven(EventList(), knowing(at=5)) as (app, pilot):
        rows = app.query_one(EventRows)
        top = rows.scroll_offset.y
        await pilot.click(rows, offset=(10, 2))
        await settle(pilot)
        assert app.pointed == [top + 2]
        await pilot.click(rows, offset=(10, 3), times=2)
        await settle(pilot)
        assert app.went == [top + 3]


async def test_a_move_shows_the_position_again_after_the_reader_scrolled_away() -> None:
    async with driven(EventList(), knowing(at=1000)) as (app, pilot):
        rows = app.query_one(EventRows)
        rows.scroll_to(y=10, animate=False)
        await settle(pilot)
        assert not any(line.startswith(HERE) for line in app.lines())
        assert "▶ 978 rows down" in str(app.pane.border_subtitle)
        app.go(1001)
        await settle(pilot)
        assert pointer_line(app)


async def test_while_playing_a_reader_who_scrolled_away_is_left_alone() -> None:
    async with driven(EventList(), knowing(at=1000)) as (app, pilot):
        rows = app.query_one(EventRows)
        app.go(1010, playing=True)
        await settle(pilot)
        assert pointer_line(app)
        rows.scroll_to(y=10, animate=False)
        await settle(pilot)
        app.go(1500, playing=True)
        await settle(pilot)
        assert rows.scroll_offset.y == 10
        assert "rows down" in str(app.pane.border_subtitle)


# ---- filter ----


async def test_a_filter_shows_only_what_matches_and_marks_the_event_before_the_position() -> None:
    made = knowing(at=1000)
    async with driven(EventList(), made) as (app, pilot):
        pane = app.pane
        assert isinstance(pane, EventList)
        pane.set_filter(parse_filter("completed -step", made.tape), "completed -step")
        await settle(pilot)
        assert [made.tape.kind(event) for event in found(pane)[1:]] == ["completed"] * 60
        shown = [line for line in app.lines() if "✓ request" in line]
        assert len(shown) > 5
        before = max(event for event in found(pane) if event <= 1000)
        assert sum(line.startswith("▷") for line in app.lines()) == 1
        assert made.tape.name(made.tape.row(before).request) in next(x for x in app.lines() if x.startswith("▷"))
        assert str(pane.border_subtitle) == f"completed -step: 60 of {made.frontier:,} events"
        await press(pilot, "down")
        assert app.pointed == [min(event for event in found(pane) if event > before)]
        pane.set_filter(None)
        await settle(pilot)
        assert len([line for line in app.lines() if "✓ request" in line]) < 5


async def test_a_filter_is_built_in_slices_and_grows_with_the_tape() -> None:
    made = knowing(1500, at=1500)
    async with driven(EventList(), made) as (app, pilot):
        pane = app.pane
        assert isinstance(pane, EventList)
        matches = parse_filter("arrived", made.tape)
        pane._matches = matches
        pane._restart_filter()
        assert pane.step_filter(500)
        assert max(found(pane)) <= 500
        pane.describe()
        assert "searched 33 %" in str(pane.border_subtitle)
        assert not pane.step_filter(10_000)
        app.go(2000)
        await settle(pilot)
        assert list(found(pane))[1:] == [e for e in range(1, 2001) if made.tape.kind(e) == "arrived"]


async def test_a_filter_that_nothing_matches_says_so() -> None:
    made = knowing(at=10)
    async with driven(EventList(), made) as (app, pilot):
        pane = app.pane
        assert isinstance(pane, EventList)
        pane.set_filter(parse_filter("rejected", made.tape), "rejected")
        await settle(pilot)
        assert app.lines()[1] == "   no event matches the filter"


# ---- size ----


async def test_a_million_rows_cost_what_is_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A jump to anywhere reads the rows in sight and no others."""
    million = 1_000_000
    read: list[int] = []
    row = EventStore.row

    def counted(tape: EventStore, event: int) -> EventRow:
        read.append(event)
        return row(tape, event)

    monkeypatch.setattr(EventStore, "row", counted)
    made = knowing(at=10)
    tape = made.tape
    big = EventStore(tape.profiles)
    repeat = million // len(tape) + 1
    for name in ("_times", "_kinds", "_instances", "_subjects"):
        column: array[int] = getattr(tape, name)
        setattr(big, name, (column * repeat)[:million])
    big._steps, big._names, big._lives, big._numbers = tape._steps, tape._names, tape._lives, tape._numbers
    big._words, big._codes = tape._words, tape._codes
    step, admitted = tape.code("step"), tape.code("admitted")
    for place in range(million):
        if big._kinds[place] != step:
            big._kinds[place] = admitted
    view = view_at(made)
    view = replace(view, tape=big, moment=replace(view.moment, event=777_777, frontier=million))

    async with driven(EventList(), made, (140, 40)) as (app, pilot):
        app.pane.view = view
        await settle(pilot)
        rows = app.query_one(EventRows)
        assert rows.count == million + 1
        for event in (1, 999_999, 500_000, 123_456):
            read.clear()
            rows.reveal(event)
            lines = [rows.render_line(y).text for y in range(rows.size.height)]
            assert 0 < len(read) <= rows.size.height + 1
            assert any(f" {event:,} " in line for line in lines)
