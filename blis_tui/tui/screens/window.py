"""What all windows above a screen have in common."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from blis_tui.tui.actions import DIALOG

_Result = TypeVar("_Result")


class Window(ModalScreen[_Result]):
    """A window that closes once, however many keys arrive before it is gone."""

    SCOPE = DIALOG

    def dismiss(self, result: _Result | None = None) -> AwaitComplete:
        """Close with a result; what is not on top any more is closed already."""
        if self.is_current:
            return super().dismiss(result)
        nothing: AwaitComplete = AwaitComplete.nothing()  # type: ignore[no-untyped-call]
        return nothing
