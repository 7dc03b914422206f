"""A screen of boxes beside each other, one at a time where there is no room for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.screen import Screen

from blis_tui.tui.widgets.compare_box import CompareBox

if TYPE_CHECKING:
    from textual.events import Resize


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

    def focus_next_box(self) -> None:
        """Go to the next box, or to the first one."""
        focused = self.focused.id if self.focused is not None else None
        place = self.BOXES.index(focused) + 1 if focused in self.BOXES else 0
        self.bring_to_front(self.BOXES[place % len(self.BOXES)]).focus()
