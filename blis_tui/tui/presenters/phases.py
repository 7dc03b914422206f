"""The look of a request's phases on all screens: glyph, word and colour."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class GlyphStyle:
    """A glyph, a word and a colour."""

    glyph: str
    word: str
    style: str

    @property
    def label(self) -> str:
        """Glyph and word."""
        return f"{self.glyph} {self.word}"


PHASE_STYLES: Final[Mapping[str, GlyphStyle]] = MappingProxyType(
    {
        "in-transit": GlyphStyle("→", "on the way", "$text-muted"),
        "waiting": GlyphStyle("○", "waiting", "$warning"),
        "prefill": GlyphStyle("◐", "prefill", "$secondary"),
        "decode": GlyphStyle("●", "decode", "$primary"),
        "stalled": GlyphStyle("◌", "stalled", "$warning"),
    }
)
