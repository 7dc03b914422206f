"""Statistics of series that may not be stationary: where a transient ends, what grows, how well a mean is known.

A run starts empty, so its figures drift until as much leaves as arrives. One long run whose beginning is left out tells
more than several short ones of the same total length, each of which has that beginning (Whitt 1991, "The efficiency of
one long run versus independent replications in steady-state simulation").
"""

from __future__ import annotations

from math import fsum, inf, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BATCHES: Final = 10
"""Number of batches of the method of batch means; 10 to 30 are recommended (Schmeiser 1982)."""
_GROUP: Final = 5
"""Values averaged into one by MSER-5."""
_FEWEST_GROUPS: Final = 5
"""MSER-5 does not look at the last few averages, whose variance is small by chance."""
_PARTS: Final = 5
"""Batch means in each quarter that a trend compares."""


class Trend(NamedTuple):
    """The change of a series from its second quarter to its last."""

    before: float
    """Mean of the second quarter."""
    after: float
    """Mean of the last quarter."""
    z: float
    """Their difference in standard errors."""

    @property
    def growth(self) -> float:
        """The change relative to the second quarter; a quantity that grows in proportion to time grows by 4/3."""
        return (self.after - self.before) / self.before if self.before else inf if self.after > 0 else 0.0


class Ratio(NamedTuple):
    """A ratio of sums, such as the share of requests over a bound."""

    value: float
    error: float
    """Its standard error."""
    weight: float
    """The sum below the line, such as the number of requests."""


class Sample(NamedTuple):
    """What one request (or one stretch of time) adds to a ratio."""

    at_us: int
    above: float
    """What it adds above the line."""
    below: float
    """What it adds below the line."""


def trend(values: Sequence[float]) -> Trend:
    """Compare the last quarter of a series with its second one (Geweke 1992), with errors by batch means.

    The first quarter is left out because it starts empty. Fewer than 20 values have no trend.
    """
    width = len(values) // (4 * _PARTS)
    if not width:
        return Trend(0.0, 0.0, 0.0)
    quarter = width * _PARTS
    last = len(values) - quarter
    first = last - 2 * quarter
    before = [_mean(values[first + at : first + at + width]) for at in range(0, quarter, width)]
    after = [_mean(values[last + at : last + at + width]) for at in range(0, quarter, width)]
    low, high = _mean(before), _mean(after)
    squares = [*((one - low) ** 2 for one in before), *((one - high) ** 2 for one in after)]
    error = sqrt(fsum(squares) / (_PARTS * (_PARTS - 1)))
    return Trend(low, high, (high - low) / error if error else inf if high > low else -inf if high < low else 0.0)


def mser5(values: Sequence[float]) -> int:
    """Return how many of the first values are a transient, by MSER-5.

    The values left out are those that minimize the estimated standard error of the mean of the rest, looked for among
    averages of five (White 1997, "An effective truncation heuristic for bias reduction in simulation output"; Franklin
    and White 2008). If they are more than half, the series is too short to say (``len(values)`` is returned).
    """
    count = len(values) // _GROUP
    groups = [_mean(values[at * _GROUP : (at + 1) * _GROUP]) for at in range(count)]
    # Relative to the last average, sums of squares keep their digits.
    centre = groups[-1] if groups else 0.0
    kept, total, squares = 0, 0.0, 0.0
    best, place = inf, 0
    for at in range(count - 1, -1, -1):
        value = groups[at] - centre
        kept, total, squares = kept + 1, total + value, squares + value * value
        if kept >= _FEWEST_GROUPS:
            score = (squares - total * total / kept) / (kept * kept)
            if score <= best:
                best, place = score, at
    return place * _GROUP if 2 * place <= count else len(values)


def ratio(samples: Iterable[Sample], start_us: int, end_us: int) -> Ratio:
    """Return a ratio over ``(start_us, end_us]``, with its standard error by batch means (ratio estimator)."""
    above, below = [0.0] * BATCHES, [0.0] * BATCHES
    span_us = max(end_us - start_us, 1)
    for at_us, one, weight in samples:
        if start_us < at_us <= end_us:
            place = (at_us - start_us - 1) * BATCHES // span_us
            above[place] += one
            below[place] += weight
    weight = fsum(below)
    if not weight:
        return Ratio(0.0, inf, 0.0)
    value = fsum(above) / weight
    squares = fsum((one - value * many) ** 2 for one, many in zip(above, below, strict=True))
    return Ratio(value, sqrt(squares * BATCHES / (BATCHES - 1)) / weight, weight)


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
