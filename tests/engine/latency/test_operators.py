"""Steps as sums of measured operators: against the tables, measured servers, published figures, and physics."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import fsum
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import blis_tui
from blis_tui.base.errors import PolicyError
from blis_tui.base.streams import Streams
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.expert_parallelism import popularity_excess
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.latency.operator_costs import OperatorCosts
from blis_tui.engine.latency.operator_settings import OperatorSettings
from blis_tui.engine.latency.operator_steps import OperatorModel, ScaledOperatorModel
from blis_tui.engine.latency.operator_tables import (
    WEIGHT_BYTES,
    OperatorTables,
    chosen_experts,
    tables_in,
    touched_experts,
)
from blis_tui.model.defaults import SORTING_US
from blis_tui.spec.operator_files import read_tables, table_names, tables_of
from blis_tui.spec.shipped import shipped_specs
from tests.builders import request

if TYPE_CHECKING:
    from blis_tui.model import Experiment

SMALL = {"workload.requests": 5, "expect": []}


def loaded(model: object, hardware: str, split: int = 1, **more: object) -> Experiment:
    settings = {
        "model": model,
        "hardware": hardware,
        "cluster.tensor_parallel": split,
        "latency": {"kind": "operators"},
        "engine.kv_blocks": 20_000,
        **SMALL,
    }
    return blis_tui.load("steady-chat", set=settings | {key.replace("__", "."): value for key, value in more.items()})


def steps(model: object, hardware: str, split: int = 1, **more: object) -> OperatorModel:
    made = loaded(model, hardware, split, **more)
    found = create_latency(made.plugins, made.pools[0])
    assert isinstance(found, OperatorModel)
    return found


def decoding(model: OperatorModel, batch: int, context: int) -> int:
    """Step time of so many decodes with that mean context."""
    return model.step_time_us(StepLoad([], batch, batch * context))


def prefilling(model: OperatorModel, new: int, before: int = 0) -> int:
    """Step time of one chunk."""
    whole = request(0, 0, before + new, 1)
    return model.step_time_us(StepLoad([Chunk(whole, before, new, before + new)], 0, 0))


def in_chunks(model: OperatorModel, length: int, size: int) -> int:
    """Time of a prompt that is computed in chunks."""
    return sum(prefilling(model, min(size, length - at), at) for at in range(0, length, size))


# ---- the tables ----


@pytest.mark.parametrize("name", table_names())
def test_tables_say_where_they_are_from(name: str) -> None:
    document = read_tables(name)
    assert document["name"] == name
    assert "aiconfigurator-core" in str(document["source"])
    assert "Apache-2.0" in str(document["licence"])
    assert str(document["engine"]).startswith("vllm ")


def test_hardware_finds_its_tables() -> None:
    assert tables_of("a100-sxm") == tables_of("a100-80") == "a100"
    assert tables_of("a10g") is None


def test_tables_are_read_once_for_each_document_and_whose_kernels_they_are() -> None:
    document = read_tables("h200")
    read = tables_in(document, "vllm")
    assert tables_in(document, "vllm") is read
    others = [tables_in(dict(document), "vllm"), tables_in(document, "tensorrt-llm")]
    assert all(operator_tables is not read for operator_tables in others)
    same, copied, other = (operator_tables.gemm("fp8", 8192, 8192) for operator_tables in (read, *others))
    assert same == copied != other


def test_a_measured_point_is_what_was_measured() -> None:
    document = read_tables("h100")
    grid = document["gemm"]["bfloat16"]  # type: ignore[index]
    row = grid["us"][grid["n"].index(8192) * len(grid["k"]) + grid["k"].index(8192)]
    curve = OperatorTables(document).gemm("bfloat16", 8192, 8192)
    assert curve.times_us == pytest.approx([float(one) for one in row.split()])
    assert curve.known == "measured"
    assert curve.known_at(1024) == "measured"
    assert curve.known_at(1000) == "interpolated"
    assert curve.known_at(100_000) == "extrapolated"


def test_between_and_beyond_measured_sizes() -> None:
    tables = OperatorTables(read_tables("h100"))
    low, between, high = (tables.gemm("bfloat16", n, 8192).at(4096) for n in (8192, 10240, 12288))
    assert low < between < high
    assert tables.gemm("bfloat16", 10240, 8192).known == "interpolated"
    assert tables.gemm("bfloat16", 200_000, 8192).known == "extrapolated"
    # Beyond the largest matrix the time grows with the weights read: they are all there is at one token.
    twice = tables.gemm("bfloat16", 131_072, 8192).at(1) / tables.gemm("bfloat16", 65_536, 8192).at(1)
    assert 1.95 < twice < 2.0


def test_types_without_a_table_move_their_own_bytes_and_are_extrapolated() -> None:
    tables = OperatorTables(read_tables("a100"))
    sixteen, eight, four = (tables.gemm(kind, 16384, 8192) for kind in ("bfloat16", "fp8", "int4"))
    assert (sixteen.known, eight.known, four.known) == ("measured", "extrapolated", "extrapolated")
    assert sixteen.at(1) / eight.at(1) == pytest.approx(2.0 / 1.2, rel=0.05)  # a fifth longer: they are widened
    assert sixteen.at(1) / four.at(1) == pytest.approx(4.0, rel=0.1)
    assert eight.at(16384) == pytest.approx(1.2 * sixteen.at(16384), rel=0.02)


def test_experts_of_another_shape_scale_with_what_is_read_and_computed() -> None:
    tables = OperatorTables(read_tables("h100"))
    measured = tables.experts("bfloat16", 4096, 14336, 8, 2, 1)
    wider = tables.experts("bfloat16", 4096, 20480, 8, 2, 1)
    assert measured is not None
    assert wider is not None
    assert (measured.known, wider.known) == ("measured", "extrapolated")
    assert wider.at(64) / measured.at(64) == pytest.approx(20480 / 14336, rel=0.1)
    assert wider.at(8192) / measured.at(8192) == pytest.approx(20480 / 14336, rel=0.1)


def test_few_tokens_touch_few_experts() -> None:
    assert touched_experts(128, 8, 1) == pytest.approx(8.0)
    assert touched_experts(8, 2, 2) == pytest.approx(8 * (1 - 0.75**2))
    assert touched_experts(128, 8, 10_000) == pytest.approx(128.0)


# ---- the step ----


MEASURED = [
    ("codellama-34b-instruct-hf", 2, 41, 700, 15127),
    ("codellama-34b-instruct-hf", 2, 98, 698, 17474),
    ("llama-2-7b-hf", 1, 54, 700, 12915),
    ("llama-2-7b-hf", 1, 102, 699, 19027),
    ("mixtral-8x7b-v0.1", 2, 18, 713, 17344),
    ("mixtral-8x7b-v0.1", 2, 102, 695, 20461),
    ("llama-3.1-70b-instruct", 4, 50, 690, 20138),
    ("mistral-nemo-instruct-2407", 1, 26, 690, 10545),
    ("qwen2.5-7b-instruct", 1, 10, 876, 6980),
    ("yi-34b", 2, 23, 671, 15759),
    ("llama-4-scout-17b-16e-instruct-fp8-dynamic", 2, 66, 690, 26770),
]
"""Steps of vLLM servers on H100, a few per cent of them shared with prefills: model, GPUs, decodes, context, us."""


@pytest.mark.parametrize(("model", "split", "batch", "context", "measured_us"), MEASURED)
def test_steps_are_those_of_measured_servers(
    model: str, split: int, batch: int, context: int, measured_us: int
) -> None:
    made = steps(model, "h100", split, **{f"latency__{name}": us for name, us in SORTING_US.items()})  # vLLM 0.15
    assert decoding(made, batch, context) == pytest.approx(measured_us, rel=0.055)


def test_chunking_costs_what_was_published() -> None:
    # Agrawal et al., Sarathi-Serve (OSDI 2024), Yi-34B on two A100: chunks of 512 take at most 25 % more, of 2048
    # hardly any.
    model = steps("yi-34b", "a100-80", 2, engine__max_num_batched_tokens=32768)
    for length in (8192, 16384, 30000):
        whole = prefilling(model, length)
        assert 1.1 < in_chunks(model, length, 512) / whole < 1.25
        assert 1.0 < in_chunks(model, length, 2048) / whole < 1.08


@pytest.mark.parametrize(
    ("model", "hardware", "split", "peak_tflops"),
    [
        ("llama-3.1-8b-instruct", "h100", 1, 989.5),
        ("llama-3.1-70b-instruct", "h100", 4, 989.5),
        ("yi-34b", "a100-80", 2, 312),
    ],
)
@pytest.mark.parametrize("chunk", [512, 2048, 8192, 30000])
def test_a_long_prompt_runs_below_the_peak_of_the_gpu(
    model: str, hardware: str, split: int, peak_tflops: float, chunk: int
) -> None:
    made = loaded(model, hardware, split, engine__max_num_batched_tokens=32768)
    shape, length = made.pools[0].model, 30_000
    query, width = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    weights = shape.hidden_size * (2 * query + 2 * width + 3 * shape.intermediate_size)
    flops = shape.num_hidden_layers * (2 * weights * length + 2 * query * length**2)
    latency = create_latency(made.plugins, made.pools[0])
    assert isinstance(latency, OperatorModel)
    share = flops / (in_chunks(latency, length, chunk) * split * peak_tflops * 1e6)
    assert 0.4 < share < 0.8


@pytest.mark.parametrize("name", table_names())
def test_more_work_takes_no_less_time(name: str) -> None:
    hardware = read_tables(name)["hardware"]
    assert isinstance(hardware, list)
    pool = loaded("llama-3.1-8b-instruct", "h100", latency={"kind": "operators", "tables": name}).pools[0]
    assert pool.operators is not None
    costs = OperatorCosts(pool.operators, pool.model, 1)
    tokens = costs.listed(8192)
    assert all(low <= high for low, high in pairwise(tokens))
    made = loaded("llama-3.1-8b-instruct", "h100", latency={"kind": "operators", "tables": name})
    model = create_latency(made.plugins, made.pools[0])
    assert isinstance(model, OperatorModel)
    for batch in (1, 3, 8, 100, 256):
        times = [decoding(model, batch, context) for context in range(1, 40_000, 501)]
        assert all(low <= high for low, high in pairwise(times))
    for context in (1, 700, 5000):
        times = [decoding(model, batch, context) for batch in range(1, 300, 7)]
        assert all(low <= high for low, high in pairwise(times))
    for before in (0, 1000, 100_000):
        times = [prefilling(model, new, before) for new in range(1, 8000, 97)]
        assert all(low <= high for low, high in pairwise(times))


@pytest.mark.parametrize("model", ["llama-3.1-8b-instruct", "qwen3-30b-a3b", "deepseek-v2-lite"])
@pytest.mark.parametrize("batch", [1, 8, 64])
def test_no_decode_step_is_faster_than_its_memory_traffic(model: str, batch: int) -> None:
    made = loaded(model, "h100")
    pool = made.pools[0]
    latency = create_latency(made.plugins, pool)
    shape, context = pool.model, 8000
    kv = shape.kv_lora_rank + shape.qk_rope_head_dim or 2 * shape.num_key_value_heads * shape.head_dim
    bytes_ = 2.0 * batch * context * shape.num_hidden_layers * kv
    if shape.num_experts:
        expert = 3 * shape.hidden_size * shape.moe_intermediate_size
        tokens = shape.num_experts_per_tok * batch / shape.num_experts  # some experts are more popular than others
        touched = shape.num_experts * (1 - (1 + tokens * shape.num_experts / 128) ** (-128 / shape.num_experts))
        bytes_ += 2.0 * (shape.num_hidden_layers - shape.first_k_dense_replace) * expert * touched
    else:
        bytes_ += 2.0 * shape.num_hidden_layers * 3 * shape.hidden_size * shape.intermediate_size
    assert latency.step_time_us(StepLoad([], batch, batch * context)) > bytes_ / 3.35e6


def test_a_sliding_window_bounds_what_its_layers_read() -> None:
    layers = ["sliding_attention", "full_attention"] * 16
    full = steps("llama-3.1-8b-instruct", "h100")
    half = steps("llama-3.1-8b-instruct", "h100", model__config__sliding_window=128, model__config__layer_types=layers)
    costs = [model.costs.decode_attention(64) for model in (full, half)]
    assert costs[1].at(30_000) / costs[0].at(30_000) == pytest.approx(0.5, rel=0.05)
    assert costs[1].at(100) == pytest.approx(costs[0].at(100))
    assert prefilling(half, 8000) < prefilling(full, 8000)


@pytest.mark.parametrize(
    ("gpu", "more", "faster"),
    [
        ("h100", {}, False),
        ("h100", {"latency__attention_16_bit": False}, True),
        ("h100", {"latency__engine": "tensorrt-llm"}, True),
        ("b200", {}, True),
    ],
)
def test_vllm_on_hopper_reads_a_narrow_cache_no_faster(gpu: str, more: dict[str, object], *, faster: bool) -> None:
    """Servers of Llama 3.3 70B with an 8-bit cache, 64 long requests: 10 to 20 % slower than tables of 8 bits say."""
    wide = steps("llama-3.1-8b-instruct", gpu, 1, **more)
    narrow = steps("llama-3.1-8b-instruct", gpu, 1, engine__kv_cache_dtype="fp8", **more)
    ratio = narrow.costs.decode_attention(64).at(16_000) / wide.costs.decode_attention(64).at(16_000)
    assert (0.45 < ratio < 0.8) if faster else ratio == 1.0


VARIED: tuple[dict[str, Any], ...] = (
    {},
    {"hardware": "h200"},
    {"model": "qwen3-14b"},
    {"split": 2},
    {"latency__host_us": 50},
    {"latency__steps": 1.5},
    {"engine__max_num_batched_tokens": 1000},
    {"engine__speculative": {"draft_tokens": 3, "acceptance": 0.5}},
)


def test_models_that_share_tables_are_as_if_made_alone_and_remember_for_themselves() -> None:
    made = [loaded(**{"model": "llama-3.1-8b-instruct", "hardware": "h100", **one}) for one in VARIED]
    pools = [one.pools[0] for one in made]
    for pool in (*pools, *pools, replace(pools[0], operators=read_tables("l40s"))):
        model, other = (create_latency(made[0].plugins, pool) for _ in range(2))
        given: dict[str, Any] = {**pool.latency.settings}
        settings = OperatorSettings(**given)
        alone = OperatorModel(settings, pool)
        if settings.steps is not None:
            alone = ScaledOperatorModel(settings, pool, settings.steps)
        assert isinstance(model, OperatorModel)
        assert isinstance(other, OperatorModel)
        assert type(model) is type(other) is type(alone)
        for batch, context in ((1, 100), (7, 3000), (200, 500)):
            assert decoding(model, batch, context) == decoding(alone, batch, context)
            assert prefilling(model, context) == prefilling(alone, context)
        assert model._tokens_us == alone._tokens_us
        assert model._decodes.keys() == alone._decodes.keys()
        assert not other._decodes


def test_slower_steps_take_so_many_times_as_long() -> None:
    usual, slower = steps("llama-3.1-8b-instruct", "h100"), steps("llama-3.1-8b-instruct", "h100", latency__steps=1.25)
    assert decoding(slower, 64, 1000) == pytest.approx(1.25 * decoding(usual, 64, 1000), abs=1.3)
    assert prefilling(slower, 900, 100) == pytest.approx(1.25 * prefilling(usual, 900, 100), abs=1.3)


def test_experts_of_uneven_popularity_are_fewer() -> None:
    """With exponential popularity (spread 1), 32 tokens with 4 of 128 leave half of them idle: 1 / (1 + 32 x 4/128)."""
    assert chosen_experts(128, 4, 32, 1.0) == pytest.approx(64.0)
    assert chosen_experts(128, 4, 32, 0.0) == touched_experts(128, 4, 32)
    assert chosen_experts(128, 4, 32, 1e-6) == pytest.approx(touched_experts(128, 4, 32), rel=0.02)
    assert chosen_experts(128, 4, 1, 1.0) <= 4.0
    even, spread = (steps("gpt-oss-120b", "h200", latency__experts_spread=one) for one in (0, 1))
    assert decoding(spread, 32, 1000) < 0.9 * decoding(even, 32, 1000)
    assert prefilling(spread, 8192) == pytest.approx(prefilling(even, 8192), rel=0.01)


def test_experts_of_llama_4_are_in_every_layer_of_scout() -> None:
    """``interleave_moe_layer_step: 1``; beside them an expert of the same width that all tokens pass."""
    layers = steps("llama-4-scout-17b-16e-instruct-fp8-dynamic", "h100", 2).costs.layers
    assert layers.expert_layers == 48
    assert [one.times for one in layers.products] == [48, 48, 48, 48, 48]
    assert (layers.products[2].n, layers.products[3].k) == (8192, 4096)


@pytest.mark.parametrize("gpu", ["h200", "b200"])
def test_latent_attention_is_as_measured(gpu: str) -> None:
    """A row of the tables; with 128 heads it is limited by multiplying where 16 heads are by reading, on Hopper."""
    document = read_tables(gpu)
    tables = OperatorTables(document)
    shown = next(
        one
        for one in document["latent_attention"]["decode"]  # type: ignore[index]
        if (one["kv_cache"], one["heads"]) == ("bfloat16", 16)
    )
    row = shown["us"][shown["batch"].index(64)].split()
    few, many = (tables.latent_decodes("bfloat16", heads, 576) for heads in (16, 128))
    assert few is not None
    assert many is not None
    assert few.known == many.known == "measured"
    assert few.over_context(64).at(8192) == float(row[shown["context"].index(8192)])
    read_us = 64 * 8192 * 576 * 2 / tables.bytes_per_us
    assert 1.0 < few.over_context(64).at(8192) / read_us < 1.7
    assert (many.over_context(64).at(8192) > 1.5 * few.over_context(64).at(8192)) == (gpu == "h200")
    eight = tables.latent_decodes("fp8", 16, 576)
    assert eight is not None
    assert eight.over_context(64).at(8192) < few.over_context(64).at(8192)


@pytest.mark.parametrize("name", table_names())
def test_latent_attention_of_prompts_is_as_measured(name: str) -> None:
    """On some GPUs prompts of a single token were not, which says nothing of longer ones."""
    document = read_tables(name)
    tables = OperatorTables(document)
    for shown in document["latent_attention"]["prefill"]:  # type: ignore[index]
        at = shown["length"].index(4096)
        for heads, row in zip(shown["heads"], shown["us"], strict=True):
            prefill_attention = tables.latent_prefill(shown["kv_cache"], 128, heads)
            assert prefill_attention is not None
            assert prefill_attention.alone.known == "measured"
            assert prefill_attention.alone.at(4096 * 4097 / 2) == float(row.split()[at])


def test_queries_are_compressed_together_with_keys_and_values() -> None:
    """One product more, two of them smaller; what absorbs the expansion has 16 bits in FP8, too."""
    inline = yaml.safe_load((shipped_specs() / "models" / "deepseek-v2-lite.yaml").read_text(encoding="utf-8"))
    small = {**inline, "config": {**inline["config"], "q_lora_rank": 256}}
    whole, compressed = (steps(one, "h100", 2).costs.layers for one in (inline, small))
    assert [(one.n, one.k) for one in whole.products[:2]] == [(512 + 64, 2048), (8 * (128 + 64), 2048)]
    assert [(one.n, one.k) for one in compressed.products[:2]] == [(256 + 512 + 64, 2048), (8 * (128 + 64), 256)]
    assert compressed.products[2:] == whole.products[2:]
    narrow = steps("deepseek-v3", "h100", 8, **{"engine.kv_blocks": 9000}).costs.layers.products
    assert [(one.times, one.n, one.k, one.weights) for one in narrow[:4]] == [
        (61, 1536 + 512 + 64, 7168, "fp8"),
        (61, 16 * (128 + 64), 1536, "fp8"),
        (2 * 61, 16 * 128, 512, "bfloat16"),
        (61, 7168, 16 * 128, "fp8"),
    ]


def test_a_layer_of_latent_attention_takes_what_vllms_whole_module_does() -> None:
    """DeepSeek V3 on eight B200, 16-bit cache, contexts of 1,024 (vLLM 0.24's module, measured alone, in us).

    Norms, rotations and writing the cache count apart; with compression in two products and all of them quantized it
    was 46, 41 and 14 % too slow for 1, 8 and 64 requests.
    """
    model = steps("deepseek-v3", "b200", 8, **{"engine.kv_blocks": 90_000})
    products = model.costs._parts["products"][:4]
    for batch, measured_us in ((1, 52), (8, 54), (64, 83), (256, 142), (512, 217)):
        kernels_us = sum(times * curve.at(batch) for times, curve in products) / 61
        found = kernels_us + model.costs.decode_attention(batch).at(1024) / 61
        assert found == pytest.approx(measured_us, rel=0.2)


def test_norms_over_the_heads_of_all_gpus_are_two_more_sums_a_layer() -> None:
    """As in MiniMax M2; over each head, as in Qwen3, they only move what they normalise."""
    inline = yaml.safe_load((shipped_specs() / "models" / "qwen3-30b-a3b.yaml").read_text(encoding="utf-8"))
    made = []
    for kind in ("mixtral", "qwen3_moe", "minimax_m2"):
        model = {**inline, "config": {**inline["config"], "model_type": kind}, "generation_config": {}}
        made.append(steps(model, "h200", 4))
    plain, heads, layer = made
    sum_us = OperatorTables(read_tables("h200")).all_reduce(4).at(4.0)
    assert decoding(layer, 1, 1000) - decoding(heads, 1, 1000) == pytest.approx(48 * 2 * sum_us, abs=2)
    moved = 48 * 2 * (32 + 4) * 128 / 4 * 2 / 4.8e6 * 1.8
    assert prefilling(heads, 8000) - prefilling(plain, 8000) == pytest.approx(8000 * moved, rel=0.01)


def test_the_busiest_of_the_gpus_that_share_experts_counts() -> None:
    """Gamma-distributed popularity: the mean largest share of four GPUs, drawn, against what the law says."""
    even, uneven = (
        steps("gpt-oss-120b", "h200", 4, latency__expert_parallel=4, latency__experts_spread=one) for one in (0, 1)
    )
    experts, stream = 128, Streams(3).stream("popularity")
    largest = []
    for _ in range(300):
        popularity = [stream.exponential() for _ in range(experts)]
        shares = [fsum(popularity[at : at + 32]) / fsum(popularity) for at in range(0, experts, 32)]
        largest.append(4 * max(shares))
    more = fsum(largest) / len(largest)
    assert more == pytest.approx(1.0 + popularity_excess(4, experts, 1.0), abs=0.01)
    computed = [operator_model.costs.parts_us(8192, 0)["experts"][0] for operator_model in (even, uneven)]
    assert computed[1] / computed[0] == pytest.approx(more, rel=0.12)


def test_experts_are_spread_over_as_many_gpus_as_divide_them() -> None:
    pool = loaded("gpt-oss-120b", "h200", 8).pools[0]
    assert pool.operators is not None
    model = replace(pool.model, num_experts=60)

    def refused(apart: int) -> PolicyError | None:
        try:
            OperatorCosts(pool.operators or {}, model, 8, replace(OperatorSettings(), expert_parallel=apart))
        except PolicyError as error:
            return error
        return None

    errors = {apart: refused(apart) for apart in range(1, 10)}
    assert [apart for apart, error in errors.items() if not error] == [1, 2, 4]
    assert {error.help for error in errors.values() if error} == {"possible values are 1, 2, 4"}
    assert str(errors[3]).startswith("expert_parallel 3 does not divide the 8 accelerators of an instance")
    assert str(errors[8]).startswith("expert_parallel 8 does not divide the 60 experts of gpt-oss-120b")


def test_engines_and_sampling_differ_by_their_coefficients() -> None:
    name = "llama-3.1-70b-instruct"
    vllm, plain = steps(name, "h200", 4), steps(name, "h200", 4, latency__sampling="plain")
    other = steps(name, "h200", 4, latency__engine="tensorrt-llm", latency__sampling="plain")
    assert decoding(other, 16, 1000) < 0.9 * decoding(plain, 16, 1000)
    # FlashInfer's kernel, over 128,256 logits of 16 requests; older versions sort them, in 22 us each.
    assert decoding(vllm, 16, 1000) - decoding(plain, 16, 1000) == pytest.approx(100 + 16 * 0.006 * 128.256, abs=2)
    sorting = steps(name, "h200", 4, **{"policy.batching": {"kind": "vllm-v1", "version": "0.10"}})
    assert decoding(sorting, 16, 1000) - decoding(plain, 16, 1000) == pytest.approx(130 + 16 * 0.17 * 128.256, abs=2)


def test_the_host_between_steps_is_in_each_of_them_and_more_with_more_requests() -> None:
    """5.4 ms with 256 requests, within the 5 to 6 that were measured; prompts in the step are requests, too."""
    name = "llama-3.1-8b-instruct"
    plain, slow = steps(name, "l40s", 1), steps(name, "l40s", 1, latency__host_us=2600, latency__host_request_us=11)
    for count in (1, 58, 256):
        added = decoding(slow, count, 800) - decoding(plain, count, 800)
        assert added == pytest.approx(2600 + 11 * count, abs=1)
    load = StepLoad([Chunk(request(0, 0, 500, 1), 0, 500, 500)] * 2, 10, 8000)
    assert slow.step_time_us(load) - plain.step_time_us(load) == pytest.approx(2600 + 11 * 12, abs=1)


@pytest.mark.parametrize("name", table_names())
def test_no_weights_are_read_faster_than_memory_is(name: str) -> None:
    """Tables of GPUs with a large L2 had products and single experts that came from there."""
    tables = OperatorTables(read_tables(name))
    for kind in tables.types:
        for n, k in product((1024, 2048, 4096, 8192), repeat=2):
            read_us = n * k * WEIGHT_BYTES[kind] / tables.bytes_per_us
            assert tables.gemm(kind, n, k).at(1) > read_us
    for kind, split in product(tables.types, (1, 2, 4, 8)):
        experts = tables.experts(kind, 4096, 14336, 8, 2, split)
        assert experts is not None
        assert experts.at(1) > 2 * 3 * 4096 * 14336 / split * WEIGHT_BYTES[kind] / tables.bytes_per_us


def test_engines_sum_over_gpus_with_kernels_of_their_own() -> None:
    """On Blackwell vLLM borrows TensorRT-LLM's for short messages: up to 1 MiB over eight B200, where its own stall."""
    b200, h200 = (OperatorTables(read_tables(name)) for name in ("b200", "h200"))
    vllm, other = (b200.all_reduce(8, engine) for engine in ("vllm", "tensorrt-llm"))
    kib = 1024.0
    assert [vllm.at(size * kib) for size in (64, 256, 512)] == [other.at(size * kib) for size in (64, 256, 512)]
    assert vllm.at(4096 * kib) < 0.8 * other.at(4096 * kib)
    assert vllm.at(256 * kib) < 10.0 < vllm.at(1024 * kib) < 18.0
    on_hopper = [h200.all_reduce(4, engine).at(16 * kib) for engine in ("vllm", "tensorrt-llm")]
    assert on_hopper[1] < 0.75 * on_hopper[0]


def test_without_peer_to_peer_sums_go_through_the_host() -> None:
    """Messages of 16 MiB over two RTX PRO 6000 go at 15 GB/s a way through the host, and at 36 GB/s over PCIe."""
    name = "llama-3.1-8b-instruct"
    direct, host = (steps(name, "rtx-pro-6000", 2, latency__peer_to_peer=one) for one in (True, False))
    assert decoding(direct, 1, 1000) + 64 * 10 < decoding(host, 1, 1000)
    assert prefilling(direct, 4096) < 0.8 * prefilling(host, 4096)
    tables = OperatorTables(read_tables("rtx-pro-6000"))
    gb_per_s = [2**24 / 1e3 / tables.all_reduce(2, peer_to_peer=one).at(2**24) for one in (False, True)]
    assert gb_per_s == pytest.approx([15.0, 35.3], rel=0.02)
    nvlink = [steps(name, "h100", 2, latency__peer_to_peer=one) for one in (True, False)]
    assert prefilling(nvlink[0], 4096) == prefilling(nvlink[1], 4096)


def test_tensorrt_llm_is_faster_in_fp8_only() -> None:
    """Its 16-bit products take what vLLM's do."""
    plain = {"latency__sampling": "plain"}
    sums = {"latency__layer_tp_us": 0, "latency__engine": "tensorrt-llm", **plain}
    sixteen = [steps("llama-3.1-70b-instruct", "h200", 1, **one) for one in (plain, sums)]
    assert prefilling(sixteen[1], 4096) == prefilling(sixteen[0], 4096)
    eight = [steps("llama-4-scout-17b-16e-instruct-fp8-dynamic", "h200", 1, **one) for one in (plain, sums)]
    assert prefilling(eight[1], 4096) < 0.95 * prefilling(eight[0], 4096)


def test_long_products_of_tensorrt_llm_are_as_in_its_own_table() -> None:
    """Up to 512 tokens they are vLLM's; from there on its own."""
    document = read_tables("h200")
    own = document["tensorrt-llm"]["gemm"]["fp8"]  # type: ignore[index]
    row = own["us"][own["n"].index(8192) * len(own["k"]) + own["k"].index(8192)]
    vllm, other = (OperatorTables(document, engine).gemm("fp8", 8192, 8192) for engine in ("vllm", "tensorrt-llm"))
    assert own["m"][0] == 1024
    assert [other.at(m) for m in own["m"]] == pytest.approx([float(one) for one in row.split()])
    assert [other.at(m) for m in (1, 64, 512)] == [vllm.at(m) for m in (1, 64, 512)]
    assert all(0.9 * vllm.at(m) < other.at(m) < 1.15 * vllm.at(m) for m in own["m"])
    wide = [OperatorTables(document, engine).gemm("bfloat16", 8192, 8192) for engine in ("vllm", "tensorrt-llm")]
    assert wide[0] == wide[1]


def test_experts_of_tensorrt_llm_are_as_in_its_own_table() -> None:
    """Those of 8 bits on GPUs with graphics memory, in MXFP4 on Hopper; of others vLLM's count."""
    document = read_tables("rtx-pro-6000")
    own = document["tensorrt-llm"]["experts"]  # type: ignore[index]
    [row] = [line for line in own["us"] if line.startswith("fp8 4096 14336 8 2 1:")]
    shape = (4096, 14336, 8, 2, 1)
    vllm, other = (OperatorTables(document, engine).experts("fp8", *shape) for engine in ("vllm", "tensorrt-llm"))
    assert vllm is not None
    assert other is not None
    assert [other.at(tokens) for tokens in own["tokens"]] == pytest.approx([float(one) for one in row.split()[6:]])
    assert other.at(4096) < 0.55 * vllm.at(4096)
    wide = [OperatorTables(document, engine).experts("bfloat16", *shape) for engine in ("vllm", "tensorrt-llm")]
    assert wide[0] == wide[1]
    document = read_tables("h200")
    [row] = document["tensorrt-llm"]["experts"]["us"][:1]  # type: ignore[index]
    kind, *sizes = row.partition(":")[0].split()
    own = OperatorTables(document, "tensorrt-llm").experts(kind, *map(int, sizes))
    assert kind == "mxfp4"
    assert own is not None
    assert own.at(1) == pytest.approx(float(row.partition(":")[2].split()[0]))


def test_long_products_of_vllm_take_as_much_more_as_its_servers_did() -> None:
    """Those of 8 bits and more than 512 tokens: 1.2 times the table, or as said; shorter and wider ones as there."""
    name = "llama-4-scout-17b-16e-instruct-fp8-dynamic"
    usual, table, half = (
        steps(name, "h200", 1, **one) for one in ({}, *({"latency__products_fp8_long": f} for f in (1, 1.1)))
    )
    for tokens in (1024, 4096, 8192):
        more = prefilling(usual, tokens) - prefilling(table, tokens)
        assert more == pytest.approx(2 * (prefilling(half, tokens) - prefilling(table, tokens)), abs=4)
        narrow = [(one.times, one.n, one.k) for one in table.costs.layers.products if one.weights == "fp8"]
        tables = OperatorTables(read_tables("h200"))
        products = [times * tables.gemm("fp8", n, k).at(tokens) for times, n, k in narrow]
        assert more == pytest.approx(0.2 * fsum(products), abs=2)
    assert prefilling(usual, 512) == prefilling(table, 512)
    assert decoding(usual, 256, 1000) == decoding(table, 256, 1000)
    wide = (steps("llama-3.1-70b-instruct", "h200", 4, **one) for one in ({}, {"latency__products_fp8_long": 3}))
    assert len({prefilling(operator_model, 4096) for operator_model in wide}) == 1


@pytest.mark.parametrize(("gpu", "each"), [("h200", 0.75), ("b200", 3.0), ("l40s", 0.75), ("a100-80", 0.0)])
def test_what_an_fp8_product_multiplies_is_quantized_in_each_step(gpu: str, each: float) -> None:
    """Once per product, whatever the step has; where there are no units for FP8, nothing is quantized."""
    name = "llama-4-scout-17b-16e-instruct-fp8-dynamic"
    split = 4 if gpu in ("l40s", "a100-80") else 2
    usual, without = (steps(name, gpu, split, **one) for one in ({}, {"latency__quantize_us": 0}))
    narrow = fsum(one.times for one in usual.costs.layers.products if one.weights == "fp8")
    assert narrow > 48 * 3
    assert decoding(usual, 8, 1000) - decoding(without, 8, 1000) == pytest.approx(each * narrow, abs=2)
    assert prefilling(usual, 4096) - prefilling(without, 4096) == pytest.approx(each * narrow, abs=2)
    sixteen = [steps("llama-3.1-70b-instruct", gpu, split, **one) for one in ({}, {"latency__quantize_us": 50})]
    assert decoding(sixteen[0], 8, 1000) == decoding(sixteen[1], 8, 1000)


def test_sums_beside_fp8_products_wait_less() -> None:
    """6.5 us a layer and doubling instead of 8, as quantizing counts apart."""
    for name, layers, each in (
        ("llama-4-scout-17b-16e-instruct-fp8-dynamic", 48, 6.5),
        ("llama-3.1-70b-instruct", 80, 8),
    ):
        usual, without = (steps(name, "h200", 4, **one) for one in ({}, {"latency__layer_tp_us": 0}))
        assert decoding(usual, 8, 1000) - decoding(without, 8, 1000) == pytest.approx(2 * layers * each, abs=2)


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "l40s", "rtx-pro-6000"])
def test_no_fp8_product_takes_longer_than_one_of_more_tokens(gpu: str) -> None:
    table = read_tables(gpu)["gemm"]["fp8"]  # type: ignore[index]
    for row in table["us"]:
        times = [float(one) for one in row.split() if one != "-"]
        assert times == sorted(times)


def test_short_products_of_tensorrt_llm_take_a_share_and_never_more_than_long_ones() -> None:
    name = "llama-4-scout-17b-16e-instruct-fp8-dynamic"
    engine = {"latency__engine": "tensorrt-llm", "latency__layer_tp_us": 0}
    factors = (1.0, 0.75, 0.5)
    usual, less, half = (steps(name, "h200", 1, **engine, latency__products_fp8=factor) for factor in factors)
    products = [model.costs.parts_us(8, 1000)["products"][0] for model in (usual, less, half)]
    # All but the router's are in FP8.
    assert products[0] - products[1] == pytest.approx(products[1] - products[2])
    assert 0.5 * products[0] < products[2] < 0.6 * products[0]
    assert prefilling(half, 4096) == prefilling(usual, 4096)
    for model in (usual, half, steps(name, "h200", 1, **engine, latency__products_fp8=3.0)):
        times = [prefilling(model, new) for new in range(1, 3000, 37)]
        assert all(low <= high for low, high in pairwise(times))


def test_decodes_of_tensorrt_llm_on_hopper_read_a_narrow_cache_as_measured() -> None:
    """Its own kernel: 8-bit caches of 64 long requests in little more than the time of memory."""
    document = read_tables("h200")
    (own,) = (
        one
        for one in document["tensorrt-llm"]["decode_attention"]  # type: ignore[index]
        if (one["kv_cache"], one["head_dim"], one["kv_heads"]) == ("fp8", 128, 8)
    )
    at, context = own["batch"].index(64), own["context"].index(4096)
    measured = float(own["us"][at].split()[context])
    model = steps("llama-3.1-8b-instruct", "h200", 1, latency__engine="tensorrt-llm", engine__kv_cache_dtype="fp8")
    assert model.costs.decode_attention(64).at(4096) == pytest.approx(32 * measured)
    read_us = 2.0 * 64 * 4096 * 8 * 128 / 4.8e6
    assert read_us < measured < 1.3 * read_us
    blackwell = [steps("llama-3.1-8b-instruct", "b200", 1, latency__engine=one) for one in ("vllm", "tensorrt-llm")]
    assert blackwell[0].costs.decode_attention(64) == blackwell[1].costs.decode_attention(64)


def test_where_engines_fuse_all_reduce_and_norm_nothing_is_added_for_it() -> None:
    hopper, blackwell = (steps("llama-3.1-70b-instruct", gpu, 4, latency__layer_tp_us=0) for gpu in ("h200", "b200"))
    assert decoding(steps("llama-3.1-70b-instruct", "b200", 4), 8, 1000) == decoding(blackwell, 8, 1000)
    assert decoding(steps("llama-3.1-70b-instruct", "h200", 4), 8, 1000) > decoding(hopper, 8, 1000) + 1000


@pytest.mark.parametrize(("gpu", "slower"), [("h200", 2.0), ("b200", 1.0)])
def test_mxfp4_experts_take_longer_outside_of_cuda_graphs(gpu: str, slower: float) -> None:
    as_measured = {"latency__experts_mxfp4": 1, "latency__experts_token_us": 0}
    served, table = (steps("gpt-oss-120b", gpu, 4, **more) for more in ({}, as_measured))
    assert decoding(served, 256, 1000) == decoding(table, 256, 1000)
    tables = OperatorTables(read_tables(gpu))
    experts = tables.experts("mxfp4", 2880, 2880, 128, 4, 4)
    assert experts is not None
    more = prefilling(served, 4096) - prefilling(table, 4096)
    assert more == pytest.approx(36 * ((slower - 1) * experts.at(4096) + 0.1 * 4096), abs=2)


def test_mxfp4_experts_have_8_bit_activations_where_servers_do() -> None:
    """A B200 computes 8,192 tokens' experts of gpt-oss-120b at more than its peak in 16 bits."""
    experts = OperatorTables(read_tables("b200")).experts("mxfp4", 2880, 2880, 128, 4, 1)
    assert experts is not None
    assert experts.known == "measured"
    operations = 6.0 * 8192 * 4 * 2880 * 2880
    assert 2250e6 * 0.7 < operations / experts.at(8192) < 4500e6
