"""Only what has changed is painted: the screen must be the same as one that is painted anew."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from rich.segment import Segment

from blis_tui.tui.boxes import Rows
from tests.nightly import every
from tests.tui.debugging import NARROW, NORMAL, debugging
from tests.tui.screens import draw, screen_rows

if TYPE_CHECKING:
    from textual.pilot import Pilot

KEYS = (
    *("n", "f", "s", "[", "F", "up", "down", "pagedown", "pageup", "tab", "l", "m", "space", "enter", "+", "_"),
    *("shift+down", "asterisk", "1", "2", "3", "4", "5", "6", "7", "8", "9", "A", "b", "u", ".", "end", "home", "g"),
)


async def painted(pilot: Pilot[None]) -> list[list[Segment]]:
    """The texts of the screen, and their styles."""
    await draw(pilot)
    return [list(Segment.simplify(row)) for row in screen_rows(pilot.app)]


CASES = [("kv-pressure", NORMAL), ("kv-pressure", NARROW), ("shared-prefixes", NARROW), ("shared-prefixes", NORMAL)]


@pytest.mark.parametrize("case", every(2, CASES), ids=str)
async def test_what_is_painted_in_part_is_as_painted_anew(case: tuple[str, tuple[int, int]]) -> None:
    name, size = case
    random = Random(f"{name} {size}")  # noqa: S311  (which keys are pressed is no secret)
    async with debugging(name, at="900", size=size) as open_:
        for _ in range(30):
            key = random.choice(KEYS)
            await open_.pilot.press(*(("g", *"1200", "enter") if key == "g" else (key,)))
            await open_.idle()
            open_.screen.halt()
            partly = await painted(open_.pilot)
            for widget in open_.screen.walk_children():
                widget.refresh()
            assert await painted(open_.pilot) == partly, key
            for rows in open_.screen.query(Rows):
                if rows.show_vertical_scrollbar and rows.size.height:
                    bar = rows.vertical_scrollbar
                    assert (bar.window_virtual_size, bar.window_size) == (len(rows.lines), rows.size.height), key
                    assert 0 <= rows.scroll_offset.y <= max(len(rows.lines) - rows.size.height, 0), key
                elif rows.size.height and rows.size.width:
                    assert len(rows.lines) <= rows.size.height, key
