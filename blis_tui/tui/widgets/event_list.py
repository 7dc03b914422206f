"""The list of all events, a million of them if need be: only the rows in sight are made."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from blis_tui.tui.presenters.events import (
    BEFORE_HERE,
    BREAKPOINT,
    HERE,
    START,
    EventLine,
    Run,
    columns,
    event_line,
    event_runs,
    full_text,
    tail,
)
from blis_tui.tui.presenters.units import count_text, plural
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.style import Style
    from textual.app import ComposeResult
    from textual.events import Click, Leave, MouseMove
    from textual.timer import Timer

    from blis_tui.debugger.tape import EventRow, Tape
    from blis_tui.tui.view import View

_SLICE: Final = 4000
"""Events that a filter looks at between two chances for the keyboard: 5 to 10 ms."""
_PACE_S: Final = 1 / 30
_REMEMBERED: Final = 500
"""Lines kept in words; a screen shows far fewer."""


class EventRows(ScrollView, can_focus=False):
    """The rows, scrolled. Row 0 is the start, the last one says what follows the last known event.

    Attributes:
        view: what is shown; None before the first.
        index: the events that match the filter, after a 0 for the start; None = all.
        cursor: the event under the cursor.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar = {
        *(f"event-rows--{name}" for name in ("muted", "error", "warning", "success", "primary", "secondary", "accent")),
        "event-rows--cursor",
        "event-rows--blurred",
        "event-rows--hover",
    }
    DEFAULT_CSS = """
    EventRows {
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        & > .event-rows--muted { color: $text-muted; }
        & > .event-rows--error { color: $error; }
        & > .event-rows--warning { color: $warning; }
        & > .event-rows--success { color: $success; }
        & > .event-rows--primary { color: $primary; }
        & > .event-rows--secondary { color: $secondary; }
        & > .event-rows--accent { color: $accent; }
        & > .event-rows--cursor { background: $block-cursor-background; }
        & > .event-rows--blurred { background: $block-cursor-blurred-background; }
        & > .event-rows--hover { background: $panel; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.view: View | None = None
        self.index: array[int] | None = None
        self.cursor = 0
        self.breakpoints: frozenset[int] = frozenset()
        self._hover = -1
        self._lines: dict[int, EventLine] = {}
        self._tape: Tape | None = None

    # ---- rows and events ----

    @property
    def count(self) -> int:
        """How many rows stand for events, the start included."""
        if self.view is None:
            return 0
        return self.view.moment.frontier + 1 if self.index is None else len(self.index)

    def event_at(self, row: int) -> int:
        """The event in a row; the last one for the row below it."""
        row = max(0, min(row, self.count - 1))
        return row if self.index is None else self.index[row]

    def row_of(self, event: int) -> int:
        """The row of an event, or of the last one before it that is shown."""
        return event if self.index is None else bisect_right(self.index, event) - 1

    def in_sight(self, row: int) -> bool:
        """Whether a row can be seen."""
        return 0 <= row - self.scroll_offset.y < self.size.height

    def reveal(self, row: int) -> None:
        """Scroll as little as needed, and to the middle after a long way."""
        height = max(self.size.height, 1)
        top = self.scroll_offset.y
        if self.in_sight(row):
            return
        near = top - height < row < top + 2 * height
        target = (row if row < top else row - height + 1) if near else row - height // 2
        self.scroll_to(y=max(0, min(target, self.count + 1 - height)), animate=False)

    def present(self, view: View) -> None:
        """Take a view; scrolling is the caller's business."""
        if view.tape is not self._tape:
            self._tape = view.tape
            self._lines.clear()
        self.view = view
        self.fit()

    def fit(self) -> None:
        """Fit the scrollbar to the number of rows."""
        size = Size(self.size.width, self.count + 1)
        if size != self.virtual_size:
            # Always-visible scrollbar, so no other widget's place depends on this: no new layout of the screen.
            self.set_reactive(Widget.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
            self.vertical_scrollbar.window_size = self.size.height
        self.refresh()

    # ---- drawing ----

    def render_line(self, y: int) -> Strip:
        """One row."""
        width = self.scrollable_content_region.width
        row = self.scroll_offset.y + y
        view = self.view
        if view is None or row > self.count:
            return Strip.blank(width, self.rich_style)
        if row == self.count:
            runs, base = [Run("   "), self._tail(view, width)], self.rich_style
        else:
            runs, base = self._runs(view, row, width), self._base(row)
        strip = Strip([Segment(run.text, self._style(run.colour)) for run in runs])
        return strip.adjust_cell_length(width).apply_style(base)

    def _runs(self, view: View, row: int, width: int) -> list[Run]:
        event = self.event_at(row)
        here = view.moment.event
        pointer = " "
        if self.row_of(here) == row:
            pointer = HERE if event == here else BEFORE_HERE
        marks = [Run(pointer, "accent"), Run(BREAKPOINT if event in self.breakpoints else " ", "warning"), Run(" ")]
        if event == 0:
            return [*marks, Run(START, "muted")]
        runs = event_runs(self._line(view.tape, event), event, view.tape.time_us(event), columns(view.tape, width))
        # The future is known, but has not happened at the present position.
        return marks + ([Run(run.text, "muted") for run in runs] if event > here else runs)

    def _tail(self, view: View, width: int) -> Run:
        if self.index is not None and self.count == 1:
            return Run("no event matches the filter" + (" so far" if not view.moment.complete else ""), "muted")
        return tail(view.moment, width, playing=view.playing)

    def _line(self, tape: Tape, event: int) -> EventLine:
        line = self._lines.get(event)
        if line is None:
            if len(self._lines) >= _REMEMBERED:
                self._lines.clear()
            line = self._lines[event] = event_line(tape, event)
        return line

    def _base(self, row: int) -> Style:
        if self.row_of(self.cursor) == row:
            focused = self.parent is self.screen.focused
            name = "event-rows--cursor" if focused else "event-rows--blurred"
            return self.rich_style + self.get_component_rich_style(name, partial=True)
        if row == self._hover:
            return self.rich_style + self.get_component_rich_style("event-rows--hover", partial=True)
        return self.rich_style

    def _style(self, colour: str) -> Style | None:
        return self.get_component_rich_style(f"event-rows--{colour}", partial=True) if colour else None

    # ---- mouse ----

    def on_mouse_move(self, event: MouseMove) -> None:
        """Light up the row under the mouse, and say all that is known about it."""
        row = self.scroll_offset.y + event.y
        if row == self._hover:
            return
        self._hover = row
        known = self.view is not None and row < self.count
        self.tooltip = full_text(self.view.tape, self.event_at(row)) if self.view is not None and known else None
        self.refresh()

    def on_leave(self, _event: Leave) -> None:
        """No row is under the mouse any more."""
        self._hover = -1
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Tell the list that it was scrolled."""
        super().watch_scroll_y(old_value, new_value)
        if isinstance(self.parent, EventList):
            self.parent.describe()


class EventList(Pane):
    """All known events in order; the future that is already known is dimmed.

    The cursor is the selected event, or the present one. The list follows the present position, except while the
    simulation plays and the reader has scrolled away from it.
    """

    TITLE = "Events"
    JUMP_KEY = "e"
    HELP_TEXT = (
        "One row for each event, in the order in which they happen. ▶ stands at the present position; what is below it "
        "is the future, dimmed, as far as it is known. Up, down and the page keys move the cursor; enter goes to the "
        "event under it. With a filter only the events that match are shown."
    )
    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", "event up", show=False),
        Binding("down", "move(1)", "event down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("enter", "go", "go there", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._rows = EventRows()
        self._asked: int | None = None
        self._matches: Callable[[EventRow], bool] | None = None
        self._label = ""
        self._searched = 0
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """The rows."""
        yield self._rows

    # ---- showing ----

    def show(self, view: View) -> None:
        """Show the events as they are known now; follow the position, unless the reader looks elsewhere."""
        rows = self._rows
        old = rows.view
        was_cursor = rows.cursor
        moved = old is None or old.moment.event != view.moment.event
        followed = old is None or rows.in_sight(rows.row_of(old.moment.event))
        if old is not None and old.tape is not view.tape:
            self._restart_filter()
        rows.present(view)
        if not view.playing:
            self.step_filter(_SLICE)
        self._take_cursor(view, moved=moved)
        if moved and (followed or not view.playing):
            rows.reveal(self._position_row(view))
        elif rows.cursor != was_cursor:
            rows.reveal(rows.row_of(rows.cursor))
        self.describe()

    def _position_row(self, view: View) -> int:
        """The row to keep in sight: that of the position, or the one that says what follows."""
        row = self._rows.row_of(view.moment.event)
        return self._rows.count if row == self._rows.count - 1 else row

    def _take_cursor(self, view: View, *, moved: bool) -> None:
        selected = view.selection.event
        wanted = view.moment.event if selected is None else selected
        if moved or wanted == self._asked:
            self._asked = None
        if self._asked is None:
            # Otherwise the reader is already further than this view knows.
            self._rows.cursor = min(wanted, view.moment.frontier)

    def describe(self) -> None:
        """Say in the border how much is shown, and where the position is when it is out of sight."""
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
            above = row < self._rows.scroll_offset.y
            distance = self._rows.scroll_offset.y - row if above else row - self._rows.scroll_offset.y
            known += f" · {HERE} {plural(distance, 'row')} {'up' if above else 'down'}"
        self.border_subtitle = known

    def on_focus(self) -> None:
        """Show the cursor brightly."""
        self._rows.refresh()

    def on_blur(self) -> None:
        """Show the cursor dimly."""
        self._rows.refresh()

    # ---- filter ----

    @property
    def matches(self) -> Sequence[int] | None:
        """The events that match the filter, as far as it has come, after a 0 for the start; None without a filter."""
        return self._rows.index

    def set_filter(self, matches: Callable[[EventRow], bool] | None, label: str = "") -> None:
        """Show only the events that match; None = all of them.

        Args:
            matches: whether to show an event.
            label: the filter in words.
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
        """Let the filter look at so many further events; returns whether more are left."""
        view, index, matches = self._rows.view, self._rows.index, self._matches
        if view is None or index is None or matches is None:
            return False
        tape, known = view.tape, view.moment.frontier
        if self._searched > known:  # an exception cut the tape
            del index[bisect_left(index, known + 1) :]
            self._searched = known
        end = min(self._searched + budget, known)
        for event in range(self._searched + 1, end + 1):
            if matches(tape.row(event)):
                index.append(event)
        self._searched = end
        return end < known

    def _go_on(self) -> None:
        """A slice of the filter's work."""
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

    # ---- moving ----

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._point(self._rows.row_of(self._rows.cursor) + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what is in sight."""
        self.action_move(pages * max(self._rows.size.height - 1, 1))

    def action_go(self) -> None:
        """Go to the event under the cursor."""
        if self._rows.view is not None:
            self.post_message(Picked(event=self._rows.cursor, go=True))

    def on_click(self, event: Click) -> None:
        """Point at an event; twice = go there."""
        offset = event.get_content_offset(self._rows)
        row = -1 if offset is None else offset.y + self._rows.scroll_offset.y
        if not 0 <= row < self._rows.count:
            return
        if event.chain == 2:
            self.post_message(Picked(event=self._rows.event_at(row), go=True))
        elif event.chain == 1:
            self._point(row)

    def _point(self, row: int) -> None:
        """Put the cursor on a row, and tell."""
        rows = self._rows
        if rows.view is None:
            return
        event = rows.event_at(row)
        if event == rows.cursor:
            return
        rows.cursor = self._asked = event
        rows.reveal(rows.row_of(event))
        rows.refresh(Region(0, 0, rows.size.width, rows.size.height))
        self.post_message(Picked(event=event))
