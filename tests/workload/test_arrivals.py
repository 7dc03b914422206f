"""Gaps between arrivals: moments against theory, units, and what is refused."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.api import load
from blis_tui.base.errors import PolicyError, SpecError
from blis_tui.base.streams import Streams
from blis_tui.model import PluginConfig
from blis_tui.spec.shipped import builtin
from blis_tui.workload.arrivals import ARRIVALS, CLOSED_LOOP, create_gaps

DRAWS = 20_000
KINDS = [plugin.name for plugin in builtin().of(ARRIVALS.path) if plugin.name != CLOSED_LOOP]


def sample(kind: str, rate_per_s: float, cv: float = 1.0, count: int = DRAWS) -> list[int]:
    settings = {"cv": cv} if kind in ("gamma", "weibull") else {}
    gaps = create_gaps(builtin(), PluginConfig(kind=kind, settings=settings), rate_per_s)
    stream = Streams(3).stream(f"{kind}/{cv}")
    return [gaps.sample(stream) for _ in range(count)]


@pytest.mark.parametrize(
    ("kind", "cv", "realised"),
    [
        ("poisson", 1.0, 1.0),
        ("constant", 1.0, 0.0),
        ("gamma", 1.0, 1.0),
        ("gamma", 0.25, 0.25),
        ("gamma", 2.0, 2.0),
        ("weibull", 1.0, 1.0),
        ("weibull", 0.5, 0.5),
        ("weibull", 2.0, 2.0),
    ],
)
def test_mean_and_variation_are_those_declared(kind: str, cv: float, realised: float) -> None:
    gaps = sample(kind, 50.0, cv)
    mean = sum(gaps) / DRAWS
    assert mean == pytest.approx(20_000, rel=4 * realised / math.sqrt(DRAWS) + 1e-4)
    deviation = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / DRAWS)
    assert deviation / mean == pytest.approx(realised, rel=0.08)


def test_a_weibull_with_cv_one_is_exponential() -> None:
    gaps = sorted(sample("weibull", 1.0))
    distance = max(abs((rank + 0.5) / DRAWS - (1 - math.exp(-gap / 1e6))) for rank, gap in enumerate(gaps))
    assert distance < 1.95 / math.sqrt(DRAWS)  # Kolmogorov-Smirnov at 0.1 %


def test_constant_gaps_are_truncated() -> None:
    assert sample("constant", 3.0, count=2) == [333_333, 333_333]


@given(st.sampled_from(KINDS), st.floats(1e-3, 1e9), st.floats(0.05, 8.0))
def test_gaps_are_whole_and_at_least_a_microsecond(kind: str, rate: float, cv: float) -> None:
    assert all(type(gap) is int and gap >= 1 for gap in sample(kind, rate, cv, count=20))


def test_gamma_arrivals_are_as_bursty_as_they_say() -> None:
    """They do not become Poisson beyond some CV, as in BLIS: a document cannot have a larger one."""
    gaps = sample("gamma", 0.01, 10)
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(10, rel=0.3)
    client = {"id": "c", "arrivals": {"kind": "gamma", "cv": 10.1}, "input_tokens": 9, "output_tokens": 9}
    with pytest.raises(SpecError, match="`cv` must be at most 10"):
        load("quickstart", set={"workload": {"requests": 5, "rate_per_s": 1, "clients": [client]}})


def test_unknown_processes_name_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="no arrival process `fractal`") as caught:
        create_gaps(builtin(), PluginConfig(kind="fractal"), 1.0)
    assert caught.value.help == "known: poisson, constant, gamma, weibull, closed-loop; `--plugins` adds others"


@pytest.mark.parametrize(("rate", "cv"), [(0.0, 1.0), (-1.0, 1.0), (math.inf, 1.0), (1.0, 0.0), (1.0, math.nan)])
def test_impossible_figures_are_refused(rate: float, cv: float) -> None:
    with pytest.raises(PolicyError, match="of gamma arrivals is"):
        create_gaps(builtin(), PluginConfig(kind="gamma", settings={"cv": cv}), rate)
