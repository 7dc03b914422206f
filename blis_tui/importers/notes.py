"""What an import could not take along, where it was written, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from blis_tui.spec.source import dotted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.spec.source import DataPath, Location


class Fate(StrEnum):
    """What became of a key."""

    NOT_CARRIED = "not carried"
    """Lost: results will differ."""
    APPROXIMATED = "approximated"
    """Carried in another form: results may differ."""
    ELSEWHERE = "set elsewhere"
    """Belongs into the experiment, not into this document."""
    NO_EFFECT = "no effect"
    """Left out, or written differently, without consequences for a simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One key and what became of it."""

    fate: Fate
    path: DataPath
    place: Location
    text: str

    @property
    def lossy(self) -> bool:
        """Whether a simulation may come out differently for it."""
        return self.fate in {Fate.NOT_CARRIED, Fate.APPROXIMATED}

    def to_text(self) -> str:
        """Its line in the list: place, key, fate, reason."""
        span = self.place.span
        where = f"{self.place.source.name}:{span.line}:{span.column}"
        return f"{where}: {dotted(self.path) or 'the document'}: {self.fate}: {self.text}"


def notes_text(notes: Sequence[Note]) -> str:
    """All notes, in the order of the input, and a line that sums them up; empty when there are none."""
    if not notes:
        return ""
    ordered = sorted(notes, key=lambda note: (note.place.span.line, note.place.span.column))
    counts = [(fate, sum(note.fate is fate for note in notes)) for fate in Fate]
    total = ", ".join(f"{count} {fate}" for fate, count in counts if count)
    return "\n".join([*(note.to_text() for note in ordered), total]) + "\n"
