"""A window with the output printed since the application took over the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from blis_tui.errors import BlisError
from blis_tui.records.files import write_text
from blis_tui.tui.actions import bindings
from blis_tui.tui.screens.files import new_name
from blis_tui.tui.screens.window import ScrolledWindow
from blis_tui.tui.widgets.bars import KeyBar
from blis_tui.units import count_text, plural

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from blis_tui.printed import Printed

_NOTHING = "Nothing has been printed. What plug-ins print while an experiment is simulated is kept and shown here."


class PrintedScreen(ScrolledWindow[None]):
    """The last lines, the latest at the bottom.

    Args:
        printed: the stored output.
    """

    SCOPE = "printed"
    BINDINGS = [*bindings(SCOPE), Binding("q,p", "printed_close", show=False)]  # noqa: RUF012  (Textual's convention)
    DEFAULT_CSS = """
    PrintedScreen {
        & > Vertical { width: 96%; max-width: 140; max-height: 96%; padding: 0 1 0 2; }
        & > Vertical { border-subtitle-color: $text-muted; }
        VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
        Static { height: auto; width: 1fr; padding-right: 1; }
    }
    """

    def __init__(self, printed: Printed) -> None:
        super().__init__()
        self._lines = printed.lines()
        self._total = printed.total

    def compose(self) -> ComposeResult:
        """Create the lines."""
        with Vertical() as window:
            window.border_title = Content(self._title())
            window.border_subtitle = "events that are replayed print again"
            with VerticalScroll(can_focus=False):
                yield Static("\n".join(self._lines) or _NOTHING, markup=False)
        yield KeyBar()

    def _title(self) -> str:
        kept = len(self._lines)
        if kept < self._total:
            return f"Printed: the last {count_text(kept)} of {plural(self._total, 'line')}"
        return f"Printed: {plural(kept, 'line')}" if kept else "Printed"

    def on_mount(self) -> None:
        """Scroll to the latest line."""
        self.call_after_refresh(self.action_ends, True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide actions that are impossible."""
        del parameters
        return bool(self._lines) or action not in ("printed_copy", "printed_export")

    def _text(self) -> str:
        return "".join(f"{one}\n" for one in self._lines)

    def action_printed_copy(self) -> None:
        """Copy the lines."""
        self.app.copy_to_clipboard(self._text())
        self.app.notify("The lines are in the clipboard.")

    def action_printed_export(self) -> None:
        """Write the lines to a new file."""
        name = new_name("printed", "txt")
        try:
            write_text(Path(name), self._text())
        except BlisError as error:
            self.app.notify(str(error), title="Nothing was written", severity="error", markup=False)
        else:
            self.app.notify(f"Wrote {name}.", markup=False)

    action_printed_close = ScrolledWindow.action_dialog_close
