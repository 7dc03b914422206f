"""The whole run in three lines that can be clicked, and arrivals by client or tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.content import Content
from textual.reactive import reactive

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import count_text, plural, span_text, time_text
from blis_tui.debugger.why.explanation import Subject, event_ref
from blis_tui.debugger.why.lifespans import AGAIN
from blis_tui.results.conditions.breakpoints import Reaches
from blis_tui.tui.boxes import Box
from blis_tui.tui.drawing.lines import cells_text, shorten
from blis_tui.tui.drawing.series import (
    FUTURE,
    KV_USE,
    PAST,
    RUNNING,
    SERIES,
    WAITING,
    coloured,
    course,
    strip,
    top_of,
    value_text,
)
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.events import Leave, MouseDown, MouseEvent, MouseMove, MouseUp

    from blis_tui.tui.drawing.series import Series
    from blis_tui.tui.view import View


GROUPINGS: Final = ("client", "tenant")
_NAME: Final = 7
_OTHER_LINES: Final = 12
"""Lines of a screen reserved for other content; the rows get a third of the rest."""


class SenderRow(NamedTuple):
    """The senders in a row: one client or tenant, or several combined for lack of room."""

    label: str
    names: tuple[str, ...]


def groupings(view: View) -> tuple[str, ...]:
    """Return the possible groupings: by client if there are several, by tenant if there are any."""
    several = {"client": len(_names(view, "client")) > 1, "tenant": bool(_names(view, "tenant"))}
    return tuple(by for by in GROUPINGS if several[by])


def _names(view: View, by: str) -> tuple[str, ...]:
    """Return names in the experiment's order; for a trace, in the order of their first requests."""
    clients = [client for client in view.experiment.workload.clients if client.share > 0]
    names = [client.id if by == "client" else client.tenant for client in clients]
    return tuple(dict.fromkeys(name for name in (*names, *view.tape.arrivals.names(by)) if name))


def rows_of(view: View, by: str, height: int) -> tuple[SenderRow, ...]:
    """Return the rows that fit a screen height: the senders with most known requests, then the rest combined."""
    names = _names(view, by)
    room = max((height - _OTHER_LINES) // 3, 2)
    if len(names) <= room:
        return tuple(SenderRow(name, (name,)) for name in names)
    arrivals, known = view.tape.arrivals, view.moment.frontier
    most = sorted(names, key=lambda name: -arrivals.until(by, name, known))[: room - 1]
    others = tuple(name for name in names if name not in most)
    return (*(SenderRow(name, (name,)) for name in names if name in most), SenderRow(f"{len(others)} more", others))


def arrivals_until(view: View, by: str, row: SenderRow, event: int) -> int:
    """Return how many requests of a row had arrived by an event."""
    return sum(view.tape.arrivals.until(by, name, event) for name in row.names)


def counts(view: View, by: str, row: SenderRow, scale: Scale) -> list[int | None]:
    """Return the arrivals per column, up to the position in its column; None where unknown."""
    here, known_us = scale.cell(view.moment.time_us), known_until(view)
    arrived: list[int | None] = []
    before = 0
    for cell in range(scale.cells):
        if scale.start_us(cell) > known_us:
            return [*arrived, *[None] * (scale.cells - cell)]
        last = view.tape.at_time(scale.last_us(cell))
        upto = arrivals_until(view, by, row, last)
        arrived.append((arrivals_until(view, by, row, view.moment.event) if cell == here else upto) - before)
        before = upto
    return arrived


def arrival_lines(view: View, by: str, width: int, height: int) -> list[Content]:
    """Return the title, and a row for each sender with the arrivals up to the position, and over time.

    Args:
        view: the view.
        by: ``client`` or ``tenant``.
        width: columns.
        height: lines of the whole screen.
    """
    scale = scale_of(view, width - LABEL)
    here = scale.cell(view.moment.time_us)
    rows = rows_of(view, by, height)
    values = [counts(view, by, row, scale) for row in rows]
    top = max((value for row_counts in values for value in row_counts if value is not None), default=0)
    styles = [FUTURE if cell > here else PAST for cell in range(scale.cells)]
    span = span_text(scale.end_us // scale.cells)
    about = f"by {by}, up to here; a full bar is {plural(top, 'arrival')} in {span}"
    lines = [
        Content.assemble((" arrivals".ljust(LABEL), "bold"), (about, "$text-muted")).truncate(width, ellipsis=True)
    ]
    for row, value in zip(rows, values, strict=True):
        count = count_text(arrivals_until(view, by, row, view.moment.event))
        label = f" {shorten(row.label, max(LABEL - 3 - len(count), 3)):<{_NAME}}"
        label += f"{count:>{LABEL - 1 - len(label)}} "
        lines.append(Content(label) + cells_text(strip(value, top), styles))
    return lines


def row_text(view: View, by: str, row: SenderRow, scale: Scale, cell: int) -> str:
    """Return what is known about a row at a column."""
    value: int | None = counts(view, by, row, scale)[cell]
    if value is None:
        return f"{time_text(scale.start_us(cell))}: not simulated yet"
    names: Sequence[str] = row.names[:5]
    more = f" and {len(row.names) - 5} more" if len(row.names) > len(names) else ""
    event = view.tape.at_time(scale.last_us(cell))
    if cell == scale.cell(view.moment.time_us):
        event = view.moment.event
    total = count_text(arrivals_until(view, by, row, event))
    return f"{', '.join(names)}{more} · {plural(value, 'arrival')} here, {total} up to {time_text(scale.last_us(cell))}"


LABEL: Final = 14
"""Columns left of the time axis."""
CHOICES: Final[tuple[Series, ...]] = (
    KV_USE,
    WAITING,
    RUNNING,
    *(s for s in SERIES if s.name in ("batch tokens", "tokens")),
)
"""Figures for the middle line."""

POSITION: Final = "▲"
CHECKPOINT: Final = "·"
BREAKPOINT: Final = "●"
LOSS: Final = "!"
KEPT: Final = "◆"
FRONTIER: Final = "┤"
_TICK: Final = "▏"
_COLOURS: Final = {
    LOSS: "$error",
    AGAIN.sign: AGAIN.style,
    BREAKPOINT: "$warning",
    KEPT: "$accent",
    FRONTIER: "$text-muted",
    CHECKPOINT: "$text-muted",
}

_FIRST_US: Final = 1_000_000
_ENDS: Final = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
"""Leading digits of the axis's end while the end of the run is unknown."""
_UNITS: Final = ((1_000_000, "s"), (1000, "ms"), (1, "us"))
_LABEL_CELLS: Final = 13
"""Minimum number of columns between two labels."""


@dataclass(frozen=True, slots=True)
class Scale:
    """An interval of time from 0, and its number of columns."""

    end_us: int
    cells: int

    def cell(self, time_us: int) -> int:
        """Return the column of a time."""
        return min(time_us * self.cells // self.end_us, self.cells - 1)

    def start_us(self, cell: int) -> int:
        """Return the first microsecond of a column."""
        return -(-cell * self.end_us // self.cells)

    def last_us(self, cell: int) -> int:
        """Return the last microsecond of a column."""
        return max(self.start_us(cell + 1) - 1, self.start_us(cell))


def scale_of(view: View, cells: int) -> Scale:
    """Return the scale of the whole run if its end is known; else up to a round time, so that it rarely changes."""
    return scale_until(known_until(view), cells, complete=view.moment.complete)


def scale_until(known_us: int, cells: int, *, complete: bool) -> Scale:
    """Return the scale of what is known up to a time; it ends there if nothing follows."""
    if complete and known_us:
        return Scale(known_us + 1, max(cells, 1))
    return Scale(round_end(max(known_us, _FIRST_US - 1) + 1), max(cells, 1))


def known_until(view: View) -> int:
    """Return the time of the last recorded event."""
    return view.tape.time_us(view.moment.frontier)


def round_end(us: int) -> int:
    """Return the smallest round time not before ``us``."""
    if us <= _ENDS[0]:
        return us
    size = 1
    while size * 100 < us:
        size *= 10
    return next((lead * size for lead in _ENDS if lead * size >= us), 100 * size)


def timeline(view: View, series: Series, width: int, *, focused: bool = False) -> Content:
    """Return the three lines.

    Args:
        view: the view.
        series: the figure in the middle.
        width: columns.
        focused: whether the timeline has the focus.
    """
    scale = scale_of(view, width - LABEL)
    values = course(series, view, scale.end_us, scale.cells)
    top = top_of(series, values, view)
    here = scale.cell(view.moment.time_us)
    name = Content.styled(("▸" if focused else " ") + series.name, "$accent bold" if focused else "bold")
    return Content("\n").join(
        [
            Content.assemble(_padded(name), axis(scale)),
            Content.assemble(
                _padded(Content(f" now {value_text(series, series.now(view), view)}")),
                coloured(series, values, top, here),
            ),
            Content.assemble(
                _padded(Content.styled(f" ≤ {value_text(series, top, view)}", "$text-muted")), _marks(view, scale)
            ),
        ]
    )


def _padded(label: Content) -> Content:
    return label.truncate(LABEL - 1).pad_right(max(LABEL - label.cell_length, 1))


def axis(scale: Scale) -> Content:
    """Return round times at their positions, each with a tick mark."""
    step = tick_us(scale)
    line = ""
    for time_us in range(0, scale.end_us, step):
        at = scale.cell(time_us)
        label = _TICK + tick_text(time_us, step)
        if at + len(label) <= scale.cells:
            line = line.ljust(at) + label
    return Content.styled(line, "$text-muted")


def tick_us(scale: Scale) -> int:
    """Return the smallest round interval between labels that leaves room for them."""
    size = 1
    while True:
        for lead in (1, 2, 5):
            if lead * size * scale.cells >= _LABEL_CELLS * scale.end_us:
                return lead * size
        size *= 10


def tick_text(time_us: int, step_us: int) -> str:
    """Return a round time with as many digits as the interval requires: ``2.5 s``."""
    for size, unit in _UNITS:
        if step_us * 100 >= size:
            decimals = 0 if step_us >= size else (1 if step_us * 10 >= size else 2)
            return f"{time_us / size:,.{decimals}f} {unit}"
    return f"{time_us:,} us"


def _marks(view: View, scale: Scale) -> Content:
    here = scale.cell(view.moment.time_us)
    row = [" "] * scale.cells
    for char, cells in _mark_cells(view, scale):
        for cell in cells:
            row[cell] = char
    row[here] = POSITION
    colours = ["$accent bold" if cell == here else _COLOURS.get(char, "") for cell, char in enumerate(row)]
    styles = [f"{colour} dim" if colour and cell > here else colour for cell, colour in enumerate(colours)]
    return cells_text(row, styles)


def _mark_cells(view: View, scale: Scale) -> Sequence[tuple[str, Iterable[int]]]:
    """Return the marks and their columns; later marks cover earlier ones."""
    tape = view.tape
    width = tape.overview.width_us
    now_us = view.moment.time_us
    buckets = list(tape.overview.buckets)
    place = now_us // width
    if view.moment.event and place < len(buckets):
        # The bucket's later part must not be marked as past.
        buckets[place] = tape.between(tape.at_time(place * width - 1) + 1, view.moment.settled)
    places = [(scale.cell(place * width + width // 2), bucket) for place, bucket in enumerate(buckets)]
    return (
        (CHECKPOINT, [scale.cell(tape.time_us(event)) for event in view.checkpoints if event <= len(tape)]),
        (FRONTIER, [scale.cell(known_until(view))] if view.moment.frontier else []),
        (AGAIN.sign, [cell for cell, bucket in places if bucket.preemptions]),
        (LOSS, [cell for cell, bucket in places if bucket.losses]),
        (BREAKPOINT, [scale.cell(time) for time in break_times_us(view) if time < scale.end_us]),
        (KEPT, [scale.cell(moment.time_us) for moment in view.moments if moment.time_us < scale.end_us]),
    )


def break_times_us(view: View) -> tuple[int, ...]:
    """Return the times at which an enabled breakpoint stops."""
    times_us: list[int] = []
    for point in view.breakpoints:
        condition = point.condition
        if point.enabled and isinstance(condition, Reaches) and condition.figure == "time_us":
            times_us.append(int(condition.value))
    return tuple(times_us)


def event_at(view: View, scale: Scale, cell: int) -> int:
    """Return the event for a click on a column: the last one up to its end; the start for the first column."""
    cell = max(0, min(cell, scale.cells - 1))
    return min(view.tape.at_time(scale.last_us(cell)), view.moment.frontier) if cell else 0


def event_beside(view: View, scale: Scale, direction: int) -> int:
    """Return the event one column left or right of the position, at least one event away."""
    tape, here = view.tape, view.moment.event
    cell = scale.cell(view.moment.time_us)
    if direction < 0:
        return min(tape.at_time(scale.start_us(cell) - 1), max(here - 1, 0))
    return min(max(event_at(view, scale, cell + 1), here + 1), view.moment.frontier)


def hover_text(view: View, series: Series, scale: Scale, cell: int) -> str:
    """Return what is known about a column."""
    event = event_at(view, scale, cell)
    if scale.start_us(cell) > known_until(view):
        return f"{time_text(scale.start_us(cell))}: not simulated yet"
    value = course(series, view, scale.end_us, scale.cells)[cell]
    figure = f"{series.name} {value_text(series, value, view)}"
    text = f"{time_text(scale.last_us(cell))} · event {count_text(event)} · {figure}"
    kept = ", ".join(moment.name for moment in view.moments if scale.cell(moment.time_us) == cell)
    return f"{text} · {KEPT} {kept}" if kept else text


_LINES: Final = 3


class Timeline(Box):
    """Three lines over the full width: times, a figure, and marks. A click goes to that time.

    The arrivals of each client or tenant may be shown below.
    """

    follows_selection = False
    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Timeline {
        height: 3;
        text-wrap: nowrap;
    }
    """
    BINDINGS: ClassVar = [
        Binding("left", "beside(-1)", "back", show=False),
        Binding("right", "beside(1)", "forward", show=False),
        Binding("up", "choose(-1)", "previous figure", show=False),
        Binding("down", "choose(1)", "next figure", show=False),
    ]

    choice: reactive[int] = reactive(0)
    """Index of the figure in the middle line."""

    grouping: reactive[str] = reactive("")
    """Grouping of the arrivals: ``client`` or ``tenant``; empty = not shown."""

    _dragged = False
    _asked = -1

    def show(self, view: View) -> None:
        """Redraw the timeline."""
        rows = rows_of(view, self.grouping, self.screen.size.height) if self.grouping else ()
        self.styles.height = _LINES + (1 + len(rows) if rows else 0)
        self.refresh()

    def turn(self) -> bool:
        """Show the arrivals with the next grouping, or hide them; return whether there is any grouping."""
        if self.view is None:
            return False
        choices = ("", *groupings(self.view))
        self.grouping = choices[(choices.index(self.grouping) + 1) % len(choices)]
        self.show(self.view)
        return len(choices) > 1

    def render(self) -> Content | str:
        """Return the lines."""
        if self.view is None:
            return ""
        width = self.content_size.width
        lines = [timeline(self.view, CHOICES[self.choice], width, focused=self.has_focus)]
        if self.grouping:
            lines += arrival_lines(self.view, self.grouping, width, self.screen.size.height)
        return Content("\n").join(lines)

    def _scale(self, view: View) -> Scale:
        return scale_of(view, self.content_size.width - LABEL)

    # ---- keys ----

    def action_choose(self, by: int) -> None:
        """Show another figure."""
        self.choice = (self.choice + by) % len(CHOICES)

    def action_beside(self, direction: int) -> None:
        """Go one column back or forward."""
        if self.view is not None:
            self._go(event_beside(self.view, self._scale(self.view), direction))

    def at_cursor(self) -> Subject | None:
        """Return the present event, which is what its keys and clicks move."""
        return None if self.view is None else event_ref(self.view.moment.event)

    def changes(self) -> str:
        """Return what stops where the figure in the middle changes."""
        return CHOICES[self.choice].changes

    def _go(self, event: int) -> None:
        self._asked = event
        self.post_message(Picked(event=event, go=True))

    # ---- mouse ----

    def _cell(self, event: MouseEvent) -> int:
        """Return the column under the mouse; negative on the labels."""
        return event.x - self.gutter.left - LABEL

    def on_mouse_down(self, event: MouseDown) -> None:
        """Go to a time, and start dragging; a click on the label shows another figure."""
        if self.view is None or event.button != 1:
            return
        cell = self._cell(event)
        if cell < 0:
            self.action_choose(1)
            return
        self._dragged = True
        self.capture_mouse()
        self._go(event_at(self.view, self._scale(self.view), cell))

    def on_mouse_move(self, event: MouseMove) -> None:
        """Drag the position, or show what is under the mouse."""
        view = self.view
        if view is None:
            return
        scale, cell = self._scale(view), self._cell(event)
        if self._dragged:
            wanted = event_at(view, scale, cell)
            if wanted != self._asked:
                self._go(wanted)
            return
        rows = rows_of(view, self.grouping, self.screen.size.height) if self.grouping else ()
        row = event.y - self.gutter.top - _LINES - 1
        if not 0 <= cell < scale.cells:
            self.tooltip = "Click for another figure."
        elif 0 <= row < len(rows):
            self.tooltip = row_text(view, self.grouping, rows[row], scale, cell)
        else:
            self.tooltip = hover_text(view, CHOICES[self.choice], scale, cell)

    def on_mouse_up(self, _event: MouseUp) -> None:
        """End dragging."""
        if self._dragged:
            self._dragged = False
            self.release_mouse()

    def on_leave(self, _event: Leave) -> None:
        """Remove the tooltip."""
        self.tooltip = None
