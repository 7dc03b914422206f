"""What requests show of bounds, counted again from the rows of the finished run."""

from __future__ import annotations

import random
from array import array
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import blis_tui
from blis_tui.model import Expectation
from blis_tui.results.expectations import look_up
from blis_tui.study.bounds import scope_of
from blis_tui.study.samples import MARGIN, Latencies, samples_of

if TYPE_CHECKING:
    from blis_tui.runs.simulation import Simulation

SET = {
    "workload.requests": 300,
    "workload.rate_per_s": 12,
    "workload.clients.0.output_tokens": 100,
    "engine.max_num_seqs": 4,
    "latency": "roofline",
    "policy": "blis",
    "slo_targets": {"standard": {"ttft_ms": 700, "e2e_ms": 1500}},
}


def finished(**more: Any) -> Simulation:
    values = {**SET, **more}
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=values))
    simulation.run()
    return simulation


@pytest.fixture(scope="module")
def run() -> Simulation:
    return finished()


def beyond(simulation: Simulation, metric: str, **bound: float) -> tuple[float, float]:
    """The ratio of one bound over the whole run, and its limit."""
    bound_samples, _ = samples_of(simulation, [Expectation(metric=metric, **bound)])
    bound_samples.tick(simulation.now_us)
    log = simulation.log
    bound_samples.ended(log.rows(0), log.groups())
    ratio = bound_samples.estimate(-1, simulation.now_us)
    return ratio.value, bound_samples.limit


def figure_of(simulation: Simulation, metric: str) -> float:
    figure = look_up(metric, simulation.report().to_dict())
    assert isinstance(figure, float)
    return figure


@pytest.mark.parametrize("latency", ["ttft_ms", "e2e_ms", "scheduling_delay_ms", "tpot_ms"])
@pytest.mark.parametrize("percent", [50, 90, 99])
def test_a_share_is_within_its_limit_where_the_percentile_is_within_its_bound(
    run: Simulation, latency: str, percent: int
) -> None:
    figure = figure_of(run, f"latency.{latency}.p{percent}")
    for factor, within in ((1.02, True), (0.98, False)):
        share, limit = beyond(run, f"latency.{latency}.p{percent}", max=factor * figure)
        assert limit == pytest.approx(1 - percent / 100)
        assert (share <= limit) is within or share == pytest.approx(limit, abs=0.02)


def test_a_share_is_that_of_the_rows(run: Simulation) -> None:
    rows = run.report().rows
    late = [row for row in rows if row.ttft_us is not None and row.ttft_us > 400_000]
    assert 0 < len(late) < len(rows)
    assert beyond(run, "latency.ttft_ms.p90", max=400.0)[0] == len(late) / len(rows)
    assert beyond(run, "latency.ttft_ms.max", max=400.0) == (len(late) / len(rows), 0.0)


@pytest.mark.parametrize("latency", ["ttft_ms", "e2e_ms", "itl_ms", "tpot_ms"])
def test_a_mean_is_that_of_the_report(run: Simulation, latency: str) -> None:
    mean = figure_of(run, f"latency.{latency}.mean")
    assert beyond(run, f"latency.{latency}.mean", max=1.0)[0] == pytest.approx(mean)


def test_the_error_of_a_share_is_that_near_its_bound() -> None:
    """Requests that come in waves exceed a latency in waves; one that none comes near has a binomial error alone."""
    run = finished(**{"workload.clients.0.arrivals": {"kind": "gamma", "cv": 3.0}})
    waits = sorted(row.ttft_us for row in run.report().rows if row.ttft_us is not None)
    binomial = (0.1 * 0.9 / len(waits)) ** 0.5

    def error(bound_us: float) -> float:
        bound_samples, _ = samples_of(run, [Expectation(metric="latency.ttft_ms.p90", max=bound_us / 1000)])
        bound_samples.tick(run.now_us)
        bound_samples.ended(run.log.rows(0), run.log.groups())
        return bound_samples.estimate(-1, run.now_us).error

    assert error(2.0 * waits[-1]) == pytest.approx(binomial)
    assert error(1.05 * waits[int(0.9 * len(waits))]) > 2 * binomial


def known_samples(latencies_us: list[float], bound_us: float) -> Latencies:
    """The samples of a TPOT p95 with these latencies, one each microsecond."""
    samples = Latencies("latency.tpot_ms.p95", bound_us / 1000, 95, lambda _: None, scope_of(["latency"]), None)
    samples._ended = [(at, us) for at, us in enumerate(latencies_us, start=1)]
    return samples


@cache
def lasting(seed: int) -> array[float]:
    """A load that lasts for a tenth of a batch, drawn once for all spreads."""
    draw, load, loads = random.Random(seed), 0.0, array("d")  # noqa: S311
    for _ in range(1000):
        load = 0.9 * load + 0.19**0.5 * draw.gauss(0.0, 1.0)
        loads.append(load)
    return loads


def like_tpot(seed: int, spread: float) -> list[float]:
    """Latencies about 20 ms under a load that lasts for a tenth of a batch."""
    return [20_000 * (1 + spread * load) for load in lasting(seed)]


def test_a_percentile_of_latencies_that_differ_little_is_surely_within_its_bound() -> None:
    """Its share above 85 % of the bound swings between nothing and everything."""
    samples = known_samples(like_tpot(1, 0.03), 24_000.0)
    assert samples.beyond(samples.estimate(0, 1000)) < -6
    assert not samples._holds_at(MARGIN, 0, 1000)
    assert samples.has_room(0, 1000, 0.01)
    assert not known_samples(like_tpot(1, 0.03), 22_000.0).has_room(0, 1000, 0.01)  # 95 % of it would not hold
    assert not samples.is_far(0, 1000)
    assert known_samples(like_tpot(1, 0.03), 43_000.0).is_far(0, 1000)


@pytest.mark.parametrize("spread", [0.03, 0.15])
def test_a_bound_at_the_percentile_is_called_surely_within_as_rarely_as_its_error_says(spread: float) -> None:
    """The share of the verdicts that would be wrong if the bound were a trifle tighter."""
    bound_us = 20_000 * (1 + 1.645 * spread)

    def surely(factor: float) -> float:
        held = 0
        for seed in range(200):
            samples = known_samples(like_tpot(seed, spread), factor * bound_us)
            held += samples.beyond(samples.estimate(0, 1000, 0.01)) < -3 and samples.has_room(0, 1000, 0.01)
        return held / 200

    assert surely(1.0) <= 0.01
    assert surely(1.15 + spread) >= 0.9


def test_an_error_counts_that_all_of_a_load_lasts() -> None:
    samples = known_samples(like_tpot(1, 0.03), 24_000.0)
    soon, late = (samples.beyond(samples.estimate(0, 1000, memory)) for memory in (0.0, 0.1))
    assert soon == pytest.approx(3**0.5 * late) or late == pytest.approx(soon)  # or it is that of independent requests
    assert not samples.has_room(0, 1000, 2.0)


def test_gaps_are_counted_by_tokens(run: Simulation) -> None:
    figure = run.report().latency.itl_ms.p90 or 0.0
    assert beyond(run, "latency.itl_ms.p90", max=1.001 * figure)[0] <= 0.1
    assert beyond(run, "latency.itl_ms.p90", max=0.999 * figure)[0] >= 0.1


def test_attainment_is_that_of_the_report(run: Simulation) -> None:
    attainment = figure_of(run, "slo.attainment")
    assert 0 < attainment < 1
    missed, limit = beyond(run, "slo.attainment", min=0.9)
    assert missed == pytest.approx(1 - attainment)
    assert limit == pytest.approx(0.1)


def test_what_waits_for_longer_than_the_bound_counts_before_it_is_served() -> None:
    """In the middle of a run, those that are known to be late are those that turn out to be."""
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set={**SET, "workload.rate_per_s": 40}))
    simulation.run(until_us=4_000_000)
    bound_samples, _ = samples_of(simulation, [Expectation(metric="latency.ttft_ms.p90", max=500.0)])
    bound_samples.ended(simulation.log.rows(0), simulation.log.groups())
    ratio = bound_samples.estimate(-1, simulation.now_us)
    simulation.run()
    rows = simulation.report().rows
    late = [row for row in rows if row.arrival_us + 500_000 <= 4_000_000 and (row.ttft_us or 0) > 500_000]
    known = [row for row in rows if row.first_token_us is not None and row.first_token_us <= 4_000_000]
    at_least = {row.request_id for row in late} | {row.request_id for row in known}
    assert ratio.weight == pytest.approx(len(at_least), abs=4)  # tokens of the step that is under way
    assert ratio.value * ratio.weight == pytest.approx(len(late), abs=4)


def test_requests_that_are_not_served_count() -> None:
    simulation = finished(**{"workload.clients.0.timeout_us": 300_000, "workload.rate_per_s": 30})
    report = simulation.report()
    served = samples_of(simulation, [])[-1]
    served.ended(simulation.log.rows(0), simulation.log.groups())
    ratio = served.estimate(-1, simulation.now_us)
    assert ratio.value == 1 - report.requests.completed / report.requests.total > 0.01
    assert served.beyond(ratio) > 0


@pytest.mark.parametrize(
    "metric",
    ["throughput.requests_per_s", "latency.ttft_ms.min", "cost.gpus", "kv.preemptions", "latency.x_ms.p90", "x"],
)
def test_other_figures_have_no_samples(run: Simulation, metric: str) -> None:
    assert len(samples_of(run, [Expectation(metric=metric, max=1.0)])) == 1
