"""What reports say of sessions, where clients hold any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.request import RequestState
from blis_tui.metrics.stats import Distribution, of_samples

if TYPE_CHECKING:
    from blis_tui.metrics.request_log import RequestTable
    from blis_tui.workload.interactive import SessionCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """Sessions by what became of them, and what their users measured."""

    started: int
    """Sessions that began: ``completed + cancelled + unfinished``."""
    completed: int
    """Sessions all of whose calls were answered."""
    cancelled: int
    """Sessions of which a call got no answer: it was rejected, dropped, lost or timed out."""
    unfinished: int
    """Sessions that have calls which are not sent, or not answered."""
    calls: int
    """Requests of sessions that arrived."""
    later_cached: float
    """Of the prompt tokens of later calls that were scheduled, the share (0 to 1) that was found in the prefix
    cache."""
    duration_ms: Distribution
    """From a session's first prompt to its last answer, of completed sessions."""
    first_ttft_ms: Distribution
    """Time to first token of the calls that begin a session."""
    later_ttft_ms: Distribution
    """Time to first token of all other calls, whose prompts go on from what was said."""


def session_report(counts: SessionCounts, table: RequestTable, warm_up_us: int) -> SessionReport:
    """The figures of all requests that belong to sessions; the distributions leave the warm-up out."""
    spans: dict[str, tuple[int, int]] = {}
    left_out = dict.fromkeys(counts.unfinished)
    first: list[int] = []
    later: list[int] = []
    calls = later_tokens = later_cached = 0
    for row in table.plain():
        session = table.session(row.number)
        if session is None:
            continue
        name, call = session
        calls += 1
        begin, end = spans.get(name, (row.arrival_us, 0))
        spans[name] = (min(begin, row.arrival_us), max(end, row.arrival_us + row.e2e_us))
        if row.state != RequestState.COMPLETED:
            left_out[name] = None
        if call and row.scheduled_us >= 0:
            later_tokens += row.input_tokens
            later_cached += row.cached_tokens
        if row.ttft_us >= 0 and row.arrival_us >= warm_up_us:
            (later if call else first).append(row.ttft_us)
    durations = [end - begin for name, (begin, end) in spans.items() if name not in left_out and begin >= warm_up_us]
    return SessionReport(
        started=counts.started,
        completed=counts.completed,
        cancelled=counts.cancelled,
        unfinished=len(counts.unfinished),
        calls=calls,
        later_cached=later_cached / later_tokens if later_tokens else 0.0,
        duration_ms=of_samples(durations),
        first_ttft_ms=of_samples(first),
        later_ttft_ms=of_samples(later),
    )
