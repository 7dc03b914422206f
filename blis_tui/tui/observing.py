"""The start parameters and the result of observing a server on the screen."""

from __future__ import annotations

from blis_tui.classes import dataclass


@dataclass(slots=True, kw_only=True)
class ObservingStart:
    """A server to observe, and the outcome."""

    url: str
    words: tuple[str, ...]
    """The command of the recording, which prints its status as lines of JSON on standard error."""
    code: int | None = None
    """Its exit code, once it has ended."""
    said: str = ""
    """Its other output: standard output, then messages."""
