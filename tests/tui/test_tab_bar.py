"""The line that names the panes, in any width."""

from __future__ import annotations

import pytest

from blis_tui.tui.layout import PANES
from blis_tui.tui.widgets.bars import Tab, place_tabs, tab_line


def tabs(active: str) -> tuple[Tab, ...]:
    return tuple(Tab(pane, "12", active=pane.id == active) for pane in PANES)


@pytest.mark.parametrize("width", range(60, 200, 5))
def test_every_tab_fits_and_the_one_in_use_is_named(width: int) -> None:
    for pane in PANES:
        placed = place_tabs(tabs(pane.id), width)
        ends = [start + len(label) for start, _, label in placed]
        assert ends[-1] <= width
        assert all(end < start for end, (start, _, _) in zip(ends, placed[1:], strict=False))
        line = tab_line(tabs(pane.id), width).plain
        assert len(line) == width
        assert pane.short in line or pane.name in line
