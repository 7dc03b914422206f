"""Coefficients that are known, found again: from simulated measurements with noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blis_tui import load
from blis_tui.calibration.fit import Data, Fit, fit
from blis_tui.calibration.measured import Measured, Recording
from blis_tui.calibration.parts import STEP_TERMS, Parts
from blis_tui.calibration.replay import replay, with_coefficients
from blis_tui.engine.latency.fitted import Settings
from blis_tui.engine.latency.model import Chunk, StepLoad, create_latency
from blis_tui.engine.request import Request
from blis_tui.engine.streams import Streams
from blis_tui.errors import InputError, PolicyError
from blis_tui.simulation import Simulation

if TYPE_CHECKING:
    from blis_tui.spec.model import Experiment

BASE = Settings()
TRUTH = replace(BASE, flops=2.0, kv_read=1.3, layer_us=72.0, first_token_us=9000.0)


def served(model: str, rate: float, prompt: int, seed: int = 1, requests: int = 150) -> Experiment:
    return load(
        {
            "apiVersion": "blis/v1",
            "kind": "Experiment",
            "metadata": {"name": "measured"},
            "seed": seed,
            "model": model,
            "hardware": "h100",
            "latency": "fitted",
            "policy": "vllm-v1",
            "cluster": {"instances": 1, "tensor_parallel": 2 if "mixtral" in model else 1},
            "workload": {
                "requests": requests,
                "rate_per_s": rate,
                "clients": [
                    {
                        "id": "c",
                        "input_tokens": {"kind": "uniform", "min": prompt // 8, "max": prompt},
                        "output_tokens": {"kind": "uniform", "min": 30, "max": 200},
                    }
                ],
            },
        }
    )


def measure(experiment: Experiment, truth: Settings, noise: float, seed: int = 1) -> Recording:
    simulation = Simulation(with_coefficients(experiment, truth), check="off")
    simulation.run()
    stream = Streams(seed).stream("noise")
    found = []
    for row in simulation.report(verify=False).rows:
        assert row.ttft_us is not None
        assert row.e2e_us is not None
        ttft = row.ttft_us * (1.0 + noise * stream.normal())
        rest = (row.e2e_us - row.ttft_us) * (1.0 + noise * stream.normal())
        found.append(Measured(row.arrival_us, row.input_tokens, row.output_tokens, ttft, ttft + rest))
    return Recording(Path("measured.csv"), "requests", "0" * 64, tuple(found), 0)


def found_again(seed: int, noise: float) -> Fit:
    runs = [
        served("llama-3.1-8b-instruct", 2.0, 1500, seed),
        served("llama-2-7b-hf", 3.0, 1500, seed),
        served("qwen3-14b", 1.5, 4000, seed),
    ]
    return fit([Data(measure(one, TRUTH, noise, seed), one) for one in runs], BASE)


def check(found: Fit) -> None:
    told = {one.name: one.value for one in found.found if one.told}
    assert {"weights", "kv_read", "layer_us"} <= told.keys()
    for name, value in told.items():
        assert value == pytest.approx(getattr(TRUTH, name), rel=0.03), name
    assert {"expert_weights", "expert_flops", "expert_layer_us", "all_reduce", "layer_tp_us"} <= {
        one.name for one in found.left_out
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_known_coefficients_are_found_again(seed: int) -> None:
    check(found_again(seed, 0.005))


def test_more_noise_tells_less() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 1500, requests=50)
    found = fit([Data(measure(one, TRUTH, 0.05), one)], BASE)
    assert not [entry.name for entry in found.found if entry.told]
    assert all(entry.together_with for entry in found.found)


def test_cached_prompts_tell_nothing_of_prefill() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 1500, requests=60)
    prompts = replace(one.workload.clients[0], repeated_prompts=4)
    one = replace(one, workload=replace(one.workload, clients=(prompts,)))
    found = fit([Data(measure(one, TRUTH, 0.01), one, repeated=True)], BASE)
    about = {entry.name: entry.why for entry in found.left_out}
    assert {"prefill_attention", "prefill_step_us"} <= about.keys()
    assert "flops" not in {entry.name for entry in found.found if entry.told}


def test_what_tells_nothing_is_refused() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 1500, requests=20)
    wild = measure(one, TRUTH, 0.0)
    requests = tuple(
        replace(it, ttft_us=it.ttft_us * (1 + 30 * (at % 2)), e2e_us=it.e2e_us * (2 + 30 * (at % 3)))
        for at, it in enumerate(wild.requests)
    )
    with pytest.raises(InputError, match="tell no coefficient"):
        fit([Data(replace(wild, requests=requests), one)], BASE)


def test_parts_add_up_to_steps() -> None:
    for model in ("llama-3.1-8b-instruct", "mixtral-8x7b-v0.1", "deepseek-v2-lite"):
        (pool,) = served(model, 1.0, 800).pools
        settings = replace(BASE, sorted_sampling=True)
        made = with_coefficients(served(model, 1.0, 800), settings)
        latency = create_latency(made.plugins, made.pools[0])
        request = Request(0, "r", 0, 10, 10)
        for decodes, context, chunks in ((3, 900, []), (0, 0, [(0, 700)]), (200, 90_000, [(16, 500), (0, 1200)])):
            load_ = StepLoad([Chunk(request, before, new, before + new) for before, new in chunks], decodes, context)
            parts = Parts(settings, pool).of(decodes, context, chunks)
            assert len(parts) == len(STEP_TERMS)
            assert sum(parts) == pytest.approx(latency.step_time_us(load_), abs=1)


def test_a_replay_splits_what_requests_wait_for() -> None:
    one = served("llama-3.1-8b-instruct", 20.0, 1500, requests=60)
    for answered in replay(one, measure(one, BASE, 0.0), BASE, repeated=False):
        assert answered.ttft_us == answered.measured.ttft_us
        assert sum(answered.first_parts) == pytest.approx(answered.ttft_us, rel=1e-3)
        assert sum(answered.decode_parts) == pytest.approx(answered.e2e_us - answered.ttft_us, rel=1e-3)


def test_several_instances_are_refused() -> None:
    one = load("quickstart")
    with pytest.raises(PolicyError, match="compared with one instance"):
        replay(one, measure(served("qwen3-14b", 1.0, 800, requests=20), BASE, 0.0), BASE, repeated=False)
