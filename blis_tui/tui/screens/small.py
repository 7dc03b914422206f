"""What is shown instead of everything else while the terminal is too small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.binding import Binding
from textual.widgets import Static

from blis_tui.tui.screens.window import Window

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Resize

MIN_WIDTH: Final = 60
MIN_HEIGHT: Final = 16


def is_too_small(width: int, height: int) -> bool:
    """Whether nothing useful fits."""
    return width < MIN_WIDTH or height < MIN_HEIGHT


def small_text(width: int, height: int) -> str:
    """What to say, broken where even that does not fit into one line."""
    text = f"terminal too small (need {MIN_WIDTH}x{MIN_HEIGHT}, have {width}x{height})"
    return text if len(text) <= width else text.replace(" (", "\n(").replace(", ", ",\n")


class SmallScreen(Window[None]):
    """Covers the screen below, which stays as it is."""

    BINDINGS = [Binding("ctrl+q", "app.quit", show=False)]  # noqa: RUF012  (Textual's way)
    DEFAULT_CSS = """
    SmallScreen {
        background: $background;
        & > Static { width: auto; height: auto; text-align: center; color: $warning; }
    }
    """

    def compose(self) -> ComposeResult:
        """One sentence."""
        yield Static(markup=False)

    def on_mount(self) -> None:
        """Say it."""
        self._say()

    def on_resize(self, _event: Resize) -> None:
        """Say it with the new size."""
        self._say()

    def _say(self) -> None:
        self.query_one(Static).update(small_text(*self.app.size))
