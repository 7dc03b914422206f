"""The breakpoints and watches of the run, with a cursor over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from blis_tui.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click

    from blis_tui.tui.view import View


@dataclass(frozen=True, slots=True)
class WatchedFigure:
    """A watch and its value as shown."""

    text: str
    value: str


def breakpoint_lines(view: View, watches: tuple[WatchedFigure, ...], cursor: int) -> list[Content]:
    """One line a breakpoint, one a watch."""
    lines = []
    for place, one in enumerate(view.breakpoints):
        glyph, style = ("●", "$error") if one.enabled else ("○", "$text-muted")
        text = Content.assemble((f"{glyph} ", style), (one.text, "" if one.enabled else "$text-muted"))
        if not one.enabled:
            text = Content.assemble(text, ("  off", "$text-muted"))
        lines.append(_marked(text, marked=place == cursor))
    for place, watch in enumerate(watches, len(view.breakpoints)):
        text = Content.assemble(("= ", "$accent"), watch.text, ("  ", ""), (watch.value, "bold"))
        lines.append(_marked(text, marked=place == cursor))
    return lines


def _marked(line: Content, *, marked: bool) -> Content:
    return Content.assemble(("▸ ", "$accent bold"), line.stylize("bold")) if marked else Content.assemble("  ", line)


NOTHING = Content.assemble(
    ("No breakpoints.\n", "bold"),
    ("b", "$accent bold"),
    " sets one at the event or request under the cursor.\n",
    ("B", "$accent bold"),
    " writes one: ",
    ("preempted", "bold"),
    ", ",
    ("first preemption", "bold"),
    ", ",
    ("request request_12", "bold"),
    ", ",
    ("kv.utilization > 0.9", "bold"),
    ".\n",
    ("w", "$accent bold"),
    " watches a figure: ",
    ("waiting", "bold"),
    ", ",
    ("instance[0].kv.free", "bold"),
    ".",
)


class BreakpointsPane(Pane):
    """Breakpoints and watches; the screen keeps them, this shows them."""

    TITLE = "Breakpoints and watches"
    JUMP_KEY = "b"
    HELP_TEXT = (
        "A run stops after the event that hits an enabled breakpoint (●). "
        "Watches (=) show a figure at the current event. Enter edits, space switches, delete removes."
    )
    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("enter", "edit", "edit"),
        Binding("space", "switch", "on/off"),
        Binding("delete", "remove", "remove"),
    ]

    class Wanted(Message):
        """The reader wants something done: ``what`` is ``edit``, ``switch`` or ``remove``; ``place`` the line."""

        def __init__(self, what: str, place: int) -> None:
            super().__init__()
            self.what = what
            self.place = place

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self.watches: tuple[WatchedFigure, ...] = ()
        self._cursor = 0

    def compose(self) -> ComposeResult:
        """One scrolled text."""
        with VerticalScroll(can_focus=False):
            yield Static(id="text")

    def show(self, view: View) -> None:
        """Show the lines, or how to make the first one."""
        count = len(view.breakpoints) + len(self.watches)
        self._cursor = max(0, min(self._cursor, count - 1))
        lines = breakpoint_lines(view, self.watches, self._cursor if self.has_focus else -1)
        self.query_one("#text", Static).update(Content("\n").join(lines) if lines else NOTHING)

    def on_focus(self) -> None:
        """The cursor is shown only here."""
        self.refresh_view()

    def on_blur(self) -> None:
        """As above."""
        self.refresh_view()

    @property
    def count(self) -> int:
        """Lines there are."""
        return 0 if self.view is None else len(self.view.breakpoints) + len(self.watches)

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self._cursor = max(0, min(self._cursor + by, self.count - 1))
        self.refresh_view()

    def action_edit(self) -> None:
        """Edit the line."""
        self._want("edit")

    def action_switch(self) -> None:
        """Switch the breakpoint on or off."""
        self._want("switch")

    def action_remove(self) -> None:
        """Remove the line."""
        self._want("remove")

    def _want(self, what: str) -> None:
        if self.count:
            self.post_message(self.Wanted(what, self._cursor))

    def on_click(self, event: Click) -> None:
        """Put the cursor on the line; on the glyph, switch it."""
        offset = event.get_content_offset(self)
        if offset is None or self.view is None:
            return
        line = offset.y + int(self.query_one(VerticalScroll).scroll_y)
        if line < self.count:
            self._cursor = line
            self.refresh_view()
            if offset.x <= 3:  # the glyph
                self._want("switch")
