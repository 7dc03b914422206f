"""Status of a run in progress: counts, rates, and the latest latencies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import median_high
from blis_tui.observe.recording import COMPLETED
from blis_tui.units import count_text, span_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.observe.recording import Observed


_WINDOW_US: Final = 5_000_000
"""Window of rates and latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a run at one time."""

    time_us: int
    total: int | None
    """Number of requests to send; None = unknown."""
    sent: int
    running: int
    outcomes: Mapping[str, int]
    tokens: int
    """Output tokens so far."""
    requests_per_s: float
    """Answers completed per second in the window. The next field has their tokens."""
    tokens_per_s: float
    ttft_us: int | None
    """Median TTFT of the latest answers; None = there were none."""
    e2e_us: int | None
    late_us: int
    """Maximum delay of sending in the window."""
    server: Mapping[str, float]
    """The latest scrape."""

    @property
    def failed(self) -> int:
        """Requests that did not complete."""
        total = 0
        for outcome, count in self.outcomes.items():
            total += count if outcome != COMPLETED else 0
        return total


class Progress:
    """Sums up rows as they arrive."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.outcomes: dict[str, int] = {}
        self.tokens = 0
        self.server: Mapping[str, float] = {}
        self._latest: deque[Observed] = deque()

    def note(self, row: Observed) -> None:
        """Add a finished request."""
        self.outcomes[row.outcome] = self.outcomes.get(row.outcome, 0) + 1
        self.tokens += row.tokens
        self._latest.append(row)

    def look(self, time_us: int, sent: int, running: int) -> Status:
        """Return the current status."""
        latest = self._latest
        while latest and latest[0].done_us < time_us - _WINDOW_US:
            latest.popleft()
        span_s = max(min(time_us, _WINDOW_US), 1) / 1e6
        done = [row for row in latest if row.outcome == COMPLETED]
        tokens = 0
        for row in latest:
            tokens += row.tokens
        return Status(
            time_us=time_us,
            total=self.total,
            sent=sent,
            running=running,
            outcomes=dict(self.outcomes),
            tokens=self.tokens,
            requests_per_s=len(done) / span_s,
            tokens_per_s=tokens / span_s,
            ttft_us=median_high(row.ttft_us for row in done if row.ttft_us is not None),
            e2e_us=median_high(row.e2e_us for row in done if row.e2e_us is not None),
            late_us=max((row.late_us for row in latest), default=0),
            server=self.server,
        )


# The status of a run, in a line.


def status_text(status: Status) -> str:
    """Return the progress, the rates, and the problems."""
    done = status.outcomes.get(COMPLETED, 0)
    total = "" if status.total is None else f" of {count_text(status.total)}"
    parts = [
        f"{max(status.time_us, 0) / 1e6:,.1f} s",
        f"{count_text(done)}{total} answered, {count_text(status.running)} in flight",
        f"{status.requests_per_s:,.1f} requests/s, {status.tokens_per_s:,.0f} tokens/s",
    ]
    if status.ttft_us is not None:
        parts.append(f"TTFT {span_text(status.ttft_us)}")
    if status.failed:
        failed = [f"{count_text(count)} {name}" for name, count in status.outcomes.items() if name != COMPLETED]
        parts.append(", ".join(failed))
    return "  ".join(parts)
