"""Portable ln, exp and gamma against ``math``, and bits that must never change."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.portable_math import exp, gamma, ln, power

LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324


def ulps(found: float, expected: float) -> float:
    """Distance in units in the last place of ``expected``."""
    return 0.0 if found == expected else abs(found - expected) / math.ulp(expected)


@given(st.floats(min_value=SMALLEST, max_value=LARGEST))
def test_ln_is_within_one_ulp_of_libm(x: float) -> None:
    assert ulps(ln(x), math.log(x)) <= 1.0


@given(st.floats(min_value=-1e-3, max_value=1e-3))
def test_ln_is_accurate_around_one(x: float) -> None:
    assert ulps(ln(1.0 + x), math.log(1.0 + x)) <= 1.0


@given(st.floats(min_value=-745.2, max_value=709.78))
def test_exp_is_within_one_ulp_of_libm(x: float) -> None:
    assert ulps(exp(x), math.exp(x)) <= 1.0


@given(st.floats(min_value=-745.2, max_value=-700.0))
def test_exp_is_accurate_down_to_the_smallest_subnormal(x: float) -> None:
    assert ulps(exp(x), math.exp(x)) <= 1.0


def test_a_dense_grid_agrees_with_libm() -> None:
    for step in range(1, 40_000):
        x = step / 4096
        assert ulps(ln(x), math.log(x)) <= 1.0
        assert ulps(exp(x - 5.0), math.exp(x - 5.0)) <= 1.0


def test_powers_of_two_and_one() -> None:
    assert ln(1.0) == 0.0
    assert exp(0.0) == exp(-0.0) == 1.0
    for exponent in range(-1074, 1024):
        x = math.ldexp(1.0, exponent)
        assert ulps(ln(x), math.log(x)) <= 1.0


def test_ends_of_the_range() -> None:
    assert ln(math.inf) == math.inf
    assert math.isnan(ln(math.nan))
    assert ulps(ln(SMALLEST), math.log(SMALLEST)) <= 1.0
    assert exp(709.782712893384) == pytest.approx(LARGEST, rel=1e-12)
    assert exp(709.7827128933841) == math.inf
    assert exp(math.inf) == math.inf
    assert exp(-746.0) == exp(-math.inf) == 0.0
    assert exp(-745.13) == SMALLEST
    assert math.isnan(exp(math.nan))


@pytest.mark.parametrize("x", [0.0, -0.0, -1.0, -math.inf])
def test_ln_and_gamma_of_what_is_not_positive(x: float) -> None:
    with pytest.raises(ValueError, match=r"ln of "):
        ln(x)
    with pytest.raises(ValueError, match=r"gamma of "):
        gamma(x)


@given(st.floats(min_value=0.01, max_value=170.0))
def test_gamma_agrees_with_libm(x: float) -> None:
    assert gamma(x) == pytest.approx(math.gamma(x), rel=4e-13)


def test_gamma_of_whole_numbers_is_a_factorial() -> None:
    for n in range(1, 21):
        assert gamma(float(n)) == pytest.approx(math.factorial(n - 1), rel=3e-14)
    assert gamma(200.0) == math.inf


@given(st.floats(min_value=1e-6, max_value=1.0), st.floats(min_value=0.1, max_value=20.0))
def test_power_agrees_with_libm(base: float, exponent: float) -> None:
    assert power(base, exponent) == pytest.approx(base**exponent, rel=1e-13)


# Known answers: a change of any of these bits changes every generated workload.
@pytest.mark.parametrize(
    ("found", "bits"),
    [
        (ln(0.37), "-0x1.fd0ea24bf89b8p-1"),
        (ln(1e-3), "-0x1.ba18a998fffa0p+2"),
        (ln(123456.789), "0x1.77281cad8a844p+3"),
        (exp(-3.3), "0x1.2e259bb85be85p-5"),
        (exp(5.123), "0x1.4fad1f4f11f64p+7"),
        (exp(-744.0), "0x0.0000000000002p-1022"),
        (gamma(1.7), "0x1.d1391892f7af5p-1"),
    ],
)
def test_known_answers(found: float, bits: str) -> None:
    assert found.hex() == bits
