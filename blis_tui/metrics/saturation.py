"""Whether the load was too high: the composite detector of BLIS, judged over the last 30 seconds."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.metrics.request_log import Detour, Row

WINDOW_US: Final = 30_000_000
"""The label is the most frequent verdict in this last part of the run."""
LABELS: Final = ("stable", "backlogged", "overloaded")
"""From the least severe to the most severe; of equally frequent verdicts the more severe one is taken."""
_TREND: Final = 20
"""Minimum number of completed requests for a trend of latencies to count."""
_SURE: Final = 20
"""Number of arrivals from which the verdict is certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """The composite detector's verdict: do completions lag behind arrivals, and do latencies keep growing?

    After each completion, and each arrival of a request that was not rejected, it compares a score with the noise ``1 /
    sqrt(arrivals)``. The score is the larger of two values: the share of requests that have not completed, and the
    growth of the mean end-to-end latency from the first half of the completed requests to the second (at most 1). The
    growth counts only if the mean grows from quarter to quarter.
    """

    detector: str
    """Always ``composite``, the name of BLIS's detector."""
    label: str
    """``stable``, ``backlogged`` or ``overloaded``: the most frequent verdict of the run's last 30 s."""
    score: float
    """The score at the last arrival or completion, from 0 to 1; dimensionless."""
    confidence: float
    """From 0 to 1: arrivals / 20, at most 1."""


def composite(rows: Sequence[tuple[Row, Detour]]) -> Saturation:
    """Return the label of a run."""
    events = [(row.arrival_us, 0, row.number, 0) for row, _ in rows if row.state != RequestState.REJECTED]
    events += [(row.completed_us, 1, row.number, row.e2e_us) for row, _ in rows if row.state == RequestState.COMPLETED]
    events.sort()
    sums_us = [*accumulate([e2e_us for *_, kind, _, e2e_us in events if kind], initial=0)]
    counts = dict.fromkeys(LABELS, 0)
    arrived = done = 0
    score = 0.0
    last_us = events[-1][0] if events else 0
    for time_us, kind, _, _ in events:
        arrived += not kind
        done += kind
        if time_us > last_us - WINDOW_US:
            label, score = _verdict(arrived, done, sums_us)
            counts[label] += 1
    return Saturation(
        detector="composite",
        label=max(LABELS, key=lambda one: (counts[one], LABELS.index(one))) if events else LABELS[0],
        score=score,
        confidence=min(1.0, arrived / _SURE),
    )


def _verdict(arrived: int, done: int, sums_us: Sequence[int]) -> tuple[str, float]:
    """Return the verdict after some arrivals and completions; ``sums_us``: cumulative latencies by completion."""
    deficit = max(0.0, 1 - done / arrived) if arrived else 0.0
    trend = _growth(done, sums_us)
    score = max(deficit, min(trend, 1.0))
    floor = 1 / sqrt(arrived) if arrived else 1.0
    if score < floor:
        return LABELS[0], score
    return LABELS[2] if trend > floor else LABELS[1], score


def _growth(done: int, sums_us: Sequence[int]) -> float:
    """Return how much longer the second half of the completed requests took; 0 unless all quarters grow."""
    if done < _TREND:
        return 0.0
    quarter, half = done // 4, done // 2
    ends = (0, quarter, 2 * quarter, 3 * quarter, done)
    means = [(sums_us[end] - sums_us[start]) / (end - start) for start, end in pairwise(ends)]
    if not means[0] < means[1] < means[2] < means[3]:
        return 0.0
    first, second = sums_us[half] / half, (sums_us[done] - sums_us[half]) / (done - half)
    return max(0.0, (second - first) / first) if first else 0.0
