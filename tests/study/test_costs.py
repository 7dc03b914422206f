"""GPUs, money and energy, each worked out another way: from the records of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from blis_tui.engine.records import Completed, StepFinished
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from blis_tui.spec.metric_names import COSTS
from blis_tui.study.costs import cost_figures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model import Experiment
    from blis_tui.results.report import Report

_PRICED = {"hardware.cost_per_hour_usd": 2.5, "hardware.watts.idle": 70}


class _Seen:
    """What records tell of a run."""

    def __init__(self, experiment: Experiment) -> None:
        self.busy_us: dict[int, int] = {}
        self.tokens = 0
        self.simulation = Simulation(experiment)
        self.simulation.subscribe(StepFinished, self._step)
        self.simulation.subscribe(Completed, self._completed)
        self.simulation.run()
        self.report: Report = self.simulation.report()
        self.seconds = self.simulation.now_us / 1e6
        self.figures = cost_figures(experiment, json.loads(self.report.to_json()))

    def _step(self, record: StepFinished) -> None:
        self.busy_us[record.instance] = self.busy_us.get(record.instance, 0) + record.duration_us

    def _completed(self, record: Completed) -> None:
        self.tokens += record.output_tokens


def _seen(experiment: str, overrides: Mapping[str, object]) -> _Seen:
    return _Seen(load(experiment, overrides=overrides))


def test_each_figure_of_equal_instances_from_their_steps() -> None:
    seen = _seen("quickstart", {**_PRICED, "workload.requests": 60, "cluster.tensor_parallel": 2})
    joules = 2 * (70 * (2 * seen.seconds) + (700 - 70) * (seen.busy_us[0] + seen.busy_us[1]) / 1e6)
    assert seen.figures == pytest.approx(
        {
            "cost.gpus": 4,
            "cost.usd_per_hour": 10,
            "cost.usd_per_million_output_tokens": 10 * seen.seconds / 3600 * 1e6 / seen.tokens,
            "cost.peak_watts": 2800,
            "cost.watts": joules / seen.seconds,
            "cost.wh_per_million_output_tokens": joules / 3600 * 1e6 / seen.tokens,
        }
    )
    assert list(seen.figures) == list(COSTS)


def test_a_studys_prices_go_before_those_of_documents() -> None:
    seen = _seen("mixed-fleet", {**_PRICED, "workload.requests": 50})
    assert seen.figures["cost.usd_per_hour"] is None  # nobody says what an L40S costs
    priced = cost_figures(seen.simulation.experiment, json.loads(seen.report.to_json()), {"h100": 4.0, "l40s": 1.0})
    assert priced["cost.usd_per_hour"] == pytest.approx(2 * 4 + 2 * 1)
    assert {**priced, "cost.usd_per_hour": None, "cost.usd_per_million_output_tokens": None} == seen.figures


def test_pools_have_their_own_hardware() -> None:
    overrides = {"workload.requests": 50, "hardware.cost_per_hour_usd": 3, "hardware.watts.idle": 70}
    fast_only = _seen("mixed-fleet", overrides).figures
    assert fast_only["cost.gpus"] == 4
    assert fast_only["cost.usd_per_hour"] is None  # nobody says what an L40S costs
    assert fast_only["cost.watts"] is None
    assert fast_only["cost.peak_watts"] == pytest.approx(2 * 700 + 2 * 350)
    other = {"cluster.pools.1.hardware.cost_per_hour_usd": 1, "cluster.pools.1.hardware.watts.idle": 30}
    both = _seen("mixed-fleet", {**overrides, **other, "policy.routing": "round-robin"})
    busy_s = [both.busy_us[instance] / 1e6 for instance in range(4)]
    idle_s = [both.seconds - one for one in busy_s]
    joules = 700 * (busy_s[0] + busy_s[1]) + 70 * (idle_s[0] + idle_s[1])
    joules += 350 * (busy_s[2] + busy_s[3]) + 30 * (idle_s[2] + idle_s[3])
    assert both.figures["cost.usd_per_hour"] == pytest.approx(2 * 3 + 2 * 1)
    assert both.figures["cost.watts"] == pytest.approx(joules / both.seconds)


def test_instances_cost_as_long_as_they_hold_their_accelerators() -> None:
    seen = _seen("autoscaling", {**_PRICED, "workload.requests": 300})
    life = seen.report.lifecycle
    assert life is not None
    hours = seen.report.duration_us / 3.6e9
    assert seen.figures["cost.gpus"] == pytest.approx(life.gpu_hours / hours)
    assert seen.figures["cost.usd_per_hour"] == pytest.approx(2.5 * life.gpu_hours / hours)
    assert len({instance.held_us for instance in life.instances}) > 1


def test_a_pipeline_is_busy_stage_by_stage() -> None:
    seen = _seen("pipeline-bubble", _PRICED)
    pool = seen.simulation.experiment.pools[0]
    stages, gpus = pool.engine.pipeline_parallel, pool.engine.pipeline_parallel * pool.tensor_parallel
    assert stages > 1
    share = seen.busy_us[0] / 1e6 / seen.seconds / stages
    assert seen.figures["cost.gpus"] == gpus * pool.instances
    peak = pool.hardware.peak_watts
    assert peak is not None
    assert seen.figures["cost.watts"] == pytest.approx(gpus * (70 + (peak - 70) * share))


def test_a_replica_has_the_gpus_of_all_its_ranks() -> None:
    """Two replicas of four ranks of two GPUs each."""
    wide = {
        "model": "qwen3-30b-a3b",
        "latency": {"kind": "operators"},
        "cluster": {"instances": 2, "tensor_parallel": 2},
        "engine": {"data_parallel": 4, "expert_parallel": True},
        "policy": "vllm-v1",
        "workload.requests": 40,
    }
    seen = _seen("quickstart", {**_PRICED, **wide})
    assert seen.figures["cost.gpus"] == 2 * 4 * 2
    assert [(instance.instance, instance.replica, instance.rank) for instance in seen.report.instances] == [
        (4 * replica + rank, replica, rank) for replica in range(2) for rank in range(4)
    ]


def test_what_a_horizon_cuts_is_no_more_than_busy_all_the_time() -> None:
    overrides = {**_PRICED, "cluster.instances": 1, "horizon_us": 3_000_000, "workload.rate_per_s": 200}
    seen = _seen("quickstart", overrides)
    watts = seen.figures["cost.watts"]
    assert watts is not None
    assert 500 < watts <= 700


def test_documents_that_say_nothing_make_no_figures() -> None:
    seen = _seen("quickstart", {"workload.requests": 20})
    missing = [name for name, value in seen.figures.items() if value is None]
    assert [name for name in COSTS if name not in missing] == ["cost.gpus", "cost.peak_watts"]


def test_nothing_generated_costs_nothing_a_token() -> None:
    seen = _seen("quickstart", {**_PRICED, "horizon_us": 1})
    assert seen.figures["cost.usd_per_million_output_tokens"] is None
    assert seen.figures["cost.wh_per_million_output_tokens"] is None
    assert seen.figures["cost.usd_per_hour"] == pytest.approx(5)
