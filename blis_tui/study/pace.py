"""How far a sweep is, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.study.sweep import Progress


def progress_text(now: Progress, elapsed_s: float) -> str:
    """How many runs there are results of, and about how long the others take.

    Args:
        now: how far it is.
        elapsed_s: since when runs are made, in seconds.
    """
    made = now.done - now.known
    left = (now.total - now.done) * elapsed_s / made if made else 0.0
    rest = f", about {_duration(left)} left" if made and now.done < now.total else ""
    known = f" ({now.known:,} known before)" if now.known else ""
    return f"{now.done:,} of {now.total:,} runs{known}{rest}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
