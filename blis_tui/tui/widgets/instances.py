"""The instances pane."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding

from blis_tui.debugger.why.explanation import Ref, instance_ref, request_ref
from blis_tui.tui.presenters.instances import INSTANCE_KEY, instances_lines
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.lines import LinesPane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View

_LEAST_SHOWN = 4
"""Minimum number of queued requests shown above the batch."""
ALL_INSTANCES = -1
"""Value of ``Picked.instance`` for all instances."""


class InstancesPane(LinesPane):
    """Queue, batch and current step of an instance, or of all."""

    BINDINGS: ClassVar = [
        Binding("left", "turn(-1)", "previous instance", show=False),
        Binding("right", "turn(1)", "next instance", show=False),
    ]

    def lines(self, view: View, width: int) -> Sequence[Line]:
        """Return the lines for a view."""
        return instances_lines(view, width, max(self.content_size.height // 3, _LEAST_SHOWN))

    def show(self, view: View) -> None:
        """Show the view, and the instance in the title."""
        count = len(view.moment.state.instances)
        chosen = view.selection.instance
        if count > 1:
            one = chosen is not None and 0 <= chosen < count
            which = f"instance {chosen} ({(chosen or 0) + 1} of {count})" if one else f"all {count} instances"
            self.border_subtitle = f"◂ {which} ▸"
        super().show(view)

    def key_of(self, view: View) -> str:
        """Return the selected request, or the line of an instance."""
        if self._key.startswith(INSTANCE_KEY):
            return self._key
        return view.selection.request or ""

    def pick(self, key: str, *, go: bool) -> None:
        """Select a request, or open an instance."""
        if not key.startswith(INSTANCE_KEY):
            self.post_message(Picked(request=key, go=go))
        elif go:
            self._key = ""
            self.post_message(Picked(instance=int(key.removeprefix(INSTANCE_KEY))))

    def action_turn(self, by: int) -> None:
        """Show the next instance; after the last one, all of them."""
        if self.view is None:
            return
        count = len(self.view.moment.state.instances)
        if count > 1:
            # All instances come between the last one and the first.
            now = self.view.selection.instance
            place = (by if now is None else now + 1 + by) % (count + 1)
            self.post_message(Picked(instance=place - 1 if place else ALL_INSTANCES))

    def at_cursor(self) -> Ref | None:
        """Return the request or the instance of the line."""
        if self._key.startswith(INSTANCE_KEY):
            return instance_ref(int(self._key.removeprefix(INSTANCE_KEY)))
        return request_ref(self._key) if self._key else None
