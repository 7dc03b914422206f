"""The encoder of media, as experiments describe it."""

from __future__ import annotations

from blis_tui.classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """What turns images, audio and video into tokens."""

    token_us: float
    """How long it takes for one of them, in microseconds."""
