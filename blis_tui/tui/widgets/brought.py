"""A pane of a plug-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.why.explanation import Ref, event_ref, request_ref
from blis_tui.tui.presenters.plugin_panes import picked, plugin_pane_lines
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.lines import LinesPane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.panes import PluginPane
    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View


class BroughtPane(LinesPane):
    """The lines of a plug-in's function; those about events and requests can be selected."""

    brought: PluginPane | None = None
    """The plug-in's pane; set before the widget is displayed."""

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        parse_style = self.app.stylesheet.parse_style
        return () if self.brought is None else plugin_pane_lines(self.brought, view, width, parse_style)

    def pick(self, key: str, *, go: bool) -> None:
        """Select the subject of a line, or go there."""
        event, request = picked(key)
        self.post_message(Picked(event=event, request=request, go=go))

    def at_cursor(self) -> Ref | None:
        """Return the event or the request of the line."""
        if not self._key:
            return None
        event, request = picked(self._key)
        return request_ref(request or "") if event is None else event_ref(event)
