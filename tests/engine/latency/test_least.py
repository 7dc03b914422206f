"""The least that many plain decodes take: no more than they do, one after another, whatever the contexts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.engine.latency.model import StepLoad, StepTimeModel, Timed, runs_of
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load

CASES: dict[str, dict[str, object]] = {
    "blackbox": {"latency": "blackbox"},
    "crossmodel": {"latency": "crossmodel"},
    "fitted": {"latency": "fitted"},
    "fitted with windows": {"latency": "fitted", "model": "gpt-oss-120b"},
    "operators": {"latency": "operators"},
    "operators with windows": {"latency": "operators", "model": "gpt-oss-120b"},
    "operators, latent": {
        "latency": "operators",
        "model": "deepseek-v3",
        "hardware": "h200",
        "cluster.tensor_parallel": 8,
    },
    "operators without graphs": {"latency": "operators", "engine.enforce_eager": True},
    "operators, scaled": {"latency": {"kind": "operators", "steps": 1.07}},
    "roofline": {"latency": "roofline"},
    "roofline-phases": {"latency": "roofline-phases"},
    "trained-physics": {"latency": "trained-physics"},
    "trained-roofline": {"latency": "trained-roofline"},
    "nano": {"policy.batching": "nano", "latency": "roofline", "engine.max_num_batched_tokens": 40_960},
}


@pytest.fixture(scope="module", params=CASES)
def model(request: pytest.FixtureRequest) -> StepTimeModel:
    made = load("quickstart", overrides={"workload.requests": 1, "expect": [], **CASES[request.param]})
    return Simulation(made).cluster.instances[0].latency


def one_by_one_of(runs: list[tuple[int, int]]) -> list[int]:
    return [value for value, times in runs for _ in range(times)]


@given(values=st.lists(st.integers(0, 12), min_size=1, max_size=200).map(sorted))
def test_runs_of_what_never_falls_have_all_of_it(values: list[int]) -> None:
    runs = runs_of(values.__getitem__, range(len(values)), rises=True)
    assert one_by_one_of(runs) == values
    assert all(times > 0 for _, times in runs)


def test_a_long_run_costs_few_looks() -> None:
    looks: list[int] = []

    def look(at: int) -> int:
        looks.append(at)
        return at // 50

    assert runs_of(look, range(5000), rises=True) == [(value, 50) for value in range(100)]
    assert len(looks) < 230


@given(decodes=st.integers(1, 300), context=st.integers(1, 9000), steps=st.integers(1, 400))
def test_it_is_a_bound(model: StepTimeModel, decodes: int, context: int, steps: int) -> None:
    assert isinstance(model, Timed)
    load = StepLoad(decode_requests=decodes, decode_context_tokens=decodes * context)
    least, first = model.least_us(load, steps), model.step_time_us(load)
    together = one_by_one_of(model.decode_runs(load, steps))
    one_by_one = []
    for _ in range(steps):
        one_by_one.append(model.step_time_us(load))
        load.decode_context_tokens += decodes
    assert together == one_by_one
    taken = sum(one_by_one)
    assert 0 < least <= taken
    assert least > 0.9 * first * steps - 100  # so that it is of use
    if model.flat:
        assert least == taken
