"""Measured step times, by their number."""

from __future__ import annotations

import pytest

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.engine.records import StepFinished

MEASURED = [1000 + 37 * (n * n % 23) for n in range(60)]


def steps(experiment: blis_tui.Experiment) -> tuple[blis_tui.Simulation, list[StepFinished]]:
    simulation = blis_tui.Simulation(experiment, check="all")
    found: list[StepFinished] = []
    simulation.subscribe(StepFinished, found.append)
    simulation.run()
    return simulation, found


def loaded(batching: dict[str, object], durations: list[int], **more: object) -> blis_tui.Experiment:
    made = {"cluster.instances": 1, "workload.requests": 30, "policy.batching": batching}
    latency = {"kind": "recorded", "durations_us": durations}
    return blis_tui.load("quickstart", set={**made, "latency": latency, **more})


@pytest.mark.parametrize(
    "batching",
    [
        {"kind": "blis"},
        {"kind": "vllm-v1", "async_scheduling": False},
        {"kind": "vllm-v1", "async_scheduling": True},
        {"kind": "llm-serving-sim"},
    ],
    ids=str,
)
def test_the_nth_step_takes_what_the_nth_measured_one_took(batching: dict[str, object]) -> None:
    _, found = steps(loaded(batching, MEASURED))
    assert len(found) > len(MEASURED)
    assert [step.duration_us for step in found[:60]] == MEASURED
    assert {step.duration_us for step in found[60:]} == {sum(MEASURED) // 60}


def test_going_back_takes_the_same_steps_again() -> None:
    simulation = blis_tui.Simulation(loaded({"kind": "blis"}, MEASURED))
    simulation.run(until_us=400_000)
    here, twin = simulation.checkpoint(), simulation.digest()
    simulation.run()
    end = simulation.digest()
    simulation.report()  # it asks what a step would take
    simulation.restore(here)
    assert simulation.digest() == twin
    simulation.report()
    simulation.run()
    assert simulation.digest() == end


def test_the_way_to_the_queue_and_back_is_added() -> None:
    plain, _ = steps(loaded({"kind": "blis"}, [5000], **{"workload.requests": 1}))
    latency = {"kind": "recorded", "durations_us": [5000], "queue_us": 700, "queue_per_token_us": 2}
    slow, _ = steps(loaded({"kind": "blis"}, [5000], **{"workload.requests": 1, "latency": latency}))
    (request,), (other,) = plain.report().rows, slow.report().rows
    assert request.ttft_us is not None
    assert request.e2e_us is not None
    assert other.ttft_us == request.ttft_us + 700 + 2 * request.input_tokens
    assert other.e2e_us == request.e2e_us + 700 + 2 * request.input_tokens


@pytest.mark.parametrize(
    ("wrong", "at"),
    [
        ({"cluster.instances": 2}, "cluster.instances"),
        ({"engine.pipeline_parallel": 2}, "engine.pipeline_parallel"),
        ({"cluster.autoscaler": {"min_instances": 1, "max_instances": 2}}, "autoscaler"),
        (
            {"cluster.pools": [{"name": "a", "instances": 1}, {"name": "b", "instances": 2}], "cluster.instances": 3},
            "cluster.pools.1.instances",
        ),
    ],
)
def test_they_belong_to_one_instance(wrong: dict[str, object], at: str) -> None:
    with pytest.raises(SpecError, match="apply to one instance") as caught:
        loaded({"kind": "vllm-v1"}, [9000], **wrong)
    assert [f"`{at}" in (diagnostic.help or "") for diagnostic in caught.value.diagnostics] == [True]


def test_each_pool_of_one_instance_has_its_own() -> None:
    pools = [{"name": "a", "instances": 1}, {"name": "b", "instances": 1}]
    simulation = blis_tui.Simulation(
        loaded({"kind": "vllm-v1"}, [9000], **{"cluster.pools": pools, "cluster.instances": 2})
    )
    simulation.run()
    assert simulation.done


def test_without_times_there_is_nothing_to_simulate() -> None:
    with pytest.raises(SpecError, match="`latency` of kind `recorded` lacks the key `durations_us`"):
        blis_tui.load("quickstart", set={"latency": "recorded", "cluster.instances": 1})


@pytest.mark.parametrize("durations", [[], [0], ["x"], [-5.0]])
def test_times_that_are_none_are_refused(durations: list[object]) -> None:
    with pytest.raises(SpecError):
        blis_tui.load("quickstart", set={"latency": {"kind": "recorded", "durations_us": durations}})
