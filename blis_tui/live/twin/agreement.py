"""The agreement of a recording and a simulation: latencies, batches of steps, and metrics."""

from __future__ import annotations

from math import fsum, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.results.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.recording.recording import Observed
    from blis_tui.results.request_log import RequestRow

METRICS: Final = ("ttft", "itl", "e2e")
PREEMPTIONS: Final = "vllm:num_preemptions_total"
CACHE_HITS: Final = "vllm:prefix_cache_hits_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A request on both sides; latencies in microseconds, by the names in ``METRICS``."""

    name: str
    sent_us: int
    left: Mapping[str, float]
    right: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of a latency; times in milliseconds."""

    requests: int
    left: Mapping[str, float]
    """Mean, p50 and p99. The next field has those of the right side."""
    right: Mapping[str, float]
    bias: float
    """Error of the mean: right / left - 1."""
    mape: float
    """Mean absolute error of single requests, relative to the left side."""
    r: float | None
    """Correlation of single requests; None if there is no variation."""


def observed(row: Observed) -> dict[str, float]:
    """Return the latencies of an observed request by name; empty if its answer is incomplete."""
    if row.whole and row.e2e_us is not None:
        return {"e2e": float(row.e2e_us)}
    return _latencies(row.ttft_us, row.e2e_us, row.tokens)


def simulated(row: RequestRow) -> dict[str, float]:
    """Return the latencies of a simulated request by name."""
    return _latencies(row.ttft_us, row.e2e_us, row.output_tokens)


def _latencies(ttft_us: int | None, e2e_us: int | None, tokens: int) -> dict[str, float]:
    if ttft_us is None or e2e_us is None or ttft_us <= 0:
        return {}
    found = {"ttft": float(ttft_us), "e2e": float(e2e_us)}
    if tokens > 1 and e2e_us > ttft_us:
        found["itl"] = (e2e_us - ttft_us) / (tokens - 1)
    return found


def agreement(pairs: Sequence[Pair], metric: str) -> Agreement | None:
    """Return the agreement of a latency over requests; None if no request has it."""
    values = [(pair.left[metric], pair.right[metric]) for pair in pairs if metric in pair.left and metric in pair.right]
    if not values:
        return None
    left, right = ([both[side] for both in values] for side in (0, 1))
    count = len(values)
    return Agreement(
        requests=count,
        left=_spread(left),
        right=_spread(right),
        bias=fsum(right) / fsum(left) - 1.0,
        mape=fsum(abs(other / one - 1.0) for one, other in values) / count,
        r=correlation(left, right),
    )


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    count = len(ordered)
    return {
        "mean": fsum(ordered) / count / 1e3,
        "p50": percentile(ordered, 50) / 1e3,
        "p99": percentile(ordered, 99) / 1e3,
    }


def correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Return Pearson's correlation of two sequences of equal length; None if one does not vary."""
    count = len(left)
    if count < 2:
        return None
    means = fsum(left) / count, fsum(right) / count
    product = fsum((one - means[0]) * (other - means[1]) for one, other in zip(left, right, strict=True))
    squares = [fsum((value - mean) ** 2 for value in row) for row, mean in zip((left, right), means, strict=True)]
    return product / sqrt(squares[0] * squares[1]) if all(squares) else None
