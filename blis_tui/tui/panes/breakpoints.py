"""Breakpoints and watches, which the screen owns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.message import Message

from blis_tui.base.classes import dataclass
from blis_tui.debugger.why.explanation import Subject
from blis_tui.results.conditions.breakpoints import CHANGE
from blis_tui.tui.drawing.lines import Cell, Line, line
from blis_tui.tui.panes.pane import Pane, PaneKey, selected

if TYPE_CHECKING:
    from blis_tui.results.conditions.breakpoints import Breakpoint
    from blis_tui.tui.view import View

_GLYPH: Final = 3
"""Width of the glyph before a breakpoint."""

NOTHING: Final = Content.from_markup(
    "[bold]No breakpoints.[/]\n"
    "[$accent bold]b[/] sets one at the event or request under the cursor.\n"
    "[$accent bold]B[/] writes one: [bold]preempted[/], [bold]first preemption[/], [bold]request request_12[/], "
    "[bold]kv.utilization > 0.9[/].\n"
    "[$accent bold]w[/] watches a figure: [bold]waiting[/], [bold]instance\\[0].kv.free[/]."
)


@dataclass
class Wanted(Message):
    """A requested action: ``what`` is ``edit``, ``switch`` or ``remove``; ``place`` is the line."""

    what: str
    place: int


def _wants(what: str, _view: View, cursor: Subject | None) -> Wanted | None:
    return None if cursor is None else Wanted(what, int(cursor.value))


def _lines(view: View, width: int) -> list[Line]:
    """Return a line per breakpoint and watch; or a hint how to create the first one."""
    lines = [_breakpoint(point, at) for at, point in enumerate(view.breakpoints)]
    lines += [_watch(text, value, at) for at, (text, value) in enumerate(view.watches, len(lines))]
    return lines or [line(row) for row in NOTHING.wrap(width)]


def _breakpoint(point: Breakpoint, place: int) -> Line:
    """Return a breakpoint's line: state and text; a click on its glyph switches it."""
    glyph, style, text = ("●", "$error", "") if point.enabled else ("○", "$text-muted", "$text-muted")
    parts = ((f" {glyph} ", style), (point.text, text), ("" if point.enabled else "  off", text))
    made = line(*parts, subject=Subject("breakpoint", str(place)), copy=point.text)
    return made._replace(cells=lambda: (Cell(_GLYPH, sends=Wanted("switch", place)),))


def _watch(text: str, value: str, place: int) -> Line:
    """Return a watch's line: text and value."""
    return line((" = ", "$accent"), text, "  ", (value, "bold"), subject=Subject("breakpoint", str(place)), copy=text)


def _cursor(view: View, left: Subject | None) -> Subject | None:
    """Return the cursor's line, or the last one."""
    last = len(view.breakpoints) + len(view.watches) - 1
    place = 0 if left is None else int(left.value)
    return Subject("breakpoint", str(min(place, last))) if last >= 0 else None


def _changes(view: View, cursor: Subject | None) -> str:
    """Return what stops where the watch at the cursor changes; or the breakpoint there."""
    if cursor is None:
        return ""
    texts = (*(point.text for point in view.breakpoints), *(f"{CHANGE} {text}" for text, _ in view.watches))
    return texts[int(cursor.value)]


PANE: Final = Pane(
    lines=lambda view, room: _lines(view, room.width),
    badge=lambda view: len(view.breakpoints),
    keys=(
        PaneKey("enter", partial(_wants, "edit"), "edit"),
        PaneKey("space", partial(_wants, "switch"), "on/off"),
        PaneKey("delete", partial(_wants, "remove"), "remove"),
    ),
    cursor=_cursor,
    points=selected,
    changes=_changes,
)
