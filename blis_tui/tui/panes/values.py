"""What an expression was at each hit of a breakpoint of the whole run, as a table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.message import Message

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, plural, time_text
from blis_tui.debugger.why.explanation import event_ref
from blis_tui.tui.actions import named, shown_key
from blis_tui.tui.drawing.lines import Column, fit, heading, line, remark, shorten, table_rows, titles
from blis_tui.tui.panes.pane import Pane, PaneKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.traces import Printed, Printout
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.view import View

_MOST: Final = 2000
"""Maximum number of rows on the screen; a file has all."""


@dataclass
class Arranged(Message):
    """The reader wants the values in another order: see ``Printout.arranged``."""

    how: str


def values_lines(printout: Printout | None, width: int, *, playing: bool) -> list[Line]:
    """Return the table, or how to get one."""
    if printout is None:
        key = shown_key(named("break.print").keys[0])
        hint = f"{key} prints an expression at each hit of a breakpoint: kv.utilization at preempted"
        return remark("Finding the hits …" if playing else hint, width)
    shown = printout.shown
    count = plural(len(printout.rows), "hit")
    if printout.wanted:
        count = f"{printout.wanted}: {count_text(len(shown))} of {count}"
    if not printout.rows:
        return [heading(str(printout.wish)), *remark("The breakpoint is never hit in this run.", width)]
    columns = fit(_columns(printout), width)
    lines = [
        heading(str(printout.wish), count, width),
        titles([_marked(column, printout) for column in columns]),
        *table_rows(columns, shown[:_MOST], lambda row: event_ref(row.event)),
    ]
    if len(shown) > _MOST:
        lines.append(line((f"… {count_text(len(shown) - _MOST)} more: x writes all to a file", "$text-muted")))
    return lines


def _columns(printout: Printout) -> Sequence[Column[Printed]]:
    value = max(len(printout.wish.figure.text_of(row.value)) for row in printout.rows[:_MOST])
    name = max(len(row.request) for row in printout.rows[:_MOST])
    return (
        Column("event", 10, lambda row, _: count_text(row.event), right=True),
        Column("time", 14, lambda row, _: time_text(row.time_us), right=True),
        Column("value", max(value, 7), lambda row, _: printout.text(row), right=True),
        Column("request", min(max(name, 9), 30), lambda row, room: shorten(row.request, room), rank=1),
    )


def _marked(column: Column[Printed], printout: Printout) -> Column[Printed]:
    """Return a column whose title says that it is the one of the order."""
    key = "time_us" if column.title == "time" else column.title
    arrow = "▼" if printout.reverse else "▲"
    return replace(column, title=f"{column.title} {arrow}") if key == printout.order else column


def _arranges(how: str, view: View, _cursor: Subject | None) -> Arranged | None:
    return None if view.printout is None else Arranged(how)


PANE: Final = Pane(
    lines=lambda view, room: values_lines(view.printout, room.width, playing=view.playing),
    hint=lambda view: "" if view.printout is None else "left right sort · space reverse · / filter · x CSV",
    badge=lambda view: 0 if view.printout is None else len(view.printout.rows),
    keys=(
        PaneKey("left", partial(_arranges, "previous")),
        PaneKey("right", partial(_arranges, "next")),
        PaneKey("space", partial(_arranges, "reverse")),
    ),
    anew=lambda view: None if view.printout is None else (view.printout.order, view.printout.reverse),
)
