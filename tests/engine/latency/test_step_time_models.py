"""Step-time models: published figures to the microsecond, and properties every model has."""

import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import PolicyError
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.model import Chunk, StepLoad, StepTimeModel
from blis_tui.engine.request import Request
from blis_tui.model import Hardware, Model, PluginConfig
from blis_tui.spec.shipped import builtin
from tests.builders import experiment

QWEN3_14B = Model(
    name="qwen3-14b",
    hidden_size=5120,
    num_hidden_layers=40,
    num_attention_heads=40,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=17408,
    vocab_size=151936,
    activation_bytes=2.0,
    kv_cache_bytes=2.0,
    weight_bytes=2.0,
    max_position_embeddings=40960,
)
MIXTRAL = Model(
    name="mixtral-8x7b-v0.1",
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=14336,
    vocab_size=32000,
    activation_bytes=2.0,
    kv_cache_bytes=2.0,
    weight_bytes=2.0,
    max_position_embeddings=32768,
    num_experts=8,
    num_experts_per_tok=2,
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

BLACKBOX = PluginConfig(
    kind="blackbox", settings={"alpha": (8888.09, 0.18489, 0.0), "beta": (13578.19, 39.4447, 27.3228)}
)
CROSSMODEL = PluginConfig(
    kind="crossmodel", settings={"alpha": (13732.0, 0.0, 860.6), "beta": (116.110, 1226.868, 19.943, 9445.157)}
)
ROOFLINE = PluginConfig(kind="roofline")
ROOFLINE_ALPHA = {"alpha": (0.0, 0.0, 0.0)}
TRAINED_ROOFLINE = PluginConfig(
    kind="trained-roofline",
    settings={
        "alpha": (9315.338771116985, 1849.5902371340574, 1.7079389122469397),
        "beta": (
            0.7726491335309499,
            1.127489556719325,
            1.0559901872766853,
            0.0,
            43.500541908701074,
            48.80613214319187,
            0.0,
        ),
    },
)
TRAINED_PHYSICS = PluginConfig(
    kind="trained-physics",
    settings={
        "alpha": (15563.199579, 777.3455, 45.907545),
        "beta": (
            0.152128,
            0.0,
            1.36252915,
            0.752037,
            32.09546717,
            4.41684444,
            126.024825,
            481.8613888,
            0.0,
            1.94710771,
            0.752037,
        ),
    },
)
FITTED = PluginConfig(kind="fitted")
ALL = (BLACKBOX, CROSSMODEL, ROOFLINE, TRAINED_ROOFLINE, TRAINED_PHYSICS, FITTED)


def build(
    latency: PluginConfig,
    model: Model = QWEN3_14B,
    tensor_parallel: int = 1,
    max_num_seqs: int = 256,
    hardware: Hardware = H100,
) -> StepTimeModel:
    (pool,) = experiment(max_num_seqs=max_num_seqs).pools
    return create_latency(
        builtin(), replace(pool, model=model, hardware=hardware, tensor_parallel=tensor_parallel, latency=latency)
    )


def having(latency: PluginConfig, **settings: tuple[float, ...]) -> PluginConfig:
    return replace(latency, settings={**latency.settings, **settings})


def listed(latency: PluginConfig, name: str) -> tuple[float, ...]:
    values = latency.settings.get(name, ())
    assert isinstance(values, tuple)
    return tuple(value for value in values if isinstance(value, float))


def prefill(*chunks: tuple[int, int, int], decode: tuple[int, int] = (0, 0)) -> StepLoad:
    """A load of ``(computed, new, prompt)`` chunks and ``(requests, context)`` decodes."""
    request = Request(0, "r", 0, 128, 500)
    return StepLoad([Chunk(request, *chunk) for chunk in chunks], *decode)


def lonely_request(model: StepTimeModel, input_tokens: int, output_tokens: int) -> tuple[int, float, int]:
    """TTFT, mean ITL and E2E in us of a request that has an instance to itself."""
    request = Request(0, "r", 0, input_tokens, output_tokens)
    overhead = model.output_token_overhead_us
    first = model.step_time_us(prefill((0, input_tokens, input_tokens)))
    ttft = model.queueing_time_us(request) + first + overhead
    itl = [model.step_time_us(StepLoad([], 1, input_tokens + step)) + overhead for step in range(output_tokens - 1)]
    return ttft, sum(itl) / len(itl), ttft + sum(itl) + model.post_decode_overhead_us


# Measured with BLIS: one request of 128 + 500 tokens on H100; E2E where the figure is published.
@pytest.mark.parametrize(
    ("latency", "model", "tensor_parallel", "ttft", "itl", "e2e"),
    [
        (ROOFLINE, QWEN3_14B, 1, 5781, 5777.450901803607, None),
        (BLACKBOX, QWEN3_14B, 1, 27538, 13605, None),
        (CROSSMODEL, QWEN3_14B, 1, 19236, 5554, None),
        (TRAINED_ROOFLINE, QWEN3_14B, 1, 22091, 10149.344689378756, 5088463),
        (TRAINED_PHYSICS, QWEN3_14B, 1, 28292, 12242.09619238477, 6137875),
        (TRAINED_PHYSICS, QWEN3_14B, 2, 22681, 6850.615230460923, 3441915),
        (TRAINED_PHYSICS, MIXTRAL, 2, 35917, 20104.553106212425, 10068866),
    ],
)
def test_one_request_takes_as_long_as_in_blis(
    latency: PluginConfig, model: Model, tensor_parallel: int, ttft: int, itl: float, e2e: int | None
) -> None:
    figures = lonely_request(build(latency, model, tensor_parallel), 128, 500)
    assert figures[0] == ttft
    assert figures[1] == pytest.approx(itl, rel=1e-14)
    assert e2e is None or figures[2] == e2e


def test_a_roofline_reads_the_experts_that_tokens_use() -> None:
    model = build(ROOFLINE, MIXTRAL, 2)
    attention = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096) * 2 / 2
    expert = 32 * 2 * 4096 * 14336 * 2 / 2
    token = 32 * (2 * 1024 + 4096) * 2 / 2
    context = 32 * 2 * 1024 * 2 / 2
    for count in (1, 2, 5):
        used = 8 * (1 - 0.75**count)
        expected = (attention + used * expert + count * token + 100 * count * context) / 3.35e12 * 1e6
        assert model.step_time_us(StepLoad([], count, 100 * count)) == int(expected)


def test_a_roofline_takes_compute_and_traffic_of_the_whole_step() -> None:
    model = build(ROOFLINE)
    together = model.step_time_us(prefill((0, 2048, 2048), decode=(20, 2000)))
    alone = model.step_time_us(prefill((0, 2048, 2048)))
    decode = model.step_time_us(StepLoad([], 20, 2000))
    assert max(alone, decode) < together < alone + decode


def test_the_phases_of_the_older_roofline_are_added_with_overheads() -> None:
    chunk, decodes = prefill((0, 2048, 2048)), StepLoad([], 20, 2000)
    whole, bare = (0.5, 20.0, 30.0, 500.0), (1.0, 0.0, 0.0, 0.0)
    for parallel, each_us in ((1, 30), (2, 30 + 2 * 20)):
        now = build(ROOFLINE, tensor_parallel=parallel)
        plain = build(
            PluginConfig(kind="roofline-phases", settings=ROOFLINE_ALPHA | {"beta": bare}), tensor_parallel=parallel
        )
        model = build(
            PluginConfig(kind="roofline-phases", settings=ROOFLINE_ALPHA | {"beta": whole}), tensor_parallel=parallel
        )
        prefill_us, decode_us = now.step_time_us(chunk), now.step_time_us(decodes)
        assert plain.step_time_us(prefill((0, 2048, 2048), decode=(20, 2000))) == prefill_us + decode_us
        overhead_us = 40 * each_us + 500
        assert model.step_time_us(chunk) == prefill_us + overhead_us  # bound by arithmetic, not by the bandwidth
        assert model.step_time_us(decodes) == pytest.approx(2 * decode_us + overhead_us, abs=1)
    assert model.step_time_us(StepLoad()) == 1


def test_narrow_weights_use_the_fp8_units() -> None:
    fp8 = replace(QWEN3_14B, weight_bytes=1.0)
    long = prefill((0, 8192, 8192))
    assert build(ROOFLINE, fp8).step_time_us(long) == pytest.approx(build(ROOFLINE).step_time_us(long) / 2, rel=0.01)
    no_units = replace(H100, peak_tflops_fp8=0.0)
    slow = build(ROOFLINE, fp8, hardware=no_units)
    assert slow.step_time_us(long) == build(ROOFLINE).step_time_us(long)


def test_interleaved_models_mix_dense_and_expert_layers() -> None:
    scout = replace(MIXTRAL, interleave_moe_layer_step=1, dense_intermediate_size=4 * 14336)
    mostly = replace(MIXTRAL, interleave_moe_layer_step=3)
    load = StepLoad([], 64, 6400)
    for latency in (ROOFLINE, TRAINED_PHYSICS):
        uniform = build(latency, MIXTRAL).step_time_us(load)
        assert build(latency, mostly).step_time_us(load) < uniform
        assert build(latency, scout).step_time_us(load) < uniform
    # 24 expert layers of 32 fewer, at 481.86 us each, are on top of the physics.
    betas = listed(TRAINED_PHYSICS, "beta")
    without = having(TRAINED_PHYSICS, beta=(*betas[:7], 0.0, *betas[8:]))
    difference = build(TRAINED_PHYSICS, mostly).step_time_us(load) - build(without, mostly).step_time_us(load)
    assert difference == pytest.approx(8 * 481.8613888, abs=1)


def test_shared_experts_cost_time_in_trained_physics() -> None:
    shared = replace(MIXTRAL, shared_expert_intermediate_size=14336)
    load = StepLoad([], 1, 100)
    more = build(TRAINED_PHYSICS, shared).step_time_us(load) - build(TRAINED_PHYSICS, MIXTRAL).step_time_us(load)
    assert more == pytest.approx(1.36252915 * 32 * 3 * 4096 * 14336 * 2 / 3.35e6, abs=1)


def test_fewer_coefficients_take_the_larger_of_compute_and_traffic() -> None:
    seven = having(TRAINED_PHYSICS, beta=(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    ten = having(TRAINED_PHYSICS, beta=(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0))
    for load in (StepLoad([], 32, 32_000), prefill((0, 512, 512))):
        assert build(seven).step_time_us(load) < build(ten).step_time_us(load)


def test_own_head_dimension_widens_the_attention() -> None:
    wide = replace(QWEN3_14B, head_dim=256)
    for latency in (ROOFLINE, TRAINED_ROOFLINE, TRAINED_PHYSICS, CROSSMODEL):
        load = StepLoad([], 64, 64_000)
        assert build(latency, wide).step_time_us(load) > build(latency).step_time_us(load)


def test_overheads_follow_the_kind() -> None:
    request = Request(0, "r", 0, 1000, 1)
    blackbox = build(BLACKBOX)
    assert blackbox.queueing_time_us(request) == int(8888.09 + 0.18489 * 1000)
    assert (blackbox.output_token_overhead_us, blackbox.post_decode_overhead_us) == (0, 0)
    physics = build(TRAINED_PHYSICS)
    assert physics.queueing_time_us(request) == 15563
    assert (physics.output_token_overhead_us, physics.post_decode_overhead_us) == (45, 777)
    roofline = build(ROOFLINE)
    assert roofline.queueing_time_us(request) == 0
    assert (roofline.output_token_overhead_us, roofline.post_decode_overhead_us) == (0, 0)
    given_alpha = build(PluginConfig(kind="roofline", settings={"alpha": (100.0, 0.5, 7.9)}))
    assert given_alpha.queueing_time_us(request) == 600
    assert given_alpha.output_token_overhead_us == 7


def test_tables_do_not_change_results() -> None:
    for latency, model in ((BLACKBOX, QWEN3_14B), (ROOFLINE, MIXTRAL)):
        small, large = build(latency, model, max_num_seqs=1), build(latency, model, max_num_seqs=600)
        for count in (0, 1, 2, 300, 600, 601, 5000):
            load = StepLoad([], count, 50 * count)
            assert small.step_time_us(load) == large.step_time_us(load)


models = st.sampled_from([(latency, model) for latency in ALL for model in (QWEN3_14B, MIXTRAL)])
chunk = st.builds(
    lambda computed, new, rest: (computed, new, computed + new + rest),
    st.integers(0, 4000),
    st.integers(1, 2048),
    st.integers(0, 4000),
)


@given(models, st.lists(chunk, max_size=4), st.integers(0, 300), st.integers(0, 4000))
def test_more_work_never_takes_less_time(
    case: tuple[PluginConfig, Model], chunks: list[tuple[int, int, int]], decodes: int, context: int
) -> None:
    model = build(*case)
    base = prefill(*chunks, decode=(decodes, decodes * context))
    time = model.step_time_us(base)
    assert time >= 1
    assert model.step_time_us(base) == time
    assert model.step_time_us(prefill(*chunks, decode=(decodes + 1, decodes * context))) >= time
    assert model.step_time_us(prefill(*chunks, decode=(decodes, decodes * context + 100))) >= time
    assert model.step_time_us(prefill(*chunks, (0, 16, 16), decode=(decodes, decodes * context))) >= time


@given(models, st.lists(chunk, max_size=3), st.integers(0, 300), st.integers(0, 100_000))
def test_a_pickled_model_answers_the_same(
    case: tuple[PluginConfig, Model], chunks: list[tuple[int, int, int]], decodes: int, context: int
) -> None:
    model = build(*case)
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301
    load = prefill(*chunks, decode=(decodes, context))
    assert copy.step_time_us(load) == model.step_time_us(load)
    request = Request(0, "r", 0, 77, 5)
    assert copy.queueing_time_us(request) == model.queueing_time_us(request)


@pytest.mark.parametrize("latency", ALL[:-1], ids=[latency.kind for latency in ALL[:-1]])
def test_a_step_takes_at_least_a_microsecond(latency: PluginConfig) -> None:
    free = having(latency, beta=tuple(0.0 for _ in listed(latency, "beta")))
    assert build(free).step_time_us(StepLoad()) >= 1
    tiny = replace(
        QWEN3_14B,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
    )
    assert build(free, replace(tiny, intermediate_size=8)).step_time_us(StepLoad([], 1, 1)) == 1


def test_unknown_kinds_name_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="no step-time model `rofline`") as caught:
        build(PluginConfig(kind="rofline"))
    assert caught.value.help is not None
    assert all(plugin.name in caught.value.help for plugin in builtin().of("latency"))


@pytest.mark.parametrize(
    ("latency", "message"),
    [
        (
            PluginConfig(kind="blackbox", settings={"alpha": (1.0, 2.0), "beta": (1.0, 2.0, 3.0)}),
            "takes 3 alpha coefficients, not 2",
        ),
        (PluginConfig(kind="blackbox", settings={"alpha": (1.0, 2.0, 3.0)}), "takes 3 beta coefficients, not 0"),
        (PluginConfig(kind="roofline", settings={"beta": (1.0,)}), "takes 0 beta coefficients, not 1"),
        (having(CROSSMODEL, beta=(1.0, 1.0, -2.0, 1.0)), r"beta\[2\] of crossmodel is -2.0"),
        (having(CROSSMODEL, alpha=(math.nan, 1.0, 2.0)), r"alpha\[0\] of crossmodel is nan"),
        (having(CROSSMODEL, alpha=(1.0, math.inf, 2.0)), r"alpha\[1\] of crossmodel is inf"),
    ],
)
def test_unusable_coefficients_are_refused(latency: PluginConfig, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        build(latency)


def test_shapes_that_do_not_split_are_refused() -> None:
    with pytest.raises(PolicyError, match="cannot split 40 heads and 8 KV heads"):
        build(TRAINED_PHYSICS, QWEN3_14B, 16)
    with pytest.raises(PolicyError, match="has experts but no num_experts_per_tok"):
        build(ROOFLINE, replace(MIXTRAL, num_experts_per_tok=0))
    with pytest.raises(PolicyError, match="tensor_parallel is 0"):
        build(ROOFLINE, QWEN3_14B, 0)


@pytest.mark.parametrize("latency", ALL, ids=[latency.kind for latency in ALL])
def test_a_narrow_kv_cache_halves_what_a_step_reads_of_it_and_nothing_else(latency: PluginConfig) -> None:
    usual, narrow = build(latency), build(latency, replace(QWEN3_14B, kv_cache_bytes=1.0))
    none, some, twice = (StepLoad([], 64, context) for context in (0, 200_000, 400_000))
    if latency is BLACKBOX:
        assert narrow.step_time_us(some) == usual.step_time_us(some)  # measured, not derived
    elif latency is CROSSMODEL:  # it counts a decode token's own KV, whatever the context
        assert narrow.step_time_us(StepLoad([], 64)) == pytest.approx(usual.step_time_us(StepLoad([], 32)), abs=1)
    else:
        for load in (none, some):
            assert narrow.step_time_us(load) <= usual.step_time_us(load)
        read = usual.step_time_us(some) - usual.step_time_us(none)
        assert narrow.step_time_us(twice) - narrow.step_time_us(none) == pytest.approx(read, abs=2)
