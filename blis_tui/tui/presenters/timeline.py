"""The whole run in three lines: times, a figure over time, and marks of what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.classes import dataclass
from blis_tui.conditions.probes import Reaches
from blis_tui.tui.presenters.lines import cells_text
from blis_tui.tui.presenters.series import (
    KV_USE,
    RUNNING,
    SERIES,
    WAITING,
    coloured,
    course,
    top_of,
    value_text,
)
from blis_tui.units import count_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.tui.presenters.series import Series
    from blis_tui.tui.view import View

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
PREEMPTION: Final = "×"  # noqa: RUF001  (a cross, not a letter)
LOSS: Final = "!"
FRONTIER: Final = "┤"
_TICK: Final = "▏"
_COLOURS: Final = {
    LOSS: "$error",
    PREEMPTION: "$error",
    BREAKPOINT: "$warning",
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
        (PREEMPTION, [cell for cell, bucket in places if bucket.preemptions]),
        (LOSS, [cell for cell, bucket in places if bucket.losses]),
        (BREAKPOINT, [scale.cell(time) for time in break_times_us(view) if time < scale.end_us]),
    )


def break_times_us(view: View) -> tuple[int, ...]:
    """Return the times at which an enabled breakpoint stops."""
    found: list[int] = []
    for one in view.breakpoints:
        condition = one.condition
        if one.enabled and isinstance(condition, Reaches) and condition.figure == "time_us":
            found.append(int(condition.value))
    return tuple(found)


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
    return f"{time_text(scale.last_us(cell))} · event {count_text(event)} · {figure}"
