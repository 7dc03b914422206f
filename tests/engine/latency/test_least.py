"""The least that many plain decodes take: no more than they do, one after another, whatever the contexts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.engine.latency.model import StepLoad, StepTimeModel, Timed
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


@given(decodes=st.integers(1, 300), context=st.integers(1, 9000), steps=st.integers(1, 60))
def test_it_is_a_bound(model: StepTimeModel, decodes: int, context: int, steps: int) -> None:
    assert isinstance(model, Timed)
    load = StepLoad(decode_requests=decodes, decode_context_tokens=decodes * context)
    least, first = model.least_us(load, steps), model.step_time_us(load)
    together = model.decode_times_us(load, steps)
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
