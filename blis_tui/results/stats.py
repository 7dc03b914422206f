"""Distributions of latencies, exact and equal on every machine: integers as long as possible, then one division."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import fsum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

T = TypeVar("T")

PERCENTILES: Final = (50, 90, 95, 99)
_MILLISECOND: Final = 1000
_PPM: Final = 1_000_000


OMITTED_IF_ABSENT: Final = {"left_out": True}
"""Metadata of a report field that is in the file only if it is not None."""
OMITTED_IF_ZERO: Final = {"left_out": True, "zero": True}
"""Metadata of a report field that is in the file only if it is not 0; reading an absent one gives 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Summary of a latency in milliseconds (for regret, in score points); fields are None if nothing was observed.

    Percentiles interpolate linearly between the two samples around rank ``p/100 * (n - 1)``.
    """

    mean: float | None
    """The arithmetic mean."""
    min: float | None
    """The smallest sample."""
    p50: float | None
    """The median."""
    p90: float | None
    """The 90th percentile: 90 % of the samples are no larger."""
    p95: float | None
    """The 95th percentile."""
    p99: float | None
    """The 99th percentile; with fewer than 100 samples it lies between the two largest."""
    max: float | None
    """The largest sample."""

    def texts(self, statistics: Iterable[str], form: str = ",.2f") -> list[str]:
        """Return some statistics as table cells in a Python format; a dash where nothing was observed."""
        values = [getattr(self, name) for name in statistics]
        return ["-" if value is None else format(value, form) for value in values]


EMPTY: Final = Distribution(mean=None, min=None, p50=None, p90=None, p95=None, p99=None, max=None)


def sums(parts: Iterable[object], names: Iterable[str]) -> dict[str, int]:
    """Return, by name, the sums of counters that each of these parts has."""
    every = [*parts]
    return {name: whole_sum(map(attrgetter(name), every)) for name in names}


def of_samples(samples_us: Sequence[int]) -> Distribution:
    """Return the distribution of integer microseconds."""
    return _distribution(sorted(samples_us), whole_sum(samples_us))


def of_ratios(samples_us: Sequence[float]) -> Distribution:
    """Return the distribution of fractional microseconds (such as a time per token)."""
    return _distribution(sorted(samples_us), fsum(samples_us))


def of_shares(counts: Mapping[int, int]) -> Distribution:
    """Return the distribution of shares from 0 to 1; the keys of ``counts`` are in parts per million."""
    total = whole_sum([value * count for value, count in counts.items()])
    return _distribution(HistogramSamples(counts), total, _PPM)


def of_histogram(counts: Mapping[int, int], offset_us: int = 0) -> Distribution:
    """Return the distribution of ``value + offset_us``, where ``counts`` has the number of samples of each value."""
    total = whole_sum([count * (value + offset_us) for value, count in counts.items()])
    return _distribution(HistogramSamples(counts, offset_us), total)


class HistogramSamples:
    """A histogram that behaves like the sorted list of its samples, with ``offset`` added to each."""

    def __init__(self, counts: Mapping[int, int], offset: int = 0) -> None:
        self._values = sorted(counts)
        self._cumulative = [*accumulate(map(counts.__getitem__, self._values))]
        self._offset = offset

    def __len__(self) -> int:
        return self._cumulative[-1] if self._cumulative else 0

    def __getitem__(self, rank: int) -> int:
        return self._values[bisect_right(self._cumulative, rank)] + self._offset


def percentile_ms(
    ordered: Sequence[float] | HistogramSamples, percent: int, of: int = 100, *, unit: int = _MILLISECOND
) -> float:
    """Return the value at rank ``percent/of * (n - 1)`` of ascending microseconds, interpolated, in milliseconds.

    Integer microseconds are divided once, at the end, so the result is the closest float to the exact value. For
    fractions of a percent ``of`` is larger: 9,990 of 10,000 is the 99.9th percentile. ``unit``: the number of input
    units per output unit, for values other than times.
    """
    rank, rest = divmod(percent * (len(ordered) - 1), of)
    low = ordered[rank]
    return low / unit if rest == 0 else (of * low + rest * (ordered[rank + 1] - low)) / (unit * of)


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the value at rank ``percent/100 * (n - 1)`` of ascending numbers, interpolated."""
    return percentile_ms(ordered, percent, unit=1)


def median_high(values: Iterable[int]) -> int | None:
    """Return the median as one of the values (the upper one of an even number); None if there are none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def _distribution(ordered: Sequence[float] | HistogramSamples, total: float, unit: int = _MILLISECOND) -> Distribution:
    count = len(ordered)
    if not count:
        return EMPTY
    p50, p90, p95, p99 = (percentile_ms(ordered, percent, unit=unit) for percent in PERCENTILES)
    return Distribution(
        mean=total / (unit * count),
        min=ordered[0] / unit,
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=ordered[count - 1] / unit,
    )
