"""The list of all events, with a cursor and a filter."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding

from blis_tui.debugger.why.explanation import Ref, event_ref
from blis_tui.tui.presenters.events import HERE
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.event_rows import EventRows
from blis_tui.tui.widgets.pane import Pane
from blis_tui.units import count_text, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.events import Click
    from textual.timer import Timer

    from blis_tui.debugger.tape import EventRow
    from blis_tui.tui.view import View

_SLICE: Final = 4000
"""Events that a filter examines between two chances to handle keys: 5 to 10 ms."""
_PACE_S: Final = 1 / 30


class EventList(Pane):
    """All recorded events in order; the known future is dimmed.

    The cursor is at the selected event, or at the present one. The list follows the position, unless the reader has
    scrolled away while the simulation plays.
    """

    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", "event up", show=False),
        Binding("down", "move(1)", "event down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("enter", "go", "go there", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._rows = EventRows(self.describe)
        self._asked: int | None = None
        self._matches: Callable[[EventRow], bool] | None = None
        self._label = ""
        self._searched = 0
        self._timer: Timer | None = None
        self._followed = True
        self._height = 0

    def compose(self) -> ComposeResult:
        """Create the rows."""
        yield self._rows

    # ---- display ----

    def show(self, view: View) -> None:
        """Show the recorded events, and follow the position, unless the reader looks elsewhere."""
        rows = self._rows
        old = rows.view
        was_cursor = rows.cursor
        moved = old is None or old.moment.event != view.moment.event
        # A new size does not mean that the reader has scrolled.
        if rows.size.height == self._height and old is not None:
            self._followed = rows.in_sight(rows.row_of(old.moment.event))
        followed, resized = self._followed, rows.size.height != self._height
        self._height = rows.size.height
        if old is not None and old.tape is not view.tape:
            self._restart_filter()
        rows.present(view)
        if not view.playing:
            self.step_filter(_SLICE)
        self._take_cursor(view, moved=moved)
        if (moved and (followed or not view.playing)) or (resized and followed):
            rows.reveal(self._position_row(view))
        elif rows.cursor != was_cursor and view.selection.event is not None:
            rows.reveal(rows.row_of(rows.cursor))
        self.describe()

    def _position_row(self, view: View) -> int:
        """Return the row to keep visible: that of the position, or the last row at the end."""
        row = self._rows.row_of(view.moment.event)
        return self._rows.count if row == self._rows.count - 1 else row

    def _take_cursor(self, view: View, *, moved: bool) -> None:
        selected = view.selection.event
        wanted = view.moment.event if selected is None else selected
        if moved or wanted == self._asked:
            self._asked = None
        if self._asked is None:
            # Otherwise the reader is already beyond what this view knows.
            self._rows.cursor = min(wanted, view.moment.frontier)

    def describe(self) -> None:
        """Show in the border how much is visible, and where the position is if it is out of sight."""
        view = self._rows.view
        if view is None:
            return
        known = plural(view.moment.frontier, "event")
        if self._matches is not None:
            found = count_text(self._rows.count - 1)
            known = f"{self._label}: {found} of {known}"
            if self._searched < view.moment.frontier:
                known += f", searched {100 * self._searched // view.moment.frontier} %"
        row = self._rows.row_of(view.moment.event)
        if self._rows.size.height and not self._rows.in_sight(row):
            top = self._rows.scroll_offset.y
            above = row < top
            distance = top - row if above else row - top - self._rows.size.height + 1
            known += f" · {HERE} {plural(distance, 'row')} {'up' if above else 'down'}"
        self.border_subtitle = known

    def on_focus(self) -> None:
        """Redraw the cursor, which is brighter with the focus."""
        self._rows.refresh()

    on_blur = on_focus

    # ---- filter ----

    def set_filter(self, matches: Callable[[EventRow], bool] | None, label: str = "") -> None:
        """Show only the events that match; None = all of them.

        Args:
            matches: whether to show an event.
            label: the filter as text.
        """
        self._matches = matches
        self._label = label
        self._restart_filter()
        view = self._rows.view
        if view is None:
            return
        self.step_filter(_SLICE)
        self._rows.fit()
        self._rows.reveal(self._rows.row_of(self._rows.cursor))
        self.describe()

    def _restart_filter(self) -> None:
        self._searched = 0
        self._rows.index = None if self._matches is None else array("q", [0])
        if self._matches is not None and self._timer is None:
            self._timer = self.set_interval(_PACE_S, self._go_on)
        elif self._matches is None and self._timer is not None:
            self._timer.stop()
            self._timer = None

    def step_filter(self, budget: int) -> bool:
        """Let the filter examine some further events; return whether more are left."""
        view, index, matches = self._rows.view, self._rows.index, self._matches
        if view is None or index is None or matches is None:
            return False
        tape, known = view.tape, view.moment.frontier
        if self._searched > known:  # an exception has cut the tape
            del index[bisect_left(index, known + 1) :]
            self._searched = known
        end = min(self._searched + budget, known)
        for event in range(self._searched + 1, end + 1):
            if matches(tape.row(event)):
                index.append(event)
        self._searched = end
        return end < known

    def _go_on(self) -> None:
        """Continue the filter for a moment."""
        rows = self._rows
        view = rows.view
        if view is None or self._searched >= view.moment.frontier or not self.is_on_screen:
            return
        followed = rows.in_sight(rows.row_of(view.moment.event))
        self.step_filter(_SLICE)
        rows.fit()
        if followed:
            rows.reveal(rows.row_of(view.moment.event))
        self.describe()

    # ---- cursor ----

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._point(self._rows.row_of(self._rows.cursor) + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a page."""
        self.action_move(pages * max(self._rows.size.height - 1, 1))

    def at_cursor(self) -> Ref | None:
        """Return the event of the marked row: with a filter, the last match up to the selected event."""
        rows = self._rows
        return None if rows.view is None else event_ref(rows.event_at(rows.row_of(rows.cursor)))

    def action_go(self) -> None:
        """Go to the event at the cursor."""
        there = self.at_cursor()
        if there is not None:
            self.post_message(Picked(event=int(there.value), go=True))

    def on_click(self, event: Click) -> None:
        """Select the clicked event; a double click goes there."""
        offset = event.get_content_offset(self._rows)
        row = -1 if offset is None else offset.y + self._rows.scroll_offset.y
        if not 0 <= row < self._rows.count:
            return
        if event.chain == 2:
            self.post_message(Picked(event=self._rows.event_at(row), go=True))
        elif event.chain == 1:
            self._point(row)

    def _point(self, row: int) -> None:
        """Move the cursor to a row, and report it."""
        rows = self._rows
        if rows.view is None:
            return
        event = rows.event_at(row)
        if event == rows.cursor:
            return
        rows.cursor = self._asked = event
        rows.reveal(rows.row_of(event))
        rows.refresh()
        self.post_message(Picked(event=event))
