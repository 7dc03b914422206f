"""The timeline of the whole run, which can be clicked, and arrivals by sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.content import Content
from textual.reactive import reactive

from blis_tui.debugger.why.explanation import Ref, event_ref
from blis_tui.tui.presenters.arrivals import arrival_lines, groupings, row_text, rows_of
from blis_tui.tui.presenters.timeline import (
    CHOICES,
    LABEL,
    event_at,
    event_beside,
    hover_text,
    scale_of,
    timeline,
)
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from textual.events import Leave, MouseDown, MouseEvent, MouseMove, MouseUp

    from blis_tui.tui.presenters.timeline import Scale
    from blis_tui.tui.view import View

_LINES: Final = 3


class Timeline(Pane):
    """Three lines over the full width: times, a figure, and marks. A click goes to that time.

    The arrivals of each client or tenant may be shown below.
    """

    FOLLOWS_SELECTION = False
    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Timeline {
        height: 3;
        text-wrap: nowrap;
    }
    """
    BINDINGS: ClassVar = [
        Binding("left", "beside(-1)", "back", show=False),
        Binding("right", "beside(1)", "forward", show=False),
        Binding("up", "choose(-1)", "previous figure", show=False),
        Binding("down", "choose(1)", "next figure", show=False),
    ]

    choice: reactive[int] = reactive(0)
    """Index of the figure in the middle line."""

    grouping: reactive[str] = reactive("")
    """Grouping of the arrivals: ``client`` or ``tenant``; empty = not shown."""

    _dragged = False
    _asked = -1

    def show(self, view: View) -> None:
        """Redraw the timeline."""
        rows = rows_of(view, self.grouping, self.screen.size.height) if self.grouping else ()
        self.styles.height = _LINES + (1 + len(rows) if rows else 0)
        self.refresh()

    def turn(self) -> bool:
        """Show the arrivals with the next grouping, or hide them; return whether there is any grouping."""
        if self.view is None:
            return False
        choices = ("", *groupings(self.view))
        self.grouping = choices[(choices.index(self.grouping) + 1) % len(choices)]
        self.show(self.view)
        return len(choices) > 1

    def render(self) -> Content | str:
        """Return the lines."""
        if self.view is None:
            return ""
        width = self.content_size.width
        lines = [timeline(self.view, CHOICES[self.choice], width, focused=self.has_focus)]
        if self.grouping:
            lines += arrival_lines(self.view, self.grouping, width, self.screen.size.height)
        return Content("\n").join(lines)

    def _scale(self, view: View) -> Scale:
        return scale_of(view, self.content_size.width - LABEL)

    # ---- keys ----

    def action_choose(self, by: int) -> None:
        """Show another figure."""
        self.choice = (self.choice + by) % len(CHOICES)

    def action_beside(self, direction: int) -> None:
        """Go one column back or forward."""
        if self.view is not None:
            self._go(event_beside(self.view, self._scale(self.view), direction))

    def at_cursor(self) -> Ref | None:
        """Return the present event, which is what its keys and clicks move."""
        return None if self.view is None else event_ref(self.view.moment.event)

    def _go(self, event: int) -> None:
        self._asked = event
        self.post_message(Picked(event=event, go=True))

    # ---- mouse ----

    def _cell(self, event: MouseEvent) -> int:
        """Return the column under the mouse; negative on the labels."""
        return event.x - self.gutter.left - LABEL

    def on_mouse_down(self, event: MouseDown) -> None:
        """Go to a time, and start dragging; a click on the label shows another figure."""
        if self.view is None or event.button != 1:
            return
        cell = self._cell(event)
        if cell < 0:
            self.action_choose(1)
            return
        self._dragged = True
        self.capture_mouse()
        self._go(event_at(self.view, self._scale(self.view), cell))

    def on_mouse_move(self, event: MouseMove) -> None:
        """Drag the position, or show what is under the mouse."""
        view = self.view
        if view is None:
            return
        scale, cell = self._scale(view), self._cell(event)
        if self._dragged:
            wanted = event_at(view, scale, cell)
            if wanted != self._asked:
                self._go(wanted)
            return
        rows = rows_of(view, self.grouping, self.screen.size.height) if self.grouping else ()
        row = event.y - self.gutter.top - _LINES - 1
        if not 0 <= cell < scale.cells:
            self.tooltip = "Click for another figure."
        elif 0 <= row < len(rows):
            self.tooltip = row_text(view, self.grouping, rows[row], scale, cell)
        else:
            self.tooltip = hover_text(view, CHOICES[self.choice], scale, cell)

    def on_mouse_up(self, _event: MouseUp) -> None:
        """End dragging."""
        if self._dragged:
            self._dragged = False
            self.release_mouse()

    def on_leave(self, _event: Leave) -> None:
        """Remove the tooltip."""
        self.tooltip = None
