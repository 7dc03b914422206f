"""The common base of windows, and the one that covers the screen while the terminal is too small."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from blis_tui.tui.actions import DIALOG

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Resize

_Result = TypeVar("_Result")


class Window(ModalScreen[_Result]):
    """A window that closes only once, however many keys arrive meanwhile; its frame is a ``Vertical``."""

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
        """Close with a result; do nothing if the window is no longer on top."""
        if self.is_current:
            return super().dismiss(result)
        nothing: AwaitComplete = AwaitComplete.nothing()  # type: ignore[no-untyped-call]
        return nothing

    def action_dialog_close(self) -> None:
        """Close without a result."""
        self.dismiss(None)


class ScrolledWindow(Window[_Result]):
    """A window with a text in a ``VerticalScroll`` that the usual keys scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home", "ends(False)", show=False),
        Binding("end", "ends(True)", show=False),
    ]

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scroll by pages."""
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=pages * max(1, scroll.size.height - 2), animate=False)

    def action_ends(self, last: bool) -> None:
        """Scroll to the start or the end."""
        scroll = self.query_one(VerticalScroll)
        if last:
            scroll.scroll_end(animate=False)
        else:
            scroll.scroll_home(animate=False)


MIN_WIDTH: Final = 60
MIN_HEIGHT: Final = 16


def is_too_small(width: int, height: int) -> bool:
    """Return whether the terminal is too small for any useful display."""
    return width < MIN_WIDTH or height < MIN_HEIGHT


def small_text(width: int, height: int) -> str:
    """Return the longest message that fits."""
    need, have = f"need {MIN_WIDTH}x{MIN_HEIGHT}", f"have {width}x{height}"
    ways = (
        f"terminal too small ({need}, {have})",
        f"terminal too small\n({need},\n{have})",
        f"too small:\n{need},\n{have}",
        f"too small:\n{need}",
        need,
    )
    return next((text for text in ways if _fits(text, width, height)), ways[-1].replace(" ", "\n"))


def _fits(text: str, width: int, height: int) -> bool:
    lines = text.split("\n")
    return len(lines) <= height and max(map(len, lines)) <= width


class SmallScreen(Window[None]):
    """Covers the screen below, which does not change."""

    BINDINGS = [Binding("ctrl+q", "app.quit", show=False)]  # noqa: RUF012  (Textual's convention)
    DEFAULT_CSS = """
    SmallScreen {
        background: $background;
        & > Static { width: auto; height: auto; text-align: center; color: $warning; }
    }
    """

    def compose(self) -> ComposeResult:
        """Create the message."""
        yield Static(markup=False)

    def on_mount(self) -> None:
        """Show the message."""
        self._say()

    def on_resize(self, _event: Resize) -> None:
        """Show the message with the new size."""
        self._say()

    def _say(self) -> None:
        self.query_one(Static).update(small_text(*self.app.size))
