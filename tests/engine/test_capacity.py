"""KV capacity: a published figure to the block, weights against published model sizes, and properties."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import PolicyError
from blis_tui.engine.kv.capacity import (
    InstanceMemory,
    KvCapacity,
    kv_bytes_per_token,
    kv_capacity,
    minimum_tensor_parallel,
)
from blis_tui.model import Hardware, Model


def shape(name: str, hidden: int, layers: int, heads: tuple[int, int], widths: tuple[int, int]) -> Model:
    """A 16-bit model; ``heads`` are (query, KV) of 128 elements each, ``widths`` (MLP, vocabulary)."""
    return Model(
        name=name,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        head_dim=128,
        intermediate_size=widths[0],
        vocab_size=widths[1],
        activation_bytes=2.0,
        kv_cache_bytes=2.0,
        weight_bytes=2.0,
        max_position_embeddings=131072,
    )


QWEN3_14B = shape("qwen3-14b", 5120, 40, (40, 8), (17408, 151936))
LLAMA_70B = shape("llama-3.1-70b-instruct", 8192, 80, (64, 8), (28672, 128256))
NEMO = shape("mistral-nemo-instruct-2407", 5120, 40, (32, 8), (14336, 131072))
MIXTRAL = replace(shape("mixtral-8x7b-v0.1", 4096, 32, (32, 8), (14336, 32000)), num_experts=8, num_experts_per_tok=2)
QWEN3_30B = replace(
    shape("qwen3-30b-a3b", 2048, 48, (32, 4), (6144, 151936)),
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
)
DEEPSEEK_LITE = replace(
    shape("deepseek-v2-lite", 2048, 27, (16, 16), (10944, 102400)),
    num_experts=64,
    num_experts_per_tok=6,
    moe_intermediate_size=1408,
    shared_expert_intermediate_size=2816,
    first_k_dense_replace=1,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
)
H100 = Hardware(
    name="h100",
    memory_gib=80.0,
    peak_tflops_bf16=989.5,
    peak_tflops_fp8=1979.0,
    memory_bandwidth_tb_per_s=3.35,
    mfu_prefill=0.45,
    mfu_decode=0.30,
)


def memory_of(model: Model, tensor_parallel: int = 1, block: int = 16, utilization: float = 0.9) -> InstanceMemory:
    return InstanceMemory(
        model=model,
        hardware=H100,
        tensor_parallel=tensor_parallel,
        block_size_tokens=block,
        gpu_memory_utilization=utilization,
        max_num_batched_tokens=2048,
        max_num_seqs=256,
    )


def capacity(model: Model, tensor_parallel: int = 1, block: int = 16, utilization: float = 0.9) -> KvCapacity:
    return kv_capacity(memory_of(model, tensor_parallel, block, utilization))


def test_qwen3_14b_on_one_h100_has_as_many_blocks_as_in_blis() -> None:
    found = capacity(QWEN3_14B)
    assert found.blocks == 15909
    assert found.bytes_per_block == 40 * 2 * 128 * 8 * 2 * 16
    assert (found.available_gib, found.activation_gib, found.overhead_gib) == (72.0, 5.5, 0.15)


@pytest.mark.parametrize(
    ("model", "billions", "tolerance"),
    [
        (QWEN3_14B, 14.8, 0.01),
        (LLAMA_70B, 70.6, 0.005),
        (NEMO, 12.2, 0.01),
        (MIXTRAL, 46.7, 0.005),
        (QWEN3_30B, 30.5, 0.005),
        (DEEPSEEK_LITE, 15.7, 0.02),
    ],
    ids=lambda value: value.name if isinstance(value, Model) else None,
)
def test_weights_agree_with_the_published_number_of_parameters(model: Model, billions: float, tolerance: float) -> None:
    found = capacity(model).weights_gib * 2**30 / model.weight_bytes / 1e9
    assert found == pytest.approx(billions, rel=tolerance)


def test_a_model_that_does_not_fit_has_no_blocks() -> None:
    assert capacity(LLAMA_70B).blocks == 0
    assert capacity(LLAMA_70B, 4).blocks > 0


def test_a_compressed_cache_is_whole_on_every_accelerator() -> None:
    one, two = capacity(DEEPSEEK_LITE), capacity(DEEPSEEK_LITE, 2)
    assert one.bytes_per_block == 27 * (512 + 64) * 2 * 16
    assert two.bytes_per_block == 2 * one.bytes_per_block


DEEPSEEK_SPARSE = replace(DEEPSEEK_LITE, index_topk=2048, index_head_dim=128)


def test_the_indexers_keys_are_cached_beside_compressed_keys_and_values() -> None:
    """128 elements in FP8 and a scale of four bytes, on each accelerator."""
    assert kv_bytes_per_token(DEEPSEEK_SPARSE, 4) - kv_bytes_per_token(DEEPSEEK_LITE, 4) == 27 * 132
    unread = replace(DEEPSEEK_SPARSE, index_topk=0)
    assert kv_bytes_per_token(unread, 4) == kv_bytes_per_token(DEEPSEEK_LITE, 4)


def test_every_accelerator_holds_what_compresses_latent_attention() -> None:
    """DeepSeek V2 Lite compresses keys and values alone: 2,048 x 576 weights in each of 27 layers, twice."""
    one, two = (
        kv_capacity(
            InstanceMemory(
                model=DEEPSEEK_LITE,
                hardware=H100,
                tensor_parallel=split,
                block_size_tokens=16,
                gpu_memory_utilization=0.9,
                max_num_batched_tokens=2048,
                max_num_seqs=256,
            ),
            "profiled",
        ).weights_gib
        for split in (1, 2)
    )
    assert two - one == pytest.approx(27 * 2048 * 576 * 2 / 2**30)


@pytest.mark.parametrize("tensor_parallel", [1, 2, 4, 8])
def test_the_cache_never_exceeds_the_memory_there_is(tensor_parallel: int) -> None:
    found = capacity(QWEN3_14B, tensor_parallel)
    assert found.bytes_per_block == capacity(QWEN3_14B).bytes_per_block
    assert found.blocks * found.bytes_per_block < tensor_parallel * 80 * 2**30


def test_kv_heads_are_copied_where_there_are_fewer_than_accelerators() -> None:
    assert capacity(QWEN3_30B, 8).bytes_per_block == 2 * capacity(QWEN3_30B, 4).bytes_per_block


def test_tied_embeddings_are_stored_once() -> None:
    tied = capacity(replace(QWEN3_14B, tie_word_embeddings=True))
    saved = (capacity(QWEN3_14B).weights_gib - tied.weights_gib) * 2**30
    assert saved == pytest.approx(151936 * 5120 * 2)


def test_experts_need_a_larger_allowance() -> None:
    assert capacity(MIXTRAL, 2).activation_gib == 8.0
    assert capacity(MIXTRAL, 2).overhead_gib == 1.2


@given(st.integers(1, 128), st.floats(0.01, 1.0), st.sampled_from([1, 2, 4, 8]))
def test_blocks_never_exceed_the_memory_left(block: int, utilization: float, tensor_parallel: int) -> None:
    found = capacity(QWEN3_14B, tensor_parallel, block, utilization)
    left = found.available_gib - found.weights_gib - found.activation_gib - found.overhead_gib
    assert found.blocks >= 0
    assert found.blocks * found.bytes_per_block <= max(0.0, left * 2**30)
    assert (found.blocks + 1) * found.bytes_per_block > left * 2**30 - 1


@pytest.mark.parametrize(("model", "fits_on"), [(QWEN3_14B, 1), (MIXTRAL, 2), (LLAMA_70B, 2)])
def test_the_smallest_tensor_parallelism_that_fits(model: Model, fits_on: int) -> None:
    assert minimum_tensor_parallel(memory_of(model), "") == fits_on


def test_no_tensor_parallelism_may_fit() -> None:
    assert minimum_tensor_parallel(memory_of(replace(LLAMA_70B, num_hidden_layers=20000)), "") is None


def test_only_degrees_that_divide_the_heads_count() -> None:
    odd = replace(LLAMA_70B, num_attention_heads=65, num_key_value_heads=5)
    assert minimum_tensor_parallel(memory_of(odd), "") is None


def test_ungated_activations_are_refused() -> None:
    with pytest.raises(PolicyError, match="activation 'relu' is not gated") as caught:
        capacity(replace(QWEN3_14B, hidden_act="relu"))
    assert caught.value.help == "set engine.kv_blocks to a number"


@pytest.mark.parametrize(("tensor_parallel", "block", "utilization"), [(0, 16, 0.9), (1, 0, 0.9), (1, 16, 1.1)])
def test_impossible_arguments_are_refused(tensor_parallel: int, block: int, utilization: float) -> None:
    with pytest.raises(PolicyError, match="no KV capacity for"):
        capacity(QWEN3_14B, tensor_parallel, block, utilization)


@pytest.mark.parametrize("model", [QWEN3_14B, DEEPSEEK_LITE], ids=lambda model: model.name)
def test_a_kv_cache_of_one_byte_elements_has_twice_the_blocks(model: Model) -> None:
    usual, narrow = capacity(model), capacity(replace(model, kv_cache_bytes=1.0))
    assert narrow.bytes_per_block * 2 == usual.bytes_per_block
    assert narrow.blocks in (2 * usual.blocks, 2 * usual.blocks + 1)


# ---- what engines profile ----


def shaped(name: str, hidden: int, vocab: int, intermediate: int, experts: int = 0, used: int = 0) -> Model:
    """A model whose weights do not matter."""
    return replace(
        QWEN3_14B,
        name=name,
        hidden_size=hidden,
        vocab_size=vocab,
        intermediate_size=intermediate,
        num_experts=experts,
        num_experts_per_tok=used,
    )


@pytest.mark.parametrize(
    ("model", "split", "tokens", "seqs", "measured_gib"),
    [
        # llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md: peak activation of one H100.
        (shaped("qwen3-0.6b", 1024, 151936, 3072), 1, 8192, 1024, 5.56),
        (shaped("llama-3.1-8b", 4096, 128256, 14336), 1, 8192, 1024, 4.76),
        (shaped("llama-3.3-70b", 8192, 128256, 28672), 2, 8192, 1024, 4.84),
        (shaped("gpt-oss-20b", 2880, 201088, 2880, 32, 4), 1, 8192, 1024, 7.38),
        (shaped("gpt-oss-120b", 2880, 201088, 2880, 128, 4), 1, 8192, 1024, 7.38),
        # Logs of vLLM servers with 256 requests.
        (shaped("llama-3-8b", 4096, 128256, 14336), 1, 8192, 256, 1.26),
        (shaped("llama-3.1-8b", 4096, 128256, 14336), 1, 2048, 256, 1.20),
    ],
)
def test_vllms_peak_follows_from_requests_and_vocabulary(
    model: Model, split: int, tokens: int, seqs: int, measured_gib: float
) -> None:
    memory = replace(memory_of(model, split), max_num_batched_tokens=tokens, max_num_seqs=seqs)
    each = kv_capacity(memory, "profiled").activation_gib / split
    assert each == pytest.approx(measured_gib, rel=0.02)


def test_a_long_step_of_few_requests_takes_what_a_layer_does() -> None:
    memory = replace(memory_of(LLAMA_70B, 4), max_num_batched_tokens=16384, max_num_seqs=8)
    found = kv_capacity(memory, "profiled")
    assert found.activation_gib == 4 * 16384 * 2 * (2 * 8192 + 3 * 28672 // 4) / 2**30
    twice = kv_capacity(replace(memory, max_num_batched_tokens=32768), "profiled")
    assert twice.activation_gib == pytest.approx(2 * found.activation_gib)


def test_graphs_are_set_aside_where_they_are_captured() -> None:
    memory = memory_of(QWEN3_14B, 2)
    plain, late = kv_capacity(memory, "profiled"), kv_capacity(memory, "profiled-with-graphs")
    assert late.overhead_gib == plain.overhead_gib + 2 * 0.7
    assert kv_capacity(replace(memory, graphs=False), "profiled-with-graphs") == plain


def test_quantised_models_keep_embeddings_and_head_in_16_bits() -> None:
    """Llama 3.1 70B in FP8: 2.1 billion of its weights are twice as large, 1.96 GiB; the checkpoint has 72.7 GB."""
    memory = memory_of(replace(LLAMA_70B, weight_bytes=1.0), 2)
    planner, served = (kv_capacity(memory, sizing).weights_gib for sizing in ("", "profiled"))
    assert served - planner == pytest.approx(2 * 128256 * 8192 / 2**30, rel=1e-9)
    assert served * 2**30 / 1e9 == pytest.approx(72.7, rel=0.002)
    tied = memory_of(replace(LLAMA_70B, weight_bytes=1.0, tie_word_embeddings=True), 2)
    assert kv_capacity(tied, "static").weights_gib == pytest.approx(served - 1.5 * 2 * 128256 * 8192 / 2**31, rel=0.01)


GPT_OSS = replace(
    shape("gpt-oss-120b", 2880, 36, (64, 8), (2880, 201088)),
    head_dim=64,
    num_experts=128,
    num_experts_per_tok=4,
    moe_intermediate_size=2880,
    expert_weight_bytes=17 / 32,
)
A100 = replace(H100, name="a100-80", peak_tflops_bf16=312.0, peak_tflops_fp8=0.0, memory_bandwidth_tb_per_s=2.04)


@pytest.mark.parametrize(("split", "width"), [(1, 2944), (2, 1536), (4, 768), (8, 384)])
def test_marlins_experts_are_padded(split: int, width: int) -> None:
    """Three products of 2,880 x 2,880 for each of 128 experts in 36 layers: 57 GiB become 62 on one A100."""
    on_h100, on_a100 = (
        kv_capacity(replace(memory_of(GPT_OSS, split), hardware=gpu), "profiled").weights_gib for gpu in (H100, A100)
    )
    unpadded, padded = (36 * 128 * 3 * one * 17 / 32 / 2**30 for one in (2880 * 2880, 3072 * width * split))
    assert on_a100 - on_h100 == pytest.approx(padded - unpadded, rel=1e-6)
    for elsewhere in ("", "static", "free", "rank"):
        assert kv_capacity(replace(memory_of(GPT_OSS, split), hardware=A100), elsewhere).weights_gib <= on_h100
    ranks = replace(memory_of(GPT_OSS, 1), hardware=A100, expert_ranks=8)
    alone = kv_capacity(replace(ranks, hardware=H100), "profiled").weights_gib
    whole = 36 * 128 * 3 * (3072 * 2944 - 2880 * 2880) * 17 / 32 / 2**30
    assert kv_capacity(ranks, "profiled").weights_gib - alone == pytest.approx(whole / 8, rel=1e-6)


def test_each_engine_takes_its_share_of_something_else() -> None:
    """The same memory of a group of two, by hand."""
    memory = replace(memory_of(QWEN3_14B, 2, utilization=0.8), reserved_bytes=2**30)
    found = {sizing: kv_capacity(memory, sizing) for sizing in ("", "profiled", "free", "rank", "static")}
    weights, overhead, peak = found[""].weights_gib, 1.2, found["profiled"].activation_gib
    left = {
        "": 160 * 0.8 - weights - 5.5 - overhead - 1,
        "profiled": 160 * 0.8 - weights - found["profiled"].activation_gib - overhead - 1,
        "free": (160 - weights - found["free"].activation_gib - overhead - 1) * 0.8,
        "rank": (160 - weights) * 0.8 - found["rank"].activation_gib - overhead - 1,
        "static": (160 - overhead) * 0.8 - weights - 1,
    }
    for sizing, made in found.items():
        assert made.blocks == int(left[sizing] * 2**30 / made.bytes_per_block), sizing
        assert made.available_gib - made.needed_gib == pytest.approx(left[sizing])
    assert found["static"].activation_gib == 0.0 < found["rank"].activation_gib == found["free"].activation_gib < peak


@pytest.mark.parametrize("sizing", ["", "profiled", "profiled-with-graphs", "free", "rank", "static"])
@given(st.floats(0.05, 1.0), st.integers(20, 200))
def test_a_model_fits_where_there_is_a_block_for_it(sizing: str, utilization: float, memory_gib: int) -> None:
    """What is short of a cache has no block, and what has one is not short: the check and the size are one."""
    memory = memory_of(QWEN3_14B, 1, 1, utilization)
    found = kv_capacity(replace(memory, hardware=replace(H100, memory_gib=memory_gib)), sizing)
    assert (found.blocks > 0) == (found.available_gib - found.needed_gib >= found.bytes_per_block / 2**30)
    assert found.blocks * found.bytes_per_block <= max(0.0, found.available_gib - found.needed_gib) * 2**30 * (1 + 1e-9)
