"""The look of a request's phases on all screens: glyph, word and colour."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Look:
    """A glyph, a word and a colour."""

    glyph: str
    word: str
    style: str

    @property
    def label(self) -> str:
        """Glyph and word."""
        return f"{self.glyph} {self.word}"


PHASE_LOOKS: Final[Mapping[str, Look]] = MappingProxyType(
    {
        "in-transit": Look("→", "on the way", "$text-muted"),
        "waiting": Look("○", "waiting", "$warning"),
        "prefill": Look("◐", "prefill", "$secondary"),
        "decode": Look("●", "decode", "$primary"),
        "stalled": Look("◌", "stalled", "$warning"),
    }
)
