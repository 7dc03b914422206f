"""Jump mode: a letter on each pane; pressing it goes to the pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Offset
from textual.widgets import Label

from blis_tui.tui.actions import DIALOG, bindings
from blis_tui.tui.screens.window import Window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import ComposeResult
    from textual.events import Click, Key

    from blis_tui.tui.widgets.pane import Pane


class JumpScreen(Window[str | None]):
    """Shows the letters; the result is the id of a pane, or None.

    Args:
        panes: the visible panes, by letter; a pane without a letter can be clicked.
    """

    BINDINGS = bindings(DIALOG)
    DEFAULT_CSS = """
    JumpScreen {
        background: $background 40%;
        Label {
            position: absolute;
            width: auto;
            padding: 0 1;
            background: $accent;
            color: $background;
            text-style: bold;
        }
    }
    """

    def __init__(self, panes: Mapping[str, Pane]) -> None:
        super().__init__()
        self._targets = {letter: (str(pane.id), pane.region) for letter, pane in panes.items()}

    def compose(self) -> ComposeResult:
        """Create a label in the middle of each pane."""
        for letter, (pane, region) in self._targets.items():
            label = Label(letter, id=f"to-{pane}")
            label.absolute_offset = Offset(region.x + region.width // 2 - 1, region.y + region.height // 2)
            yield label

    def on_key(self, event: Key) -> None:
        """Go to the pane of the letter; any other key ends the mode."""
        event.stop()
        target = self._targets.get(event.character or "")
        self.dismiss(None if target is None else target[0])

    def on_click(self, event: Click) -> None:
        """Go to the clicked pane."""
        for pane, region in self._targets.values():
            if region.contains(event.screen_x, event.screen_y):
                self.dismiss(pane)
                return
        self.dismiss(None)
