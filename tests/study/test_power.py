"""What an accelerator takes under load: the law against measurements, and a run's against its records."""

from __future__ import annotations

import json
from dataclasses import replace
from math import fsum

import pytest

import blis_tui
from blis_tui.engine.records import StepFinished
from blis_tui.model.defaults import SORTING_US
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from blis_tui.spec.study.document import experiment_of, open_study_or_experiment, read_study
from blis_tui.study.costs import busy_watts, cost_figures

MEASURED = (
    ("Qwen3-14B", 14e9, 1, ((627, 443), (1168, 465), (2023, 494), (3140, 525), (3775, 542))),
    ("Qwen3-14B", 14e9, 1, ((4474, 572), (5309, 613), (5760, 645))),
    ("Qwen3-8B", 8e9, 1, ((962, 427), (4315, 514), (5255, 544), (8258, 622), (8535, 616))),
    ("gemma-3-12b-it", 12e9, 1, ((604, 424), (1082, 452), (1787, 484), (2691, 541), (3224, 575), (3546, 589))),
    ("gemma-3-27b-it", 27e9, 1, ((338, 510), (625, 539), (1088, 571))),
    ("gemma-3-27b-it", 27e9, 2, ((978, 872), (3714, 1137), (4181, 1210))),
)
"""ML.ENERGY leaderboard (Apache-2.0), task lm-arena-chat, vLLM, H100 SXM, BF16: model, parameters, GPUs, and of each
load the output tokens a second with the watts of all GPUs."""
ENERGY = {8: 0.706, 16: 0.398, 32: 0.244, 64: 0.167, 128: 0.128, 256: 0.112}
"""Of the same: joules for an output token of Qwen3-14B over ``max_num_seqs``."""
PARAMETERS = 14.77e9
"""Of Qwen3-14B."""
STUDY = read_study(open_study_or_experiment("energy-by-batch")[0])
PROMPTS = 1.33
"""Tokens computed for each that is put out: answers of 600 to 700 tokens, prompts (not published) of about 200."""


def computed(step: StepFinished) -> int:
    return sum(chunk.new_tokens for chunk in step.chunks) + step.decode_requests


def test_the_shipped_figures_are_as_near_to_measurements_as_their_file_says() -> None:
    hardware = experiment_of(STUDY, STUDY.points[0], 42).pools[0].hardware
    errors = [
        (busy_watts(hardware, 2 * weights * tokens * PROMPTS / gpus) or 0) * gpus / taken - 1
        for _, weights, gpus, loads in MEASURED
        for tokens, taken in loads
    ]
    assert len(errors) == 25
    assert max(map(abs, errors)) < 0.15
    assert fsum(map(abs, errors)) / 25 < 0.045


def test_energy_of_a_token_with_simulated_steps() -> None:
    """Times and power together: 12 % below the measured at most, never above."""
    sorting = {"latency": {"kind": "operators", **SORTING_US}}  # as vLLM sampled in the year of the measurements
    rows = blis_tui.sweep("energy-by-batch", set=sorting).rows
    assert len(rows) == len(ENERGY)
    for row, joules in zip(rows, ENERGY.values(), strict=True):
        wh = row.figures["cost.wh_per_million_output_tokens"]
        assert isinstance(wh, float)
        assert -0.13 < wh * 3600 / 1e6 / joules - 1 < 0


def test_figures_of_a_run_from_its_steps() -> None:
    watts = {"idle": 100, "memory_bound": 400, "peak": 700, "peak_at_mfu": 0.2}
    run = Simulation(load("quickstart", overrides={"workload.requests": 80, "hardware.watts": watts}))
    steps: list[StepFinished] = []
    run.subscribe(StepFinished, steps.append)
    run.run()
    report = json.loads(run.report().to_json())
    hardware = run.experiment.pools[0].hardware
    seconds, joules = run.now_us / 1e6, 0.0
    for instance in (0, 1):
        own = [step for step in steps if step.instance == instance]
        busy = sum(step.duration_us for step in own) / 1e6
        tokens = sum(computed(step) for step in own)
        mfu: float = 2 * PARAMETERS * tokens / busy / 989.5e12
        joules += 100 * (seconds - busy) + (400 + 300 * mfu / 0.2) * busy
    assert mfu < 0.2
    found = cost_figures(run.experiment, report)
    assert found["cost.watts"] == pytest.approx(joules / seconds, rel=2e-3)
    assert busy_watts(hardware, 989.5e12 * 0.1) == pytest.approx(550)
    assert busy_watts(hardware, 989.5e12) == 700
    assert busy_watts(replace(hardware, memory_bound_watts=None), 0) == 700


def test_decoding_instances_compute_no_prompts() -> None:
    """Those of a disaggregated cluster that prefill take more than those that decode, as they compute more."""
    watts = {"idle": 0, "memory_bound": 0, "peak": 700, "peak_at_mfu": 1}
    run = Simulation(load("disaggregation", overrides={"hardware.watts": watts}))
    work: dict[int, int] = {}

    def seen(step: StepFinished) -> None:
        work[step.instance] = work.get(step.instance, 0) + computed(step)

    run.subscribe(StepFinished, seen)
    run.run()
    report = json.loads(run.report().to_json())
    per_token = 2 * 8.03e9 / 989.5e12 * 700
    joules = per_token * sum(work.values())
    found = cost_figures(run.experiment, report)["cost.watts"]
    assert found == pytest.approx(joules / (run.now_us / 1e6), rel=0.02)
