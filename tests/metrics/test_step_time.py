"""What reports say of their step times: the error that the accuracy page shows, and none where none is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy
from blis_tui import load
from blis_tui.metrics.expected_error import (
    DIFFERENT,
    LOADS,
    LONG_TOKENS,
    ExpectedError,
    Traits,
    expected_error,
    measured,
    slower_steps,
    traits_of,
)
from blis_tui.metrics.step_time import StepTime, expected_errors, step_times
from blis_tui.simulation import Simulation

PAGE = (Path(__file__).parents[2] / "docs/accuracy.md").read_text(encoding="utf-8")


BASE: dict[str, object] = {
    "apiVersion": "blis/v1",
    "kind": "Experiment",
    "metadata": {"name": "one"},
    "model": "llama-3.1-8b-instruct",
    "hardware": "h100",
    "workload": "chatbot",
    "report": "full",
}


def found(**more: object) -> StepTime:
    experiment = load({**BASE, **more})
    (one,) = step_times(experiment, expected_errors(experiment, 500)).values()
    return one


def cells(table: str) -> dict[tuple[str, str], list[float]]:
    """Group and metric -> the figures of a row of the calibration's table."""
    found = {}
    for line in table.splitlines()[2:]:
        group, metric, *figures = (cell.strip() for cell in line.strip("|").split("|"))
        found[group, metric] = [float(one.rstrip(" %")) for one in figures]
    return found


def test_what_is_quoted_holds_as_often_as_it_says() -> None:
    """Judged on the servers that are left out, one at a time: half within the median, nine of ten within the band."""
    shown = PAGE.split("<!-- begin of the calibration -->")[1].split("<!-- end of the calibration -->")[0].strip()
    assert shown == accuracy.calibration().strip()
    for (group, metric), (number, median, band, _) in cells(shown).items():
        assert number >= 20
        assert 40 <= median <= 65, (group, metric)
        assert 80 <= band <= 100, (group, metric)
        if group == "all":
            assert 45 <= median <= 55
            assert 85 <= band <= 95


def weighted_quantile(errors: list[tuple[float, float]], level: float) -> float:
    """By numpy's inverted distribution function, with every value as often as its weight says."""
    values, weights = (np.array(one) for one in zip(*errors, strict=True))
    return float(np.quantile(values, level, weights=weights, method="inverted_cdf"))


def likeness(mine: Traits, other: Traits) -> float:
    """Each difference once, but loads by their order."""
    costs = [DIFFERENT[name] for name in Traits._fields]
    steps = [float(one != two) for one, two in zip(mine, other, strict=True)]
    steps[-1] = abs(LOADS.index(mine.load) - LOADS.index(other.load)) if mine.load else 0.0
    return float(np.prod([cost**step for cost, step in zip(costs, steps, strict=True)])) + 0.02


@pytest.mark.parametrize("load_", ["", *LOADS])
@pytest.mark.parametrize("metric", ["ttft", "itl"])
def test_bands_are_quantiles_of_the_errors_of_servers_by_their_likeness(metric: str, load_: str) -> None:
    known = measured("operators")
    assert known is not None
    mine = Traits("vllm", "h200", "dense", "fp8", 4, fresh=True, long=False, load=load_)
    runs = [one for one in known.runs if metric in one.errors]
    weights = [
        likeness(mine, one.traits) / len([other for other in runs if other.server == one.server]) for one in runs
    ]
    shares = [
        sum(weight for weight, one in zip(weights, runs, strict=True) if one.server == server)
        for server in {one.server for one in runs}
    ]
    count = sum(shares) ** 2 / sum(share**2 for share in shares)
    found = expected_error(mine, known.runs)
    band = getattr(found, metric)
    signed = [(one.errors[metric] * 100, weight) for one, weight in zip(runs, weights, strict=True)]
    level = 0.9 * (1 + 1 / count)
    assert band.median == pytest.approx(
        weighted_quantile([(abs(error), weight) for error, weight in signed], 0.5 * (1 + 1 / count)), abs=0.06
    )
    assert band.low == pytest.approx(weighted_quantile(signed, (1 - level) / 2), abs=0.06)
    assert band.high == pytest.approx(weighted_quantile(signed, (1 + level) / 2), abs=0.06)
    assert found.servers == pytest.approx(count, abs=2)


def test_slower_steps_are_those_that_so_many_servers_were_not_slower_than() -> None:
    """Counted by numpy, of all errors of ITL."""
    known = measured("operators")
    assert known is not None
    experiment = load({**BASE})
    (pool,) = experiment.pools
    mine = traits_of(experiment, pool, 500)
    runs = [one for one in known.runs if "itl" in one.errors]
    weights = [
        likeness(mine, one.traits) / len([other for other in runs if other.server == one.server]) for one in runs
    ]
    of_server = {one.server: 0.0 for one in runs}
    for one, weight in zip(runs, weights, strict=True):
        of_server[one.server] += weight
    count = sum(of_server.values()) ** 2 / sum(share**2 for share in of_server.values())
    for confidence in (0.5, 0.8, 0.9):
        level = 1 - confidence * (1 + 1 / count)
        errors = [(one.errors["itl"], weight) for one, weight in zip(runs, weights, strict=True)]
        found = slower_steps(experiment, pool, 500, confidence)
        assert found == pytest.approx(max(1.0, 1 / (1 + weighted_quantile(errors, level))), abs=6e-4)
    assert isinstance(found, float)
    assert found > 1.0
    assert "do not tell" in str(slower_steps(experiment, pool, 500, 0.99))
    blis = load({**BASE, "policy": "blis"})
    assert "`blis` batching" in str(slower_steps(blis, blis.pools[0], 500, 0.9))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"policy": "blis"}, "`blis` batching"),
        ({"policy": "sjf", "hardware": "l40s"}, "GPU l40s (measured: h100"),
        ({"model": "deepseek-v2-lite"}, "family mla"),
        ({"latency": {"kind": "operators", "moved": 2.5}}, "moved 2.5"),
        ({"latency": {"kind": "operators", "engine": "tensorrt-llm"}}, "engine tensorrt-llm"),
        ({"latency": "roofline"}, "docs/accuracy.md"),
    ],
)
def test_what_was_not_measured_gets_a_reason(changes: dict[str, object], reason: str) -> None:
    document = {**BASE, **changes}
    (known,) = expected_errors(load(document), 500).values()
    assert isinstance(known, str)
    assert reason in known
    assert found(**changes).expected_error_percent is None


def test_what_was_measured_nearby_counts_more() -> None:
    """Cached prompts were forecast better than fresh ones, in each other's company or not."""
    known = measured("operators")
    assert known is not None
    mine = Traits("vllm", "h100", "dense", "bf16", 4, fresh=False, long=False)
    cached, fresh = (expected_error(mine._replace(fresh=one), known.runs).ttft for one in (False, True))
    assert cached is not None
    assert fresh is not None
    assert cached.median < fresh.median


@pytest.mark.parametrize(("mu", "long"), [(6.0, False), (8.6, True)])
def test_prompts_are_as_long_as_they_were_in_the_run(mu: float, long: bool) -> None:
    client = {"id": "c", "input_tokens": {"kind": "lognormal", "mu": mu, "sigma": 0.3}, "output_tokens": 20}
    experiment = load({**BASE, "workload": {"requests": 30, "rate_per_s": 1.0, "clients": [client]}})
    simulation = Simulation(experiment)
    simulation.run()
    report = simulation.report()
    assert (report.tokens.input / report.requests.total > LONG_TOKENS) is long
    (pool,) = experiment.pools
    known = measured("operators")
    assert known is not None
    present = sum(row.e2e_us or 0 for row in report.rows) / report.duration_us
    mine, other = (traits_of(experiment, pool, LONG_TOKENS + more, present) for more in ((1, 0) if long else (0, 1)))
    assert report.expected_errors[pool.name] == expected_error(mine, known.runs) != expected_error(other, known.runs)


@pytest.mark.parametrize(("users", "load_"), [(4, "few"), (8, "few"), (9, "some"), (64, "some"), (100, "many")])
def test_loads_are_told_apart_by_how_many_requests_an_instance_has(users: int, load_: str) -> None:
    """Users of a closed loop are always there, but for the last answers."""
    client = {"id": "c", "arrivals": {"kind": "closed-loop", "users": users}, "input_tokens": 50, "output_tokens": 20}
    experiment = load({**BASE, "workload": {"requests": 30 * users, "clients": [client]}})
    simulation = Simulation(experiment)
    simulation.run()
    report = simulation.report()
    (pool,) = experiment.pools
    mine = traits_of(experiment, pool, 50, users)
    known = measured("operators")
    assert known is not None
    assert mine.load == load_
    assert report.expected_errors[pool.name] == expected_error(mine, known.runs)


def test_what_is_nearest_is_named() -> None:
    """Of measured servers, the one that has most in common with what nothing is known of."""
    known = measured("operators")
    assert known is not None
    seen = set()
    for changes in (
        {"hardware": "l40s", "model": "qwen2.5-7b-instruct"},
        {"policy": "sglang", "model": "gpt-oss-120b", "hardware": "b200"},
        {"model": "deepseek-v2-lite"},
        {"engine": {"enforce_eager": True}},
    ):
        experiment = load({**BASE, **changes})
        (said,) = expected_errors(experiment, 500).values()
        mine = traits_of(experiment, experiment.pools[0], 500)
        best = max(likeness(mine, one.traits) for one in known.runs)
        nearest = [one.server for one in known.runs if likeness(mine, one.traits) == best]
        assert isinstance(said, str)
        assert said.startswith("not measured: ")
        assert said.endswith(f"; nearest: {nearest[0]}")
        seen.add(nearest[0])
    assert "trtllm, 1 x b200, gpt-oss-120b" in seen or "vllm, 1 x b200, gpt-oss-120b" in seen


def test_the_default_is_the_best_that_covers_the_stack() -> None:
    assert found().kind == "operators"
    assert found(hardware="rtx-4090").kind == "fitted"


def test_pools_are_told_apart() -> None:
    pools = [{"name": "fast", "instances": 1}, {"name": "slow", "instances": 1, "hardware": "l40s"}]
    document = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "two"},
        "model": "llama-3.1-8b-instruct",
        "hardware": "h100",
        "workload": "chatbot",
        "cluster": {"pools": pools},
    }
    experiment = load(document)
    errors = expected_errors(experiment, 500)
    assert isinstance(errors["fast"], ExpectedError)
    assert isinstance(errors["slow"], str)
    found = step_times(experiment, errors)
    assert {name: one.hardware for name, one in found.items()} == {"fast": "h100", "slow": "l40s"}
    assert {one.expected_error_percent for one in found.values()} == {None}
