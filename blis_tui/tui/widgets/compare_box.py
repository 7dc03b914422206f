"""A box of the comparison: a title and a text, scrolled if it is long."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.app import ComposeResult
    from textual.events import Resize


_View = TypeVar("_View")
_Series = TypeVar("_Series")

_LEAST: Final = 30
"""Least width of a text. A box is narrower for a moment while the terminal shrinks, and below another sentence while it
is too small."""


class CompareBox(VerticalScroll, Generic[_View], can_focus=True, inherit_bindings=False):
    """Displays a presenter's text about the comparison, in the available width.

    Args:
        title: the title in its upper border.
        present: returns the text for a width in cells.
    """

    BINDINGS: ClassVar = [
        Binding("up", "scroll_up", show=False),
        Binding("down", "scroll_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
    ]
    DEFAULT_CSS = """
    CompareBox {
        border-top: solid $border-blurred;
        border-title-color: $foreground;
        border-title-style: bold;
        padding: 0 1;
        scrollbar-size-vertical: 1;
        &:focus { border-top: solid $accent; border-title-color: $accent; }
        & > Static { height: auto; text-wrap: wrap; }
    }
    """

    def __init__(self, title: Content | str, present: Callable[[_View, int], Content], *, id: str) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self.border_title = Content(title) if isinstance(title, str) else title
        self._present = present
        self._view: _View | None = None

    def compose(self) -> ComposeResult:
        """Create the text."""
        yield Static()

    def show(self, view: _View) -> None:
        """Show a new state."""
        self._view = view
        self._draw()

    def on_resize(self, _event: Resize) -> None:
        """Adapt to the new width."""
        self._draw()

    def _draw(self) -> None:
        """Update the text to the view and the size."""
        # Always reserve room for a scroll bar, because its appearance would change the width without an event.
        width = self.content_size.width - 1
        if self._view is not None and width > 0:
            self.query_one(Static).update(self._present(self._view, max(width, _LEAST)))


class CurvesBox(CompareBox[_View], Generic[_View, _Series]):
    """A figure of both sides over time; up and down choose the figure.

    Args:
        figures: all figures, by name.
        draw: draws one of them, for a width and a height.
    """

    BINDINGS: ClassVar = [
        Binding("up", "choose(-1)", "figure before", show=False),
        Binding("down", "choose(1)", "next figure", show=False),
    ]

    choice: reactive[int] = reactive(0, init=False)
    """Index of the drawn figure."""

    def __init__(
        self,
        figures: Mapping[str, _Series],
        draw: Callable[[_View, _Series, int, int], Content],
        *,
        id: str,  # noqa: A002  (Textual's name)
    ) -> None:
        self._figures = tuple(figures.items())
        self._draw_figure = draw
        super().__init__("", self._curves, id=id)
        self.watch_choice()

    def _curves(self, view: _View, width: int) -> Content:
        return self._draw_figure(view, self._figures[self.choice][1], width, self.content_size.height)

    def watch_choice(self) -> None:
        """Draw the other figure."""
        self.border_title = Content(f"Over time: {self._figures[self.choice][0]}")
        self.border_subtitle = "up down: another figure"
        if self.is_mounted:
            self._draw()

    def action_choose(self, by: int) -> None:
        """Draw another figure."""
        self.choice = (self.choice + by) % len(self._figures)
