"""How a run goes, while it goes on: counts, rates, and the latest latencies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import middle
from blis_tui.observe.recording import COMPLETED
from blis_tui.units import count_text, span_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.observe.recording import Observed


_WINDOW_US: Final = 5_000_000
"""Rates are those of the latest seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A look at a run."""

    time_us: int
    total: int | None
    """Requests to be sent; None = unknown."""
    sent: int
    running: int
    outcomes: Mapping[str, int]
    tokens: int
    """Of answers, so far."""
    requests_per_s: float
    """Answers that ended in the latest seconds; likewise their tokens."""
    tokens_per_s: float
    ttft_us: int | None
    """Of the latest answers, the median; None = there were none."""
    e2e_us: int | None
    late_us: int
    """The latest request was sent so late at most, of those of the latest seconds."""
    server: Mapping[str, float]
    """The latest scrape."""

    @property
    def failed(self) -> int:
        """Requests without a whole answer."""
        total = 0
        for outcome, count in self.outcomes.items():
            total += count if outcome != COMPLETED else 0
        return total


class Progress:
    """Sums up rows as they come."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.outcomes: dict[str, int] = {}
        self.tokens = 0
        self.server: Mapping[str, float] = {}
        self._latest: deque[Observed] = deque()

    def note(self, row: Observed) -> None:
        """One more has ended."""
        self.outcomes[row.outcome] = self.outcomes.get(row.outcome, 0) + 1
        self.tokens += row.tokens
        self._latest.append(row)

    def look(self, time_us: int, sent: int, running: int) -> Status:
        """How it goes now."""
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
            ttft_us=middle(row.ttft_us for row in done if row.ttft_us is not None),
            e2e_us=middle(row.e2e_us for row in done if row.e2e_us is not None),
            late_us=max((row.late_us for row in latest), default=0),
            server=self.server,
        )


# How a run goes, in a line.


def status_text(status: Status) -> str:
    """How far it is, how fast, and what goes wrong."""
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
