"""The pane of a request's life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.why.breakdown import decode_lines
from blis_tui.debugger.why.explanation import Ref, request_ref
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.debugger.why.waits import wait_lines
from blis_tui.tui.presenters.inspector import (
    EVENT_KEY,
    REQUEST_KEY,
    inspector_lines,
    ranked_requests,
    shows_ranking,
    subject,
)
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.lines import LinesPane

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.debugger.why.ranking import Ranked
    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View


class Inspector(LinesPane):
    """The selected request, or the one that the present event is about."""

    _found: tuple[tuple[int, int, str], Sequence[Ranked]] = ((-1, -1, ""), ())

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        return inspector_lines(view, width, self._notes(view), self._ranked(view))

    def key_of(self, view: View) -> str:
        """Return the cursor's key: in a new ranking the first request, until the reader chooses one."""
        if not shows_ranking(view, subject(view)):
            return super().key_of(view)
        known = self._found
        ranked = self._ranked(view)
        if known is self._found and self._key.startswith(REQUEST_KEY):
            return self._key
        return next((REQUEST_KEY + one.name for one in ranked), "")

    def _ranked(self, view: View) -> Sequence[Ranked]:
        """Return the ranking if it is shown, computed again for another position or figure."""
        if view.playing or not shows_ranking(view, subject(view)):
            return ()
        place = (view.moment.event, view.moment.settled, view.selection.order)
        if self._found[0] != place:
            self._found = (place, ranked_requests(view))
        return self._found[1]

    @staticmethod
    def _notes(view: View) -> Mapping[int, str]:
        """Return remarks on waits and slow decodes; empty during a run, because they take long."""
        name = subject(view)
        if name is None or view.playing:
            return {}
        life = read_life(view.tape, name, view.moment.event, view.moment.settled)
        if life is None:
            return {}
        return {**wait_lines(view.tape, life), **decode_lines(view.tape, life)}

    def pick(self, key: str, *, go: bool) -> None:
        """Go to the start of an interval; in the ranking, show a request."""
        if key.startswith(REQUEST_KEY):
            if go:
                self.post_message(Picked(request=key.removeprefix(REQUEST_KEY)))
            return
        event = int(key.removeprefix(EVENT_KEY))
        self.post_message(Picked(event=event, go=go))

    def at_cursor(self) -> Ref | None:
        """Return the request whose life is shown; in the ranking, that of the line."""
        if self.view is None:
            return None
        name = subject(self.view)
        if name is None or shows_ranking(self.view, name):
            name = self._key.removeprefix(REQUEST_KEY) if self._key.startswith(REQUEST_KEY) else ""
        return request_ref(name) if name else None
