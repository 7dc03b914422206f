"""Errors with a way on: for experiments that cannot be opened, and for unexpected exceptions."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual.binding import Binding
from textual.containers import ScrollableContainer, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from blis_tui._version import ENGINE, __version__
from blis_tui.base.units import plural
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar, TitleBar
from blis_tui.tui.drawing.lines import diagnostics_of, diagnostics_text, message_text
from blis_tui.tui.editor import edit
from blis_tui.tui.screens.windows import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.app import ComposeResult
    from textual.events import Resize

    from blis_tui.base.errors import BlisError


_MARGINS: Final = 6
"""Columns left and right of the text, including the scrollbar."""


class ErrorScreen(Screen[None]):
    """The problems of an experiment.

    Args:
        source: its name or path.
        error: the error.
        retry: opens it again; called after this screen has closed.
    """

    SCOPE = "error"
    BINDINGS = bindings(SCOPE)
    DEFAULT_CSS = """
    ErrorScreen {
        ScrollableContainer { padding: 1 2; scrollbar-size-horizontal: 1; }
        Static { width: auto; height: auto; }
    }
    """

    def __init__(self, source: str, error: BlisError, retry: Callable[[], object]) -> None:
        super().__init__()
        self._source = source
        self._error = error
        self._retry = retry
        self._diagnostics = diagnostics_of(error)

    def compose(self) -> ComposeResult:
        """Create title, problems, keys."""
        count = len(self._diagnostics)
        title = plural(count, "problem") if count else "cannot be opened"
        left = Content.assemble(("✗ ", "$error bold"), (self._source, "bold"))
        yield TitleBar(left, Content.styled(title, "$error"))
        with ScrollableContainer():
            yield Static()
        yield KeyBar()

    def on_mount(self) -> None:
        """Give the text the focus, so that arrow keys scroll it."""
        self.query_one(ScrollableContainer).focus()

    def on_resize(self, event: Resize) -> None:
        """Wrap sentences; long quoted lines can be scrolled horizontally."""
        width = event.size.width - _MARGINS
        some = diagnostics_text(self._diagnostics, width=width)
        self.query_one(Static).update(some if self._diagnostics else message_text(self._error, width))

    def action_error_edit(self) -> None:
        """Edit the file at its first problem, then try again."""
        place = next(
            (diagnostic for diagnostic in self._diagnostics if diagnostic.file and Path(diagnostic.file).is_file()),
            None,
        )
        if place is None:
            self.app.notify(
                "The problem is in the command, not in a file: change the command and start again.", severity="warning"
            )
            return
        problem = edit(self.app, Path(place.file), place.line)
        if problem:
            self.app.notify(problem, severity="warning", markup=False)
        else:
            self.action_error_retry()

    def action_error_retry(self) -> None:
        """Load the experiment again."""
        self.app.pop_screen()
        self._retry()


# ---- unexpected exceptions ----


def crash_bundle(error: BaseException, about: Mapping[str, str]) -> str:
    """Return the text of a bug report: versions, context, the traceback."""
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
        error: the exception.
        bundle: the report that `y` copies.
    """

    BINDINGS = [  # noqa: RUF012  (Textual's convention)
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
        """Create the error, the report, keys."""
        with Vertical() as window:
            window.border_title = "Internal error"
            summary = "".join(traceback.format_exception_only(self._error)).strip()
            yield Static(Content.assemble((summary, "$error bold")))
            yield Static(
                "This should not have happened, and what you see may be wrong from here on. "
                "Please copy the report (y) into an issue. `blis-tui run` does not need this screen.",
                markup=False,
            )
            with VerticalScroll():
                yield Static(self._bundle, markup=False)
        yield KeyBar()

    def action_copy(self) -> None:
        """Copy the report."""
        self.app.copy_to_clipboard(self._bundle)
        self.app.notify("The report is in the clipboard.")
