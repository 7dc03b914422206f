"""What all panes of the debugger have in common: a box with a title that shows a view."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.reactive import reactive
from textual.widget import Widget

if TYPE_CHECKING:
    from blis_tui.tui.view import View


class Pane(Widget, can_focus=True):
    """A box that shows a view. Hidden panes are not drawn; they catch up when they are shown.

    Subclasses implement :meth:`show`. They keep no history: the same view always looks the same.
    """

    HINT: ClassVar[str] = ""
    """At the bottom of its border: keys that are worth knowing there."""

    view: reactive[View | None] = reactive(None, init=False, always_update=True)

    def on_mount(self) -> None:
        """Write the hint into the border."""
        if self.HINT:
            self.border_subtitle = self.HINT

    FOLLOWS_SELECTION: ClassVar[bool] = True
    """Whether it looks any different when the reader points at another event or request."""

    def watch_view(self) -> None:
        """Show the new view, if it is on the screen."""
        self.refresh_view()

    def on_show(self) -> None:
        """Catch up."""
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
        """Fit the new size."""
        self.refresh_view()

    def show(self, view: View) -> None:
        """Bring what is on the screen up to the view."""
        raise NotImplementedError
