"""A screen of boxes side by side, or one at a time if there is no room."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from textual.screen import Screen

from blis_tui.debugger.places import parse_place
from blis_tui.errors import BlisError
from blis_tui.records.files import write_text
from blis_tui.tui.screens.files import new_name, require_new
from blis_tui.tui.screens.prompt import PromptScreen
from blis_tui.tui.widgets.compare_box import CompareBox
from blis_tui.units import count_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.events import Resize

LONG_S: Final = 8.0
"""Duration of an error notification, in seconds."""


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
                for one in pair:
                    self.query_one(f"#{one}").set_class(one != name, "-behind")
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
