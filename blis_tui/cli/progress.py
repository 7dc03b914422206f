"""One line on standard error that tells how far a command is."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

from blis_tui.cli.files import tell

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY_S: Final = 0.2
_ROOM: Final = 100
"""Characters of the line where the terminal's width is not known."""


def _room() -> int:
    """Characters that stay on one line of the terminal: what is on a second one could not be rewritten."""
    try:
        return min(_ROOM, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
    except (OSError, AttributeError):  # no terminal, or no standard error
        return _ROOM


class ProgressLine:
    """A line that is rewritten a few times a second, and cleared at the end.

    Args:
        wanted: whether to show it; None = where standard error is a terminal.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty() if wanted is None else wanted
        self._start_s = time.monotonic()
        self._next_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Since when it is there, in seconds."""
        return time.monotonic() - self._start_s

    def show(self, text: Callable[[], str]) -> None:
        """Write the line anew, unless that was done just before."""
        now_s = time.monotonic()
        if self._shown and now_s >= self._next_s:
            self._next_s = now_s + _EVERY_S
            tell(text()[: _room()], nl=False, afresh=True)

    def clear(self) -> None:
        """Leave nothing behind."""
        if self._next_s:
            tell("", nl=False, afresh=True)
