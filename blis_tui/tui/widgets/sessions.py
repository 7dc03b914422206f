"""The sessions pane: a list of all, and the course of an opened one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.why.explanation import Ref, request_ref
from blis_tui.tui.presenters.sessions import CALL_KEY, SESSION_KEY, course_lines, session_lines
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.lines import LinesPane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View


class SessionsPane(LinesPane):
    """Sessions; enter opens one in the list, and goes to a call in its course."""

    HINT = "enter its calls · b stop at each"

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        name = view.selection.session
        self.border_subtitle = (
            self.HINT if name is None else "enter go to the call · b stop at each · escape all sessions"
        )
        return session_lines(view, width) if name is None else course_lines(view, name, width)

    def key_of(self, view: View) -> str:
        """Return the cursor's key: in a course the selected request; in the list the last session, or the request's."""
        request, opened = view.selection.request, view.selection.session
        if opened is not None:
            return "" if request is None else CALL_KEY + request
        if self._key.startswith(SESSION_KEY):
            return self._key
        if self._key.startswith(CALL_KEY):
            request = self._key.removeprefix(CALL_KEY)
        number = None if request is None else view.tape.number(request)
        session = None if number is None else view.tape.sessions.of_request(number)
        return "" if session is None else SESSION_KEY + view.tape.sessions.name(session)

    def pick(self, key: str, *, go: bool) -> None:
        """Open a session; select a call's request, and go to where it was sent."""
        if key.startswith(CALL_KEY):
            name = key.removeprefix(CALL_KEY)
            event = None if self.view is None else self.view.tape.first_event_of(name)
            self.post_message(Picked(request=name, event=event if go else None, go=go))
        elif go:
            self.post_message(Picked(session=key.removeprefix(SESSION_KEY)))

    def selected_value(self) -> str:
        """Return the name of the open session, or of that at the cursor."""
        opened = None if self.view is None else self.view.selection.session
        return opened or (self._key.removeprefix(SESSION_KEY) if self._key.startswith(SESSION_KEY) else "")

    def at_cursor(self) -> Ref | None:
        """Return the request of the call at the cursor; without one, the session's latest call, or its first."""
        if self.view is None:
            return None
        log, tape = self.view.tape.sessions, self.view.tape
        place = log.place(self.selected_value())
        if place is None:
            return None
        calls = log.calls(place)
        names = [tape.name(one.request) for one in calls]
        pointed = self._key.removeprefix(CALL_KEY)
        if pointed not in names:
            sent = [name for name, one in zip(names, calls, strict=True) if one.event <= self.view.moment.event]
            pointed = (sent or names[:1] or [""])[-1]
        return request_ref(pointed) if pointed else None

    def selected_path(self) -> str:
        """Return the request of the call at the cursor; in the list, the session."""
        return self._key.removeprefix(CALL_KEY).removeprefix(SESSION_KEY)
