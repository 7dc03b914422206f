"""Logarithm, exponential and gamma function that give the same bits on every machine.

``math.log`` and related functions call the platform's libm, whose last bit differs between systems. This module uses
only IEEE-754 ``+ - * /`` and ``sqrt``, which are correctly rounded everywhere, and exact scalings by powers of two.
``ln`` and ``exp`` stay within one unit in the last place of the true value.

Methods: ``ln`` reduces to ``[sqrt(1/2), sqrt(2))`` and sums the area-tangent series. ``exp`` reduces to 1/64 of a
binary octave with a table of 32nd roots of two (P. T. P. Tang, ACM TOMS 15, 1989), computed at import in integers.
``gamma`` is Stirling's series after shifting the argument up. ``normal_quantile`` is algorithm AS 241 (M. J. Wichura,
Applied Statistics 37, 1988): rational functions of the probability in the middle, of its logarithm's root in the tails.
"""

from __future__ import annotations

from math import frexp, inf, isqrt, ldexp, sqrt
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

_SQRT_HALF: Final = 0.7071067811865476
# ln 2 in two parts: the first has 32 significant bits, so that its product with any exponent is exact.
_LN2_HIGH: Final = float.fromhex("0x1.62E42FEE00000p-1")
_LN2_LOW: Final = float.fromhex("0x1.A39EF35793C76p-33")

_STEPS: Final = 32
_STEPS_PER_LN2: Final = float.fromhex("0x1.71547652B82FEp5")
# ln 2 / 32, split in the same way: quotients stay below 2**16.
_STEP_HIGH: Final = _LN2_HIGH / _STEPS
_STEP_LOW: Final = _LN2_LOW / _STEPS
_LARGEST_EXP: Final = 709.782712893384
_SMALLEST_EXP: Final = -745.1332191019412
_ROUNDER: Final = float.fromhex("0x1.8p52")
"""Adding and then subtracting this rounds to a whole number."""

_SUBNORMAL_SHIFT: Final = 64
_SMALLEST_NORMAL_EXPONENT: Final = -1022

_HALF_LN_2PI: Final = 0.9189385332046728
_STIRLING_FROM: Final = 16.0


def _roots_of_two() -> tuple[tuple[float, float], ...]:
    """``2 ** (j / 32)`` for j in 0..31 as sums of two doubles, from integer square roots of 256 bits."""
    one = 1 << 256
    root = 2 * one
    for _ in range(5):
        root = isqrt(root * one)
    table = []
    power = one
    for _ in range(_STEPS):
        high = power >> (256 - 52)
        if (power >> (256 - 53)) & 1:
            high += 1
        rest = power - (high << (256 - 52))
        table.append((ldexp(float(high), -52), ldexp(float(rest >> 64), 64 - 256)))
        power = power * root // one
    return tuple(table)


_ROOTS: Final = _roots_of_two()


def ln(x: float) -> float:
    """The natural logarithm of a positive number.

    With ``x = m * 2**e``, ``f = m - 1`` and ``s = f / (2 + f)``, ``ln m = 2 artanh s = f - s * (f - R)``
    where ``R = 2 s**2 / 3 + 2 s**4 / 5 + ...``: the leading term is exact, only the small correction is
    rounded.

    Raises:
        ValueError: ``x`` is zero or negative.
    """
    if not 0.0 < x < inf:
        if x <= 0.0:
            raise ValueError(f"ln of {x}")
        return x
    m, e = frexp(x)
    if m < _SQRT_HALF:
        m += m
        e -= 1
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 2 / 13 + z * (2 / 15 + z * (2 / 17 + z * (2 / 19 + z * (2 / 21))))
    series = 2 / 5 + z * (2 / 7 + z * (2 / 9 + z * (2 / 11 + z * series)))
    series = z * (2 / 3 + z * series)
    if not e:
        return f - s * (f - series)
    return e * _LN2_HIGH - ((s * (f - series) - e * _LN2_LOW) - f)


def exp(x: float) -> float:
    """Return e to the power of ``x``: 0.0 below the smallest subnormal, infinity above the largest double.

    ``x = n * ln2 / 32 + r`` with ``|r| <= ln2 / 64``, so ``exp(x) = 2**(n // 32) * 2**((n % 32) / 32) *
    exp(r)``, the second factor from a table and the third from a short Taylor series.
    """
    if not _SMALLEST_EXP <= x <= _LARGEST_EXP:
        if x > _LARGEST_EXP:
            return inf
        return 0.0 if x < _SMALLEST_EXP else x
    rounded = (x * _STEPS_PER_LN2 + _ROUNDER) - _ROUNDER
    r = (x - rounded * _STEP_HIGH) - rounded * _STEP_LOW
    n = int(rounded)
    high, low = _ROOTS[n & 31]
    series = r + r * r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720)))))
    value = high + (low + (high + low) * series)
    exponent = n >> 5
    if exponent >= _SMALLEST_NORMAL_EXPONENT:
        # 2**1024 overflows a double.
        return value * 2.0 * ldexp(1.0, exponent - 1) if exponent > 0 else value * ldexp(1.0, exponent)
    # Round once, at the end: platforms' own ldexp do not agree on subnormals.
    return value * ldexp(1.0, exponent + _SUBNORMAL_SHIFT) * ldexp(1.0, -_SUBNORMAL_SHIFT)


def power(base: float, exponent: float) -> float:
    """``base ** exponent`` for a positive base; its relative error grows with ``|exponent * ln base|``."""
    return exp(exponent * ln(base))


def gamma(x: float) -> float:
    """The gamma function of a positive number, to about 2e-13 relative (2e-14 below 20); infinity above 171.

    Raises:
        ValueError: ``x`` is zero or negative.
    """
    if x <= 0.0:
        raise ValueError(f"gamma of {x}")
    shift = 1.0
    z = x
    while z < _STIRLING_FROM:
        shift *= z
        z += 1.0
    w = 1.0 / (z * z)
    series = 1 / 1260 - w * (1 / 1680 - w * (1 / 1188 - w * (691 / 360360)))
    series = (1 / 12 - w * (1 / 360 - w * series)) / z
    # z**(z - 1/2) as a product of two halves keeps the argument of exp, and so its error, small.
    half = exp((z - 0.5) * ln(z) * 0.5 - z * 0.5)
    return half * (exp(_HALF_LN_2PI + series) / shift) * half


_Polynomials: TypeAlias = "tuple[tuple[float, ...], tuple[float, ...]]"
"""Numerator and denominator, from the highest power down. Named, because mypyc loses a tuple of so many floats."""
_MIDDLE: Final[_Polynomials] = (
    (
        *(2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457),
        *(13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    ),
    (
        *(5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867),
        *(5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
    ),
)
_NEAR_TAIL: Final[_Polynomials] = (
    (
        *(7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258),
        *(3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    ),
    (
        *(1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459),
        *(0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
    ),
)
_FAR_TAIL: Final[_Polynomials] = (
    (
        *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093),
        *(0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    ),
    (
        *(2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4),
        *(0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
    ),
)


def normal_quantile(p: float) -> float:
    """What a normal deviate with mean 0 and variance 1 is below with probability ``p``, to about 1e-15.

    Raises:
        ValueError: ``p`` is not between 0 and 1.
    """
    if not 0.0 < p < 1.0:
        raise ValueError(f"quantile of {p}")
    q = p - 0.5
    if -0.425 <= q <= 0.425:
        return q * _rational(_MIDDLE, 0.180625 - q * q)
    root = sqrt(-ln(p if q < 0.0 else 1.0 - p))
    beyond = _rational(_NEAR_TAIL, root - 1.6) if root <= _FAR_ROOT else _rational(_FAR_TAIL, root - _FAR_ROOT)
    return -beyond if q < 0.0 else beyond


_FAR_ROOT: Final = 5.0


def _rational(pair: _Polynomials, x: float) -> float:
    top, bottom = 0.0, 0.0
    for high, low in zip(*pair, strict=True):
        top, bottom = top * x + high, bottom * x + low
    return top / bottom


def whole_sum(values: Iterable[int]) -> int:
    """Return the sum of integers; a sum of floats would depend on the version of Python."""
    return sum(values)
