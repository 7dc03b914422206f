"""The latencies of requests: one table for reports, targets, bounds, pictures and comparisons."""

from __future__ import annotations

from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    class Books(Protocol):
        """The numbers of a request."""

        @property
        def output_tokens(self) -> int:
            """Generated tokens."""

    class Columns(Protocol):
        """The numbers of many requests."""

        @property
        def output_tokens(self) -> Sequence[int]:
            """Generated tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A time of each request, between two of its moments."""

    name: str
    """Its name in documents and reports, without the unit."""
    short: str
    """What it is called in sentences."""
    label: str
    """What it is called in the terminal."""
    title: str
    """What it is called in pictures."""
    also: str
    """Names that others use, separated by blanks."""
    end: str = ""
    """The moment at which it ends, a field of a request's books; a negative time = never. Empty: there is one sample
    for each gap between tokens instead (ITL)."""
    start: str = ""
    """The moment at which it starts; empty = its end is a time since the arrival."""
    per_gap: bool = False
    """Whether it is divided by the number of gaps between the request's tokens."""
    has_curve: bool = True
    """Whether pages draw its curve."""

    @property
    def field(self) -> str:
        """The report's field."""
        return f"{self.name}_ms"

    def of(self, row: Books, unit: int = 1) -> float | None:
        """Return a request's time in ``unit`` microseconds, divided once at most; None = it has none."""
        end: int = getattr(row, self.end)
        start: int = getattr(row, self.start) if self.start else 0
        gaps = row.output_tokens - 1 if self.per_gap else 1
        if end < 0 or gaps <= 0:
            return None
        return (end - start) / (unit * gaps) if self.per_gap or unit != 1 else end - start

    def samples_us(self, rows: Columns) -> Sequence[float]:
        """Return the times of those requests that have one, in microseconds."""
        ends: Sequence[int] = getattr(rows, self.end)
        starts = getattr(rows, self.start) if self.start else repeat(0)
        if self.per_gap:
            answers = zip(ends, starts, rows.output_tokens, strict=False)  # (zeros go on for ever)
            return [(end - start) / (tokens - 1) for end, start, tokens in answers if end >= 0 and tokens > 1]
        if not self.start and min(ends, default=0) >= 0:
            return ends
        return [end - start for end, start in zip(ends, starts, strict=False) if end >= 0]


LATENCIES: Final = (
    Latency(
        name="ttft",
        short="TTFT",
        label="time to first token",
        title="Time to first token",
        also="time_to_first_token",
        end="ttft_us",
    ),
    Latency(
        name="itl",
        short="ITL",
        label="inter-token latency",
        title="Inter-token latency",
        also="inter_token_latency tbt time_between_tokens token_latency",
    ),
    Latency(
        name="tpot",
        short="TPOT",
        label="time per output token",
        title="Time per output token",
        also="time_per_output_token",
        end="e2e_us",
        start="ttft_us",
        per_gap=True,
    ),
    Latency(
        name="e2e",
        short="E2E",
        label="end to end",
        title="End-to-end latency",
        also="e2el e2e_latency end_to_end end_to_end_latency request_latency request_e2e_time latency",
        end="e2e_us",
    ),
    Latency(
        name="scheduling_delay",
        short="scheduling delay",
        label="scheduling delay",
        title="Scheduling delay",
        also="queue queue_time queueing_delay waiting_time request_scheduling_delay request_queue_time",
        end="scheduled_us",
        start="arrival_us",
        has_curve=False,
    ),
)
"""In the order in which they are listed. Those of a report are the fields of its ``Latencies``."""
SAMPLED: Final[Mapping[str, Latency]] = MappingProxyType(
    {latency.field: latency for latency in LATENCIES if latency.end}
)
"""By the report's field: those with one time for each request."""
