"""Every shipped distribution and arrival process against scipy's, in 100,000 draws.

The Kolmogorov-Smirnov distance of so many draws from their distribution exceeds 1.95/sqrt(n) once in a thousand times;
the streams are fixed, so these are facts, not chances. Whole numbers are compared where they can differ: k tokens stand
for everything that rounds to k, k microseconds for everything from k up to k + 1.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from blis_tui.base.streams import Streams
from blis_tui.model import PluginConfig
from blis_tui.spec.shipped import builtin
from blis_tui.workload.arrivals import ARRIVALS, CLOSED_LOOP, create_gaps
from blis_tui.workload.distributions import LENGTHS

DRAWS = 100_000
LIMIT = 1.95 / math.sqrt(DRAWS)
RATE_PER_S = 40.0
Cdf = Callable[[np.ndarray], np.ndarray]


def distance(values: np.ndarray, cdf: Cdf) -> float:
    """The largest difference between the shares of values up to any whole number."""
    ordered = np.sort(values)
    seen = np.unique(ordered)
    shares = np.searchsorted(ordered, seen, side="right") / len(ordered)
    before = np.searchsorted(ordered, seen, side="left") / len(ordered)
    return float(max(np.max(np.abs(shares - cdf(seen))), np.max(np.abs(before - cdf(seen - 1)))))


def rounded(cdf: Cdf, low: float = 1, high: float = math.inf) -> Cdf:
    """Of lengths: rounded to whole numbers, what is beyond the bounds gathers there."""

    def of_whole(values: np.ndarray) -> np.ndarray:
        return np.where(values >= high, 1.0, np.where(values < low, 0.0, cdf(values + 0.5)))

    return of_whole


def mixture(x: np.ndarray) -> np.ndarray:
    body = stats.lognorm(0.7, scale=math.exp(5.0)).cdf(x)
    return 0.2 * stats.pareto(1.5, scale=900.0).cdf(x) + 0.8 * body


def table(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 4000, 1.0, np.where(x >= 90, 0.8, np.where(x >= 7, 0.5, 0.0)))


def between(x: np.ndarray) -> np.ndarray:
    """Lognormal pieces between percentiles, by scipy: the deviate of a length, then its probability."""
    deviates, logarithms = stats.norm.ppf([0.1, 0.5, 0.9, 0.99]), np.log([40.0, 300.0, 900.0, 5000.0])
    slopes = np.diff(deviates) / np.diff(logarithms)
    at = np.clip(np.searchsorted(logarithms, np.log(x)) - 1, 0, 2)
    return np.asarray(stats.norm.cdf(np.take(deviates, at) + slopes[at] * (np.log(x) - logarithms[at])))


def bins(x: np.ndarray) -> np.ndarray:
    """A quarter from 0 (as 1) to 9, the rest from 200 to 1,000, both included."""
    first = np.clip((x + 1) / 10, 0.0, 1.0) * 0.25
    return np.where(x < 1, 0.0, first + np.clip((x - 199) / 801, 0.0, 1.0) * 0.75)


UNCUT = float(
    optimize.brentq(lambda mean: integrate.quad(stats.expon(scale=mean).sf, 0.0, 1024.0)[0] - 771.0, 500, 5000)
)
"""The mean of exponential answers that have 771 tokens in the mean once they are cut at 1,024: what is longer counts as
1,024, so that mean is the integral of how many are longer, up to there."""

LENGTH_CASES: dict[str, tuple[dict[str, object], Cdf]] = {
    "constant": ({"value": 40}, lambda x: np.where(x >= 40, 1.0, 0.0)),
    "uniform": ({"min": 30, "max": 700}, lambda x: np.clip((x - 29) / 671, 0.0, 1.0)),
    "gaussian": (
        {"mean": 300.0, "std_dev": 150.0, "min": 20, "max": 600},
        rounded(stats.norm(300.0, 150.0).cdf, 20, 600),
    ),
    "lognormal": (
        {"mu": 5.5, "sigma": 1.1, "min": 10, "max": 5000},
        rounded(stats.lognorm(1.1, scale=math.exp(5.5)).cdf, 10, 5000),
    ),
    "exponential": ({"mean": 250.0, "max": 2000}, rounded(stats.expon(scale=250.0).cdf, 1, 2000)),
    "until-eos": ({"max": 1024, "mean": 771.0}, rounded(stats.expon(scale=UNCUT).cdf, 1, 1024)),
    "pareto-lognormal": (
        {"alpha": 1.5, "xm": 900.0, "mu": 5.0, "sigma": 0.7, "mix_weight": 0.2},
        rounded(mixture),
    ),
    "empirical": ({"weights": {"7": 5.0, "90": 3.0, "4000": 2.0}}, table),
    "percentiles": (
        {"values": {"p10": 40, "p50": 300, "p90": 900, "p99": 5000}, "max": 9000},
        rounded(between, 1, 9000),
    ),
    "histogram": ({"edges": [0, 10, 200, 1000], "counts": [2, 0, 6]}, bins),
}


def test_every_shipped_distribution_is_here() -> None:
    assert list(LENGTH_CASES) == [plugin.name for plugin in builtin().of(LENGTHS.path)]


@pytest.mark.parametrize("kind", LENGTH_CASES)
def test_lengths(kind: str) -> None:
    settings, cdf = LENGTH_CASES[kind]
    drawn = builtin().create(LENGTHS, kind, settings)
    stream = Streams(11).stream(f"workload/{kind}/input")
    values = np.array([drawn.sample(stream) for _ in range(DRAWS)], dtype=float)
    assert distance(values, cdf) < LIMIT


def weibull_shape(cv: float) -> float:
    """Whose coefficient of variation this is."""

    def excess(k: float) -> float:
        return float(special.gamma(1 + 2 / k) / special.gamma(1 + 1 / k) ** 2 - 1 - cv * cv)

    return float(optimize.brentq(excess, 0.2, 50.0))


def gaps_of(kind: str, cv: float) -> Cdf:
    mean = 1e6 / RATE_PER_S
    if kind == "constant":
        return lambda x: np.where(x >= int(mean), 1.0, 0.0)
    if kind == "gamma":
        return lambda x: stats.gamma(1 / cv**2, scale=mean * cv**2).cdf(x + 1)
    if kind == "weibull":
        k = weibull_shape(cv)
        return lambda x: stats.weibull_min(k, scale=mean / special.gamma(1 + 1 / k)).cdf(x + 1)
    return lambda x: stats.expon(scale=mean).cdf(x + 1)


ARRIVAL_CASES = [
    ("poisson", 1.0),
    ("constant", 0.0),
    ("gamma", 0.3),
    ("gamma", 2.5),
    ("weibull", 0.3),
    ("weibull", 2.5),
]


def test_every_shipped_process_is_here() -> None:
    shipped = [plugin.name for plugin in builtin().of(ARRIVALS.path) if plugin.name != CLOSED_LOOP]
    assert list(dict.fromkeys(kind for kind, _ in ARRIVAL_CASES)) == shipped


@pytest.mark.parametrize(("kind", "cv"), ARRIVAL_CASES)
def test_arrivals(kind: str, cv: float) -> None:
    config = PluginConfig(kind=kind, settings={"cv": cv} if kind in ("gamma", "weibull") else {})
    drawn = create_gaps(builtin(), config, RATE_PER_S)
    stream = Streams(13).stream(f"workload/{kind}-{cv}/arrivals")
    gaps = np.array([drawn.sample(stream) for _ in range(DRAWS)], dtype=float)
    assert distance(gaps, lambda x: np.where(x < 1, 0.0, gaps_of(kind, cv)(x))) < LIMIT
    assert 1e6 / np.mean(gaps) == pytest.approx(RATE_PER_S, rel=4 * cv / math.sqrt(DRAWS) + 1e-4)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(cv, rel=0.04, abs=1e-6)
