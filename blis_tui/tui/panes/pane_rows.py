"""A pane that is a list of lines with a cursor, of which only the visible ones are drawn.

Each step changes all lines, and Textual's ``OptionList`` would create and measure every one of them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from blis_tui.base.classes import dataclass
from blis_tui.tui.panes.pane import Pane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import Click, Leave, MouseMove

    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.view import View

GUTTER = 1
"""Columns before each line for the cursor's mark."""
_MARGIN = 2
"""Columns after each line for the scroll bar."""
_MARK = "▸"


class Lines(ScrollView, can_focus=False, inherit_bindings=False):
    """Lines, one of which may be marked; the pane handles the keys."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--cursor", "lines--hover"}
    DEFAULT_CSS = """
    Lines {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        & > .lines--cursor { background: $block-cursor-blurred-background; }
        & > .lines--hover { background: $panel; }
    }
    """

    lines: Sequence[Line] = ()
    """The displayed lines."""
    _cursor: int | None = None
    _hover: int | None = None

    @dataclass
    class Pointed(Message):
        """A click on a line; ``chain`` is the number of clicks in quick succession."""

        at: int
        column: int
        chain: int

    def put(self, lines: Sequence[Line], cursor: int | None) -> None:
        """Show lines, with one of them marked."""
        self.lines = lines
        self._cursor = cursor
        size = Size(self.size.width, len(lines))
        if size != self.virtual_size:
            self.virtual_size = size
        self.refresh()

    def reveal(self, at: int) -> None:
        """Scroll as little as necessary to show a line; also show lines above the first one with a key."""
        height = max(self.size.height, 1)
        top = self.scroll_offset.y
        if not any(one.key for one in self.lines[:at]):
            at = min(at, height - 1) if at < height else at
            target = 0 if at < height else at - height + 1
        elif at < top:
            target = at
        elif at >= top + height:
            target = at - height + 1
        else:
            return
        self.scroll_to(y=target, animate=False, force=True)

    def render_line(self, y: int) -> Strip:
        """Return a visible line."""
        at = y + self.scroll_offset.y
        width = self.size.width
        if at >= len(self.lines):
            return Strip.blank(width, self.rich_style)
        style = self.visual_style
        if at == self._cursor:
            style = self.get_visual_style("lines--cursor")
        elif at == self._hover and self.lines[at].key:
            style = self.get_visual_style("lines--hover")
        content = self.lines[at].draw().truncate(max(width - GUTTER - 1, 1), ellipsis=True)
        mark = _MARK if at == self._cursor else " "
        segments = [Segment(mark * GUTTER, style.rich_style)]
        parse = self.app.stylesheet.parse_style
        for text, part in content.render(style, end="", parse_style=parse):
            segments.append(Segment(text, (style + part).rich_style))
        return Strip(segments).adjust_cell_length(width, style.rich_style)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Highlight what a click would select, and show its tooltip."""
        at = event.y + self.scroll_offset.y
        hover = at if at < len(self.lines) else None
        if hover != self._hover:
            self._hover = hover
            self.tooltip = self.lines[hover].tip or None if hover is not None else None
            self.refresh()

    def on_leave(self, _event: Leave) -> None:
        """Remove the highlight."""
        self._hover = None
        self.refresh()

    def on_click(self, event: Click) -> None:
        """Report the click to the pane."""
        at = event.y + self.scroll_offset.y
        if at < len(self.lines):
            self.post_message(self.Pointed(at, event.x - GUTTER, event.chain))


class LinesPane(Pane):
    """A pane of lines. Subclasses define the lines, and the effect of selecting one.

    The cursor is a line's key, so it stays with its subject when the lines change.
    """

    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("pageup", "move_page(-1)", "page up", show=False),
        Binding("pagedown", "move_page(1)", "page down", show=False),
        Binding("enter", "choose", "choose", show=False),
    ]

    DEFAULT_CSS = """
    LinesPane:focus Lines > .lines--cursor { background: $block-cursor-background; }
    """

    _key = ""

    def compose(self) -> ComposeResult:
        """Create the lines."""
        yield Lines()

    # ---- for subclasses ----

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a width."""
        raise NotImplementedError

    def key_of(self, view: View) -> str:  # noqa: ARG002  (subclasses use the selection)
        """Return the cursor's key: by default, where it was left."""
        return self._key

    def pick(self, key: str, *, go: bool) -> None:
        """Handle the cursor reaching a line (``go``: enter, or a double click)."""

    # ---- display ----

    def show(self, view: View) -> None:
        """Update the lines to the view."""
        area = self.query_one(Lines)
        key = self.key_of(view)
        lines = self.lines(view, max(self.content_size.width - GUTTER - _MARGIN, 10))
        cursor = self._find(lines, key)
        area.put(lines, cursor)
        if key != self._key and cursor is not None:
            area.reveal(cursor)
        self._key = key

    @staticmethod
    def _find(lines: Sequence[Line], key: str) -> int | None:
        if not key:
            return None
        return next((at for at, one in enumerate(lines) if one.key == key), None)

    # ---- the cursor ----

    def _go_to(self, at: int, *, go: bool = False) -> None:
        area = self.query_one(Lines)
        key = area.lines[at].key
        area.put(area.lines, at)
        area.reveal(at)
        self._key = key
        self.pick(key, go=go)

    def action_move(self, by: int) -> None:
        """Move the cursor by some lines with keys; without any, scroll."""
        area = self.query_one(Lines)
        places = [at for at, one in enumerate(area.lines) if one.key]
        here = self._find(area.lines, self._key)
        if not places:
            area.scroll_relative(y=by, animate=False)
        elif here is None:
            top = area.scroll_offset.y
            self._go_to(next((at for at in places if at >= top), places[-1]))
        else:
            now = places.index(here)
            to = min(max(now + by, 0), len(places) - 1)
            if to == now:
                area.scroll_relative(y=by, animate=False)
            else:
                self._go_to(places[to])

    def action_move_page(self, by: int) -> None:
        """Move the cursor by a screen."""
        self.action_move(by * max(self.query_one(Lines).size.height - 1, 1))

    def action_choose(self) -> None:
        """Choose the line at the cursor; without a cursor, show it."""
        at = self._find(self.query_one(Lines).lines, self._key)
        if at is not None:
            self._go_to(at, go=True)
        else:
            self.action_move(0)

    def on_lines_pointed(self, event: Lines.Pointed) -> None:
        """Select a clicked line."""
        event.stop()
        if self.query_one(Lines).lines[event.at].key:
            self._go_to(event.at, go=event.chain > 1)
