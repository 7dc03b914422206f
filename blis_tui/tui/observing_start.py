"""What the screen of an observed server begins with; apart from it, because what it imports takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.live.observe.following import Followed


@dataclass(slots=True, kw_only=True)
class ObservingStart:
    """A server to observe, and the outcome."""

    url: str
    words: tuple[str, ...] = ()
    """The command of the recording, which prints its status as lines of JSON on standard error."""
    runs: tuple[Followed, ...] = ()
    """Runs that are written elsewhere, instead of a command; several have one timeline."""
    code: int | None = None
    """Its exit code, once it has ended."""
    output: str = ""
    """Its other output: standard output, then messages."""
