"""The rows of the event list, created only when visible; an option list would create one for each of millions."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from blis_tui.tui.presenters.events import (
    BEFORE_HERE,
    BREAKPOINT,
    CURSOR,
    HERE,
    START,
    EventLine,
    Run,
    columns,
    event_line,
    event_runs,
    full_text,
    stops_at,
    tail,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    from rich.style import Style
    from textual.events import Leave, MouseMove

    from blis_tui.debugger.tape import EventRow, Tape
    from blis_tui.tui.view import View

_MARGIN: Final = 2
"""Rows kept visible before and after a revealed row."""
_REMEMBERED: Final = 500
"""Maximum number of cached lines; a screen shows far fewer."""


class EventRows(ScrollView, can_focus=False):
    """The rows, scrolled. Row 0 is the start; the last row says what follows the last recorded event.

    Args:
        on_scroll: called after scrolling.

    Attributes:
        view: the displayed view; None before the first.
        index: the events that match the filter, after a 0 for the start; None = all.
        cursor: the event at the cursor.
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

    def __init__(self, on_scroll: Callable[[], None]) -> None:
        super().__init__()
        self._on_scroll = on_scroll
        self.view: View | None = None
        self.index: array[int] | None = None
        self.cursor = 0
        self._stops: Callable[[EventRow], bool] | None = None
        self._hover = -1
        self._lines: dict[int, EventLine] = {}
        self._tape: Tape | None = None

    # ---- rows and events ----

    @property
    def count(self) -> int:
        """Number of rows with events, including the start."""
        if self.view is None:
            return 0
        return self.view.moment.frontier + 1 if self.index is None else len(self.index)

    def event_at(self, row: int) -> int:
        """Return the event in a row; the last event for the row below it."""
        row = max(0, min(row, self.count - 1))
        return row if self.index is None else self.index[row]

    def row_of(self, event: int) -> int:
        """Return the row of an event, or of the last visible one before it."""
        return event if self.index is None else bisect_right(self.index, event) - 1

    def in_sight(self, row: int) -> bool:
        """Return whether a row is visible."""
        return 0 <= row - self.scroll_offset.y < self.size.height

    def reveal(self, row: int) -> None:
        """Scroll to a row: as little as necessary, or to the middle after a long way."""
        height = max(self.size.height, 1)
        top = self.scroll_offset.y
        if self.in_sight(row):
            return
        near = top - height < row < top + 2 * height
        margin = min(_MARGIN, height // 4)
        target = (row - margin if row < top else row - height + 1 + margin) if near else row - height // 2
        self.scroll_to(y=max(0, min(target, self.count + 1 - height)), animate=False)

    def present(self, view: View) -> None:
        """Set the view; the caller handles scrolling."""
        if view.tape is not self._tape:
            self._tape = view.tape
            self._lines.clear()
        self.view = view
        self._stops = stops_at(view) if view.breakpoints else None
        self.fit()

    def fit(self) -> None:
        """Adapt the scrollbar to the number of rows."""
        size = Size(self.size.width, self.count + 1)
        if size != self.virtual_size:
            # The scrollbar is always visible, so no other widget moves and no new layout is needed.
            self.set_reactive(Widget.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
            self.vertical_scrollbar.window_size = self.size.height
        self.refresh()

    # ---- drawing ----

    def render_line(self, y: int) -> Strip:
        """Return a row."""
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
        cursor = CURSOR if pointer == " " and self.row_of(self.cursor) == row else " "
        if event == 0:
            return [Run(f"{pointer} {cursor}", "accent"), Run(START, "muted")]
        stops = self._stops is not None and self._stops(view.tape.row(event))
        marks = [Run(pointer, "accent"), Run(BREAKPOINT if stops else " ", "warning"), Run(cursor, "accent")]
        line = event_line(view.tape, event, view.moment.phase) if event == here else self._line(view.tape, event)
        runs = event_runs(line, event, view.tape.time_us(event), columns(view.tape, width))
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
        """Highlight the row under the mouse, and show everything known about it."""
        row = self.scroll_offset.y + event.y
        if row == self._hover:
            return
        self._hover = row
        known = self.view is not None and row < self.count
        self.tooltip = full_text(self.view.tape, self.event_at(row)) if self.view is not None and known else None
        self.refresh()

    def on_leave(self, _event: Leave) -> None:
        """Remove the highlight."""
        self._hover = -1
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll, and report it."""
        super().watch_scroll_y(old_value, new_value)
        self._on_scroll()
