"""Shown instead of an experiment that cannot be opened: what is wrong, where, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual.containers import ScrollableContainer
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from blis_tui.errors import SpecError, TraceError
from blis_tui.spec.trace_errors import from_trace_error
from blis_tui.tui.actions import bindings
from blis_tui.tui.editor import edit
from blis_tui.tui.presenters.problems import diagnostics_text, message_text
from blis_tui.tui.widgets.footer import KeyBar
from blis_tui.tui.widgets.header import TitleBar
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.events import Resize

    from blis_tui.errors import BlisError
    from blis_tui.spec.diagnostics import Diagnostic


_MARGINS: Final = 6
"""Columns left and right of the text, with the scrollbar's."""


def diagnostics_of(error: BlisError) -> tuple[Diagnostic, ...]:
    """The located problems an error carries, if any."""
    if isinstance(error, SpecError):
        return error.diagnostics
    return from_trace_error(error) if isinstance(error, TraceError) else ()


class ErrorScreen(Screen[None]):
    """The problems of an experiment.

    Args:
        source: what was to be opened.
        error: why that is impossible.
        retry: opens it again; called after this screen has gone.
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
        """Title, problems, keys."""
        count = len(self._diagnostics)
        said = plural(count, "problem") if count else "cannot be opened"
        left = Content.assemble(("✗ ", "$error bold"), (self._source, "bold"))
        yield TitleBar(left, Content.styled(said, "$error"))
        with ScrollableContainer():
            yield Static()
        yield KeyBar()

    def on_mount(self) -> None:
        """Let the arrow keys scroll."""
        self.query_one(ScrollableContainer).focus()

    def on_resize(self, event: Resize) -> None:
        """Wrap sentences; a quoted line that is longer than the screen can be scrolled to the side."""
        width = event.size.width - _MARGINS
        some = diagnostics_text(self._diagnostics, width=width)
        self.query_one(Static).update(some if self._diagnostics else message_text(self._error, width))

    def action_error_edit(self) -> None:
        """Edit the file at its first problem, then try again."""
        place = next((one for one in self._diagnostics if one.file and Path(one.file).is_file()), None)
        if place is None:
            self.app.notify("The command is at fault, not a file: change it and start again.", severity="warning")
            return
        problem = edit(self.app, Path(place.file), place.line)
        if problem:
            self.app.notify(problem, severity="warning", markup=False)
        else:
            self.action_error_retry()

    def action_error_retry(self) -> None:
        """Load it again."""
        self.app.pop_screen()
        self._retry()
