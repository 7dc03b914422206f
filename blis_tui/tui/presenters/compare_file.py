"""The comparison as a text file, to keep or to send."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from blis_tui.compare.divergence import divergence_lines
from blis_tui.compare.text import comparison_text
from blis_tui.tui.presenters.compare import LETTERS
from blis_tui.units import count_text, time_text

if TYPE_CHECKING:
    from blis_tui.compare.comparison import Comparison
    from blis_tui.tui.presenters.compare import CompareView


def file_stem(names: tuple[str, str]) -> str:
    """A name for the file, without its ending: ``kv-pressure-vs-burst``."""
    left, right = (re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-")[:40] or "run" for name in names)
    return f"{left}-vs-{right}"


def file_text(comparison: Comparison, view: CompareView) -> str:
    """Where both sides stand, where they part, and everything that differs up to there."""
    lines = [
        f"{letter} at {time_text(side.moment.time_us)}, event {count_text(side.moment.event)}"
        f"{', the end of the run' if side.moment.at_end else ''}"
        for letter, side in zip(LETTERS, view.sides, strict=True)
    ]
    if view.searched:
        found = view.divergence
        same = "the two runs do exactly the same, from the first event to the last"
        lines += ["", *([same] if found is None else divergence_lines(found, LETTERS))]
    return "\n".join(lines) + "\n\n" + comparison_text(comparison)
