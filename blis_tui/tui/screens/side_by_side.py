"""A screen of boxes side by side, or one at a time if there is no room."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Static

from blis_tui.base.errors import BlisError
from blis_tui.base.units import count_text
from blis_tui.debugger.places import parse_place
from blis_tui.output.result_files import write_text
from blis_tui.tui.bars import TitleBar
from blis_tui.tui.screens.file_windows import new_name, require_new
from blis_tui.tui.screens.windows import PromptScreen

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
    """Displays text about the comparison, in the available width.

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


LONG_S: Final = 8.0
"""Duration of an error notification, in seconds."""


def show_in_boxes(screen: Screen[None], view: object, left: Content, right: Content) -> None:
    """Show a new state in all boxes of a screen, and both texts in its title bar."""
    with screen.app.batch_update():
        for box in screen.query(CompareBox):
            box.show(view)
        status = screen.query_one("#status", TitleBar)
        status.left, status.right = left, right
    screen.refresh_bindings()


class SideBySideScreen(Screen[None]):
    """The common part of the comparison and the twin screens."""

    BOXES: ClassVar[tuple[str, ...]]
    """The boxes, in tab order."""
    PAIRS: ClassVar[tuple[tuple[str, str], ...]]
    """Boxes side by side; without room for both, the last one with the focus is shown."""
    TIGHT: ClassVar[int]
    """Width below which there is no room for both."""
    SHORT: ClassVar[int]
    """Height below which the curves replace the tables when they get the focus."""

    def on_resize(self, event: Resize) -> None:
        """Choose the layout for the new size."""
        self.set_class(event.size.width < self.TIGHT, "-tight")
        self.set_class(event.size.height < self.SHORT, "-short")

    def bring_to_front(self, name: str) -> CompareBox[object]:
        """Show a box, even if there is no room for all; return it."""
        self.set_class(name == "curves", "-curves")
        for pair in self.PAIRS:
            if name in pair:
                for side in pair:
                    self.query_one(f"#{side}").set_class(side != name, "-behind")
        return self.query_one(f"#{name}", CompareBox)

    def ask_where_to(self, about: str, go: Callable[[str | None], None]) -> None:
        """Ask for a place, and go there."""
        prompt = PromptScreen("Go to", about, placeholder="1.5s", check=parse_place, doing="goes there")
        self.app.push_screen(prompt, go)

    def export(self, title: str, about: str, stem: str, shown: Callable[[], str]) -> None:
        """Ask for a file, and write the displayed text to it."""

        def write(name: str | None) -> None:
            if name is None:
                return
            text = shown()
            try:
                write_text(Path(name).expanduser(), text)
            except BlisError as error:
                self.notify(str(error), title="Nothing was written", severity="error", timeout=LONG_S, markup=False)
                return
            self.notify(f"Wrote {name} ({count_text(len(text.splitlines()))} lines).", markup=False)

        value = new_name(stem, "txt")
        prompt = PromptScreen(title, about, value=value, check=require_new, doing="writes the file")
        self.app.push_screen(prompt, write)

    def focus_next_box(self) -> None:
        """Go to the next box, or to the first one."""
        focused = self.focused.id if self.focused is not None else None
        place = self.BOXES.index(focused) + 1 if focused in self.BOXES else 0
        self.bring_to_front(self.BOXES[place % len(self.BOXES)]).focus()
