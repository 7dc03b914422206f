"""The common base of the debugger's panes: a box with a title that shows a view."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.reactive import reactive
from textual.widget import Widget

if TYPE_CHECKING:
    from blis_tui.debugger.why.explanation import Ref
    from blis_tui.tui.view import View


class Pane(Widget, can_focus=True):
    """A box that shows a view. Hidden panes are not drawn; they are updated when they become visible.

    Subclasses implement :meth:`show`. They keep no history: the same view always has the same display.
    """

    HINT: ClassVar[str] = ""
    """Keys worth knowing, shown in the lower border."""

    view: reactive[View | None] = reactive(None, init=False, always_update=True)

    def on_mount(self) -> None:
        """Show the hint in the border."""
        if self.HINT:
            self.border_subtitle = self.HINT

    FOLLOWS_SELECTION: ClassVar[bool] = True
    """Whether its display depends on the selected event or request."""

    def watch_view(self) -> None:
        """Show the new view, if the pane is visible."""
        self.refresh_view()

    def on_show(self) -> None:
        """Update the pane."""
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

    # ---- the cursor ----

    def at_cursor(self) -> Ref | None:
        """Return what the cursor is on, for keys that are about it; None if it is on nothing that a run consists of."""
        return None

    def selected_path(self) -> str:
        """Return the path at the cursor; empty = that of :meth:`at_cursor`."""
        return ""

    def selected_value(self) -> str:
        """Return the value at the cursor; empty = that of :meth:`at_cursor`."""
        return ""
