"""Statistics of series that may not be stationary: where a transient ends, what grows, how well a mean is known.

A run starts empty, so its figures drift until as much leaves as arrives. One long run whose beginning is left out tells
more than several short ones of the same total length, each of which has that beginning (Whitt 1991, "The efficiency of
one long run versus independent replications in steady-state simulation").
"""

from __future__ import annotations

from bisect import bisect_right
from math import fsum, inf, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple

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


class Flux(NamedTuple):
    """What came to a queue and what left it in one of several stretches of equal length."""

    came: int
    left: int


class Drift(NamedTuple):
    """How fast a queue grew, compared with what chance would do to one that neither grows nor shrinks."""

    z: float
    """Its growth per stretch, in standard errors."""
    dispersion: float
    """Variance of what came, or of the queue's growth if that is larger, relative to the number that came (the index
    of dispersion): 1 if arrivals are Poisson and are served like clockwork, larger if they are bursty or if what they
    cost varies."""


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
    before = [mean(values[first + at : first + at + width]) for at in range(0, quarter, width)]
    after = [mean(values[last + at : last + at + width]) for at in range(0, quarter, width)]
    low, high = mean(before), mean(after)
    squares = [
        *((value - low) * (value - low) for value in before),
        *((value - high) * (value - high) for value in after),
    ]
    error = sqrt(fsum(squares) / (_PARTS * (_PARTS - 1)))
    return Trend(low, high, (high - low) / error if error else inf if high > low else -inf if high < low else 0.0)


def drift(fluxes: Sequence[Flux]) -> Drift:
    """Return how fast a queue grew.

    The length of a queue near its capacity varies slowly: with a load of 0.9, for longer than a few hundred requests
    (Whitt 1989, "Planning queueing simulations"). So it may well rise throughout a run, and batch means of the length
    do not show how little that says. But what it gains in one stretch hardly depends on what it gained before: its sum
    is a random walk. The variance of arrivals counts as well, because a queue that was empty for a while has gained
    nothing whatever came.
    """
    count = len(fluxes)
    gains, came = [flux.came - flux.left for flux in fluxes], [flux.came for flux in fluxes]
    variance = max(_variance(gains), _variance(came))
    gain, arrivals, error = mean(gains), mean(came), sqrt(variance / count)
    return Drift(
        gain / error if error else inf if gain > 0 else 0.0,
        variance / arrivals if arrivals else 0.0,
    )


def mser5(values: Sequence[float]) -> int:
    """Return how many of the first values are a transient, by MSER-5.

    The values left out are those that minimize the estimated standard error of the mean of the rest, looked for among
    averages of five (White 1997, "An effective truncation heuristic for bias reduction in simulation output"; Franklin
    and White 2008). If they are more than half, the series is too short to say (``len(values)`` is returned).
    """
    count = len(values) // _GROUP
    groups = [mean(values[at * _GROUP : (at + 1) * _GROUP]) for at in range(count)]
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
    for at_us, amount, weight in samples:
        if start_us < at_us <= end_us:
            place = (at_us - start_us - 1) * BATCHES // span_us
            above[place] += amount
            below[place] += weight
    return _ratio_of(above, below)


def _ratio_of(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Return a ratio from the sums of each batch."""
    weight = fsum(below)
    if not weight:
        return Ratio(0.0, inf, 0.0)
    value = fsum(above) / weight
    errors = [amount - value * many for amount, many in zip(above, below, strict=True)]
    squares = fsum(error * error for error in errors)
    return Ratio(value, sqrt(squares * BATCHES / (BATCHES - 1)) / weight, weight)


class Batches:
    """Values that became known in ``(start_us, end_us]``, in batches of equal length.

    Args:
        samples: moments, and values.
        start_us: begin of the stretch.
        end_us: its end.

    Attributes:
        values: all of them, in ascending order.
    """

    def __init__(self, samples: Iterable[tuple[int, float]], start_us: int, end_us: int) -> None:
        self._batches: list[list[float]] = [[] for _ in range(BATCHES)]
        span_us = max(end_us - start_us, 1)
        for at_us, value in samples:
            if start_us < at_us <= end_us:
                self._batches[(at_us - start_us - 1) * BATCHES // span_us].append(value)
        for batch in self._batches:
            batch.sort()
        self.values: Sequence[float] = sorted(value for batch in self._batches for value in batch)

    def share_above(self, bound: float) -> Ratio:
        """Return the share of the values above a bound, with its standard error by batch means."""
        above = [float(len(batch) - bisect_right(batch, bound)) for batch in self._batches]
        return _ratio_of(above, [float(len(batch)) for batch in self._batches])

    def percentile(self, share: float) -> Ratio:
        """Return the value that this share of the values may exceed, with a standard error by sectioning.

        That of the whole stretch is estimated as is; its error is that of the mean of the percentiles of batches
        (Asmussen and Glynn 2007, "Stochastic simulation", III.5). Percentiles of few values are biased, so the larger
        of both estimates counts. A batch without values says nothing: the error is infinite then.
        """
        whole, weight = self.values, float(len(self.values))
        if not all(self._batches):
            return Ratio(exceeded_by(whole, share) if whole else 0.0, inf, weight)
        each = [exceeded_by(batch, share) for batch in self._batches]
        value = max(exceeded_by(whole, share), mean(each))
        return Ratio(value, sqrt(_variance(each) / BATCHES) if value < inf else inf, weight)


def exceeded_by(values: Sequence[float], share: float) -> float:
    """Return the largest value that at most a share of the values exceeds.

    Args:
        values: one or more values, in ascending order.
        share: the share.
    """
    return values[len(values) - 1 - int(share * len(values))]


def lasting(estimate: Ratio, memory: float) -> Ratio:
    """Return an estimate for a load that lasts: with an error that counts what batches share.

    A load that lasts for as long as a request or a session stays hardly varies within a shorter batch, whose mean
    resembles its neighbours': errors by batch means are then too small. Of a process that forgets exponentially, the
    variance of the mean of the whole is larger by two to three times the stay relative to a batch (Straatsma, Berendsen
    and Stam 1986); once is taken, because a part of what makes requests late is forgotten at once.

    Args:
        estimate: the estimate, of :func:`ratio` or of :class:`Batches`.
        memory: how long the load lasts, relative to the whole stretch.
    """
    return estimate._replace(error=estimate.error * sqrt(max(1.0, memory * BATCHES)))


def _variance(values: Sequence[float]) -> float:
    """Return the sample variance."""
    centre = mean(values)
    return fsum((value - centre) * (value - centre) for value in values) / (len(values) - 1)


def mean(values: Sequence[float]) -> float:
    """Return the mean of one or more values."""
    return fsum(values) / len(values)
