"""A server to observe on the screen: what the application is started with, and what it leaves."""

from __future__ import annotations

from blis_tui.classes import dataclass


@dataclass(slots=True, kw_only=True)
class ObservingStart:
    """A server to observe, and how that ended."""

    url: str
    words: tuple[str, ...]
    """The command that does it; it tells how it goes in lines of JSON on standard error."""
    code: int | None = None
    """Its exit code, once it has ended."""
    said: str = ""
    """What it wrote besides those lines: its output, then its messages."""
