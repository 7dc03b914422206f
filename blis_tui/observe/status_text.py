"""How a run goes, in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.observe.recording import COMPLETED
from blis_tui.units import count_text, span_text

if TYPE_CHECKING:
    from blis_tui.observe.status import Status


def status_text(status: Status) -> str:
    """How far it is, how fast, and what goes wrong."""
    done = status.outcomes.get(COMPLETED, 0)
    total = "" if status.total is None else f" of {count_text(status.total)}"
    parts = [
        f"{max(status.time_us, 0) / 1e6:,.1f} s",
        f"{count_text(done)}{total} answered, {count_text(status.running)} under way",
        f"{status.requests_per_s:,.1f} requests/s, {status.tokens_per_s:,.0f} tokens/s",
    ]
    if status.ttft_us is not None:
        parts.append(f"TTFT {span_text(status.ttft_us)}")
    if status.failed:
        failed = [f"{count_text(count)} {name}" for name, count in status.outcomes.items() if name != COMPLETED]
        parts.append(", ".join(failed))
    return "  ".join(parts)
