"""The line that names the panes, in any width."""

from __future__ import annotations

import pytest

from blis_tui.tui.bars import Tab, TabBar, place_tabs, tab_lines
from blis_tui.tui.panes import PANES
from tests.tui.debugging import NARROW, debugging


def tabs(active: str) -> tuple[Tab, ...]:
    return tuple(Tab(pane, "12", active=pane.id == active) for pane in PANES)


@pytest.mark.parametrize("width", range(60, 200, 5))
@pytest.mark.parametrize("rows", [1, 2])
def test_every_tab_fits_and_the_one_in_use_is_named(width: int, rows: int) -> None:
    for pane in PANES:
        placed = place_tabs(tabs(pane.id), width, rows)
        ends = [(tab.row, tab.column + len(tab.label)) for tab in placed]
        assert all(end <= width for _, end in ends)
        assert all(end < (tab.row, tab.column) for end, tab in zip(ends, placed[1:], strict=False))
        lines = tab_lines(tabs(pane.id), width, rows).plain.split("\n")
        assert [len(line) for line in lines] == [width] * (placed[-1].row + 1)
        assert any(pane.short in line or pane.name in line for line in lines)


@pytest.mark.parametrize("width", range(60, 200, 5))
def test_two_lines_are_taken_where_one_has_no_room_and_then_every_tab_has_its_name(width: int) -> None:
    plain = tuple(Tab(pane) for pane in PANES)
    placed = place_tabs(plain, width, 2)
    assert all(tab.label != tab.tab.pane.key for tab in placed)
    alone = place_tabs(plain, width)
    assert (placed[-1].row == 0) == all(tab.label != tab.tab.pane.key for tab in alone)


async def test_a_click_on_a_tab_of_either_line_goes_to_its_pane() -> None:
    async with debugging("GATEWAY", at="100", size=NARROW, requests=None) as here:
        bar = here.screen.query_one(TabBar)
        assert bar.size.height == 2
        for pane in ("metrics", "gateway", "events"):
            tab = next(one for one in place_tabs(bar.tabs, bar.size.width, 2) if one.tab.pane.id == pane)
            await here.pilot.click(bar, offset=(tab.column, tab.row))
            await here.idle()
            assert here.screen.arrangement.active == pane
