"""The pane of the latest event's changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.differences import differences
from blis_tui.debugger.why.explanation import Ref, event_ref, request_ref
from blis_tui.tui.presenters.diff import diff_lines, value_text
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.lines import LinesPane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.differences import Change
    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View


class DiffPane(LinesPane):
    """Every field of the state that the present event changed."""

    FOLLOWS_SELECTION = False

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        return diff_lines(view.moment, width, playing=view.playing)

    def pick(self, key: str, *, go: bool) -> None:
        """Select the request of the line."""
        change = self._change(key)
        if go and change is not None and change.request:
            self.post_message(Picked(request=change.request))

    def at_cursor(self) -> Ref | None:
        """Return the request of the line, else the event whose changes these are."""
        change = self._change(self._key)
        if change is not None and change.request:
            return request_ref(change.request)
        return None if self.view is None else event_ref(self.view.moment.event)

    def selected_value(self) -> str:
        """Return the new value of the line, or its text."""
        change = self._change(self._key)
        if change is None:
            return ""
        return change.about if change.new is None else value_text(change.new, change.unit)

    def selected_path(self) -> str:
        """Return the path of the line's value."""
        change = self._change(self._key)
        return "" if change is None else change.path

    def _change(self, path: str) -> Change | None:
        if self.view is None or self.view.playing:
            return None
        return next((change for change in differences(self.view.moment) if change.path == path), None)
