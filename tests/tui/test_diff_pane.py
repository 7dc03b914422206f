"""The pane with what an event changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.debugger.state import GROUPS
from blis_tui.tui.boxes import RowsBox
from blis_tui.tui.panes.changes import PANE, diff_lines, group_style, value_text
from tests.tui.pane_harness import OnePane, debugger, text_of, view_at

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger


@pytest.fixture(scope="module")
def pressed() -> Debugger:
    return debugger("kv-pressure", 1300)


def test_changes_stand_in_aligned_columns(pressed: Debugger) -> None:
    lines = text_of(diff_lines(view_at(pressed, 640).moment, 78, playing=False)).splitlines()
    assert lines[0] == "▸ scheduled"
    assert lines[1].split() == ["requests.request_24.phase", "waiting", "→", "decode"]
    arrows = {line.index("→") for line in lines if "→" in line}
    assert len(arrows) == 1
    used = next(line for line in lines if "used_blocks" in line)
    assert used.split()[1:] == ["571", "→", "582", "+11"]


@pytest.mark.parametrize("width", [30, 34, 56])
def test_where_there_is_little_room_values_stand_below_their_path(pressed: Debugger, width: int) -> None:
    lines = [diff_line.draw() for diff_line in diff_lines(view_at(pressed, 640).moment, width, playing=False)]
    assert all(line.cell_length <= width for line in lines)
    texts = [line.plain.strip() for line in lines]
    at = (
        texts.index("instances[0].kv.used_blocks")
        if width > 30
        else next(number for number, text in enumerate(texts) if text.endswith("kv.used_blocks"))
    )
    assert texts[at + 1] == "571 → 582  +11"


def test_without_changes_there_is_a_sentence(pressed: Debugger) -> None:
    moment = view_at(pressed, 0).moment
    assert text_of(diff_lines(moment, 78, playing=False)).startswith("At the start: nothing has happened yet.")
    assert text_of(diff_lines(moment, 78, playing=True)) == "Running. Pause to see what the latest event changed."
    completed = next(h.event for h in pressed.tape.life("request_0") if h.what == "completed")
    text = text_of(diff_lines(view_at(pressed, completed).moment, 78, playing=False))
    assert "time_us" in text or text == "This event did not change the state."


def test_every_group_has_a_look_of_its_own() -> None:
    assert len({group_style(group).glyph for group in GROUPS}) == len(GROUPS)


def test_values_have_units() -> None:
    assert value_text(None, "") == "—"
    assert value_text("in-transit", "") == "on the way"
    assert value_text(12_345, "time") == "0.012 345 s"
    assert value_text(12_345, "span") == "12.3 ms"
    assert value_text(12_345, "") == "12,345"


async def test_the_cursor_offers_path_and_value_and_enter_selects_the_request(pressed: Debugger) -> None:
    pane = RowsBox.of(PANE)
    app = OnePane(pane, view_at(pressed, 640))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down")
        await pilot.pause()
        assert (pane.copied(path=True), pane.copied(path=False)) == ("requests.request_24.phase", "decode")
        assert not app.picked
        await pilot.press("enter")
        await pilot.pause()
        assert [message.request for message in app.picked] == ["request_24"]
        await pilot.press("down")
        await pilot.pause()
        assert pane.copied(path=False) == "17 requests decoded one token each"
