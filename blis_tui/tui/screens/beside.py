"""A screen of boxes beside each other, one at a time where there is no room for more."""

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
"""For how long an error is shown."""


class BesideScreen(Screen[None]):
    """What the comparison and the twin have in common."""

    BOXES: ClassVar[tuple[str, ...]]
    """The boxes, in the order in which one goes from each to the next."""
    PAIRS: ClassVar[tuple[tuple[str, str], ...]]
    """Boxes side by side; where there is no room for both, the one last gone to is shown."""
    TIGHT: ClassVar[int]
    """Columns below which there is no room."""
    SHORT: ClassVar[int]
    """Rows below which the curves are shown in place of the tables, once the reader goes there."""

    def on_resize(self, event: Resize) -> None:
        """Side by side, or one at a time."""
        self.set_class(event.size.width < self.TIGHT, "-tight")
        self.set_class(event.size.height < self.SHORT, "-short")

    def bring_to_front(self, name: str) -> CompareBox[object]:
        """Show a box, whatever there is room for; returns it."""
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
        """Ask for a file, and write what is shown to it."""

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
