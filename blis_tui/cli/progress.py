"""A progress line on standard error."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from blis_tui.cli.files import columns, tell

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY_S: Final = 0.2
_MOST_COLUMNS: Final = 101
"""One column stays free, because a cursor past the last column is on the next line."""


class ProgressLine:
    """A line that is rewritten a few times a second, and cleared at the end.

    Args:
        wanted: whether to show it; None = only if standard error is a terminal.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty() if wanted is None else wanted
        self._start_s = time.monotonic()
        self._next_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since its creation."""
        return time.monotonic() - self._start_s

    def show(self, text: Callable[[], str]) -> None:
        """Rewrite the line, unless that was done very recently."""
        now_s = time.monotonic()
        if self._shown and now_s >= self._next_s:
            self._next_s = now_s + _EVERY_S
            tell(text()[: columns(_MOST_COLUMNS, sys.stderr) - 1], nl=False, afresh=True)

    def clear(self) -> None:
        """Clear the line."""
        if self._next_s:
            tell("", nl=False, afresh=True)
