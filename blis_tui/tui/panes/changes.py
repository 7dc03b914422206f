"""What the present event changed, in aligned columns."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, span_text, time_text
from blis_tui.debugger.state import SPAN, TIME, differences
from blis_tui.debugger.why.explanation import Subject, event_ref, request_ref
from blis_tui.debugger.why.lifespans import STAGES
from blis_tui.engine.records import described
from blis_tui.tui.drawing.life_line import PHASE_STYLES, GlyphStyle
from blis_tui.tui.drawing.lines import Line, flow, line, remark, shorten, with_hanging_indent
from blis_tui.tui.panes.pane import Pane
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.debugger.state import Change, DebuggerState, Value
    from blis_tui.tui.view import View


GROUP_STYLES: Final[Mapping[str, GlyphStyle]] = MappingProxyType(
    {
        "lost": GlyphStyle("✗", "lost", "$error"),
        "done": GlyphStyle("✓", "done", "$success"),
        "moved": GlyphStyle("→", "moved", ""),
        "decode": PHASE_STYLES["decode"],
        "queue": GlyphStyle("○", "queue and batch", STAGES["wait"].style),
        "KV cache": GlyphStyle("≡", "KV cache", "$primary"),
        "counters": GlyphStyle("#", "counters", "$text-muted"),
        "details": GlyphStyle("·", "requests in detail", "$text-muted"),
    }
)
"""Looks of groups of changes, except for kinds of records."""
_ABSENT: Final = "—"


def group_style(group: str) -> GlyphStyle:
    """Return the look of a group of changes."""
    shown = described(group)
    return GROUP_STYLES.get(group) or GlyphStyle(shown.sign, shown.label, f"${shown.colour}" if shown.colour else "")


def diff_lines(moment: DebuggerState, width: int, *, playing: bool) -> list[Line]:
    """Return the changes, or why there are none."""
    if playing:
        return remark("Running. Pause to see what the latest event changed.", width)
    if not moment.event:
        return remark("At the start: nothing has happened yet. Go forward one event to see what it changes.", width)
    changes = differences(moment)
    return change_lines(changes, width) if changes else remark("This event did not change the state.", width)


def change_lines(changes: Sequence[Change], width: int) -> list[Line]:
    """Return changes by group: path, old and new value, difference, and the meaning if there is room."""
    longest = max(len(change.path) for change in changes)
    texts = [_values(change) for change in changes if change.old is not None or change.new is not None]
    columns = _Columns(longest, *(max((len(text[at]) for text in texts), default=0) for at in range(3)))
    lines: list[Line] = []
    for group, members in groupby(changes, key=lambda change: change.group):
        look = group_style(group)
        lines.append(line((look.label, f"{look.style} bold")))
        for change in members:
            about = Subject("figure", change.path)
            value = change.about if change.new is None else value_text(change.new, change.unit)
            if columns.width <= width:
                lines.append(Line(partial(_row, change, columns, width), about, change.about, value))
            else:
                path = f"  {shorten(change.path, width - 2)}"
                lines.append(line(path, subject=about, tip=change.about, copy=value))
                lines += map(line, with_hanging_indent(Content("    "), flow(_news(change, _Columns()), width - 4)))
    return lines


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths of the columns; 0 = as wide as the text."""

    path: int = 0
    old: int = 0
    new: int = 0
    delta: int = 0

    @property
    def width(self) -> int:
        """Width of a whole row."""
        return 2 + self.path + 2 + self.old + 3 + self.new + 2 + self.delta


def _row(change: Change, columns: _Columns, width: int) -> Content:
    news = Content("  ").join(_news(change, columns))
    without_values = change.old is None and change.new is None
    about = "" if without_values or columns.width + 2 + len(change.about) > width else f"  {change.about}"
    path_style = "$text-muted" if without_values else ""
    return Content.assemble((f"  {change.path:<{columns.path}}  ", path_style), news, (about, "$text-muted"))


def _news(change: Change, columns: _Columns) -> list[Content]:
    """Return the old and the new value, and the difference."""
    if change.old is None and change.new is None:
        return [Content(change.about)]
    old, new, delta = _values(change)
    values = Content.assemble(
        (f"{old:>{columns.old}}", "$text-muted"),
        (" → ", "$text-muted"),
        (f"{new:<{columns.new}}", f"{group_style(change.group).style} bold"),
    )
    return [values, Content(f"{delta:>{columns.delta}}")]


def _values(change: Change) -> tuple[str, str, str]:
    delta = change.delta
    if delta is None:
        text = ""
    else:
        size = span_text(abs(delta)) if change.unit in (TIME, SPAN) else count_text(abs(delta))
        text = f"{'+' if delta >= 0 else '-'}{size}"
    return value_text(change.old, change.unit), value_text(change.new, change.unit), text


def value_text(value: Value, unit: str) -> str:
    """Return a value with its unit, a phase as its word, an absent value as a dash."""
    if value is None:
        return _ABSENT
    if isinstance(value, str):
        look = PHASE_STYLES.get(value)
        return value if look is None else look.word
    if unit == TIME:
        return time_text(value)
    return span_text(value) if unit == SPAN else count_text(value)


# ---- the pane ----


def _request(view: View, subject: Subject | None) -> str:
    """Return the request of a changed value; empty if it has none."""
    if subject is None or view.playing:
        return ""
    return next((change.request or "" for change in differences(view.moment) if change.path == subject.value), "")


def _points(view: View, cursor: Subject | None) -> Subject | None:
    """Return the request of the line, else the event whose changes these are."""
    name = _request(view, cursor)
    return request_ref(name) if name else event_ref(view.moment.event)


def _picks(view: View, subject: Subject, *, go: bool) -> Picked | None:
    """Select the request of the line by enter."""
    name = _request(view, subject) if go else ""
    return Picked(request=name) if name else None


PANE: Final = Pane(
    lines=lambda view, room: diff_lines(view.moment, room.width, playing=view.playing),
    points=_points,
    picks=_picks,
    follows_selection=False,
)
