"""Kernels without tables: each law by its own arithmetic, where it applies, and what servers were measured to do."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import blis_tui
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.latency.operator_kernels import old_tiles
from blis_tui.engine.latency.operator_steps import OperatorModel
from blis_tui.engine.latency.operator_tables import OperatorTables, touched_experts
from blis_tui.spec.operator_files import read_tables
from blis_tui.spec.shipped import shipped_specs
from tests.builders import request

SYNCHRONOUS: dict[str, Any] = {"policy.batching": {"kind": "vllm-v1", "async_scheduling": False}}


def steps(model: object, hardware: str, split: int = 1, **more: Any) -> OperatorModel:
    latency = {"kind": "operators", "sampling": "plain", **more.pop("latency", {})}
    values = {"model": model, "hardware": hardware, "cluster.tensor_parallel": split, "latency": latency}
    loaded = blis_tui.load("quickstart", set={**values, "engine.kv_blocks": 20_000, "expect": [], **more})
    found = create_latency(loaded.plugins, loaded.pools[0])
    assert isinstance(found, OperatorModel)
    return found


def mixed_us(model: OperatorModel, decodes: int, context: int) -> int:
    """A step with a prompt of 500 tokens beside decodes."""
    return model.step_time_us(StepLoad([Chunk(request(0, 0, 500, 5), 0, 500, 500)], decodes, decodes * context))


def decodes_us(model: OperatorModel, decodes: int, context: int) -> int:
    return model.step_time_us(StepLoad([], decodes, decodes * context))


def growth_us(model: OperatorModel, *, mixed: bool) -> int:
    """What 64 decodes' contexts of 4,000 instead of 2,000 tokens add to a step."""
    of = mixed_us if mixed else decodes_us
    return of(model, 64, 4000) - of(model, 64, 2000)


def test_flash_attention_2_reads_the_cache_once_per_query_head_beside_prompts() -> None:
    """Llama 8B has four query heads for each of eight KV heads: three reads of 64 x 2,000 tokens more."""
    a100 = steps("llama-3.1-8b-instruct", "a100-80")
    more_us = growth_us(a100, mixed=True) - growth_us(a100, mixed=False)
    bytes_ = 64 * 2000 * 32 * 8 * 128 * 2 * 2 * 3
    assert more_us == pytest.approx(bytes_ / (0.83 * 2.039e6), rel=0.03)


@pytest.mark.parametrize(
    ("model", "hardware", "more"),
    [
        ("llama-3.1-8b-instruct", "h100", {}),
        ("deepseek-v2-lite", "a100-80", {}),
        ("gpt-oss-120b", "a100-80", {}),
        ("llama-3.1-8b-instruct", "a100-80", {"latency": {"engine": "tensorrt-llm"}}),
    ],
)
def test_other_kernels_pack_query_heads(model: str, hardware: str, more: dict[str, Any]) -> None:
    assert steps(model, hardware, **more).costs.read_again_us == 0.0


def test_prompts_with_sinks_take_longer_where_triton_computes_their_attention() -> None:
    """A prompt of 8,000 tokens on an A100, beside the same kernel's time for a model without sinks."""

    def attention_us(model: str, hardware: str) -> float:
        costs = steps(model, hardware).costs
        return (costs.alone.at(32e6) - costs.alone.times_us[0]) / costs.layers.heads / costs.layers.head_dim

    per_head = attention_us("gpt-oss-120b", "a100-80") / attention_us("llama-3.1-8b-instruct", "a100-80")
    assert per_head == pytest.approx(4.5, rel=0.4)
    hopper = attention_us("gpt-oss-120b", "h100") / attention_us("llama-3.1-8b-instruct", "h100")
    assert hopper == pytest.approx(1.0, rel=0.6)


def test_experts_in_marlins_kernel_read_weights_and_multiply_padded_blocks() -> None:
    """A token of gpt-oss: four experts' weights of 4.25 bits, a block of eight rows each, and a launch, in a layer.

    Beyond CUDA graphs, 0.1 us a token are added for what is around MXFP4 experts in any kernel.
    """
    model = steps("gpt-oss-120b", "a100-80")
    [(layers, curve)] = model.costs._parts["experts"]
    assert layers == 36
    weights = 4 * 3 * 2880 * 2880 * 0.53125
    rows = 4 * (1 + 8 / 2)
    expected = 30.0 + weights / (0.8 * 2.039e6) + 6 * max(rows, 4 * 8) * 2880 * 2880 / (0.55 * 312e6)
    assert curve.at(1) == pytest.approx(expected, rel=0.02)
    assert list(curve.times_us) == sorted(curve.times_us)
    many = 4096
    assert touched_experts(128, 4, many) == pytest.approx(128)
    computed = 6 * (many * 4 + 128 * 32) * 2880 * 2880 / (0.55 * 312e6)
    read = 128 * 3 * 2880 * 2880 * 0.53125 / (0.8 * 2.039e6)
    assert curve.at(many) == pytest.approx(30.0 + computed + read + 0.1 * many, rel=0.02)


@pytest.mark.parametrize(("hardware", "marlin"), [("a100-80", True), ("h100", False), ("b200", False)])
def test_other_gpus_have_kernels_for_these_weights(hardware: str, marlin: bool) -> None:
    [(_, curve)] = steps("gpt-oss-120b", hardware).costs._parts["experts"]
    assert (16384.0 in curve.sizes and 192.0 in curve.sizes and curve.known == "extrapolated") == marlin


def test_8_bit_weights_without_units_for_them_take_a_fifth_longer_than_their_bytes() -> None:
    a100 = OperatorTables(read_tables("a100"))
    sixteen, eight = (a100.gemm(kind, 16384, 8192) for kind in ("bfloat16", "fp8"))
    assert sixteen.at(1) / eight.at(1) == pytest.approx(2.0 / 1.2, rel=0.05)
    assert eight.at(16384) / sixteen.at(16384) == pytest.approx(1.2, rel=0.02)
    h100 = OperatorTables(read_tables("h100"))
    assert h100.gemm("bfloat16", 16384, 8192).at(1) / h100.gemm("fp8", 16384, 8192).at(1) > 1.6


@pytest.mark.parametrize("split", [2, 4, 8])
def test_fp8_experts_in_parts_of_blocks_are_no_neighbours(split: int) -> None:
    """Widths of 192 and 320 were measured with a kernel that takes two to six times as long, which no server runs."""
    tables = OperatorTables(read_tables("h200"))
    whole = tables.experts("fp8", 5120, 1536, 160, 8, 1)
    part = tables.experts("fp8", 5120, 1536, 160, 8, split)
    assert whole is not None
    assert part is not None
    assert part.at(64) < 1.3 * whole.at(64) / split + 60.0


def test_sparse_attention_costs_its_indexer_and_the_chosen_tokens() -> None:
    def config(**more: Any) -> dict[str, Any]:
        body = yaml.safe_load((shipped_specs() / "models" / "deepseek-v3.yaml").read_text(encoding="utf-8"))
        config = {**body["config"], **more}
        return {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "sparse"}, "config": config}

    full, sparse = steps(config(), "h200", 8), steps(config(index_topk=2048), "h200", 8)
    layers, rank, rope, peak = 61, 512, 64, 989.5e6
    token_us = layers * 2 * 64 * 2048 * (2 * rank + rope) / (0.47 * peak)
    for decodes in (1, 32, 256):
        more_us = decodes_us(sparse, decodes, 4000) - decodes_us(full, decodes, 4000)
        assert more_us == pytest.approx(layers * 190 + decodes * token_us, rel=0.02)


def test_decodes_read_the_chosen_tokens_and_the_indexers_keys() -> None:
    """Beyond 2,048 tokens, 32 decodes of DeepSeek V3.2 read 132 bytes a token and layer more."""
    model = steps("deepseek-v3.2", "h200", 8, **{"engine.kv_blocks": 2_000_000})
    more_us = decodes_us(model, 32, 130_000) - decodes_us(model, 32, 66_000)
    assert more_us == pytest.approx(61 * 32 * 64_000 * 132 / (0.75 * 4.8e6), rel=0.01)
    full = steps("deepseek-v3", "h200", 8, **{"engine.kv_blocks": 2_000_000})
    assert more_us < 0.4 * (decodes_us(full, 32, 130_000) - decodes_us(full, 32, 66_000))


def test_a_long_context_with_sinks_takes_its_time_however_few_there_are() -> None:
    """gpt-oss 120B on one A100: with contexts of 32,000 tokens a step took 24 and 20 ms; 13 without that."""
    model = steps("gpt-oss-120b", "a100-80")
    alone = [decodes_us(model, 1, context) for context in (16_000, 32_000)]
    assert alone[1] - alone[0] == pytest.approx(18 * 16_000 * 0.022, rel=0.05)
    assert 20_000 < decodes_us(model, 3, 32_000) < 24_500
    hopper = steps("gpt-oss-120b", "h100")
    assert decodes_us(hopper, 1, 32_000) - decodes_us(hopper, 1, 16_000) < 0.5 * (alone[1] - alone[0])


def test_nvfp4_reads_fewer_bytes_and_multiplies_faster_on_blackwell_alone() -> None:
    """Products of Llama 70B over four GPUs; other GPUs widen the weights for their 16-bit units."""

    def products_us(hardware: str, method: str | None, tokens: int) -> float:
        body = yaml.safe_load((shipped_specs() / "models" / "llama-3.1-70b-instruct.yaml").read_text(encoding="utf-8"))
        config = {**body["config"], **({"quantization_config": {"quant_method": method}} if method else {})}
        model = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "seventy"}, "config": config}
        [(_, *parts)] = [(0, *steps(model, hardware, 4).costs._parts["products"])]
        return sum(times * curve.at(tokens) for times, curve in parts)

    for hardware in ("b200", "gb300", "rtx-pro-6000"):
        for tokens in (1, 64, 8192):
            assert products_us(hardware, "nvfp4", tokens) < 0.85 * products_us(hardware, "fp8", tokens)
    assert products_us("b200", "nvfp4", 8192) < 0.45 * products_us("b200", None, 8192)
    assert products_us("h100", "nvfp4", 8192) == pytest.approx(products_us("h100", None, 8192))
    assert products_us("h100", "nvfp4", 1) < products_us("h100", "fp8", 1)


def test_experts_in_nvfp4_were_measured_on_blackwell() -> None:
    nvfp4 = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    for config in (QWEN3_235B | nvfp4, QWEN3_235B | FP8):
        model = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "qwen3-235b"}, "config": config}
        assert steps(model, "b200", 4).costs.known()["experts"] == "measured"


def test_without_asynchronous_scheduling_the_gpu_waits_for_vllms_host() -> None:
    waiting = steps("llama-3.1-8b-instruct", "h100", **SYNCHRONOUS)
    going_on = steps("llama-3.1-8b-instruct", "h100")
    for decodes in (4, 256):
        more_us = decodes_us(waiting, decodes, 500) - decodes_us(going_on, decodes, 500)
        assert more_us == pytest.approx(1300 + 18 * decodes, abs=2)
    given = steps("llama-3.1-8b-instruct", "h100", latency={"host_us": 400, "host_request_us": 0}, **SYNCHRONOUS)
    assert decodes_us(given, 4, 500) - decodes_us(going_on, 4, 500) == pytest.approx(400, abs=2)
    other = steps("llama-3.1-8b-instruct", "h100", latency={"engine": "tensorrt-llm"}, **SYNCHRONOUS)
    alone = steps("llama-3.1-8b-instruct", "h100", latency={"engine": "tensorrt-llm"})
    assert decodes_us(other, 4, 500) == decodes_us(alone, 4, 500)


@pytest.mark.parametrize(
    ("model", "hardware", "more", "measured_us"),
    [
        ("qwen3-0.6b", "h100", {}, 2390),
        ("qwen3-0.6b", "a100-80", SYNCHRONOUS, 4200),
        ("qwen3-1.7b", "a100-80", SYNCHRONOUS, 4600),
    ],
)
def test_a_small_model_waits_for_the_host(model: str, hardware: str, more: dict[str, Any], measured_us: float) -> None:
    """Time per token of one user, within 6 %; without that floor it would be 1.2, 3.0 and 4.6 ms."""
    assert decodes_us(steps(model, hardware, **more), 1, 200) == pytest.approx(measured_us, rel=0.06)


def test_no_step_takes_less_than_the_host() -> None:
    """A step at a time or many at once, on the way from where the host counts to where the GPU does."""
    free = steps("qwen3-0.6b", "a100-80", latency={"host_floor_us": 0})
    bound = steps("qwen3-0.6b", "a100-80")
    load = StepLoad([], 8, 8 * 500)
    several, unbound = (
        [one for one, times in made.decode_runs(load, 6000) for _ in range(times)] for made in (bound, free)
    )
    assert several == [max(2300, one) for one in unbound]
    assert several[0] == 2300 < several[-1]
    assert several[::500] == [bound.step_time_us(StepLoad([], 8, 8 * (500 + at))) for at in range(0, 6000, 500)]
    assert bound.least_us(load, 6000) <= sum(several)
    assert mixed_us(bound, 1, 100) == max(2300, mixed_us(free, 1, 100))


QWEN3_235B = {
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "hidden_act": "silu",
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
BURSTS = [
    (QWEN3_235B, 8, 1996, 99, 208.52),
    (QWEN3_235B, 8, 3996, 183, 239.57),
    (QWEN3_235B | FP8, 4, 1996, 99, 376.62),
    (QWEN3_235B | FP8, 4, 3996, 181, 425.81),
]
"""Bursts of 500 prompts on A100s (vLLM 0.11, GPUStack's performance lab): model, TP, prompt, answer, median ITL in ms.
Nearly all steps have a part of a prompt of 2,048 tokens beside 17 to 64 decodes."""


@pytest.mark.parametrize(("config", "split", "prompt", "answer", "measured_ms"), BURSTS)
def test_bursts_on_a100s_have_the_gaps_that_were_measured(
    config: dict[str, Any], split: int, prompt: int, answer: int, measured_ms: float
) -> None:
    """Within an eighth; they were up to two fifths too short as long as the laws of these kernels were missing."""
    model = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "qwen3-235b"}, "config": config}
    client = {"id": "burst", "arrivals": "constant", "input_tokens": prompt, "output_tokens": answer}
    values = {
        "model": model,
        "hardware": "a100-80",
        "cluster": {"instances": 1, "tensor_parallel": split},
        "engine": {"max_num_seqs": 256, "max_num_batched_tokens": 2048},
        "latency": {"kind": "operators", "sampling": "plain"},
        "workload": {"requests": 160, "rate_per_s": 100_000, "clients": [client]},
        "expect": [],
        **SYNCHRONOUS,
    }
    found = blis_tui.run(blis_tui.load("quickstart", set=values)).latency.itl_ms.p50
    assert found == pytest.approx(measured_ms, rel=0.125)


OLD_TILES_US = {128: 273.72, 256: 355.49, 512: 391.86, 1024: 536.33, 2048: 911.64, 4096: 1647.57}
"""us of Qwen3 30B's experts in FP8, one scale for each, on H100, by vLLM's default tiles of 2025 (its pull request
24700)."""


def test_old_tiles_take_what_was_measured() -> None:
    """The tables have scales for blocks of weights, with which experts take a twentieth longer."""
    new = OperatorTables(read_tables("h100")).experts("fp8", 2048, 768, 128, 8, 1)
    assert new is not None
    old = old_tiles(new, "bfloat16", "h100", 128, 768, 8)
    assert {tokens: 0.95 * old.at(tokens) for tokens in OLD_TILES_US} == pytest.approx(OLD_TILES_US, rel=0.11)
    assert [old.at(tokens) for tokens in (1, 16, 64)] == [new.at(tokens) for tokens in (1, 16, 64)]
    assert list(old.times_us) == sorted(old.times_us)


AIR: dict[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_local_experts": 128, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "vocab_size": 151552, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16", "model_type": "glm4_moe",
}  # fmt: skip


@pytest.mark.parametrize(
    ("hardware", "split", "changes", "version", "slower"),
    [
        ("h100", 4, {}, "0.11.0", True),
        ("h200", 4, {}, "0.16.0", True),
        ("h100", 4, {}, "0.17.0", False),
        ("h100", 4, {}, None, False),
        ("h100", 4, {"moe_intermediate_size": 2048}, "0.11.0", False),  # 512 wide: tuned
        ("h200", 4, {"moe_intermediate_size": 1536}, "0.11.0", False),
        ("h100", 4, FP8, "0.11.0", False),
        ("b200", 4, {}, "0.11.0", False),
        ("a100-80", 4, {}, "0.11.0", False),
    ],
)
def test_experts_without_tuned_tiles_took_twice_as_long_before_0_17(
    hardware: str, split: int, changes: dict[str, Any], version: str | None, slower: bool
) -> None:
    model = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "air"}, "config": AIR | changes}
    given = {} if version is None else {"engine.version": version}
    ratios = []
    for tokens in (64, 4096):
        curves = [
            steps(model, hardware, split, **{"policy.batching": {"kind": "vllm-v1"}}, **more).costs._parts["experts"]
            for more in ({}, given)
        ]
        now, then = (times * curve.at(tokens) for [(times, curve)] in curves)
        ratios.append(then / now)
    assert ratios == pytest.approx([1.0, 2.0 if slower else 1.0])
