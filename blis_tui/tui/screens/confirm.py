"""A small window that asks whether to go on with something that cannot be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from blis_tui.tui.actions import DIALOG, bindings
from blis_tui.tui.screens.window import Window
from blis_tui.tui.widgets.footer import KeyBar

if TYPE_CHECKING:
    from textual.app import ComposeResult


class ConfirmScreen(Window[bool]):
    """Asks; the result is whether to go on.

    Args:
        title: the question.
        text: what exactly would be done.
        doing: the word for going on.
    """

    BINDINGS = [  # noqa: RUF012  (Textual's way)
        *bindings(DIALOG),
        Binding("y,enter", "yes", "yes"),
        Binding("n", "dialog_close", "no"),
    ]
    DEFAULT_CSS = """
    ConfirmScreen {
        & > Vertical { border: round $warning; border-title-color: $warning; }
        VerticalScroll { height: auto; max-height: 12; }
        Static { height: auto; }
        #keys { margin-top: 1; }
    }
    """

    def __init__(self, title: str, text: str, *, doing: str) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._doing = doing

    def compose(self) -> ComposeResult:
        """Question, what would be done, keys."""
        with Vertical() as window:
            window.border_title = Content(self._title)
            with VerticalScroll():
                yield Static(self._text, markup=False)
            keys = (("y", "$accent bold"), f" {self._doing}   ", ("n", "$accent bold"), " leaves everything as it is")
            yield Static(Content.assemble(*keys), id="keys")
        yield KeyBar()

    def action_yes(self) -> None:
        """Go on."""
        self.dismiss(True)

    def action_dialog_close(self) -> None:
        """Leave everything as it is."""
        self.dismiss(False)
