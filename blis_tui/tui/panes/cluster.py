"""Panes of clusters: the fleet map, the router's decision, the gateway's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding

from blis_tui.debugger.why.explanation import Subject, event_ref, instance_ref, request_ref
from blis_tui.tui.panes.fleet import EVENT_KEY, FleetText, fleet_text
from blis_tui.tui.panes.gateway import gateway_lines
from blis_tui.tui.panes.instances import INSTANCE_KEY
from blis_tui.tui.panes.pane_rows import Lines, LinesPane
from blis_tui.tui.panes.router import routed_event, router_lines
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.view import View


class FleetPane(LinesPane):
    """A cell per instance; selecting one shows it in the other panes."""

    HINT = "arrows select · u next measure"
    BINDINGS: ClassVar = [
        Binding("left", "turn(-1)", "previous instance", show=False),
        Binding("right", "turn(1)", "next instance", show=False),
    ]

    _text: FleetText | None = None

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        self._text = fleet_text(view, width, max(self.content_size.height, 1))
        return self._text.lines

    def key_of(self, view: View) -> str:
        """Return the selected request, whose transfer's line is marked; instances are marked on the map."""
        return view.selection.request or ""

    def pick(self, key: str, *, go: bool) -> None:
        """Select a request with a KV transfer, or an event."""
        if key.startswith(EVENT_KEY):
            self.post_message(Picked(event=int(key.removeprefix(EVENT_KEY)), go=go))
        else:
            self.post_message(Picked(request=key, go=go))

    @property
    def _instance(self) -> int | None:
        return None if self.view is None else self.view.selection.instance

    def action_turn(self, by: int) -> None:
        """Select the instance some cells further."""
        members = () if self._text is None else self._text.members()
        if not members or self._text is None:
            return
        here = members.index(self._instance) if self._instance in members else None
        place = 0 if here is None else min(max(here + by, 0), len(members) - 1)
        at = self._text.line_of(members[place])
        if at is not None:
            self.query_one(Lines).reveal(at)
        self.post_message(Picked(instance=members[place]))

    def action_move(self, by: int) -> None:
        """Select the instance some rows below."""
        if self._text is not None:
            self.action_turn(by * self._text.columns(-1 if self._instance is None else self._instance))

    def action_move_page(self, by: int) -> None:
        """Scroll by a screen."""
        area = self.query_one(Lines)
        area.scroll_relative(y=by * max(area.size.height - 1, 1), animate=False)

    def action_choose(self) -> None:
        """Show the instance's queue and batch."""
        if self._instance is not None:
            self.post_message(Picked(instance=self._instance, go=True))

    def on_lines_pointed(self, event: Lines.Pointed) -> None:
        """Select the instance of a clicked cell."""
        found = None if self._text is None else self._text.at(event.at, event.column)
        if found is not None:
            event.stop()
            event.prevent_default()
            self.post_message(Picked(instance=found, go=event.chain > 1))

    def at_cursor(self) -> Subject | None:
        """Return the instance that is marked on the map."""
        return None if self._instance is None else instance_ref(self._instance)


class RouterPane(LinesPane):
    """The candidates of a routing decision, which can be selected."""

    HINT = "up down candidate · i what if it went there"

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        return router_lines(view, width)

    def key_of(self, view: View) -> str:
        """Return the selected instance, if it is a candidate."""
        return "" if view.selection.instance is None else f"{INSTANCE_KEY}{view.selection.instance}"

    def pick(self, key: str, *, go: bool) -> None:
        """Select an instance."""
        self.post_message(Picked(instance=int(key.removeprefix(INSTANCE_KEY)), go=go))

    def at_cursor(self) -> Subject | None:
        """Return the event of the decision: it has the reason why this candidate was chosen, or was not."""
        event = 0 if self.view is None else routed_event(self.view)
        return event_ref(event) if event else None

    def selected_path(self) -> str:
        """Return the path of the instance for conditions."""
        return f"instances[{self.selected_value()}]" if self._key else ""

    def selected_value(self) -> str:
        """Return the instance's index."""
        return self._key.removeprefix(INSTANCE_KEY)


class GatewayPane(LinesPane):
    """The requests waiting in front of the router."""

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        return gateway_lines(view, width)

    def key_of(self, view: View) -> str:
        """Return the selected request, if it is first in its queue."""
        return view.selection.request or ""

    def pick(self, key: str, *, go: bool) -> None:
        """Select a request."""
        self.post_message(Picked(request=key, go=go))

    def at_cursor(self) -> Subject | None:
        """Return the request of the line."""
        return request_ref(self._key) if self._key else None
