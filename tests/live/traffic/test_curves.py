"""Distribution functions and distances, against scipy."""

import numpy as np
import pytest
from scipy import special, stats

from blis_tui.live.traffic.kinds import distance, distance_of_samples, gamma_cdf, ln_gamma, normal_cdf


@pytest.mark.parametrize("shape", [0.01, 0.3, 0.5, 1.0, 2.5, 17.0, 400.0, 10_000.0])
def test_gamma(shape: float) -> None:
    assert ln_gamma(shape) == pytest.approx(float(special.gammaln(shape)), rel=1e-10, abs=1e-10)
    for x in (1e-6, 0.1 * shape, 0.9 * shape, shape, 1.1 * shape + 0.5, 3 * shape + 9):
        assert gamma_cdf(shape, x) == pytest.approx(float(special.gammainc(shape, x)), abs=1e-9)
    assert gamma_cdf(shape, 0.0) == 0.0


@pytest.mark.parametrize("z", [-40.0, -6.0, -1.0, -1e-9, 0.0, 0.3, 2.0, 8.0])
def test_normal(z: float) -> None:
    assert normal_cdf(z) == pytest.approx(float(special.ndtr(z)), abs=1e-12)


def test_the_distance_from_a_distribution() -> None:
    sample = np.sort(np.random.default_rng(1).poisson(9, 3000))
    # Of whole numbers, scipy's test wants the jumps smeared: uniform within each.
    counts = stats.ecdf(sample).cdf
    values = np.arange(-1, 40)
    expected = np.max(np.abs(counts.evaluate(values) - stats.poisson.cdf(values, 8.5)))
    assert distance([int(x) for x in sample], lambda k: float(stats.poisson.cdf(k, 8.5))) == pytest.approx(expected)


def test_the_distance_of_many_different_values_is_near() -> None:
    sample = np.sort(np.random.default_rng(1).exponential(1e6, 30_000).astype(int))
    expected = stats.kstest(sample, stats.expon(scale=1.1e6).cdf).statistic
    assert distance([int(x) for x in sample], lambda k: float(stats.expon.cdf(k + 1, scale=1.1e6))) == pytest.approx(
        expected, abs=2e-3
    )


def test_the_distance_of_two_samples() -> None:
    rng = np.random.default_rng(2)
    one, other = np.sort(rng.poisson(5, 700)), np.sort(rng.poisson(6, 300))
    found = distance_of_samples([int(x) for x in one], [int(x) for x in other])
    assert found == pytest.approx(stats.ks_2samp(one, other).statistic)
