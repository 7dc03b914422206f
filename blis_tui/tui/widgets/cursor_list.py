"""Textual's list of options, with a cursor that can be seen, and text that can be read, in any number of colours."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import Binding
from textual.style import Style
from textual.widgets import OptionList

_CURSOR: Final = "option-list--option-highlighted"


class CursorList(OptionList):
    """An option list; where colours are few or none, its cursor is the line shown the other way round."""

    def get_visual_style(self, *component_classes: str, partial: bool = False) -> Style:
        """As Textual's, which leaves out whether a style is reversed."""
        style = super().get_visual_style(*component_classes, partial=partial)
        few = self.app.native_ansi_color or self.app.no_color
        return style + Style(reverse=True) if few and _CURSOR in component_classes else style


class RowList(CursorList, inherit_bindings=False):
    """A list that fills its screen: it moves its cursor, everything else is the screen's."""

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
        """Columns of a row. One is the scrollbar's, whether it is there or not: rows must not jump when it appears."""
        return max(1, self.size.width - 1 if not self.show_vertical_scrollbar else self.scrollable_content_region.width)
