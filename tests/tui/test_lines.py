"""Panes of lines: what texts become, and how the cursor moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from blis_tui.debugger.why.explanation import Subject
from blis_tui.tui.boxes import Rows, RowsBox
from blis_tui.tui.drawing.lines import Column, cells, fit, flow, line, names_text, shorten, titles, words
from blis_tui.tui.panes.pane import Pane
from tests.tui.pane_harness import OnePane, debugger, view_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.panes.pane import Room
    from blis_tui.tui.view import View

HEADINGS = 3


def numbers(_view: View, _room: Room) -> Sequence[Line]:
    """Headings, then a hundred numbers, the same for every view."""
    lines = [line(f"number {n}", subject=Subject("figure", str(n)), tip=f"tip {n}") for n in range(100)]
    return [line("heading")] * HEADINGS + lines


NUMBERS = Pane(lines=numbers)


def cursor_of(pane: RowsBox) -> str:
    cursor = pane.query_one(Rows).cursor
    return "" if cursor is None else cursor.value


def _shown(pane: RowsBox) -> list[str]:
    area = pane.query_one(Rows)
    return [area.render_line(y).text.rstrip() for y in range(area.size.height)]


def test_items_are_broken_only_when_longer_than_a_line() -> None:
    rows = flow([Content("one two"), Content("three"), Content("a very long item")], 10)
    assert [row.plain for row in rows] == ["one two", "three", "a very", "long item"]
    assert [row.plain for row in words("to be or not to be", 8)] == ["to be or", "not to", "be"]


def test_names_are_listed_and_shortened_at_their_beginning() -> None:
    assert names_text(["a", "b"]) == "a, b"
    assert names_text(["a", "b", "c", "d", "e"], 3) == "a, b, c and 2 more"
    assert shorten("request_12", 20) == "request_12"
    assert shorten("request_12", 5) == "…t_12"


def test_columns_of_the_highest_rank_go_first_and_one_takes_what_is_left() -> None:
    columns: list[Column[int]] = [
        Column("n", 3, lambda n, _: str(n), right=True),
        Column("bar", 5, lambda n, width: "x" * min(n, width), grows=True, most=10),
        Column("more", 6, lambda n, _: (f"m{n}", "$error"), rank=1),
        Column("most", 6, lambda n, _: f"w{n}", rank=2),
    ]
    assert [column.title for column in fit(columns, 40)] == ["n", "bar", "more", "most"]
    assert [column.title for column in fit(columns, 20)] == ["n", "bar", "more"]
    narrow = fit(columns, 12)
    assert [(column.title, column.width) for column in narrow] == [("n", 3), ("bar", 7)]
    assert fit(columns, 100)[1].width == 10
    assert titles(narrow).draw().plain == "  n  bar    "
    assert cells(narrow, 4).plain == "  4  xxxx   "


async def test_the_cursor_stays_in_sight_and_skips_headings() -> None:
    pane = RowsBox.of(NUMBERS)
    app = OnePane(pane, view_at(debugger("quickstart", 0)))
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        assert cursor_of(pane) == ""
        await pilot.press("down", "down")
        assert cursor_of(pane) == "1"
        await pilot.press("pagedown", "pagedown", "pagedown")
        await pilot.pause()
        assert cursor_of(pane) == "28"
        assert "▸number 28" in _shown(pane)
        await pilot.press("pageup", "pageup", "pageup", "up", "up")
        await pilot.pause()
        assert cursor_of(pane) == "0"
        assert _shown(pane)[: HEADINGS + 1] == [" heading"] * HEADINGS + ["▸number 0"]


async def test_a_click_marks_a_line_and_a_heading_does_not_react() -> None:
    pane = RowsBox.of(NUMBERS)
    app = OnePane(pane, view_at(debugger("quickstart", 0)))
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        await pilot.click(offset=(5, 2))
        assert cursor_of(pane) == ""
        await pilot.click(offset=(5, 6))
        await pilot.pause()
        assert cursor_of(pane) == "2"
        assert "▸number 2" in _shown(pane)


async def test_the_line_below_the_mouse_lights_up_and_tells_more() -> None:
    pane = RowsBox.of(NUMBERS)
    app = OnePane(pane, view_at(debugger("quickstart", 0)))
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        area = pane.query_one(Rows)
        plain = area.render_line(4)
        await pilot.hover(offset=(5, 5))
        await pilot.pause()
        assert area.tooltip == "tip 1"
        lit = area.render_line(4)
        assert lit.text == plain.text
        assert [segment.style for segment in lit] != [segment.style for segment in plain]


async def test_the_cursor_is_brighter_in_the_pane_with_the_focus() -> None:
    pane = RowsBox.of(NUMBERS)
    app = OnePane(pane, view_at(debugger("quickstart", 0)))
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("down")
        await pilot.pause()
        area = pane.query_one(Rows)
        focused = area.render_line(HEADINGS)
        app.set_focus(None)
        await pilot.pause()
        blurred = area.render_line(HEADINGS)
        assert focused.text == blurred.text
        assert [segment.style for segment in focused] != [segment.style for segment in blurred]
