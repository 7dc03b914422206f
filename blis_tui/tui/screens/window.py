"""What all windows above a screen have in common."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from blis_tui.tui.actions import DIALOG

_Result = TypeVar("_Result")


class Window(ModalScreen[_Result]):
    """A window that closes once, however many keys arrive before it is gone; its frame is a ``Vertical``."""

    SCOPE = DIALOG
    DEFAULT_CSS = """
    Window {
        align: center middle;
        background: $background 60%;
        & > Vertical {
            width: 64;
            max-width: 100%;
            height: auto;
            max-height: 90%;
            padding: 1 2;
            background: $surface;
            border: round $accent;
            border-title-color: $accent;
            border-title-style: bold;
        }
    }
    """

    def dismiss(self, result: _Result | None = None) -> AwaitComplete:
        """Close with a result; what is not on top any more is closed already."""
        if self.is_current:
            return super().dismiss(result)
        nothing: AwaitComplete = AwaitComplete.nothing()  # type: ignore[no-untyped-call]
        return nothing

    def action_dialog_close(self) -> None:
        """Close without a result."""
        self.dismiss(None)
