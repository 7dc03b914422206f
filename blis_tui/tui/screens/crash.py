"""Shown after an unexpected exception: what a report of the defect needs, and a way on."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from blis_tui._version import ENGINE, __version__
from blis_tui.tui.screens.window import Window
from blis_tui.tui.widgets.footer import KeyBar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import ComposeResult


def crash_bundle(error: BaseException, about: Mapping[str, str]) -> str:
    """What a report of a defect needs, as text: versions, where it happened, the traceback."""
    lines = [
        f"blis-tui {__version__} (engine {ENGINE}), Python {sys.version.split()[0]}, {sys.platform}",
        *(f"{name}: {value}" for name, value in about.items()),
        "",
        *traceback.format_exception(error),
    ]
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


class CrashScreen(Window[None]):
    """An unexpected exception.

    Args:
        error: what was raised.
        bundle: what `y` copies.
    """

    BINDINGS = [  # noqa: RUF012  (Textual's way)
        Binding("y", "copy", "copy the report"),
        Binding("escape,q", "dialog_close", "go on"),
        Binding("ctrl+q", "app.quit", "quit"),
    ]
    DEFAULT_CSS = """
    CrashScreen {
        & > Vertical { width: 90%; max-width: 100; border: round $error; border-title-color: $error; }
        VerticalScroll { height: auto; max-height: 12; margin-top: 1; background: $panel; padding: 0 1; }
        Static { height: auto; }
    }
    """

    def __init__(self, error: BaseException, bundle: str) -> None:
        super().__init__()
        self._error = error
        self._bundle = bundle

    def compose(self) -> ComposeResult:
        """What happened, the report, keys."""
        with Vertical() as window:
            window.border_title = "A defect of blis-tui"
            said = "".join(traceback.format_exception_only(self._error)).strip()
            yield Static(Content.assemble((said, "$error bold")))
            yield Static(
                "This should not have happened, and what you see may be wrong from here on. "
                "Please copy the report (y) into an issue. `blis-tui run` works without this screen.",
                markup=False,
            )
            with VerticalScroll():
                yield Static(self._bundle, markup=False)
        yield KeyBar()

    def action_copy(self) -> None:
        """Copy the report."""
        self.app.copy_to_clipboard(self._bundle)
        self.app.notify("The report is in the clipboard.")
