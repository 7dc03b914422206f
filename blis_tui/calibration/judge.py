"""The agreement of simulated requests with measured ones."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from math import fsum, sqrt
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.calibration.measured import Measured
    from blis_tui.calibration.steps import Step

METRICS: Final = ("ttft", "tpot", "e2e", "step")
GRADES: Final = ((0.05, 0.1, 0.9, "excellent"), (0.1, 0.2, 0.7, "good"), (0.2, 0.4, 0.4, "fair"))
"""Grades: maximum error of the mean, maximum error of single requests, minimum correlation, and the word."""
VARIATION: Final = 0.03
"""Correlation counts where the standard deviation of the measured values is more than this share of their mean."""
_BINS: Final = 8


@dataclass(frozen=True, slots=True)
class Pair:
    """A measured and a simulated request; times in microseconds."""

    measured: Measured
    ttft_us: float
    e2e_us: float
    batch: float = 0.0

    def values(self, metric: str) -> tuple[float, float] | None:
        """Return the measured and simulated value in milliseconds; None if the request has no such figure."""
        one = self.measured
        if metric == "step":
            return None
        if metric == "ttft":
            return one.ttft_us / 1e3, self.ttft_us / 1e3
        if metric == "e2e":
            return one.e2e_us / 1e3, self.e2e_us / 1e3
        gaps = one.output_tokens - 1
        if not gaps or one.e2e_us <= one.ttft_us:
            return None
        return (one.e2e_us - one.ttft_us) / gaps / 1e3, (self.e2e_us - self.ttft_us) / gaps / 1e3


@dataclass(frozen=True, slots=True)
class StepPair:
    """A measured and a predicted step."""

    measured: Step
    step_us: float

    @property
    def batch(self) -> float:
        """Its new tokens, of prompts and answers."""
        return self.measured.tokens

    def values(self, metric: str) -> tuple[float, float] | None:
        """Return the measured and predicted duration, in milliseconds."""
        return (self.measured.duration_us / 1e3, self.step_us / 1e3) if metric == "step" else None


Pairs: TypeAlias = "Sequence[Pair] | Sequence[StepPair]"
"""The requests of a recording, or the steps of a log."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of one metric over some requests."""

    requests: int
    measured_ms: float
    """Measured mean. The next field has the simulated one."""
    simulated_ms: float
    bias: float
    """Error of the mean: simulated / measured - 1."""
    mape: float
    """Mean absolute error of single requests, relative to the measured value."""
    pearson_r: float | None
    """Correlation of single requests; None if measured values hardly vary, so that it says nothing."""

    @property
    def grade(self) -> str:
        """The grade for which all three figures are good enough."""
        r = 1.0 if self.pearson_r is None else self.pearson_r
        for bias, mape, correlation, word in GRADES:
            if abs(self.bias) <= bias and self.mape <= mape and r >= correlation:
                return word
        return "poor"


def agreement(pairs: Pairs, metric: str) -> Agreement | None:
    """Return the agreement of a metric; None if no request has it."""
    values = [both for pair in pairs if (both := pair.values(metric)) is not None]
    if not values:
        return None
    count = len(values)
    measured, simulated = (fsum(both[side] for both in values) / count for side in (0, 1))
    return Agreement(
        requests=count,
        measured_ms=measured,
        simulated_ms=simulated,
        bias=simulated / measured - 1.0,
        mape=fsum(abs(other / one - 1.0) for one, other in values) / count,
        pearson_r=_pearson(values, measured, simulated),
    )


def _pearson(values: Sequence[tuple[float, float]], left: float, right: float) -> float | None:
    product = fsum((one - left) * (other - right) for one, other in values)
    squares = [fsum((both[side] - mean) ** 2 for both in values) for side, mean in ((0, left), (1, right))]
    if sqrt(squares[0] / len(values)) <= VARIATION * left:
        return None
    return product / sqrt(squares[0] * squares[1]) if squares[1] else 0.0


def by_stage(pairs: Pairs, durations_s: Sequence[float]) -> list[list[Pair]]:
    """Return the requests of each stage, by arrival; without durations, there is one stage. Steps have no stage."""
    pairs = [pair for pair in pairs if isinstance(pair, Pair)]
    if not durations_s:
        return [pairs]
    ends = list(accumulate(seconds * 1e6 for seconds in durations_s))
    stages: list[list[Pair]] = [[] for _ in durations_s]
    for pair in pairs:
        stages[min(bisect_right(ends, pair.measured.arrival_us), len(ends) - 1)].append(pair)
    return stages


def by_batch(pairs: Pairs) -> list[Pairs]:
    """Return the requests in bins of equal number, by the size of their batch; steps by their tokens."""
    ordered: list[Pair] | list[StepPair] = sorted(pairs, key=_batch)
    cuts = [len(ordered) * number // _BINS for number in range(_BINS + 1)]
    return [ordered[start:end] for start, end in pairwise(cuts) if end > start]


def size_of(pairs: Pairs) -> str:
    """Return what the bins are of: the size of a request's batch, or the tokens of a step."""
    return "tokens" if pairs and isinstance(pairs[0], StepPair) else "batch"


def _batch(pair: Pair | StepPair) -> float:
    return pair.batch


def disagreement(runs: Mapping[str, Pairs], *, of_means: bool = False) -> float:
    """Return the mean of all errors, of means and of single requests, over all metrics.

    Args:
        runs: pairs of recordings.
        of_means: whether to ignore single errors, for servers with delays that are not simulated.
    """
    found = [
        abs(told.bias) + (0.0 if of_means else told.mape)
        for pairs in runs.values()
        for metric in METRICS
        if (told := agreement(pairs, metric)) is not None
    ]
    return fsum(found) / len(found) if found else 0.0
