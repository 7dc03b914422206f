"""Chooses the distribution of lengths that resembles a sample, with the same bits on every machine."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import frexp, fsum, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import exp, gamma, ln, whole_sum
from blis_tui.live.traffic.traffic_figures import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.base.source import Json

    Cdf = Callable[[float], float]


_HALF_LN_2PI: Final = 0.9189385332046728
_STIRLING_FROM: Final = 16.0
_PRECISION: Final = 1e-12
_MOST_TERMS: Final = 100_000
_TINY: Final = 1e-300
_MOST_POINTS: Final = 1000
"""Maximum number of values at which a sample is compared; distances are then exact to a thousandth."""


def ln_gamma(x: float) -> float:
    """Return the logarithm of the gamma function of a positive number: Stirling's series from 16 on."""
    if x < _STIRLING_FROM:
        return ln(gamma(x))
    w = 1.0 / (x * x)
    return (x - 0.5) * ln(x) - x + _HALF_LN_2PI + (1 / 12 - w * (1 / 360 - w / 1260)) / x


def gamma_cdf(shape: float, x: float) -> float:
    """Return the distribution function of a gamma distribution of scale 1.

    This is the regularized incomplete gamma function: its series up to ``shape + 1``, its continued fraction beyond
    (Numerical Recipes, 6.2; the fraction by Lentz's method).
    """
    if x <= 0.0:
        return 0.0
    scale = shape * ln(x) - x - ln_gamma(shape)
    if x < shape + 1.0:
        term = total = 1.0 / shape
        for n in range(1, _MOST_TERMS):
            term *= x / (shape + n)
            total += term
            if term < total * _PRECISION:
                break
        return min(1.0, total * exp(scale))
    b = x + 1.0 - shape
    c, d = 1.0 / _TINY, 1.0 / b
    h = d
    for n in range(1, _MOST_TERMS):
        a = -n * (n - shape)
        b += 2.0
        d = a * d + b
        d = 1.0 / (d if abs(d) > _TINY else _TINY)
        c = b + a / c
        c = c if abs(c) > _TINY else _TINY
        h *= c * d
        if abs(c * d - 1.0) < _PRECISION:
            break
    return max(0.0, 1.0 - h * exp(scale))


def normal_cdf(z: float) -> float:
    """Return the distribution function of the standard normal distribution."""
    half = 0.5 * gamma_cdf(0.5, 0.5 * z * z)
    return 0.5 + half if z > 0.0 else 0.5 - half


def distance(ordered: Sequence[int], cdf: Callable[[int], float]) -> float:
    """Return the Kolmogorov-Smirnov distance between a sample and a distribution, both of whole numbers.

    Args:
        ordered: the sample, ascending.
        cdf: returns the probability of this number or less.
    """
    n = len(ordered)
    steps = [at for at in range(n) if at + 1 == n or ordered[at] != ordered[at + 1]]
    worst = 0.0
    every = -(-len(steps) // _MOST_POINTS)
    for number in range(0, len(steps), every):
        at = steps[number]
        below = steps[number - 1] + 1 if number else 0
        value = ordered[at]
        worst = max(worst, abs((at + 1) / n - cdf(value)), abs(below / n - cdf(value - 1)))
    return worst


def distance_of_samples(one: Sequence[int], other: Sequence[int]) -> float:
    """Return the Kolmogorov-Smirnov distance between two samples, in ascending order."""
    i = j = 0
    worst = 0.0
    while i < len(one) and j < len(other):
        value = min(one[i], other[j])
        while i < len(one) and one[i] == value:
            i += 1
        while j < len(other) and other[j] == value:
            j += 1
        worst = max(worst, abs(i / len(one) - j / len(other)))
    return worst


def rounded(value: float, digits: int = 5) -> float:
    """Round a positive number to ``digits`` significant digits, enough for documents."""
    if value == 0.0:
        return 0.0
    return float(f"{value:.{digits}g}") if frexp(value)[1] < 60 else value


_GOOD: Final = 0.05
"""Up to this distance a formula is preferred to a table of the observed values."""
_BY_CHANCE: Final = 1.36
"""Divided by the square root of the sample size, the distance that 5 % of samples exceed from their own
distribution."""
_TABLE: Final = 100
"""Maximum number of entries of such a table."""
LARGEST: Final = 999_999_999
"""The largest value that every distribution of a document can have; larger ones count as it."""
_TAILS: Final = (0.2, 0.1, 0.05, 0.02, 0.01)
"""Shares of the longest values that are tried as a power-law tail."""
_LEAST_TAIL: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A distribution, and the sample's distance from it."""

    data: dict[str, Json]
    """As written in a document."""
    ks: float
    """Kolmogorov-Smirnov distance: the largest difference between the cumulative shares at any length."""

    @property
    def kind(self) -> str:
        """The distribution's name."""
        return str(self.data["kind"])


def choose(values: Sequence[int]) -> Chosen:
    """Choose the formula closest to the sample, or a table if none is close.

    Args:
        values: at least one, each at least 1.
    """
    ordered = sorted(min(value, LARGEST) for value in values)
    if ordered[0] == ordered[-1]:
        return Chosen(data={"kind": "constant", "value": ordered[0]}, ks=0.0)
    best = min(_formulas(ordered), key=lambda one: one.ks)
    return best if best.ks <= max(_GOOD, by_chance(len(ordered))) else table(ordered)


def by_chance(n: int) -> float:
    """Return the distance from its own distribution that a sample of ``n`` exceeds in 5 % of cases."""
    return _BY_CHANCE / sqrt(n)


def table(ordered: Sequence[int]) -> Chosen:
    """Create a table of the observed values; many different ones are reduced to the means of a hundred equal parts."""
    counts: dict[int, int] = dict(Counter(ordered))
    if len(counts) > _TABLE:
        edges = [len(ordered) * part // _TABLE for part in range(_TABLE + 1)]
        counts = {}
        for start, end in pairwise(edges):
            if end > start:
                mean = (2 * whole_sum(ordered[start:end]) + end - start) // (2 * (end - start))
                counts[mean] = counts.get(mean, 0) + end - start
    below: dict[int, int] = {}
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        below[value] = seen
    known = list(below)

    def cdf(value: int) -> float:
        at = _bisect(known, value)
        return below[known[at - 1]] / seen if at else 0.0

    weights: dict[str, Json] = {str(value): counts[value] for value in known}
    return Chosen(data={"kind": "empirical", "weights": weights}, ks=distance(ordered, cdf))


def _bisect(known: Sequence[int], value: int) -> int:
    low, high = 0, len(known)
    while low < high:
        middle = (low + high) // 2
        if known[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


def _formulas(ordered: Sequence[int]) -> Iterator[Chosen]:
    """Iterate over all formulas with their distances; parameters by moments."""
    n, low, high = len(ordered), ordered[0], ordered[-1]
    scaled_total, scaled_variance = spread(ordered)
    mean, deviation = rounded(scaled_total / (n * n)), rounded(sqrt(scaled_variance) / n)
    mean = min(max(mean, float(low)), float(high))
    logs = [ln(value) for value in ordered]
    mu, sigma = _moments(logs)
    bounds: dict[str, Json] = {"min": low, "max": high}

    def judged(data: dict[str, Json], cdf: Cdf, *, bounded: bool = True) -> Chosen:
        def of_whole(value: int) -> float:
            if value < (low if bounded else 1):
                return 0.0
            return 1.0 if bounded and value >= high else cdf(value + 0.5)

        return Chosen(data={**data, **(bounds if bounded else {})}, ks=distance(ordered, of_whole))

    yield judged({"kind": "uniform"}, lambda x: (x + 0.5 - low) / (high - low + 1))
    yield judged({"kind": "gaussian", "mean": mean, "std_dev": deviation}, lambda x: normal_cdf((x - mean) / deviation))
    yield judged({"kind": "exponential", "mean": mean}, lambda x: 1.0 - exp(-x / mean))
    if sigma:
        yield judged({"kind": "lognormal", "mu": mu, "sigma": sigma}, lambda x: normal_cdf((ln(x) - mu) / sigma))
    for share in _TAILS:
        tail = int(n * share)
        xm = ordered[n - tail] if tail else 0
        if tail < _LEAST_TAIL or xm == high or ordered[n - tail - 1] == xm:
            continue
        # Hill's estimator; the body's moments are those of the shorter values.
        alpha = rounded(tail / fsum(value - ln(xm) for value in logs[n - tail :]))
        body_mu, body_sigma = _moments(logs[: n - tail])
        weight = tail / n
        if not body_sigma or not 0.0 < alpha <= 1000.0:
            continue
        data: dict[str, Json] = {
            "kind": "pareto-lognormal",
            "alpha": alpha,
            "xm": xm,
            "mu": body_mu,
            "sigma": body_sigma,
            "mix_weight": weight,
        }

        def mixture(
            x: float, xm: int = xm, alpha: float = alpha, at: tuple[float, float, float] = (weight, body_mu, body_sigma)
        ) -> float:
            power = 1.0 - exp(alpha * (ln(xm) - ln(x))) if x > xm else 0.0
            return at[0] * power + (1.0 - at[0]) * normal_cdf((ln(x) - at[1]) / at[2])

        yield judged(data, mixture, bounded=False)


def _moments(logs: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation, rounded for a document."""
    mean = fsum(logs) / len(logs)
    return round(mean, 4), round(sqrt(fsum((value - mean) * (value - mean) for value in logs) / len(logs)), 4)
