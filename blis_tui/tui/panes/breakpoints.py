"""The pane of breakpoints and watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.content import Content
from textual.message import Message

from blis_tui.base.classes import dataclass
from blis_tui.tui.drawing.lines import Line, line
from blis_tui.tui.panes.pane_rows import Lines, LinesPane

if TYPE_CHECKING:
    from blis_tui.results.conditions.breakpoints import Breakpoint
    from blis_tui.tui.view import View


@dataclass(frozen=True, slots=True)
class WatchedFigure:
    """A watch and its displayed value."""

    text: str
    value: str


def breakpoint_line(one: Breakpoint, place: int) -> Line:
    """Return a breakpoint's line: state and text."""
    glyph, style, text = ("●", "$error", "") if one.enabled else ("○", "$text-muted", "$text-muted")
    return line((f" {glyph} ", style), (one.text, text), ("" if one.enabled else "  off", text), key=str(place))


def watch_line(one: WatchedFigure, place: int) -> Line:
    """Return a watch's line: text and value."""
    return line((" = ", "$accent"), one.text, "  ", (one.value, "bold"), key=str(place))


NOTHING = Content.from_markup(
    "[bold]No breakpoints.[/]\n"
    "[$accent bold]b[/] sets one at the event or request under the cursor.\n"
    "[$accent bold]B[/] writes one: [bold]preempted[/], [bold]first preemption[/], [bold]request request_12[/], "
    "[bold]kv.utilization > 0.9[/].\n"
    "[$accent bold]w[/] watches a figure: [bold]waiting[/], [bold]instance\\[0].kv.free[/]."
)


class BreakpointsPane(LinesPane):
    """Displays breakpoints and watches, which the screen owns."""

    BINDINGS: ClassVar = [
        Binding("enter", "want('edit')", "edit"),
        Binding("space", "want('switch')", "on/off"),
        Binding("delete", "want('remove')", "remove"),
    ]

    watches: tuple[WatchedFigure, ...] = ()

    @dataclass
    class Wanted(Message):
        """A requested action: ``what`` is ``edit``, ``switch`` or ``remove``; ``place`` is the line."""

        what: str
        place: int

    def lines(self, view: View, width: int) -> list[Line]:
        """Return a line per breakpoint and watch; or a hint how to create the first one."""
        found = [breakpoint_line(one, at) for at, one in enumerate(view.breakpoints)]
        found += [watch_line(one, at) for at, one in enumerate(self.watches, len(found))]
        return found or [line(row) for row in NOTHING.wrap(width)]

    def key_of(self, view: View) -> str:
        """Return the cursor's line, or the last one."""
        last = len(view.breakpoints) + len(self.watches) - 1
        return str(min(int(self._key or 0), last)) if last >= 0 else ""

    def selected_value(self) -> str:
        """Return the text of the breakpoint or of the watch."""
        breakpoints = () if self.view is None else self.view.breakpoints
        texts = [one.text for one in breakpoints] + [one.text for one in self.watches]
        return texts[int(self._key)] if self._key else ""

    selected_path = selected_value

    def action_want(self, what: str) -> None:
        """Request to edit a line, switch a breakpoint, or remove a line."""
        if self._key:
            self.post_message(self.Wanted(what, int(self._key)))

    def on_lines_pointed(self, event: Lines.Pointed) -> None:
        """Switch a breakpoint after a click on its glyph; the base class's handler also runs, and moves the cursor."""
        key = self.query_one(Lines).lines[event.at].key
        if key and event.column <= 2:  # the glyph
            self.post_message(self.Wanted("switch", int(key)))
