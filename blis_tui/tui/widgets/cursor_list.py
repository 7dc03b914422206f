"""A list whose cursor can be seen, and its text read, with any number of colours."""

from __future__ import annotations

from typing import Final

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
