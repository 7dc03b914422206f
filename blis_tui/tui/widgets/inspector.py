"""The pane with one request's life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.why.waits import wait_lines
from blis_tui.tui.presenters.inspector import EVENT_KEY, inspector_lines, subject
from blis_tui.tui.presenters.slowest import REQUEST_KEY, shows_slowest
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.lines import LinesPane

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View


class Inspector(LinesPane):
    """The selected request, or the one that the present event is about."""

    TITLE = "Request"
    JUMP_KEY = "r"
    HELP_TEXT = (
        "One request: where it stands, what its latency consists of, and its life as a bar and as a list. What is "
        "dimmed lies behind the present position. Up and down move along its life; enter goes to where a stretch began."
    )

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Present the view."""
        return inspector_lines(view, width, self._waits(view))

    def key_of(self, view: View) -> str:
        """Of the slowest requests, the first one at first."""
        if shows_slowest(view, subject(view)) and not self._key.startswith(REQUEST_KEY):
            return "".join(REQUEST_KEY + name for name, _ in view.tape.slowest(view.moment.event, 1))
        return super().key_of(view)

    @staticmethod
    def _waits(view: View) -> Mapping[int, str]:
        """What each wait was for; not while running, for it takes long."""
        name = subject(view)
        if name is None or view.playing:
            return {}
        return wait_lines(view.tape, view.experiment, name, view.moment.event, view.moment.settled)

    def pick(self, key: str, *, go: bool) -> None:
        """Go to where a stretch began; of the slowest requests, look at one."""
        if key.startswith(REQUEST_KEY):
            if go:
                self.post_message(Picked(request=key.removeprefix(REQUEST_KEY)))
            return
        event = int(key.removeprefix(EVENT_KEY))
        self.post_message(Picked(event=event, go=go))

    def selected_path(self) -> str:
        """Where a debugger's condition finds the request."""
        name = self.selected_value()
        return f"requests.{name}" if name else ""

    def selected_value(self) -> str:
        """The request's name; in the list of the slowest, of the one at the cursor."""
        if self.view is None:
            return ""
        name = subject(self.view)
        if name is None or shows_slowest(self.view, name):
            return self._key.removeprefix(REQUEST_KEY) if self._key.startswith(REQUEST_KEY) else ""
        return name
