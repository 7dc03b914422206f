"""What scaling rules are told of instances: the same as a count of their requests, however a run advances."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import blis_tui
from blis_tui.cluster.options.autoscaler import load_of
from blis_tui.cluster.policies.dynamo import DynamoLoad
from blis_tui.cluster.records import InstanceChanged, ScalingDecided
from tests.cluster.test_models import LLAMA, QWEN, run

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.cluster.policy import ScaledGroup
    from blis_tui.engine.instance import Instance

S = 1_000_000
TIGHT: dict[str, object] = {
    "expect": [],
    "engine": {"max_num_seqs": 16, "kv_blocks": 400, "max_model_len": 4000},
    "cluster.autoscaler": {"max_instances": 4, "interval_us": 370_001, "rule": "dynamo-load"},
}
"""So few blocks that requests are preempted."""
SPLIT: dict[str, object] = {
    "workload.rate_per_s": 14,
    "workload.requests": 200,
    "engine": {"max_num_seqs": 8, "kv_blocks": 400, "max_model_len": 4000},
    "cluster": {
        "instances": 3,
        "disaggregation": {
            "prefill_instances": 1,
            "decode_instances": 2,
            "order": "decode-first",
            "transfer": {"bandwidth_gb_per_s": 1},
        },
        "autoscaler": {"max_instances": 6, "interval_us": 170_001, "rule": "dynamo-load"},
    },
}


def counted(instance: Instance) -> tuple[int, ...]:
    """Tokens of requests that decode; prompts that wait; tokens of what waits but has begun."""
    batch = instance.batch
    decoding = [request for slot, request in batch.running.items() if slot not in batch.prefills]
    fresh = [request for request in batch.waiting.ordered() if not request.preemptions and not request.held_blocks]
    queued = [request for request in batch.waiting.ordered() if request not in fresh]
    coming = [request for request in batch.reserved.values() if request not in queued]
    return (
        sum(batch.cohort.context_tokens(request) for request in decoding),
        sum(request.input_tokens for request in fresh),
        sum(request.computed_tokens for request in queued + coming),
    )


@pytest.mark.parametrize(("name", "changes"), [("autoscaling", TIGHT), ("quickstart", SPLIT)])
def test_loads_are_those_of_the_requests(
    name: str, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = blis_tui.Simulation(blis_tui.load(name, set=changes))
    seen: Counter[str] = Counter()
    original = DynamoLoad.wanted

    def wanted(self: DynamoLoad, group: ScaledGroup, now_us: int) -> tuple[int, str]:
        instances = {load_of(instance): instance for instance in simulation.cluster.pipeline.registry.instances}
        for load in group.loads:
            there = instances[load]
            assert load[4:7] == counted(there)
            assert load.kv_tokens == there.pool.total * there.pool.block_size_tokens
            assert 0 <= load.kv_utilization <= 1
            seen.update(field for field, value in zip(load._fields, load, strict=True) if value)
        assert group.running == sum(load.running for load in group.loads)
        assert group.waiting == sum(load.waiting for load in group.loads)
        return original(self, group, now_us)

    monkeypatch.setattr(DynamoLoad, "wanted", wanted)
    simulation.run()
    assert seen["decode_tokens"]
    assert seen["waiting_prompt_tokens"]
    assert bool(seen["waiting_decode_tokens"]) is (name == "quickstart")  # preempted requests have lost their tokens


@pytest.mark.parametrize("rule", ["wva", "dynamo-load", {"kind": "dynamo-throughput", "requests_per_s": 3}])
def test_a_run_decides_alike_however_it_advances(rule: object) -> None:
    """Alone it runs ahead; observed step by step it does not."""
    scaler = {"max_instances": 4, "interval_us": 730_001, "rule": rule}
    changes = {"cluster.autoscaler": scaler, "expect": []}
    decided: list[list[ScalingDecided]] = [[], []]
    for watched, looks in zip(["scaling-decided", "all"], decided, strict=True):
        simulation = blis_tui.Simulation(blis_tui.load("autoscaling", set=changes))

        def note(record: Any, looks: list[ScalingDecided] = looks) -> None:
            if isinstance(record, ScalingDecided):
                looks.append(record)

        simulation.subscribe(watched, note)
        simulation.run()
    alone, observed = ([(look.time_us, look.verdict, look.reason) for look in looks] for looks in decided)
    assert alone == observed
    assert len(alone) > 50


def test_arrivals_are_counted_for_each_model(tmp_path: Path) -> None:
    """Those that name no model count for every one."""
    models = [LLAMA] * 7 + [QWEN] * 3 + [""] * 2
    pools = f"[{{name: llamas, instances: 1, model: {LLAMA}}}, {{name: qwens, instances: 1}}]"
    rule = {"kind": "dynamo-throughput", "requests_per_s": 1000}
    scaled = {"cluster.autoscaler": {"interval_us": 20_000, "max_instances": 4, "rule": rule}}
    run(tmp_path, models, pools, **scaled)
    simulation = blis_tui.Simulation(blis_tui.load(tmp_path / "mine.blis.yaml", set=scaled))
    looks: list[ScalingDecided] = []
    simulation.subscribe(ScalingDecided, looks.append)
    simulation.run()
    first = {look.reason.split(" in ")[0] for look in looks if look.time_us == 20_000}
    assert first == {f"{LLAMA}: 8 requests", f"{QWEN}: 4 requests"}  # the last one comes only then
    second = {look.reason.split(" in ")[0] for look in looks if look.time_us == 40_000}
    assert second == {f"{LLAMA}: 1 request", f"{QWEN}: 1 request"}


def test_a_checkpoint_knows_what_a_rule_has_seen(tmp_path: Path) -> None:
    pools = f"[{{name: llamas, instances: 1, model: {LLAMA}}}, {{name: qwens, instances: 1}}]"
    rule = {"kind": "dynamo-throughput", "requests_per_s": 100, "load_predictor": "kalman"}
    scaled = {"cluster.autoscaler": {"interval_us": 20_000, "max_instances": 4, "rule": rule}}
    run(tmp_path, [LLAMA, QWEN, ""] * 40, pools, **scaled)
    experiment = blis_tui.load(tmp_path / "mine.blis.yaml", set=scaled)
    first, second = blis_tui.Simulation(experiment), blis_tui.Simulation(experiment)
    first.run(max_events=150)
    second.restore(first.checkpoint())
    assert first.digest() == second.digest()
    first.run()
    second.run()
    assert first.digest() == second.digest()
    assert first.report().to_json() == second.report().to_json()


def two_models(**autoscaler: object) -> dict[str, object]:
    """Two models on one GPU and on two, the second of which has more to do at first."""
    length = {"input_tokens": {"kind": "constant", "value": 800}, "output_tokens": {"kind": "constant", "value": 100}}
    scaler = {"max_instances": 6, "interval_us": 200_000, "scale_down_stabilization_window_us": 500_000, **autoscaler}
    return {
        "expect": [],
        "model": "llama-3.1-8b-instruct",
        "engine": {"max_num_seqs": 16, "kv_blocks": 400, "max_model_len": 4000},
        "cluster": {
            "pools": [
                {"name": "small", "instances": 1},
                {"name": "large", "instances": 1, "model": "qwen3-14b", "tensor_parallel": 2},
            ],
            "autoscaler": scaler,
        },
        "workload": {
            "requests": 300,
            "rate_per_s": 40,
            "clients": [
                {"id": "a", "model": "llama-3.1-8b-instruct", "share": 0.4, **length},
                {"id": "b", "model": "qwen3-14b", "share": 0.6, **length},
            ],
        },
    }


@pytest.mark.parametrize("rule", [None, "wva", "dynamo-load"])
def test_all_pools_share_the_gpus_that_the_autoscaler_may_use(rule: str | None) -> None:
    """Counted anew in the records of instances, those that are drained included."""
    chosen = {} if rule is None else {"rule": rule}
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=two_models(max_gpus=8, **chosen)))
    gpus_of = {"small": 1, "large": 2}
    held = {"small": 1, "large": 2}
    most = 0
    looks: list[ScalingDecided] = []

    def note(record: InstanceChanged) -> None:
        nonlocal most
        own = gpus_of[record.pool]
        held[record.pool] += {"scheduling": own, "terminated": -own}.get(record.state, 0)
        most = max(most, sum(held.values()))

    simulation.subscribe(InstanceChanged, note)
    simulation.subscribe(ScalingDecided, looks.append)
    simulation.run()
    assert most in (7, 8)  # the large ones get none, and the small ones one, of a single GPU that is left
    assert any(look.reason.endswith("the other GPUs are in use (max_gpus)") for look in looks)
    # Where one has to be second, it is the one with less to do for what it has.
    for first, second in zip(looks[::2], looks[1::2], strict=True):
        assert first.time_us == second.time_us
        fullness = [look.demand_tokens / (look.supply_tokens + look.pending_tokens) for look in (first, second)]
        assert fullness[0] >= fullness[1] or first.verdict == "scale-up", (first, second)
