"""The whole run at a glance, to click into."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.reactive import reactive

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
    from textual.content import Content
    from textual.events import Leave, MouseDown, MouseEvent, MouseMove, MouseUp

    from blis_tui.tui.presenters.timeline import Scale
    from blis_tui.tui.view import View


class Timeline(Pane):
    """Three lines over the full width: times, one figure, and marks. A click goes to that time."""

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
    """Which figure the middle line shows."""

    _dragged = False
    _asked = -1

    def show(self, view: View) -> None:  # noqa: ARG002  (render reads it)
        """Draw it anew."""
        self.refresh()

    def render(self) -> Content | str:
        """The three lines."""
        if self.view is None:
            return ""
        return timeline(self.view, CHOICES[self.choice], self.content_size.width, focused=self.has_focus)

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

    def _go(self, event: int) -> None:
        self._asked = event
        self.post_message(Picked(event=event, go=True))

    # ---- mouse ----

    def _cell(self, event: MouseEvent) -> int:
        """The column under the mouse; negative on the labels."""
        return event.x - self.gutter.left - LABEL

    def on_mouse_down(self, event: MouseDown) -> None:
        """Go to a time, and go on as long as the button is held; a click on the label shows another figure."""
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
        """Drag the position along, or say what is under the mouse."""
        view = self.view
        if view is None:
            return
        scale, cell = self._scale(view), self._cell(event)
        if self._dragged:
            wanted = event_at(view, scale, cell)
            if wanted != self._asked:
                self._go(wanted)
            return
        inside = 0 <= cell < scale.cells
        self.tooltip = hover_text(view, CHOICES[self.choice], scale, cell) if inside else "Click for another figure."

    def on_mouse_up(self, _event: MouseUp) -> None:
        """The drag is over."""
        if self._dragged:
            self._dragged = False
            self.release_mouse()

    def on_leave(self, _event: Leave) -> None:
        """Nothing is under the mouse any more."""
        self.tooltip = None
