"""The fitted step-time model: against measured servers, and term by term."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

import blis_tui
from blis_tui.base.errors import PolicyError
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.fitted import (
    REACHED_8_BITS,
    REACHED_16_BITS,
    REACHED_EXPERTS,
    REACHED_MEMORY,
    FittedSettings,
    growth_of,
    work_of,
)
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.request import Request
from blis_tui.model import Hardware, Model, PluginConfig, Pool
from blis_tui.spec.shipped import builtin
from tests.builders import experiment

H100 = Hardware(
    name="h100",
    memory_gib=80.0,
    peak_tflops_bf16=989.5,
    peak_tflops_fp8=1979.0,
    memory_bandwidth_tb_per_s=3.35,
    mfu_prefill=0.45,
    mfu_decode=0.30,
    interconnect_gb_per_s=900.0,
)
CODELLAMA_34B = Model(
    name="codellama-34b",
    hidden_size=8192,
    num_hidden_layers=48,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=22016,
    vocab_size=32000,
    activation_bytes=2.0,
    kv_cache_bytes=2.0,
    weight_bytes=2.0,
    max_position_embeddings=16384,
)
MIXTRAL = replace(
    CODELLAMA_34B,
    name="mixtral",
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    intermediate_size=14336,
    num_experts=8,
    num_experts_per_tok=2,
)
LLAMA_70B_FP8 = replace(
    CODELLAMA_34B,
    name="llama-70b-fp8",
    num_hidden_layers=80,
    intermediate_size=28672,
    vocab_size=128256,
    weight_bytes=1.0,
)
B200 = replace(
    H100, peak_tflops_bf16=2250.0, peak_tflops_fp8=4500.0, peak_tflops_fp4=9000.0, memory_bandwidth_tb_per_s=7.7
)


def pool_of(model: Model, hardware: Hardware = H100, tensor_parallel: int = 2, **settings: float) -> Pool:
    (pool,) = experiment().pools
    latency = PluginConfig(kind="fitted", settings=settings)
    return replace(pool, model=model, hardware=hardware, tensor_parallel=tensor_parallel, latency=latency)


def prefill(*chunks: tuple[int, int, int], decode: tuple[int, int] = (0, 0)) -> StepLoad:
    """A load of ``(computed, new, prompt)`` chunks and ``(requests, context)`` decodes."""
    request = Request(0, "r", 0, 128, 500)
    return StepLoad([Chunk(request, *chunk) for chunk in chunks], *decode)


def time_us(
    load: StepLoad, model: Model = CODELLAMA_34B, hardware: Hardware = H100, tensor_parallel: int = 2, **settings: float
) -> int:
    return create_latency(builtin(), pool_of(model, hardware, tensor_parallel, **settings)).step_time_us(load)


def decodes(count: int, context: int) -> StepLoad:
    return prefill(decode=(count, count * context))


@pytest.mark.parametrize(
    ("model", "tensor_parallel", "batch", "context", "measured_us"),
    [
        (CODELLAMA_34B, 2, 14, 717, 14_172),
        (CODELLAMA_34B, 2, 26, 717, 14_703),
        (MIXTRAL, 2, 22, 713, 17_767),
        (LLAMA_70B_FP8, 4, 4, 1440, 11_776),
    ],
)
def test_decodes_take_as_long_as_measured(
    model: Model, tensor_parallel: int, batch: int, context: int, measured_us: int
) -> None:
    """Figures of vLLM on H100; ``docs/lab/measured-servers.md`` has many more."""
    assert time_us(decodes(batch, context), model, tensor_parallel=tensor_parallel) == pytest.approx(
        measured_us, rel=0.07
    )


def test_no_prompt_is_read_faster_than_the_accelerator_multiplies() -> None:
    peak_us = 30_000 * 2 * 33.5e9 / 2 / 989.5e6
    chunks = [time_us(prefill((at, 2000, 30_000))) for at in range(0, 30_000, 2000)]
    assert chunks == sorted(chunks)
    assert 1.3 * peak_us < sum(chunks) < 3 * peak_us


def test_longer_chunks_take_longer() -> None:
    times = [time_us(prefill((0, new, new))) for new in (1, 64, 512, 513, 1024, 2048, 8192)]
    assert times == sorted(times)
    assert len(set(times)) == len(times)


def test_what_hardware_reaches_takes_the_place_of_what_nvidias_reached() -> None:
    """Whatever was lost of higher peaks, and uneven sizes: these are of NVIDIA's kernels."""
    model = replace(LLAMA_70B_FP8, vocab_size=1)
    weights = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
    for hardware in (H100, B200):
        work = work_of(pool_of(model, replace(hardware, reached_products=0.4, reached_memory=0.7), 1))
        peak, bytes_per_us = hardware.peak_tflops_fp8 * 1e6, hardware.memory_bandwidth_tb_per_s * 1e6
        assert FittedSettings().weights * work.weights_us == pytest.approx(weights / 0.7 / bytes_per_us, rel=1e-6)
        assert FittedSettings().fp8_flops * work.token_us == pytest.approx(2 * weights / 0.4 / peak, rel=1e-6)
        assert work.fp8_us == 0.0
        cached = replace(model, kv_cache_bytes=1.0)
        known = replace(hardware, reached_memory=0.7)
        near, far = (time_us(decodes(100, context), cached, known, 1) for context in (1000, 3000))
        read_us = (
            100 * 2000 * 2 * 8 * 128 * 80 / bytes_per_us / 0.7 * FittedSettings().kv_read / FittedSettings().weights
        )
        assert far - near == pytest.approx(read_us, abs=2)
        assert growth_of(replace(hardware, reached_products=0.4), FittedSettings().flops_growth) == 1.0
    assert growth_of(B200, FittedSettings().flops_growth) > 1.1


# The first product of Mixtral's experts in 8 bits (8 of 14,336 by 4,096, two a token) in Triton's kernel on AMD's GPU:
# tokens -> TFLOPS.
# Source: ROCm/triton, pull request 693 (January 2025)
# Licence: MIT, Copyright (c) Philippe Tillet and OpenAI; figures alone
TRITON_TFLOPS = {1024: 469.5, 2048: 617.1, 4096: 672.7}


def test_experts_of_the_mi300x_take_what_their_kernel_was_measured_to_take() -> None:
    """Fewer tokens take up to a sixth longer than simulated, whose kernels reach less."""
    model = replace(MIXTRAL, weight_bytes=1.0, activation_bytes=2.0)
    hardware = blis_tui.load("quickstart", set={"hardware": "mi300x"}).pools[0].hardware
    work = work_of(pool_of(model, hardware, 1))
    assert work.experts_exposed == 1.0
    for tokens, tflops in TRITON_TFLOPS.items():
        took_us = tokens * 2 * 2 * 14336 * 4096 / tflops / 1e6
        read_us, token_us = (
            FittedSettings().expert_weights * work.experts_us[-1],
            FittedSettings().expert_flops * work.expert_token_us,
        )
        # One of three equal products in each of 32 layers.
        simulated_us = (read_us + tokens * token_us) / 32 / 3
        assert 0.84 < simulated_us / took_us < 1.01, tokens
    assert simulated_us == pytest.approx(took_us, rel=0.02)


def test_what_experts_reach_is_of_the_units_that_they_take() -> None:
    plain = work_of(pool_of(MIXTRAL, H100, 1))
    for weight_bytes, peak in ((2.0, H100.peak_tflops_bf16), (1.0, H100.peak_tflops_fp8)):
        model = replace(MIXTRAL, weight_bytes=weight_bytes)
        work = work_of(pool_of(model, replace(H100, reached_experts=0.3, reached_overlap=0.25), 1))
        flops = 32 * 2 * 6 * 4096 * 14336
        assert FittedSettings().expert_flops * work.expert_token_us == pytest.approx(flops / 0.3 / peak / 1e6, rel=1e-6)
        assert work.experts_exposed == 0.75
    assert plain.experts_exposed == 0.5
    assert plain.expert_token_us == pytest.approx(32 * 2 * 6 * 4096 * 14336 / H100.peak_tflops_bf16 / 1e6)


def test_without_overlap_products_take_reading_and_multiplying() -> None:
    apart = replace(H100, reached_overlap=0.0)
    loads = [decodes(count, 500) for count in (1, 8, 64, 256, 500, 1000)]
    hidden, exposed = ([time_us(load, LLAMA_70B_FP8, hardware) for load in loads] for hardware in (H100, apart))
    work = work_of(pool_of(LLAMA_70B_FP8))
    weights_us = FittedSettings().weights * work.weights_us
    for count, one, other in zip((1, 8, 64, 256, 500, 1000), hidden, exposed, strict=True):
        multiplied = count * (FittedSettings().fp8_flops * work.token_us + FittedSettings().flops * work.row_us)
        assert other - one == pytest.approx(min(weights_us, multiplied), abs=2)
    assert exposed == sorted(exposed)


# FP8 products of Llama 70B's shapes (57,344, 10,240 and 8,192 by 8,192) on AMD's GPU of that generation with 228
# compute units: microseconds of the fastest kernel.
# Source: ROCm/aiter, aiter/configs/a8w8_tuned_gemm.csv at 105a68df (gfx942, float8_e4m3fnuz)
# Licence: MIT, Copyright (c) Advanced Micro Devices, Inc.; figures alone
AITER_US = {
    16: (160.51, 32.86, 27.94),
    32: (179.68, 39.47, 32.59),
    64: (204.74, 49.51, 41.60),
    256: (397.04, 96.37, 89.66),
}


def test_products_of_the_mi300x_are_beside_those_of_amds_kernels_what_the_page_says() -> None:
    """It has 304 compute units; kernels that read and multiply in turn take longer in proportion to these.

    What it reaches is of the largest products; these are smaller, and by a twentieth slower at most.
    """
    page = (Path(__file__).parents[3] / "docs" / "lab" / "measured-servers.md").read_text(encoding="utf-8")
    hardware = blis_tui.load("quickstart", set={"hardware": "mi300x"}).pools[0].hardware
    work = work_of(pool_of(replace(LLAMA_70B_FP8, vocab_size=1), hardware, 1))
    share = 8192 * (57344 + 10240 + 8192) / (80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672))
    assert work.exposed == 1.0
    for tokens, products in AITER_US.items():
        simulated = share * (
            FittedSettings().weights * work.weights_us + tokens * FittedSettings().fp8_flops * work.token_us
        )
        took, scaled = sum(products), sum(products) * 228 / 304
        assert (
            f"| {tokens} | {took:.0f} | {scaled:.0f} | {simulated:.0f} ({100 * (simulated / scaled - 1):+.0f} %) |"
            in page
        )
        assert 0.9 <= simulated / scaled < 1.0


def test_a_step_reads_the_experts_that_its_tokens_choose() -> None:
    work = work_of(pool_of(MIXTRAL, H100, 1))
    one, two = work.experts_us[1], work.experts_us[2]
    assert one == pytest.approx(32 * 2 * 3 * 4096 * 14336 * 2 / 3.35e6)
    assert two == pytest.approx(one * (2 - 2 / 8))
    assert work.experts_us[-1] == pytest.approx(4 * one, rel=1e-5)


def test_8_bits_halve_weights_and_cache() -> None:
    wide, narrow = (
        work_of(pool_of(replace(CODELLAMA_34B, vocab_size=1, weight_bytes=size, kv_cache_bytes=size), H100, 2))
        for size in (2.0, 1.0)
    )
    assert narrow.weights_us == pytest.approx(wide.weights_us / 2)
    assert narrow.kv_us == pytest.approx(wide.kv_us / 2)
    assert narrow.token_us == pytest.approx(wide.token_us / 2)
    assert narrow.prefill_us == wide.prefill_us


def test_4_bit_experts_multiply_in_8_bits_where_there_are_units_for_4() -> None:
    model = replace(MIXTRAL, expert_weight_bytes=0.53125)
    hopper, blackwell = (work_of(pool_of(model, hardware, 1)).expert_token_us for hardware in (H100, B200))
    assert hopper / blackwell == pytest.approx(4500 / (989.5 / 2))


def test_8_bit_weights_cost_quantizing_and_uneven_steps_cost_reading_them_again() -> None:
    def more(load: StepLoad, model: Model) -> int:
        return time_us(load, model) - time_us(load, model, H100, 2, fp8_layer_us=0.0, fp8_uneven=0.0)

    model = replace(LLAMA_70B_FP8, vocab_size=1)
    small, large = prefill((0, 512, 512)), prefill((0, 513, 513))
    quantizing = 80 * FittedSettings().fp8_layer_us
    assert more(small, model) == pytest.approx(quantizing, abs=1)
    weights_us = work_of(pool_of(model)).fp8_us
    assert weights_us == pytest.approx(80 * (3 * 28672 + 2 * 8192 + 2 * 1024) * 8192 / 2 / 3.35e6)
    assert more(large, model) == pytest.approx(quantizing + FittedSettings().fp8_uneven * weights_us, abs=1)
    assert more(large, CODELLAMA_34B) == 0


def test_few_tokens_wait_for_experts_and_many_for_products() -> None:
    """Half of the reading is hidden behind products: on two H100 they take longer from some 200 tokens on."""
    work = work_of(pool_of(MIXTRAL), FittedSettings().expert_spread)
    read, per_token = (
        FittedSettings().expert_weights * work.experts_us[-1],
        FittedSettings().expert_flops * work.expert_token_us,
    )
    few, many = prefill((0, 100, 100)), prefill((0, 4096, 4096))
    assert 100 * per_token < read / 2 < 4096 * per_token
    assert time_us(few, MIXTRAL, expert_flops=1.0) == time_us(few, MIXTRAL)
    gain = time_us(many, MIXTRAL) - time_us(many, MIXTRAL, expert_flops=1.0)
    assert gain == pytest.approx(4096 * per_token * (1 - 1 / FittedSettings().expert_flops), abs=1)
    gain = time_us(few, MIXTRAL) - time_us(few, MIXTRAL, expert_weights=1.0)
    assert gain == pytest.approx(read * (1 - 1 / FittedSettings().expert_weights), rel=0.01)


def test_tokens_that_favour_experts_read_fewer() -> None:
    model = replace(MIXTRAL, num_experts=128, num_experts_per_tok=4)
    even, spread = (work_of(pool_of(model), one).experts_us for one in (0.0, 1.0))
    assert even[32] / even[-1] == pytest.approx(1 - (1 - 4 / 128) ** 32)
    assert spread[32] / spread[-1] == pytest.approx(0.5)
    # Eight experts are sixteen finer ones each: nearly even.
    coarse = [work_of(pool_of(MIXTRAL), one).experts_us[2] for one in (0.0, 1.0)]
    assert coarse[0] * 0.85 < coarse[1] <= coarse[0]


def test_a_sliding_window_caps_what_is_read() -> None:
    model = replace(CODELLAMA_34B, sliding_window=128, sliding_window_layers=24)
    short, full = time_us(decodes(32, 100), model), time_us(decodes(32, 100))
    assert short == full
    gain = time_us(decodes(32, 8128)) - time_us(decodes(32, 8128), model)
    assert gain == pytest.approx((time_us(decodes(32, 8128)) - time_us(decodes(32, 128))) / 2, abs=2)
    assert time_us(prefill((8000, 100, 8100)), model) < time_us(prefill((8000, 100, 8100)))


def test_a_compressed_cache_is_read_instead_of_heads() -> None:
    model = replace(CODELLAMA_34B, kv_lora_rank=512, qk_rope_head_dim=64)
    work = work_of(pool_of(model, H100, 4))
    assert work.kv_us == pytest.approx(48 * 576 * 2 / 3.35e6)


def test_tensor_parallelism_costs_latency_and_bandwidth() -> None:
    load = decodes(1, 100)
    alone, together = time_us(load, tensor_parallel=1), time_us(load, tensor_parallel=8)
    assert alone / 8 < together < alone
    slow = replace(H100, interconnect_gb_per_s=64.0)
    chunk = prefill((0, 2048, 2048))
    assert time_us(chunk, hardware=slow, tensor_parallel=8) > 1.5 * time_us(chunk, tensor_parallel=8)


def test_sampling_from_a_sorted_vocabulary_takes_the_same_time_on_every_accelerator() -> None:
    slow = replace(H100, memory_bandwidth_tb_per_s=0.864)
    plain = [time_us(decodes(64, 100), LLAMA_70B_FP8, hardware, 4) for hardware in (H100, slow)]
    with_it = [time_us(decodes(64, 100), LLAMA_70B_FP8, hardware, 4, sorted_sampling=True) for hardware in (H100, slow)]
    extra = [after - before for before, after in zip(plain, with_it, strict=True)]
    assert extra[0] == pytest.approx(64 * 128.256 * FittedSettings().sampler_us, abs=1)
    assert extra[1] == pytest.approx(extra[0], abs=1)


def test_what_is_reached_elsewhere_is_told_beside_what_coefficients_stand_for() -> None:
    coefficients = (
        FittedSettings().weights,
        FittedSettings().flops,
        FittedSettings().fp8_flops,
        FittedSettings().expert_flops,
    )
    assert tuple(1 / coefficient for coefficient in coefficients) == (
        REACHED_MEMORY,
        REACHED_16_BITS,
        REACHED_8_BITS,
        REACHED_EXPERTS,
    )


def test_no_factor_is_below_what_the_datasheet_allows() -> None:
    factors = [field.name for field in fields(FittedSettings) if field.metadata["key"].limits.get("maximum") == 1e4]
    assert len(factors) == 10
    plain = pool_of(CODELLAMA_34B)
    for name in factors:
        assert getattr(FittedSettings(), name) >= 1.0
        with pytest.raises(PolicyError, match=f"{name} of fitted is 0.9"):
            create_latency(builtin(), replace(plain, latency=PluginConfig(kind="fitted", settings={name: 0.9})))


def test_heads_that_do_not_split_are_refused() -> None:
    with pytest.raises(PolicyError, match="fitted cannot split"):
        time_us(decodes(1, 1), tensor_parallel=3)
