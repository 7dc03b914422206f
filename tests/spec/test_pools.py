"""Pools that differ: what each one says goes before what the experiment says, and numbers are worked out for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.spec.authoring.provenance import compose
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from pathlib import Path

BASE = (
    "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: mine}\nmodel: qwen3-14b\nhardware: h100\n"
    "workload: chatbot\nengine: {max_num_seqs: 64}\n"
)
POOLS = BASE + (
    "cluster:\n  pools:\n"
    "    - {name: big, instances: 2, tensor_parallel: 2, model: llama-3.1-8b-instruct, engine: {max_num_seqs: 8}}\n"
    "    - {name: old, instances: 3, hardware: a100-80, latency: trained-physics, engine: {kv_cache_dtype: fp8}}\n"
    "    - {name: plain, instances: 1}\n"
)


def test_a_pool_runs_with_its_own_keys_and_otherwise_with_the_experiments() -> None:
    plain = load("-", stdin_text=BASE).pools[0]
    big, old, same = load("-", stdin_text=POOLS).pools
    assert (big.model.name, big.hardware, big.tensor_parallel) == ("llama-3.1-8b-instruct", plain.hardware, 2)
    assert (big.engine.max_num_seqs, old.engine.max_num_seqs, same.engine.max_num_seqs) == (8, 64, 64)
    assert (old.model.name, old.hardware.name, old.latency.kind) == ("qwen3-14b", "a100-80", "trained-physics")
    assert old.model.kv_cache_bytes == 1.0
    assert (same.engine, same.model, same.latency) == (plain.engine, plain.model, plain.latency)


def test_automatic_values_are_worked_out_for_each_pool() -> None:
    alone = BASE.replace("qwen3-14b", "llama-3.1-8b-instruct") + "cluster: {tensor_parallel: 2}\n"
    big, old, same = load("-", stdin_text=POOLS).pools
    assert big.engine.kv_blocks == load("-", stdin_text=alone).pools[0].engine.kv_blocks
    assert len({big.engine.kv_blocks, old.engine.kv_blocks, same.engine.kv_blocks}) == 3
    assert (big.engine.max_model_len, same.engine.max_model_len) == (131072, 40960)


def test_coefficients_are_those_of_each_pools_combination() -> None:
    text = POOLS + "latency: blackbox\n"
    with pytest.raises(SpecError, match="no blackbox coefficients for llama"):
        load("-", stdin_text=text.replace("tensor_parallel: 2", "tensor_parallel: 8"))
    one, two = (
        load("-", stdin_text=BASE + "latency: blackbox\n", overrides=[f"cluster.pools=[{pools}]"]).pools
        for pools in ("{name: a, instances: 1}", "{name: a, instances: 1, model: llama-3.1-8b-instruct}")
    )
    assert one[0].latency.settings["beta"] != two[0].latency.settings["beta"]


def test_pools_say_how_many_instances_there_are() -> None:
    experiment = load("-", stdin_text=POOLS)
    assert experiment.instances == 6
    cluster = experiment.document["cluster"]
    assert isinstance(cluster, dict)
    assert cluster["instances"] == 6
    assert load("-", stdin_text=POOLS, overrides=["cluster.instances=6"]).sha256 == experiment.sha256
    with pytest.raises(SpecError, match=r"cluster.instances is 5, but the instances of its pools add up to 6"):
        load("-", stdin_text=POOLS, overrides=["cluster.instances=5"])


def test_what_is_resolved_is_the_same_experiment_and_knows_where_everything_is_from(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(POOLS)
    composed = compose(str(tmp_path / "mine.yaml"))
    assert load("-", stdin_text=composed.to_yaml()).sha256 == composed.spec_sha256
    origins = composed.origins
    assert origins["cluster", "pools", 0, "engine", "kv_blocks"] == "computed"
    assert origins["cluster", "pools", 0, "engine", "max_num_seqs"].endswith("mine.yaml:10")
    assert origins["cluster", "pools", 1, "engine", "max_num_seqs"].endswith("mine.yaml:7")
    assert origins["cluster", "pools", 1, "latency", "alpha"].endswith("trained-physics.yaml")
    assert origins["cluster", "pools", 1, "hardware", "memory_gib"].partition(":")[0].endswith("a100-80.yaml")


def test_overrides_reach_into_the_documents_that_pools_name() -> None:
    changes = ["cluster.pools.1.hardware.memory_gib=40", "cluster.pools.0.engine.kv_blocks=500"]
    big, old, _ = load("-", stdin_text=POOLS, overrides=changes).pools
    assert (old.hardware.memory_gib, big.engine.kv_blocks) == (40.0, 500)


def test_what_no_instance_runs_with_need_not_work() -> None:
    """The model of the experiment does not fit, but all pools have another."""
    text = BASE.replace("qwen3-14b", "llama-3.1-70b-instruct")
    pools = "cluster.pools=[{name: a, instances: 1, model: qwen3-14b}]"
    assert load("-", stdin_text=text, overrides=[pools]).pools[0].engine.kv_blocks > 0


def test_instances_that_prefill_and_decode_are_a_clusters_instances() -> None:
    """More instances than these do both, so that a number of instances may be set besides."""
    text = f"{BASE}cluster: {{disaggregation: {{prefill_instances: 2, decode_instances: 3}}}}\n"
    assert [(pool.role, pool.instances) for pool in load("-", stdin_text=text).pools] == [("prefill", 2), ("decode", 3)]
    more = load("-", stdin_text=text, overrides=["cluster.instances=6"])
    assert [(pool.role, pool.instances) for pool in more.pools] == [("prefill", 2), ("decode", 3), ("whole", 1)]


def test_pools_replace_inherited_numbers_of_instances(tmp_path: Path) -> None:
    split = "cluster: {instances: 4, disaggregation: {prefill_instances: 3, decode_instances: 1}}\n"
    (tmp_path / "base.yaml").write_text(BASE + split)
    (tmp_path / "top.yaml").write_text(
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: top}\nextends: base.yaml\n"
        "cluster: {pools: [{name: a, role: prefill, instances: 1}, {name: b, role: decode, instances: 1}]}\n"
    )
    assert load(tmp_path / "top.yaml").instances == 2


@pytest.mark.parametrize(
    ("keys", "value"),
    [("per_band_capacity", "0"), ("usage_limit", "1"), ("weights", "{}")],
)
def test_a_setting_that_asks_for_nothing_is_no_mistake(keys: str, value: str) -> None:
    """A resolved document says all defaults."""
    assert load("-", stdin_text=BASE, overrides=[f"policy.gateway={{{keys}: {value}}}"]).policy.gateway is not None


def test_pools_of_different_models_may_keep_their_kv_cache_differently() -> None:
    roles = ("prefill", "decode")
    pools = [
        {"name": f"{role}-{model}", "role": role, "instances": 1, "model": model, "engine": {"kv_cache_dtype": dtype}}
        for model, dtype in (("llama-3.1-8b-instruct", "fp8"), ("qwen3-14b", "auto"))
        for role in roles
    ]
    made = load("quickstart", overrides={"cluster": {"pools": pools, "disaggregation": {}}})
    assert made.cluster.disaggregation is not None
    assert made.cluster.disaggregation.transfer.bytes_per_token is None


def test_numbers_of_instances_are_those_of_replicas_each_of_so_many_ranks() -> None:
    """In the cluster, in its pools and in disaggregation alike."""
    ranks = {"model": "qwen3-14b", "engine.data_parallel": 3, "workload.requests": 20, "expect": []}
    alone = blis_tui.load("quickstart", set={**ranks, "cluster": {"instances": 2}})
    assert [(pool.name, pool.instances) for pool in alone.pools] == [("default", 6)]
    halves = {"instances": 4, "disaggregation": {"prefill_instances": 1, "decode_instances": 2}}
    split = blis_tui.load("quickstart", set={**ranks, "cluster": halves})
    assert [(pool.role, pool.instances) for pool in split.pools] == [("prefill", 3), ("decode", 6), ("whole", 3)]
    pools = [
        {"name": "few", "instances": 1},
        {"name": "other", "instances": 2, "engine": {"data_parallel": 2}},
        {"name": "single", "instances": 2, "engine": {"data_parallel": 1}},
    ]
    listed = blis_tui.load("quickstart", set={**ranks, "cluster": {"pools": pools}})
    assert [(pool.name, pool.instances) for pool in listed.pools] == [("few", 3), ("other", 4), ("single", 2)]
    found = [(instance.replica, instance.rank) for instance in blis_tui.run(listed).instances]
    assert found == [(0, 0), (0, 1), (0, 2), (0, 0), (0, 1), (1, 0), (1, 1), (None, None), (None, None)]
    report = blis_tui.run(split)
    assert report.requests.completed == 20
    assert report.disaggregation is not None
    assert report.disaggregation.split == 20
