"""Experts spread over a replica: the way of tokens to them, steps and KV blocks by hand."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.engine.kv.capacity import InstanceMemory, active_parameters, kv_capacity
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.expert_parallelism import wide_of
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.latency.operator_steps import OperatorModel
from blis_tui.engine.latency.operator_tables import OperatorTables
from blis_tui.model import AllToAll
from blis_tui.spec.operator_files import read_tables
from tests.builders import request

if TYPE_CHECKING:
    from blis_tui.model import Experiment

ROOT = Path(__file__).parents[3]
_DISPATCH = {8: 77, 16: 118, 32: 155, 64: 173, 128: 192, 256: 194}
_COMBINE = {8: 114, 16: 195, 32: 273, 64: 314, 128: 369, 256: 360}
"""Microseconds by GPUs: DeepEP, docs/legacy.md, low-latency kernels on H800 (128 tokens each, 7168 hidden, top 8)."""
_THROUGHPUT = {8: (153, 158), 16: (43, 43), 32: (58, 57), 64: (51, 50)}
"""GB/s of dispatch and combine by GPUs: the same of normal kernels, by NVLink within one node, else by RDMA."""
_LAYERS, _EXPERT_LAYERS, _HIDDEN, _TOP_K = 61, 58, 7168, 8


def loaded(ranks: int = 16, split: int = 1, hardware: str = "h200", **engine: object) -> Experiment:
    """DeepSeek-V3, on H200 unless told otherwise."""
    settings: dict[str, object] = {
        "model": "deepseek-v3",
        "hardware": hardware,
        "latency": {"kind": "operators", "sampling": "plain"},
        "policy.batching": "vllm-v1",
        "cluster": {"instances": 1, "tensor_parallel": split},
        "engine": {"data_parallel": ranks, "expert_parallel": True, **engine},
    }
    return blis_tui.load("quickstart", set=settings)


def steps(ranks: int = 16, split: int = 1, hardware: str = "h200", **engine: object) -> OperatorModel:
    """Its step-time model."""
    made = loaded(ranks, split, hardware, **engine)
    model = create_latency(made.plugins, made.pools[0])
    assert isinstance(model, OperatorModel)
    return model


def decoding(model: OperatorModel, own: int, others: int) -> int:
    """A step of so many decodes of 1,000 tokens, beside those of other ranks."""
    load = StepLoad([], own, own * 1000)
    load.other_tokens = others
    return model.step_time_us(load)


@pytest.mark.parametrize("gpus", _DISPATCH)
def test_kernels_of_low_latency_take_what_was_published_of_them(gpus: int) -> None:
    """128 tokens of each GPU, in FP8 with scales there and in 16 bits back: within 7 %, each and together."""
    (pool,) = loaded().pools
    wide = wide_of(replace(pool.engine, data_parallel=gpus), pool.model, 1)
    published = _DISPATCH[gpus] + _COMBINE[gpus]
    assert wide.exchange_of(128, prompts=False) == pytest.approx(published, rel=0.07)
    near, bytes_ = min(8, gpus), 128 * _TOP_K * _HIDDEN
    for element, one in ((1.03125, _DISPATCH[gpus]), (2.0, _COMBINE[gpus])):
        nvlink, network = bytes_ * element * (near - 1) / gpus / 150e3, bytes_ * element * (gpus - near) / gpus / 43.5e3
        assert 30 + max(nvlink, network) == pytest.approx(one, rel=0.07)


@pytest.mark.parametrize(("gpus", "gb_per_s"), _THROUGHPUT.items())
def test_kernels_of_high_throughput_reach_the_published_bandwidth(gpus: int, gb_per_s: tuple[int, int]) -> None:
    """4,096 tokens of each GPU: within 10 %. Counted is what a token has on GPUs of one node, or on all nodes."""
    (pool,) = loaded().pools
    found = wide_of(replace(pool.engine, data_parallel=gpus), pool.model, 1).exchange_of(4096, prompts=True)
    places = gpus if gpus == 8 else gpus // 8
    counted = 4096 * _HIDDEN * places * (1 - (1 - 1 / places) ** _TOP_K)
    published = counted * (1.03125 / gb_per_s[0] + 2.0 / gb_per_s[1]) / 1e3
    assert found == pytest.approx(published, rel=0.1)


def test_steps_with_prompts_take_other_kernels_unless_one_kind_is_stated() -> None:
    (pool,) = loaded().pools
    found = {
        kind: [
            wide_of(replace(pool.engine, all_to_all=AllToAll(backend=kind)), pool.model, 1).exchange_of(
                500, prompts=prompts
            )
            for prompts in (False, True)
        ]
        for kind in ("auto", "deepep_low_latency", "deepep_high_throughput")
    }
    each, once = found["auto"]
    assert each > once
    assert found["deepep_low_latency"] == [each, each]
    assert found["deepep_high_throughput"] == [once, once]


def busiest(tokens: int, imbalance: float = 1.0) -> float:
    """Tokens of which the busiest of 16 GPUs has what it would have of so many if all had as many.

    A token chooses 8 of 256 experts; the largest of 16 standard normal values is 1.766 in the mean.
    """
    varies = 16 * 248 / 255 / (8 * tokens)
    return tokens * (1 + sqrt((imbalance - 1) ** 2 + 1.766**2 * varies))


def test_experts_have_the_tokens_of_all_ranks() -> None:
    """Sixteen of 256 experts on each GPU, of which a token chooses half a one in the mean."""
    model = steps()
    curve = OperatorTables(read_tables("h200")).experts("fp8", _HIDDEN, 2048, 16, 0.5, 1, 1.0)
    assert curve is not None
    for few, many in ((64, 1024), (1024, 8192), (8192, 4096)):
        more = _EXPERT_LAYERS * (curve.at(busiest(many)) - curve.at(busiest(few)))
        assert decoding(model, 64, many - 64) - decoding(model, 64, few - 64) == pytest.approx(more, abs=2)


def test_each_layer_with_experts_has_a_dispatch_and_a_combine() -> None:
    """Two nodes: half of the tokens go over the network, whose time counts; over NVLink they are there sooner."""
    bytes_ = 64 * _TOP_K * _HIDDEN * (1.03125 + 2)
    usual = decoding(steps(), 64, 960)
    slow = decoding(steps(all_to_all={"inter_node_gb_per_s": 20}), 64, 960)
    late = decoding(steps(all_to_all={"latency_us": 40}), 64, 960)
    one_node = decoding(steps(all_to_all={"gpus_per_node": 16}), 64, 960)
    assert slow - usual == pytest.approx(_EXPERT_LAYERS * bytes_ / 2 * (1 / 20e3 - 1 / 43.5e3), abs=2)
    assert late - usual == pytest.approx(_EXPERT_LAYERS * 2 * 10, abs=2)
    faster = bytes_ / 2 / 43.5e3 - bytes_ * 15 / 16 / 150e3
    assert usual - one_node == pytest.approx(_EXPERT_LAYERS * faster, abs=2)


def test_the_gpus_of_a_rank_send_a_part_of_its_tokens_each() -> None:
    """Eight ranks of two GPUs are as many GPUs, and each sends half of a rank's tokens."""
    slow = decoding(steps(8, 2, all_to_all={"inter_node_gb_per_s": 20}), 64, 448)
    bytes_ = 32 * _TOP_K * _HIDDEN * (1.03125 + 2)
    more = _EXPERT_LAYERS * bytes_ / 2 * (1 / 20e3 - 1 / 43.5e3)
    assert slow - decoding(steps(8, 2), 64, 448) == pytest.approx(more, abs=2)


def test_the_busiest_gpu_has_more_tokens_to_receive_and_to_compute() -> None:
    usual, uneven = steps(), steps(expert_imbalance=1.5)
    curve = OperatorTables(read_tables("h200")).experts("fp8", _HIDDEN, 2048, 16, 0.5, 1, 1.0)
    assert curve is not None
    bytes_ = 64 * _TOP_K * _HIDDEN * (1.03125 + 2)
    more = curve.at(busiest(1024, 1.5)) - curve.at(busiest(1024)) + 0.5 * bytes_ / 2 / 43.5e3
    assert decoding(uneven, 64, 960) - decoding(usual, 64, 960) == pytest.approx(_EXPERT_LAYERS * more, abs=2)


def test_with_one_rank_whole_experts_are_what_operators_know_of_a_server() -> None:
    """Spread over the GPUs of one instance: as its own setting says, but for the busiest, which is stated."""
    made = {"model": "qwen3-30b-a3b", "hardware": "h200", "cluster.tensor_parallel": 4, "policy.batching": "vllm-v1"}
    own = {"kind": "operators", "expert_parallel": 4, "experts_spread": 0}
    ours = {"latency": {"kind": "operators", "experts_spread": 0}, "engine": {"expert_parallel": True}}
    models = []
    for more in ({"latency": own}, ours):
        one = blis_tui.load("quickstart", set={**made, **more})
        models.append(create_latency(one.plugins, one.pools[0]))
    loads = [StepLoad([], count, count * 500) for count in (1, 7, 64, 200)]
    assert [models[0].step_time_us(load) for load in loads] == [models[1].step_time_us(load) for load in loads]


# ---- published servers ----


def test_the_page_says_what_step_times_are_beside_published_ones() -> None:
    """Tokens per second of each GPU: as SGLang's and vLLM's authors say of theirs, and within a quarter of that."""

    def rate(hardware: str, ranks: int, *, prompts: int = 0, decodes: int = 0) -> float:
        model = steps(ranks, hardware=hardware, kv_blocks=50_000, max_num_batched_tokens=16_384)
        chunks = [Chunk(request(0, 0, 2000, 1), 0, 2048, 2048) for _ in range(prompts)]
        load = StepLoad(chunks, decodes, decodes * 2000)
        load.other_tokens, load.other_chunks = (ranks - 1) * (2048 * prompts + decodes), (ranks - 1) * prompts
        return 1e6 * (2048 * prompts + decodes) / model.step_time_us(load)

    page = (ROOT / "docs" / "wide.md").read_text(encoding="utf-8")
    for published, ours in (
        (22_282 / 8, rate("h100", 64, decodes=256)),
        (52_300 / 8, rate("h100", 32, prompts=8)),
        (2_200, rate("h200", 16, decodes=256)),
    ):
        assert ours == pytest.approx(published, rel=0.25)
        assert f"| {published:,.0f} | {ours:,.0f} | {100 * (ours / published - 1):+.0f} % |" in page


# ---- memory ----


def test_deepseek_v3_has_the_published_number_of_parameters_and_active_ones() -> None:
    pool = loaded().pools[0]
    model = pool.model
    memory = InstanceMemory(
        model=model,
        hardware=pool.hardware,
        tensor_parallel=8,
        block_size_tokens=16,
        gpu_memory_utilization=0.9,
        max_num_batched_tokens=8192,
        max_num_seqs=1024,
    )
    whole = kv_capacity(memory)
    assert whole.weights_gib * 2**30 / 1e9 == pytest.approx(671.0, abs=0.5)
    assert active_parameters(model) / 1e9 == pytest.approx(37.0, rel=0.02)


def test_a_rank_holds_all_but_the_experts_and_its_part_of_them() -> None:
    """On one H200 of sixteen, by hand; a token has 576 elements of two bytes in each layer."""
    attention = _HIDDEN * 1536 + 1536 * 128 * 192 + _HIDDEN * 576 + 512 * 2 * 128 * 128 + 128 * 128 * _HIDDEN
    dense, expert = 3 * _HIDDEN * 18432, 3 * _HIDDEN * 2048
    held = _LAYERS * (attention + 2 * _HIDDEN) + 3 * dense + _EXPERT_LAYERS * (17 * expert + 256 * _HIDDEN)
    held += 2 * 2 * 129280 * _HIDDEN + _HIDDEN  # embeddings and head have two bytes a weight, all others one
    (pool,) = loaded().pools
    # The sampler of 1,024 requests and the hidden states of 8,192 tokens; 0.85 GiB outside the pool, with CUDA graphs.
    peak = 38.4 * 1024 * 129280 + 2 * 8192 * _HIDDEN
    left = pool.hardware.memory_gib * 2**30 * 0.92 - held - peak - 0.85 * 2**30
    assert pool.engine.kv_blocks == int(left) // (16 * _LAYERS * 576 * 2)


def test_a_latent_cache_is_whole_on_each_gpu_of_a_rank_and_each_rank_has_its_own() -> None:
    pools = {split: loaded(16 // split, split).pools[0] for split in (1, 2)}
    assert [pool.instances for pool in pools.values()] == [16, 8]
    found = {
        split: kv_capacity(
            InstanceMemory(
                model=pool.model,
                hardware=pool.hardware,
                tensor_parallel=split,
                block_size_tokens=16,
                gpu_memory_utilization=0.9,
                max_num_batched_tokens=8192,
                max_num_seqs=1024,
                expert_ranks=pool.instances,
            )
        )
        for split, pool in pools.items()
    }
    assert found[2].bytes_per_block == 2 * found[1].bytes_per_block == 2 * 16 * _LAYERS * 576 * 2
    # Two GPUs share a rank's attention, so that each holds half of it; the experts of a GPU are the same.
    assert found[2].weights_gib < 2 * found[1].weights_gib
