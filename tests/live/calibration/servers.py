"""Simulated servers whose coefficients are known, and what their clients measure."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui import load
from blis_tui.base.streams import Streams
from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.live.calibration.measured import Measured, Recording
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.model import PluginConfig
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from blis_tui.model import Experiment

BASE = FittedSettings()
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
            "engine": {"max_num_seqs": 256, "max_num_batched_tokens": 2048, "gpu_memory_utilization": 0.9},
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


def with_coefficients(experiment: Experiment, settings: FittedSettings) -> Experiment:
    return with_latency(experiment, PluginConfig(kind="fitted", settings=asdict(settings)))


def measure(experiment: Experiment, noise: float = 0.0, seed: int = 1) -> Recording:
    """What clients see of an experiment as it is; ``noise``: of each time, as a share of it."""
    simulation = Simulation(experiment, check="off")
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
