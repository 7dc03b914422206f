"""Statistics of series, against their definitions worked out the long way, and what is known of random numbers."""

import math
import random
from array import array
from functools import cache
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.results.stationary import (
    BATCHES,
    Batches,
    Flux,
    Ratio,
    Sample,
    drift,
    exceeded_by,
    lasting,
    mser5,
    ratio,
    trend,
)

SERIES = st.lists(st.floats(0, 1000), min_size=0, max_size=200)


def test_what_grows_in_proportion_to_time_grows_by_four_thirds() -> None:
    found = trend([float(at) for at in range(4000)])
    assert found.growth == pytest.approx(4 / 3, rel=0.01)
    assert found.z == pytest.approx(10)  # the trend within each quarter counts as error


@given(st.floats(0, 1e6), st.integers(0, 500))
def test_what_stays_the_same_does_not_grow(value: float, many: int) -> None:
    found = trend([value] * many)
    assert (found.growth, found.z) == (0.0, 0.0) or abs(found.growth) < 1e-12


def test_a_beginning_that_is_empty_is_no_growth() -> None:
    found = trend([0.0] * 50 + [7.0] * 150)
    assert (found.before, found.after, found.growth) == (7.0, 7.0, 0.0)


def test_chance_is_called_growth_as_rarely_as_its_error_says() -> None:
    above = 0
    for number in range(400):
        draw = random.Random(number)  # noqa: S311
        above += trend([draw.gauss(100, 10) for _ in range(200)]).z > 2
    assert above / 400 < 0.06  # 4 % by Student's t with 8 degrees of freedom, and chance


def queue(load: float, seed: int, *, stretches: int = 30, services: int = 10) -> list[Flux]:
    """What comes to and leaves a queue that serves one request per unit of time, if it has any, in each stretch."""
    draw, waiting, fluxes = random.Random(seed), 0, []  # noqa: S311
    for _ in range(stretches):
        came = left = 0
        for _ in range(services):
            arrived = sum(draw.random() < load / 20 for _ in range(20))
            served = min(1, waiting + arrived)
            waiting, came, left = waiting + arrived - served, came + arrived, left + served
        fluxes.append(Flux(came, left))
    return fluxes


def test_a_queue_below_its_capacity_is_seldom_called_growing() -> None:
    """Though its length is, by the same errors, in every tenth run."""
    lengths, gains = 0, 0
    for seed in range(300):
        fluxes = queue(0.9, seed)
        length = [float(sum(one.came - one.left for one in fluxes[: at + 1])) for at in range(len(fluxes))]
        lengths += trend(length).z > 2.5
        gains += drift(fluxes).z > 2.5
    assert gains == 0
    assert lengths > 30


def test_a_queue_above_its_capacity_grows() -> None:
    assert min(drift(queue(1.3, seed, services=40)).z for seed in range(50)) > 2.5


def test_the_dispersion_of_poisson_arrivals_is_one() -> None:
    found = [drift(queue(0.5, seed)).dispersion for seed in range(100)]
    assert fmean(found) == pytest.approx(0.975, rel=0.05)  # of twenty draws with a probability of 1/40
    assert drift([Flux(4, 4)] * 30) == (0.0, 0.0)
    assert drift([Flux(4, 3)] * 30).z == math.inf
    assert drift([Flux(0, 0)] * 30) == (0.0, 0.0)


def brute_mser5(values: list[float]) -> int:
    """Try every truncation."""
    count = len(values) // 5
    groups = [fmean(values[5 * at : 5 * at + 5]) for at in range(count)]
    scores = {at: pvariance(groups[at:]) / (count - at) for at in range(count - 4)}
    if not scores:
        return 0
    least = min(scores.values())
    # Equal scores differ in their last digits, depending on how they are summed.
    place = min(at for at, score in scores.items() if score <= least * (1 + 1e-9) + 1e-12)
    return 5 * place if 2 * place <= count else len(values)


@given(SERIES)
def test_a_transient_ends_where_the_rest_is_known_best(values: list[float]) -> None:
    found, wanted = mser5(values), brute_mser5(values)
    if found != wanted:  # then both truncations are equally good
        assert wanted <= found
        count = len(values) // 5
        groups = [fmean(values[5 * at : 5 * at + 5]) for at in range(count)]
        ends = [min(at // 5, count - 1) for at in (found, wanted)]
        one, other = (pvariance(groups[at:]) / (count - at) for at in ends)
        assert found == len(values) or one == pytest.approx(other, rel=1e-6, abs=1e-9)


def test_a_transient_that_is_seen_is_left_out() -> None:
    draw = random.Random(1)  # noqa: S311
    rising = [100.0 * (1 - math.exp(-at / 20)) for at in range(100)] + [100.0] * 300
    found = mser5([one + draw.gauss(0, 1) for one in rising])
    assert 60 <= found <= 140
    assert mser5([float(at) for at in range(200)]) == 200  # it has not ended


def test_a_ratio_is_that_of_its_sums() -> None:
    samples = [Sample(at, float(at % 3 == 0), 1.0) for at in range(1, 301)]
    found = ratio(samples, 100, 300)
    assert found.weight == 200
    assert found.value == len([at for at in range(101, 301) if at % 3 == 0]) / 200
    assert ratio(samples, 300, 400).weight == 0


@cache
def uniform(seed: int) -> tuple["array[int]", "array[float]"]:
    """Random times, and a number between 0 and 1 for each."""
    draw = random.Random(seed)  # noqa: S311
    pairs = [(draw.randint(1, 10_000), draw.random()) for _ in range(2000)]
    return array("l", [at for at, _ in pairs]), array("d", [number for _, number in pairs])


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_errors_of_a_ratio_hold_as_often_as_they_say(share: float) -> None:
    """Of independent samples at random times, an interval of two errors has the true share 9 or 10 times in 10."""
    inside = 0
    for number in range(300):
        samples = [Sample(at, float(drawn < share), 1.0) for at, drawn in zip(*uniform(number), strict=True)]
        found = ratio(samples, 0, 10_000)
        inside += abs(found.value - share) <= 2.26 * found.error  # Student's t with BATCHES - 1 degrees of freedom
    assert BATCHES == 10
    assert 0.91 <= inside / 300 <= 0.99


def test_samples_that_come_in_bursts_have_larger_errors() -> None:
    """Batch means see what is alike in neighbours, which counting them as independent would not."""
    alone = [Sample(at, float(at % 10 == 0), 1.0) for at in range(1, 10_001)]
    bursts = [Sample(at, float(at % 2000 < 200), 1.0) for at in range(1, 10_001)]
    assert ratio(alone, 0, 10_000).value == ratio(bursts, 0, 10_000).value == 0.1
    assert ratio(bursts, 0, 10_000).error > 5 * math.sqrt(0.09 / 10_000)
    assert ratio(alone, 0, 10_000).error < math.sqrt(0.09 / 10_000)


@cache
def normal(seed: int, count: int = 2001) -> "array[float]":
    """Standard normal numbers, drawn once for all tests that look at them in other ways."""
    generator = random.Random(seed)  # noqa: S311  (no secret)
    return array("d", [generator.gauss(0.0, 1.0) for _ in range(count)])


def slowly_varying(seed: int, memory: float) -> Ratio:
    """The share of late requests in a stretch, under a load that forgets what it was over that part of the stretch."""
    draws = iter(normal(seed))
    count = 2000
    kept = math.exp(-1.0 / (memory * count))
    load, samples = next(draws), []
    for number in range(1, count + 1):
        load = kept * load + math.sqrt(1.0 - kept * kept) * next(draws)
        samples.append(Sample(number, float(load > 1.0), 1.0))
    return ratio(samples, 0, count)


@pytest.mark.parametrize("memory", [0.2, 0.4])
def test_errors_count_that_batches_of_a_lasting_load_resemble_each_other(memory: float) -> None:
    """The share is 15.9 % in the long run: of 200 stretches, more have it within two errors, if not all that should.

    All of this load lasts; of one of which a part is forgotten at once, the errors need less.
    """
    truth = 0.5 * math.erfc(1.0 / math.sqrt(2.0))
    ratios = [slowly_varying(seed, memory) for seed in range(200)]

    def inside(estimates: list[Ratio]) -> float:
        return fmean(abs(estimate.value - truth) <= 2.0 * estimate.error for estimate in estimates)

    widened = [lasting(one, memory) for one in ratios]
    assert inside(widened) > inside(ratios) + 0.08


def test_a_load_that_is_soon_forgotten_has_the_errors_of_its_batches() -> None:
    found = slowly_varying(1, 0.01)
    assert lasting(found, 0.01) == found
    assert lasting(found, 0.5).error == pytest.approx(found.error * math.sqrt(5.0))


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.sampled_from([0.01, 0.05, 0.1, 0.5]))
def test_no_more_than_the_share_exceeds_what_it_may_exceed(values: list[float], share: float) -> None:
    ordered = sorted(values)
    limit = exceeded_by(ordered, share)
    assert len([value for value in values if value > limit]) <= share * len(values)
    assert len([value for value in values if value >= limit]) > share * len(values)


def latencies(seed: int, *, spread: float, memory: float, count: int = 1000) -> list[tuple[int, float]]:
    """Latencies whose logarithms are normal, half of whose variance is that of a load that lasts."""
    draws = iter(normal(seed, 2 * count + 1))
    kept = math.exp(-1.0 / (memory * count))
    load, samples = next(draws), []
    for number in range(1, count + 1):
        load = kept * load + math.sqrt(1.0 - kept * kept) * next(draws)
        own = next(draws)
        samples.append((number, math.exp(spread * (load + own) / math.sqrt(2.0))))
    return samples


@pytest.mark.parametrize(("spread", "rarely"), [(0.05, 0.02), (1.0, 0.05)])
@pytest.mark.parametrize("memory", [0.001, 0.02, 0.1])
def test_a_percentile_is_called_surely_within_its_bound_as_rarely_as_its_error_says(
    spread: float, rarely: float, memory: float
) -> None:
    """The bound is what the percentile is in the long run.

    By Student's t with nine degrees of freedom, 0.16 % are below it by four errors. More are if the load lasts, 1 %, or
    if latencies differ by a factor of five, as the percentiles of batches are skewed then, 3 to 4 %.
    """
    truth = math.exp(1.6449 * spread)
    found = [Batches(latencies(seed, spread=spread, memory=memory), 0, 1000).percentile(0.05) for seed in range(300)]
    widened = [lasting(percentile, 3 * memory) for percentile in found]  # all of this load lasts
    below = fmean(percentile.value + 4.0 * percentile.error < truth for percentile in widened)
    assert below <= rarely
    assert fmean(percentile.value for percentile in found) == pytest.approx(truth, rel=0.15 * spread)


def test_a_percentile_is_not_known_where_a_batch_is_empty_or_has_no_end() -> None:
    samples = latencies(1, spread=0.5, memory=0.01)
    assert Batches(samples, 0, 1000).percentile(0.05).weight == 1000
    assert Batches(samples[:890], 0, 1000).percentile(0.05).error == math.inf
    assert Batches([], 0, 1000).percentile(0.05) == Ratio(0.0, math.inf, 0.0)
    waiting = [*samples[:990], *((at, math.inf) for at, _ in samples[990:])]
    assert Batches(waiting, 0, 1000).percentile(0.05)[:2] == (math.inf, math.inf)
    assert Batches(samples, 100, 1000).percentile(0.05).weight == 900


@given(
    st.lists(st.tuples(st.integers(-10, 110), st.one_of(st.integers(0, 20).map(float), st.just(math.inf)))),
    st.integers(0, 20),
)
def test_the_share_above_a_bound_is_the_ratio_of_its_samples(samples: list[tuple[int, float]], bound: int) -> None:
    above = [Sample(at_us, float(value > bound), 1.0) for at_us, value in samples]
    assert Batches(samples, 0, 100).share_above(bound) == ratio(above, 0, 100)
