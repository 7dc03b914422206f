"""Distribution functions with the same bits on every machine, and distances between distributions."""

from __future__ import annotations

from math import frexp
from typing import TYPE_CHECKING, Final

from blis_tui.engine.portable_math import exp, gamma, ln

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
