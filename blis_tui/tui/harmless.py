"""What keeps texts from outside (names in documents and traces) from reaching the terminal as commands to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.filter import LineFilter

from blis_tui.printable import REPLACEMENT, acted_on

if TYPE_CHECKING:
    import re

    from textual.color import Color

_ACTED_ON: Final = acted_on()


class HarmlessFilter(LineFilter):
    """Takes from every line that is drawn what a terminal would act on; the others keep their places."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  (Textual's signature)
        """The segments, each as wide as Textual has reckoned."""
        if not any(_ACTED_ON.search(text) for text, _, _ in segments):
            return segments
        return [Segment(_ACTED_ON.sub(_as_wide, text), style, control) for text, style, control in segments]


def _as_wide(found: re.Match[str]) -> str:
    """In place of a character: nothing where Textual has kept no room for it."""
    return REPLACEMENT if cell_len(found[0]) else ""
