"""The moments: events that the reader has kept, with names and notes, in the order of time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.message import Message

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, time_text
from blis_tui.debugger.why.explanation import event_ref
from blis_tui.tui.actions import named, shown_key
from blis_tui.tui.drawing.lines import BLANK, line, remark, with_hanging_indent, words
from blis_tui.tui.panes.pane import Pane, PaneKey, pick

if TYPE_CHECKING:
    from blis_tui.debugger.moments import Moment
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.view import Picked, View

_INDENT: Final = 2
_HERE: Final = "▶"


@dataclass
class MomentWanted(Message):
    """The reader wants to ``edit`` or ``remove`` the moment of an event."""

    what: str
    event: int


def moments_lines(view: View, width: int) -> list[Line]:
    """Return the moments, each with its name, its event and its note; or how to keep the first one."""
    if not view.moments:
        key = shown_key(named("moment.keep").keys[0])
        return remark(
            f"No moments. {key} keeps the present event with a name and a note; x writes all as a report, and into "
            "bundles.",
            width,
        )
    return [row for moment in view.moments for row in (*_moment(moment, view, width), BLANK)]


def _moment(moment: Moment, view: View, width: int) -> list[Line]:
    about, here = event_ref(moment.event), moment.event == view.moment.event
    head = Content.assemble((_HERE if here else " ", "$accent"), " ")
    rows = with_hanging_indent(head, words(moment.name, width - _INDENT, "bold"))
    rest = max(width - _INDENT, 10)
    place = f"event {count_text(moment.event)} at {time_text(moment.time_us)}: {moment.sentence}"
    below = words(place, rest, "$text-muted") + (words(moment.note, rest) if moment.note else [])
    if changed := view.changed(moment):
        below += words(f"! {changed}", rest, "$warning")
    return [line(row, subject=about) for row in (*rows, *(Content(" " * _INDENT) + row for row in below))]


def _wants(what: str, _view: View, cursor: Subject | None) -> MomentWanted | None:
    return None if cursor is None else MomentWanted(what, int(cursor.value))


def _cursor(view: View, left: Subject | None) -> Subject | None:
    """Return the moment where the cursor was left; if it is gone, the next one."""
    if not view.moments:
        return None
    event = view.moment.event if left is None else int(left.value)
    return event_ref(next((moment.event for moment in view.moments if moment.event >= event), view.moments[-1].event))


def _points(view: View, cursor: Subject | None) -> Subject | None:
    """Leave questions to the present event where that of the moment is not recorded yet, or is beyond the end."""
    return None if cursor is None or int(cursor.value) > len(view.tape) else cursor


def _picks(view: View, subject: Subject, *, go: bool) -> Picked | None:
    """Select its event if it is recorded, or go there in any case."""
    return pick(view, subject, go=go) if go or _points(view, subject) else None


PANE: Final = Pane(
    lines=lambda view, room: moments_lines(view, room.width),
    hint=lambda view: "enter go · e edit · delete remove · x report" if view.moments else "",
    badge=lambda view: len(view.moments),
    keys=(PaneKey("e", partial(_wants, "edit")), PaneKey("delete", partial(_wants, "remove"))),
    cursor=_cursor,
    points=_points,
    picks=_picks,
    blocks=True,
)
