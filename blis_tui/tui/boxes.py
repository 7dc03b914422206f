"""The boxes of the debugger's panes: what all have in common, and the box of a pane of lines with a cursor.

Only visible lines are drawn: each step changes all of them, and Textual's ``OptionList`` would create and measure every
one again.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.tui.panes.pane import KINDS, Room, changes_of, copied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import Click, Leave, MouseMove
    from textual.geometry import Region
    from textual.style import Style

    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.panes.pane import Pane
    from blis_tui.tui.view import View

GUTTER: Final = 1
"""Columns before each line for the cursor's mark."""
MARGIN: Final = 2
"""Columns after each line for the scroll bar."""
_MARK: Final = "▸"


class Box(Widget, can_focus=True):
    """A box that shows a view. Hidden ones are not drawn; they are updated when they become visible.

    Subclasses implement :meth:`show`. They keep no history: the same view always has the same display.
    """

    view: reactive[View | None] = reactive(None, init=False, always_update=True, repaint=False)

    follows_selection = True
    """Whether its display depends on the selected event or request."""

    def watch_view(self) -> None:
        """Show the new view, if the box is visible."""
        self.refresh_view()

    def on_show(self) -> None:
        """Update the box."""
        self.refresh_view()

    def refresh_view(self) -> None:
        """Show the present view."""
        if self.view is not None and self.is_on_screen:
            self.show(self.view)

    @property
    def is_on_screen(self) -> bool:
        """Whether it takes up any room."""
        return self.size.width > 0 and self.size.height > 0

    def on_resize(self) -> None:
        """Adapt to the new size."""
        self.refresh_view()

    def show(self, view: View) -> None:
        """Update the display to the view."""
        raise NotImplementedError

    def put_hint(self, text: str) -> None:
        """Show a remark in the lower border, which is drawn again only if the text is another one."""
        if text != (self.border_subtitle or ""):
            self.border_subtitle = text

    # ---- the cursor ----

    def at_cursor(self) -> Subject | None:
        """Return what keys are about, an event, a request, an instance or a session; None = what is selected."""
        return None

    def changes(self) -> str:
        """Return the breakpoint that stops where what the cursor is on changes; empty = as its kind says."""
        return ""

    def copied(self, *, path: bool) -> str:  # noqa: ARG002  (subclasses use it)
        """Return the value at the cursor or its path; empty = what is copied of :meth:`at_cursor`."""
        return ""


class _Painted(NamedTuple):
    """What a line of the screen shows."""

    text: Content
    component: str
    """The component class of its style; empty = the style of all."""
    has_mark: bool

    def looks_like(self, other: _Painted) -> bool:
        """Return whether there is no difference to be seen."""
        return self[1:] == other[1:] and self.text.is_same(other.text)


_NO_LINE: Final = _Painted(Content(""), "", has_mark=False)
"""What is below the last line."""


class Rows(ScrollView, can_focus=False, inherit_bindings=False):
    """Lines, one of which may be marked; the box handles the keys."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--cursor", "rows--hover"}
    DEFAULT_CSS = """
    Rows {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        & > .rows--cursor { background: $block-cursor-blurred-background; }
        &:ansi > .rows--cursor { color: $block-cursor-blurred-foreground; }
        & > .rows--hover { background: $panel; }
    }
    """

    lines: Sequence[Line] = ()
    """The displayed lines."""
    cursor: Subject | None = None
    """What the cursor is on."""
    blocks = False
    """Whether all lines of a subject are marked, without a mark before them."""
    at: int | None = None
    """The cursor's line."""
    _hover: int | None = None
    _shared_style: Style | None = None
    """The style of a line without the cursor, while lines are drawn."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._texts: dict[int, Content] = {}
        self._painted: dict[int, _Painted] = {}

    @dataclass
    class Pointed(Message):
        """A click on a line; ``chain`` is the number of clicks in quick succession."""

        at: int
        column: int
        chain: int

    @property
    def before(self) -> int:
        """Columns before each line."""
        return 0 if self.blocks else GUTTER

    def put(self, lines: Sequence[Line], at: int | None, cursor: Subject | None) -> None:
        """Show lines, with one of them marked."""
        self.lines, self.at, self.cursor = lines, at, cursor
        self._texts.clear()
        self._fit()
        top = self.scroll_offset.y
        for row in range(top, top + self.size.height):
            painted = self._painted.get(row)
            if painted is None or not self._now(row).looks_like(painted):
                self.refresh_lines(row)

    def _fit(self) -> None:
        """Adapt to the number of lines; only a scroll bar that comes or goes needs a new layout, which takes long."""
        size, height = Size(self.size.width, len(self.lines)), self.size.height
        if size == self.virtual_size:
            return
        scrolls = size.height > height
        if scrolls != (self.virtual_size.height > height) or self.scroll_offset.y > max(size.height - height, 0):
            self.virtual_size = size
            return
        self.set_reactive(Widget.virtual_size, size)
        if scrolls:
            self.vertical_scrollbar.window_virtual_size = size.height
            self.vertical_scrollbar.window_size = height

    def _now(self, at: int) -> _Painted:
        """Return how a line looks now."""
        if at >= len(self.lines):
            return _NO_LINE
        text = self._texts.get(at)
        if text is None:
            text = self._texts[at] = self.lines[at].draw()
        if self._is_marked(at):
            return _Painted(text, "rows--cursor", at == self.at)
        hovered = at == self._hover and self.lines[at].subject is not None and not self.blocks
        return _Painted(text, "rows--hover" if hovered else "", at == self.at)

    def reveal(self, at: int) -> None:
        """Scroll as little as necessary to show a line; also show lines above the first one with a subject."""
        height = max(self.size.height, 1)
        top = self.scroll_offset.y
        if not any(line.subject or line.cells for line in self.lines[:at]):
            at = min(at, height - 1) if at < height else at
            target = 0 if at < height else at - height + 1
        elif at < top:
            target = at
        elif at >= top + height:
            target = at - height + 1
        else:
            return
        self.scroll_to(y=target, animate=False, force=True)

    def _is_marked(self, at: int) -> bool:
        return at == self.at or (self.blocks and self.cursor is not None and self.lines[at].subject == self.cursor)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the visible lines; Textual finds the style that they share anew at each call, which takes long."""
        self._shared_style = self.visual_style
        strips = super().render_lines(crop)
        self._shared_style = None
        return strips

    def render_line(self, y: int) -> Strip:
        """Return a visible line."""
        at = y + self.scroll_offset.y
        width = self.size.width
        now = self._painted[at] = self._now(at)
        base = self.visual_style if self._shared_style is None else self._shared_style
        if now is _NO_LINE:
            return Strip.blank(width, base.rich_style)
        style = self.get_visual_style(now.component) if now.component else base
        content = now.text.truncate(max(width - self.before - 1, 1), ellipsis=True)
        segments = [Segment((_MARK if now.has_mark else " ") * self.before, style.rich_style)]
        parse = self.app.stylesheet.parse_style
        for text, part in content.render(style, end="", parse_style=parse):
            segments.append(Segment(text, (style + part).rich_style))
        return Strip(segments).adjust_cell_length(width, style.rich_style)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Highlight what a click would select, and show its tooltip."""
        at = event.y + self.scroll_offset.y
        hover = at if at < len(self.lines) else None
        self.tooltip = None if hover is None else self.lines[at].under(event.x - self.before).tip or None
        if hover != self._hover:
            self._hover = hover
            self.refresh()

    def on_leave(self, _event: Leave) -> None:
        """Remove the highlight."""
        self._hover = None
        self.refresh()

    def on_click(self, event: Click) -> None:
        """Report the click to the box."""
        at = event.y + self.scroll_offset.y
        if at < len(self.lines):
            self.post_message(self.Pointed(at, event.x - self.before, event.chain))


class RowsBox(Box):
    """The box of a pane of lines. The cursor is a subject, so it stays with it when the lines change."""

    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("pageup", "move_page(-1)", "page up", show=False),
        Binding("pagedown", "move_page(1)", "page down", show=False),
        Binding("enter", "choose", "choose", show=False),
    ]
    DEFAULT_CSS = """
    RowsBox:focus Rows > .rows--cursor { background: $block-cursor-background; }
    RowsBox:focus Rows:ansi > .rows--cursor { color: $block-cursor-foreground; }
    """

    _list: object = None
    """Which list the lines are."""

    def __init__(self, pane: Pane, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self.pane = pane
        self.follows_selection = pane.follows_selection
        self._rows = Rows()
        self._rows.blocks = pane.blocks

    @classmethod
    def of(cls, pane: Pane, *, id: str | None = None) -> RowsBox:  # noqa: A002  (Textual's name)
        """Return a box with the keys that only this pane has: Textual reads keys from classes."""
        own = [
            Binding(key.key, key.does if isinstance(key.does, str) else f"send({at})", key.title, show=bool(key.title))
            for at, key in enumerate(pane.keys)
        ]
        kind: type[RowsBox] = type(cls.__name__, (cls,), {"BINDINGS": own})
        return kind(pane, id=id)

    def compose(self) -> ComposeResult:
        """Create the lines."""
        yield self._rows

    def show(self, view: View) -> None:
        """Update the lines to the view."""
        rows, pane = self._rows, self.pane
        self.put_hint(pane.hint(view))
        width, height = self.content_size
        lines = pane.lines(view, Room(max(width - rows.before - MARGIN, 10), max(height, 1)))
        known, self._list = self._list, pane.anew(view)
        before = rows.cursor
        cursor = pane.cursor(view, before if known == self._list else None)
        here = [] if cursor is None else [at for at, line in enumerate(lines) if line.subject == cursor]
        at = min(here, key=lambda at: abs(at - (rows.at or 0)), default=None)
        rows.put(lines, at, cursor)
        if cursor != before and at is not None:
            rows.reveal(at)

    def at_cursor(self) -> Subject | None:
        """Return what the pane says that its cursor is about."""
        return None if self.view is None else self.pane.points(self.view, self._rows.cursor)

    def changes(self) -> str:
        """Return what the pane says of the cursor's line."""
        rows = self._rows
        if self.view is None:
            return ""
        own = self.pane.changes(self.view, rows.cursor)
        if own or rows.cursor is None or KINDS[rows.cursor.kind].changes is None:
            return own
        return changes_of(self.view, rows.cursor)

    def copied(self, *, path: bool) -> str:
        """Return what is copied of the cursor's line."""
        rows = self._rows
        if self.view is None or rows.cursor is None:
            return ""
        value = "" if rows.at is None else rows.lines[rows.at].copy
        return copied(self.view, rows.cursor, value, path=path)

    # ---- the cursor ----

    def _go_to(self, at: int, subject: Subject, *, go: bool = False) -> None:
        rows = self._rows
        rows.put(rows.lines, at if rows.lines[at].subject == subject else None, subject)
        if self.pane.blocks:
            rows.reveal(at + len(list(takewhile(lambda line: line.subject == subject, rows.lines[at:]))) - 1)
        rows.reveal(at)
        self._send(None if self.view is None else self.pane.picks(self.view, subject, go=go))

    def _send(self, message: Message | None) -> None:
        if message is not None:
            self.post_message(message)

    def _stops(self) -> list[tuple[int, Subject]]:
        """Return the lines and subjects at which the cursor stops."""
        stops: list[tuple[int, Subject]] = []
        for at, line in enumerate(self._rows.lines):
            for subject in line.subjects():
                # What goes on in the next line is one stop.
                if not stops or subject != stops[-1][1] or not (line.cells or self.pane.blocks):
                    stops.append((at, subject))
        return stops

    def _stop(self, stops: Sequence[tuple[int, Subject]]) -> int | None:
        """Return the cursor's place among them."""
        rows = self._rows
        if (rows.at, rows.cursor) in stops:
            return stops.index((rows.at, rows.cursor))
        return next((place for place, stop in enumerate(stops) if stop[1] == rows.cursor), None)

    def action_move(self, by: int) -> None:
        """Move the cursor by some stops; beyond them, scroll."""
        rows, stops = self._rows, self._stops()
        here = self._stop(stops)
        if not stops:
            rows.scroll_relative(y=by, animate=False)
        elif here is None:
            top = rows.scroll_offset.y
            self._go_to(*next((stop for stop in stops if stop[0] >= top), stops[-1]))
        elif (to := min(max(here + by, 0), len(stops) - 1)) == here:
            rows.scroll_relative(y=by, animate=False)
        else:
            self._go_to(*stops[to])

    def action_move_row(self, by: int) -> None:
        """Move the cursor to the cell above or below; beside the cells, to the next line."""
        rows, stops = self._rows, self._stops()
        here = self._stop(stops)
        cells = None if here is None else rows.lines[stops[here][0]].cells
        if here is None or cells is None:
            self.action_move(by)
            return
        at, subject = stops[here]
        column = sum(cell.width for cell in takewhile(lambda cell: cell.subject != subject, cells()))
        beyond = [stop for stop in stops if (stop[0] - at) * by > 0]
        if beyond:
            row = min((stop[0] for stop in beyond), key=lambda row: abs(row - at))
            last = next(stop[1] for stop in reversed(beyond) if stop[0] == row)
            self._go_to(row, rows.lines[row].under(column).subject or last)
        else:
            rows.scroll_relative(y=by, animate=False)

    def action_move_page(self, by: int) -> None:
        """Move the cursor by a screen; scroll where it has no line."""
        rows = self._rows
        lines = by * max(rows.size.height - 1, 1)
        if self.pane.blocks or self._is_map:
            rows.scroll_relative(y=lines, animate=False)
        else:
            self.action_move(lines)

    @property
    def _is_map(self) -> bool:
        """Whether the cursor stops at cells."""
        return any(line.cells and line.subject is None for line in self._rows.lines)

    def action_choose(self) -> None:
        """Choose what is at the cursor; without a cursor, show it."""
        stops, rows = self._stops(), self._rows
        here = self._stop(stops)
        if here is not None:
            self._go_to(*stops[here], go=True)
        elif self.view is not None and rows.cursor is not None and self._is_map:
            self._send(self.pane.picks(self.view, rows.cursor, go=True))
        else:
            self.action_move(0)

    def action_mark_and_move(self, by: int) -> None:
        """Mark the cursor's line and the next one, to which the cursor goes."""
        if self.view is not None:
            self._send(self.pane.marks(self.view, self._rows.cursor))
            self.action_move(by)
            self._send(self.pane.marks(self.view, self._rows.cursor))

    def action_send(self, key: int) -> None:
        """Do what one of the pane's own keys does."""
        self._send(self._sent_by(key))

    def _sent_by(self, key: int) -> Message | None:
        does = self.pane.keys[key].does
        return None if self.view is None or isinstance(does, str) else does(self.view, self._rows.cursor)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave a key that has nothing to do here to the screen."""
        if action == "send" and isinstance(parameters[0], int):
            return self._sent_by(parameters[0]) is not None
        return True

    def on_rows_pointed(self, event: Rows.Pointed) -> None:
        """Select what was clicked."""
        event.stop()
        cell = self._rows.lines[event.at].under(event.column)
        self._send(cell.sends)
        if cell.subject is not None:
            self._go_to(event.at, cell.subject, go=event.chain > 1)
