"""The pane of the KV cache map."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding

from blis_tui.debugger.why.explanation import Ref, request_ref
from blis_tui.tui.presenters.kv_map import KvMapText, holding_text, kv_map
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.lines import GUTTER, Lines, LinesPane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import MouseMove

    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View


class _Cells(Lines, can_focus=False, inherit_bindings=False):
    """Lines with cells that have tooltips."""

    text: KvMapText | None = None

    def on_mouse_move(self, event: MouseMove) -> None:
        """Show a tooltip about the cell."""
        event.prevent_default()
        found = None
        if self.text is not None:
            found = self.text.at(event.y + self.scroll_offset.y, event.x - GUTTER)
        total = 0 if self.text is None else sum(sum(one.blocks for one in grid.found) for _, grid in self.text.grids)
        self.tooltip = None if found is None else holding_text(found, total)


class KvMap(LinesPane):
    """The holders of the KV cache's blocks."""

    BINDINGS: ClassVar = [
        Binding("left", "move(-1)", "previous request", show=False),
        Binding("right", "move(1)", "next request", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Create the cells."""
        yield _Cells()

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        cells = self.query_one(_Cells)
        cells.text = kv_map(view, width, max(self.content_size.height, 1))
        return cells.text.lines

    def key_of(self, view: View) -> str:
        """Return the selected request, which is marked on the map."""
        return view.selection.request or ""

    def action_move(self, by: int) -> None:
        """Select the next request on the map."""
        text = self.query_one(_Cells).text
        names = () if text is None else text.requests()
        if not names:
            return
        here = names.index(self._key) if self._key in names else None
        place = (0 if by > 0 else len(names) - 1) if here is None else min(max(here + by, 0), len(names) - 1)
        self._key = names[place]
        at = None if text is None else text.line_of(names[place])
        if at is not None:
            self.query_one(_Cells).reveal(at)
        self.post_message(Picked(request=names[place]))

    def action_move_page(self, by: int) -> None:
        """Scroll by a screen."""
        cells = self.query_one(_Cells)
        cells.scroll_relative(y=by * max(cells.size.height - 1, 1), animate=False)

    def action_choose(self) -> None:
        """Show the selected request."""
        if self._key:
            self.post_message(Picked(request=self._key, go=True))

    def on_lines_pointed(self, event: Lines.Pointed) -> None:
        """Select the request of a clicked cell."""
        event.stop()
        event.prevent_default()
        text = self.query_one(_Cells).text
        found = None if text is None else text.at(event.at, event.column)
        if found is not None and found.request:
            self._key = found.request
            self.post_message(Picked(request=found.request, go=event.chain > 1))

    def at_cursor(self) -> Ref | None:
        """Return the selected request."""
        return request_ref(self._key) if self._key else None
