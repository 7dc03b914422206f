"""Token counts: moments and quantiles against theory, bounds, and what is refused."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import PolicyError
from blis_tui.base.streams import Streams
from blis_tui.model import PluginConfig
from blis_tui.spec.shipped import builtin
from blis_tui.workload.distributions import LENGTHS, TokenCounts

DRAWS = 20_000


def create_lengths(lengths: PluginConfig) -> TokenCounts:
    return builtin().create(LENGTHS, lengths.kind, lengths.settings)


def sample(lengths: PluginConfig, count: int = DRAWS, seed: int = 5) -> list[int]:
    distribution = create_lengths(lengths)
    stream = Streams(seed).stream(lengths.kind)
    return [distribution.sample(stream) for _ in range(count)]


def lengths_of(kind: str, **params: float) -> PluginConfig:
    return PluginConfig(kind=kind, settings=params)


def test_uniform_lengths() -> None:
    counts = sample(lengths_of("uniform", min=800, max=1000))
    assert (min(counts), max(counts)) == (800, 1000)
    assert sum(counts) / DRAWS == pytest.approx(900, abs=4 * 58 / math.sqrt(DRAWS))
    with pytest.raises(PolicyError, match="uniform lengths from 10 to 9"):
        create_lengths(lengths_of("uniform", min=10, max=9))


def test_gaussian_lengths() -> None:
    counts = sample(lengths_of("gaussian", mean=500.0, std_dev=100.0, min=1, max=10_000))
    mean = sum(counts) / DRAWS
    assert mean == pytest.approx(500, abs=4 * 100 / math.sqrt(DRAWS))
    assert math.sqrt(sum((n - mean) ** 2 for n in counts) / DRAWS) == pytest.approx(100, rel=0.02)


def test_gaussian_lengths_gather_at_the_bounds() -> None:
    counts = sample(lengths_of("gaussian", mean=100.0, std_dev=50.0, min=50, max=150))
    assert (min(counts), max(counts)) == (50, 150)
    tail = 1 - 0.8413447  # beyond one deviation
    assert counts.count(50) / DRAWS == pytest.approx(tail, abs=0.012)
    assert counts.count(150) / DRAWS == pytest.approx(tail, abs=0.012)
    assert dict.fromkeys(sample(lengths_of("gaussian", mean=9.0, std_dev=50.0, min=7, max=7), 50)) == {7: None}


def test_exponential_lengths() -> None:
    counts = sample(lengths_of("exponential", mean=300.0))
    assert sum(counts) / DRAWS == pytest.approx(300, rel=4 / math.sqrt(DRAWS))
    assert sorted(counts)[DRAWS // 2] == pytest.approx(300 * math.log(2), rel=0.03)
    assert max(sample(lengths_of("exponential", mean=300.0, min=10, max=20))) == 20


def test_answers_that_end_by_themselves() -> None:
    """Their mean after the cut is the one that is given, or that of the source; some reach the limit, most do not."""
    for settings in ({"max": 1024, "mean": 771.0}, {"max": 1024}):
        counts = sample(lengths_of("until-eos", **settings))
        assert sum(counts) / DRAWS == pytest.approx(771, rel=4 * 0.4 / math.sqrt(DRAWS))
        # With a scale of 1,645 tokens, exp(-1024 / 1645) of them reach the limit.
        assert counts.count(1024) / DRAWS == pytest.approx(0.537, abs=0.02)
    assert max(sample(lengths_of("until-eos", max=50, mean=20))) == 50
    with pytest.raises(PolicyError, match="mean of until-eos lengths is 1024, max 1024"):
        create_lengths(lengths_of("until-eos", max=1024, mean=1024))


def test_lognormal_lengths() -> None:
    counts = sorted(sample(lengths_of("lognormal", mu=6.0, sigma=0.8)))
    for quantile, z in ((0.1, -1.2816), (0.5, 0.0), (0.9, 1.2816)):
        assert counts[int(quantile * DRAWS)] == pytest.approx(math.exp(6 + 0.8 * z), rel=0.04)


@pytest.mark.parametrize(
    ("settings", "middle", "p95"),
    [
        ({"mean": 350.0, "p95": 900.0}, None, 900),
        ({"mean": 350.0, "p95": 1350.0}, None, 1350),  # nearly the largest that there is: 3.868 times the mean
        ({"median": 250.0, "p95": 900.0}, 250, 900),
        ({"mu": math.log(250), "p95": 900.0}, 250, 900),
        ({"median": 250.0, "sigma": 0.5}, 250, 250 * math.exp(0.5 * 1.644853627)),
        ({"mean": 350.0, "p95": 350.0}, 350, 350),
    ],
)
def test_a_lognormal_by_figures_of_its_lengths(settings: dict[str, float], middle: float | None, p95: float) -> None:
    counts = sorted(sample(lengths_of("lognormal", **settings), 60_000))
    assert counts[57_000] == pytest.approx(p95, rel=0.025)
    if middle is not None:
        assert counts[30_000] == pytest.approx(middle, rel=0.02)
    if "mean" in settings:
        assert sum(counts) / len(counts) == pytest.approx(settings["mean"], rel=0.02)


@given(st.floats(1.0, 1e6), st.floats(1.0, 3.86))
def test_a_mean_and_p95_give_the_parameters_that_an_equation_solver_finds(mean: float, ratio: float) -> None:
    def excess(sigma: float) -> float:
        return math.log(mean) - sigma * sigma / 2 + 1.6448536269514722 * sigma - math.log(mean * ratio)

    made = create_lengths(lengths_of("lognormal", mean=mean, p95=mean * ratio))
    low, high = 0.0, 1.6448536269514722  # p95 grows with sigma up to there
    for _ in range(80):
        sigma = (low + high) / 2
        low, high = (sigma, high) if excess(sigma) < 0 else (low, sigma)
    assert made._sigma == pytest.approx(low, abs=2e-7)  # type: ignore[attr-defined]
    assert made._mu == pytest.approx(math.log(mean) - low * low / 2, abs=2e-7)  # type: ignore[attr-defined]


def test_two_percentiles_are_those_of_a_lognormal() -> None:
    given_ = {"p50": 250.0, "p95": 900.0}
    table = PluginConfig(kind="percentiles", settings={"values": given_})
    lognormal = PluginConfig(kind="lognormal", settings={"median": 250.0, "p95": 900.0})
    ours, theirs = create_lengths(table), create_lengths(lognormal)
    streams = [Streams(3).stream("lengths") for _ in range(2)]
    drawn = [(ours.sample(streams[0]), theirs.sample(streams[1])) for _ in range(2000)]
    assert max(abs(one - other) for one, other in drawn) <= 1


def test_sampled_percentiles_are_those_of_the_table() -> None:
    table = {"p5": 12, "p50": 180, "p90": 700, "p90.5": 2000, "p99": 2000}
    counts = sorted(sample(PluginConfig(kind="percentiles", settings={"values": table, "max": 2600}), 60_000))
    for name, value in table.items():
        at = float(name[1:]) / 100
        around = counts[int((at - 0.004) * 60_000)], counts[int((at + 0.004) * 60_000)]
        assert around[0] <= value <= around[1], name
    assert counts[-1] <= 2600


def test_histograms_have_their_counts_and_spread_them_evenly() -> None:
    settings = {"edges": (0, 100, 101, 400), "counts": (5, 0, 15)}
    counts = sample(PluginConfig(kind="histogram", settings=settings))
    assert sum(count < 100 for count in counts) / DRAWS == pytest.approx(0.25, abs=0.013)
    assert 100 not in counts
    assert max(counts) == 400
    assert sum(count >= 251 for count in counts) / DRAWS == pytest.approx(0.75 * 150 / 300, abs=0.014)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("lognormal", {"sigma": 1.0}, "need `mu`, `mean` or `median`"),
        ("lognormal", {"mean": 5.0}, "need `sigma` or `p95`"),
        ("lognormal", {"mean": 5.0, "median": 4.0, "sigma": 1.0}, "have both `mean` and `median`"),
        ("lognormal", {"mean": 5.0, "p95": 8.0, "sigma": 1.0}, "have both `sigma` and `p95`"),
        ("lognormal", {"median": 350.0, "p95": 300.0}, "p95 300 is below the median 350"),
        ("lognormal", {"mu": math.log(350), "p95": 300.0}, r"p95 300 is below the median, exp\(mu\) = 35"),
        ("lognormal", {"mean": 350.0, "p95": 300.0}, "p95 300 is below the mean 350"),
        ("lognormal", {"mean": 350.0, "p95": 1360.0}, "no lognormal has the mean 350 and the p95 1360"),
        ("percentiles", {"values": {"p50": 9.0}}, "one percentile"),
        ("percentiles", {"values": {"p90": 300.0, "p50": 400.0}}, "p90 300 is below p50, which is 400"),
        ("percentiles", {"values": {"p50": 3.0, "p50.0": 3.0}}, "p50.0 and p50 are the same"),
        ("histogram", {"edges": (0, 10, 10), "counts": (1, 2)}, "the edge 10 is not above 10"),
        ("histogram", {"edges": (0, 10, 20), "counts": (1,)}, "1 `counts` for the 2 bins between 3 `edges`"),
        ("histogram", {"edges": (0, 10), "counts": (0.0,)}, "all counts are zero"),
    ],
)
def test_figures_that_no_lengths_have_are_refused(kind: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        create_lengths(PluginConfig(kind=kind, settings=settings))


def test_a_mixture_has_a_power_tail() -> None:
    mixed = lengths_of("pareto-lognormal", alpha=1.5, xm=1000.0, mu=4.0, sigma=0.5, mix_weight=0.3)
    counts = sample(mixed)
    # The body stays below xm; the tail above 4000 holds (1000 / 4000) ** 1.5 = 1/8 of the Pareto part.
    assert sum(n < 1000 for n in counts) / DRAWS == pytest.approx(0.7, abs=0.013)
    assert sum(n >= 4000 for n in counts) / DRAWS == pytest.approx(0.3 / 8, abs=0.006)


def test_constant_lengths_draw_nothing() -> None:
    stream = Streams(0).stream("x")
    assert create_lengths(lengths_of("constant", value=17)).sample(stream) == 17
    assert stream.next_word() == Streams(0).stream("x").next_word()


def test_empirical_lengths_follow_their_weights() -> None:
    weights = {"50": 1.0, "10": 1.0, "20": 0.0, "30": 2.0, "40": -1.0}
    counts = sample(PluginConfig(kind="empirical", settings={"weights": weights}))
    assert sorted(dict.fromkeys(counts)) == [10, 30, 50]
    for tokens, share in ((10, 0.25), (30, 0.5), (50, 0.25)):
        assert counts.count(tokens) / DRAWS == pytest.approx(share, abs=0.014)


@pytest.mark.parametrize(
    "params",
    [
        {"mu": 20.0, "sigma": 200.0, "min": 0.0},
        {"mu": 1e6, "sigma": 0.0},
        {"mu": -1e6, "sigma": 0.0},
        {"mu": math.nan, "sigma": 0.0},
    ],
)
def test_overflows_count_as_one_token(params: Mapping[str, float]) -> None:
    counts = sample(PluginConfig(kind="lognormal", settings=params), 200)
    assert all(1 <= n <= 2**53 for n in counts)
    assert 1 in counts


@given(
    st.sampled_from(["gaussian", "exponential", "lognormal", "constant", "pareto-lognormal"]),
    st.floats(0.01, 1e6),
    st.floats(0.0, 10.0),
    st.integers(0, 100),
)
def test_every_length_is_a_positive_whole_number(kind: str, size: float, spread: float, seed: int) -> None:
    params: dict[str, dict[str, float]] = {
        "gaussian": {"mean": size, "std_dev": size * spread, "min": 1, "max": 10**9},
        "exponential": {"mean": size},
        "lognormal": {"mu": spread, "sigma": spread},
        "constant": {"value": size},
        "pareto-lognormal": {"alpha": 0.05 + spread, "xm": size, "mu": spread, "sigma": spread, "mix_weight": 0.5},
    }
    assert all(type(n) is int and n >= 1 for n in sample(lengths_of(kind, **params[kind]), 20, seed))


def test_unknown_distributions_name_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="no length distribution `normal`") as caught:
        create_lengths(lengths_of("normal"))
    assert (
        caught.value.help
        == f"known: {', '.join(plugin.name for plugin in builtin().of(LENGTHS.path))}; `--plugins` adds others"
    )


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (lengths_of("gaussian", mean=1.0), "length distribution `gaussian` lacks the setting `std_dev`"),
        (
            lengths_of("pareto-lognormal", alpha=0.0, xm=1.0, mu=1.0, sigma=1.0, mix_weight=0.5),
            "alpha of pareto-lognormal lengths is 0",
        ),
        (PluginConfig(kind="empirical", settings={"weights": {"5": 0.0}}), "empirical lengths have no positive weight"),
    ],
)
def test_incomplete_distributions_are_refused(lengths: PluginConfig, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        create_lengths(lengths)
