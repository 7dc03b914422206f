"""The points of a study as lines with a cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.message import Message

from blis_tui.classes import dataclass
from blis_tui.tui.widgets.lines import GUTTER, Lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.presenters.lines import Line

MARGINS: Final = GUTTER + 2
"""Columns of a line besides its text."""


class PointTable(Lines, can_focus=True):
    """One point per line. The cursor is a line's key, so it stays with its point when the lines change."""

    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "ends(False)", show=False),
        Binding("end", "ends(True)", show=False),
    ]
    DEFAULT_CSS = """
    PointTable:focus > .lines--cursor { background: $block-cursor-background; }
    """

    key = ""
    """Key of the line at the cursor."""

    @dataclass
    class Moved(Message):
        """The cursor has moved to another line; ``chosen``: by a double click."""

        key: str
        chosen: bool

    def show(self, lines: Sequence[Line]) -> None:
        """Show lines; the cursor stays with its line, or moves to one nearby."""
        keys = [one.key for one in lines]
        at = keys.index(self.key) if self.key in keys else min(self._cursor or 0, len(keys) - 1)
        self.key = keys[at] if keys else ""
        self.put(lines, at if keys else None)

    def go_to(self, key: str) -> None:
        """Move the cursor to a line, if it exists."""
        at = next((at for at, one in enumerate(self.lines) if one.key == key), None)
        if at is not None:
            self._go(at)

    def _go(self, at: int, *, chosen: bool = False) -> None:
        if self.lines:
            at = min(max(at, 0), len(self.lines) - 1)
            self.key = self.lines[at].key
            self.put(self.lines, at)
            self.reveal(at)
            self.post_message(self.Moved(self.key, chosen))

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._go((self._cursor or 0) + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a page."""
        self.action_move(pages * max(self.size.height - 1, 1))

    def action_ends(self, last: bool) -> None:
        """Go to the first or the last line."""
        self._go(len(self.lines) - 1 if last else 0)

    def on_lines_pointed(self, event: Lines.Pointed) -> None:
        """Select a clicked line."""
        event.stop()
        self._go(event.at, chosen=event.chain > 1)
