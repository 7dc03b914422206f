"""Answers of plans against long runs with other seeds, on random problems of small servers."""

from __future__ import annotations

from typing import Any

import pytest

import blis_tui
from benchmarks.plans import judged_size, problem

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # on each change, ``test_plan`` compares with long runs


@pytest.mark.parametrize("number", range(2))
def test_the_size_that_is_planned_is_the_one_that_long_runs_need(number: int) -> None:
    verdict, details = judged_size(problem(number, small=True))
    assert verdict == "right", details


HEAVY: Any = {
    "model": "qwen3-32b",
    "hardware": "h100",
    "policy": "vllm-v1",
    "cluster": {"instances": 1, "tensor_parallel": 2},
    "engine": {"max_num_seqs": 256, "max_model_len": 32_768},
    "workload": {
        "requests": 30_000,
        "rate_per_s": 5.1,
        "clients": [
            {
                "id": "chat",
                "input_tokens": {"kind": "lognormal", "mean": 2000, "p95": 5000, "max": 30_000},
                "output_tokens": {"kind": "lognormal", "mean": 300, "p95": 800, "max": 2000},
            }
        ],
    },
}
"""A load that one instance nearly serves: what random lengths bring differs much from one stretch to the next."""


@pytest.fixture(scope="module")
def late() -> float:
    """The share of requests that wait for more than a second at one instance, of 30,000."""
    document = {"apiVersion": "blis/v1", "kind": "Experiment", "metadata": {"name": "heavy"}, "seed": 101, **HEAVY}
    rows = blis_tui.run(document).rows
    return len([row for row in rows if (row.ttft_us or 0) > 1_000_000]) / len(rows)


@pytest.mark.parametrize("seed", [42, 2, 5, 6])
def test_a_stretch_that_was_lucky_is_not_believed(seed: int, late: float) -> None:
    assert 0.05 < late < 0.15
    document = {"apiVersion": "blis/v1", "kind": "Experiment", "metadata": {"name": "heavy"}, "seed": seed, **HEAVY}
    plan = blis_tui.plan(
        document, slos=["latency.ttft_ms.p95<=1000"], rate_per_s=5.1, sizes=("cluster.instances", 1, 3)
    )
    assert plan.best is not None
    assert plan.best.size == 2
