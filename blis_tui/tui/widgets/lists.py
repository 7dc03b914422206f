"""Lists with a cursor that is visible with any theme."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import Binding
from textual.style import Style
from textual.widgets import OptionList

_CURSOR: Final = "option-list--option-highlighted"


class CursorList(OptionList):
    """An option list; with few or no colours, its cursor is shown in reverse."""

    def get_visual_style(self, *component_classes: str, partial: bool = False) -> Style:
        """Return Textual's style, with the reversal that it leaves out."""
        style = super().get_visual_style(*component_classes, partial=partial)
        few = self.app.native_ansi_color or self.app.no_color
        return style + Style(reverse=True) if few and _CURSOR in component_classes else style


class RowList(CursorList, inherit_bindings=False):
    """A list that fills its screen and only moves its cursor; the screen handles everything else."""

    BINDINGS: ClassVar = [
        Binding("down", "cursor_down", show=False),
        Binding("up", "cursor_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("home", "first", show=False),
        Binding("end", "last", show=False),
    ]
    DEFAULT_CSS = """
    RowList, RowList:focus {
        border: none;
        padding: 0;
        background: $background;
        background-tint: transparent;
    }
    """

    @property
    def row_width(self) -> int:
        """Width of a row, always without the scrollbar's column, so that rows do not move when it appears."""
        return max(1, self.size.width - 1 if not self.show_vertical_scrollbar else self.scrollable_content_region.width)

    def move(self, rows: int) -> None:
        """Move the cursor a row up (-1) or down, wherever the focus is."""
        if rows < 0:
            self.action_cursor_up()
        else:
            self.action_cursor_down()
