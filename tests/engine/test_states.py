"""Layers with a state for each request: vLLM's own figures, blocks counted apart, and the books after every event."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import SimulationError
from blis_tui.engine.kv.capacity import (
    InstanceMemory,
    KvGroups,
    block_size_of,
    groups_of,
    kv_bytes_per_token,
    kv_capacity,
    states_beside_kv,
)
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.kv.states import enlarged, projections, state_bytes
from blis_tui.engine.options.windows import GroupedPool
from blis_tui.engine.records import Preempted
from blis_tui.model import LinearLayers
from blis_tui.spec.load import load
from tests.builders import request
from tests.engine.test_capacity import H100

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Model


def model(name: str, dtype: str = "auto") -> Model:
    overrides = {"model": name, "latency": "roofline", "engine.kv_blocks": 1000, "engine.kv_cache_dtype": dtype}
    return load("quickstart", overrides=overrides).pools[0].model


GDN = LinearLayers(
    kind="gdn",
    layers=48,
    key_heads=16,
    key_dim=128,
    value_heads=48,
    value_dim=128,
    conv_kernel=4,
    conv_bytes=2.0,
    state_bytes=4.0,
)
"""Qwen3.5 27B's."""


# ---- sizes ----


@pytest.mark.parametrize(
    ("name", "dtype", "split", "tokens"),
    [
        ("qwen3.5-27b", "auto", 1, 784),
        ("qwen3.5-27b", "fp8", 1, 1568),
        ("qwen3.5-35b-a3b", "auto", 1, 1056),
        ("qwen3.5-35b-a3b", "auto", 4, 528),
        ("qwen3-next-80b-a3b", "auto", 1, 544),
        ("nemotron-3-nano-30b-a3b", "fp8", 1, 4176),
    ],
)
def test_blocks_are_as_large_as_vllm_says_in_its_log(name: str, dtype: str, split: int, tokens: int) -> None:
    """``Setting attention block size to N tokens``, as servers logged it in 2025 and 2026."""
    assert block_size_of(model(name, dtype), split, 16) == tokens


@pytest.mark.parametrize(("split", "tokens"), [(1, 1920), (2, 1024), (4, 512), (8, 256)])
def test_beside_latent_attention_a_block_is_a_multiple_of_128_tokens(split: int, tokens: int) -> None:
    assert block_size_of(model("kimi-linear-48b-a3b"), split, 16) == tokens
    assert block_size_of(model("kimi-linear-48b-a3b"), split, 4096) == 4096


def test_a_state_is_the_convolutions_last_inputs_and_a_matrix_for_each_head() -> None:
    assert state_bytes(GDN, 1) == 3 * (2 * 16 * 128 + 48 * 128) * 2 + 48 * 128 * 128 * 4
    assert state_bytes(GDN, 4) * 4 == state_bytes(GDN, 1)
    grouped = replace(GDN, kind="mamba2", key_heads=2, value_heads=8, key_dim=16, value_dim=4)
    assert state_bytes(grouped, 4) == 3 * (8 * 4 + 2 * 4 * 16) // 4 * 2 + 2 * 4 * 16 * 4, "each GPU has one of 4 groups"


def test_a_block_is_a_multiple_of_the_configured_one() -> None:
    assert enlarged(32, 3_207_168, 4096) == 800
    assert enlarged(512, 3_207_168, 4096) == 1024
    assert enlarged(2048, 3_207_168, 4096) == 2048
    assert enlarged(1, 3_207_168, 4096) == 784


def test_the_cache_of_a_logged_server_has_as_many_tokens() -> None:
    """A vLLM of May 2026, Qwen3.5 27B with an FP8 cache: `Available KV cache memory: 6.67 GiB`, 53,312 tokens."""
    groups, whole = groups_of(model("qwen3.5-27b", "fp8")), model("qwen3.5-27b", "fp8")
    assert groups is not None
    block = 1568 * kv_bytes_per_token(replace(whole, num_hidden_layers=groups.layers, linear=None), 1)
    blocks = int(6.67 * 2**30) // block
    assert blocks // (groups.count + groups.states) * 1568 == 53_312
    assert blocks / groups.blocks_for(32_768, 1568, 0) == pytest.approx(139 / (21 + 3))


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("qwen3.5-27b", KvGroups(0, 1, 16, 0, 3)),
        ("qwen3-next-80b-a3b", KvGroups(0, 1, 12, 0, 3)),
        ("kimi-linear-48b-a3b", KvGroups(0, 1, 7, 0, 3)),
        ("nemotron-3-nano-30b-a3b", KvGroups(0, 1, 6, 0, 4)),
    ],
)
def test_groups_are_as_large_as_the_rarer_kind(name: str, groups: KvGroups) -> None:
    assert groups_of(model(name)) == groups


def test_other_engines_reserve_states_for_all_requests() -> None:
    whole = model("qwen3.5-27b")
    memory = InstanceMemory(
        model=whole,
        hardware=H100,
        tensor_parallel=2,
        block_size_tokens=16,
        gpu_memory_utilization=0.9,
        max_num_batched_tokens=8192,
        max_num_seqs=64,
    )
    some, more = kv_capacity(memory), kv_capacity(replace(memory, max_num_seqs=128))
    assert some.bytes_per_block == 16 * 16 * 2 * 4 * 256 * 2, "16 of 64 layers have keys and values"
    taken = 64 * 48 * state_bytes(GDN, 2) * 2
    assert (some.blocks - more.blocks) * some.bytes_per_block == pytest.approx(taken, abs=2 * some.bytes_per_block)
    states = states_beside_kv(memory, "static")
    apart = kv_capacity(replace(memory, max_num_seqs=states), "static")
    in_kv = apart.blocks * apart.bytes_per_block
    assert states * 48 * state_bytes(GDN, 2) * 2 / in_kv == pytest.approx(0.9, rel=0.02)


def test_projections_are_split() -> None:
    assert projections(GDN, 5120) == ((16384, 5120), (96, 5120), (5120, 6144))
    assert projections(GDN, 5120, 4) == ((4096, 5120), (24, 5120), (5120, 1536))
    kda = replace(GDN, kind="kda", key_heads=32, value_heads=32)
    gates = ((1024, 128), (128, 2304), (1024, 128))
    assert projections(kda, 2304, 4) == ((3 * 1024 + 8 + 128, 2304), *gates, (2304, 1024))


# ---- the groups ----

GROUPS = st.builds(
    KvGroups,
    windowed=st.just(0),
    full=st.integers(1, 3),
    layers=st.just(1),
    window=st.just(0),
    states=st.integers(1, 6),
)


@given(GROUPS, st.integers(1, 3000), st.sampled_from([1, 16, 784]))
def test_the_longest_request_that_fits_is_the_longest(groups: KvGroups, blocks: int, size: int) -> None:
    tokens = groups.tokens_in(blocks, size, 1000)
    assert groups.blocks_for(tokens, size, 1000) <= blocks
    assert groups.blocks_for(tokens + 1, size, 1000) > blocks


@given(GROUPS, st.integers(1, 20), st.integers(1, 400))
def test_tokens_are_estimated_from_blocks(groups: KvGroups, requests: int, tokens: int) -> None:
    held = requests * groups.blocks_for(tokens, 1, 0)
    assert groups.tokens_held(held, requests, 1) == requests * tokens


# ---- the pool ----


def make_pool(total: int = 40, full: int = 1, states: int = 3, *, ahead: bool = False) -> GroupedPool:
    """Blocks of 4 tokens."""
    return GroupedPool(total, 4, PromptKeys(4), KvGroups(0, full, 1, 0, states), 1000, caching=False, ahead=ahead)


def compute(pool: GroupedPool, one: Request, tokens: int) -> None:
    pool.extend(one, tokens)
    one.computed_tokens = tokens


def test_a_state_never_grows() -> None:
    pool = make_pool()
    one = request(0, 0, 80, 9)
    assert pool.missing(one, 1) == pool.entry_blocks(one, 0, 1, 1) == 1 + 3
    for tokens, held in ((1, 4), (4, 4), (5, 5), (80, 23)):
        compute(pool, one, tokens)
        assert (pool.used, one.held_blocks) == (held, held)
    assert pool.missing(one, 81) == 1
    pool.release(one, 80)
    assert (pool.used, one.held_blocks) == (0, 0)
    assert pool.cached_prefix(request(1, 0, 80, 9), 20) == 0


def test_states_are_not_kept_in_the_prefix_cache() -> None:
    with pytest.raises(SimulationError, match="prefix cache"):
        GroupedPool(9, 4, PromptKeys(4), KvGroups(0, 1, 1, 0, 3), 1000, caching=True, ahead=False)


@given(
    st.lists(st.tuples(st.sampled_from(["start", "go on", "end"]), st.integers(0, 5), st.integers(1, 30)), max_size=60),
    st.integers(1, 2),
    st.integers(1, 4),
    st.booleans(),
)
def test_the_books_balance(steps: list[tuple[str, int, int]], full: int, states: int, ahead: bool) -> None:
    """What the pool says is what its requests' tokens say: blocks of tokens in each group, and one for each state."""
    pool = make_pool(60, full, states, ahead=ahead)
    live: dict[int, Request] = {}
    for number, (what, which, tokens) in enumerate(steps):
        if what == "start":
            one = request(number, 0, 200, 9)
            if pool.entry_blocks(one, 0, tokens, 0) <= pool.free:
                compute(pool, one, tokens)
                live[number] = one
        elif live:
            index = sorted(live)[which % len(live)]
            one = live[index]
            if what == "end":
                pool.release(live.pop(index), one.computed_tokens)
            elif pool.missing(one, one.computed_tokens + tokens) <= pool.free:
                compute(pool, one, one.computed_tokens + tokens)
        if number % 3 == 0:
            pool.planned()
        assert pool.audit([(one, one.held_blocks) for one in live.values()]) == ""
        assert pool.used == sum([full * -(-one.computed_tokens // 4) + states for one in live.values()])


# ---- whole runs ----


def experiment(**engine: object) -> dict[str, Any]:
    """A small hybrid model: 6 layers with a state, 2 with attention; blocks of 48 tokens."""
    config = {
        "hidden_size": 64,
        "num_hidden_layers": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "intermediate_size": 64,
        "vocab_size": 64,
        "max_position_embeddings": 4096,
        "full_attention_interval": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
    }
    header = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "small-hybrid"}}
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "states"},
        "model": {**header, "config": config},
        "hardware": "h100",
        "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [5000, 10, 20]},
        "policy": {"batching": "vllm-v1"},
        "engine": {"max_num_batched_tokens": 128, "max_model_len": 400, **engine},
        "workload": {
            "requests": 60,
            "rate_per_s": 1000,
            "clients": [
                {
                    "id": "a",
                    "share": 1,
                    "prefix": {"group": "g", "tokens": 50},
                    "input_tokens": {"kind": "uniform", "min": 5, "max": 150},
                    "output_tokens": {"kind": "uniform", "min": 1, "max": 60},
                }
            ],
        },
    }


@pytest.mark.parametrize("ahead", [True, False])
def test_after_each_event_requests_hold_what_their_tokens_say(ahead: bool) -> None:
    """Blocks of 48 tokens: a state has (3 x 192 + 4 x 32 x 16) elements, a token of a layer 64."""
    document = experiment(kv_blocks=40)
    document["policy"] = {"batching": {"kind": "vllm-v1", "async_scheduling": ahead}}
    simulation = blis_tui.Simulation(blis_tui.load(document), check="all")
    preempted: list[Preempted] = []
    simulation.subscribe(Preempted, preempted.append)
    instance = simulation.cluster.instances[0]
    assert (instance.pool.block_size_tokens, instance.pool.total) == (48, 40)
    most = 0
    while simulation.step() is not None:
        pool = instance.pool
        assert isinstance(pool, GroupedPool)
        tables = [table for table in pool._tables.values() if table.rows[0]]
        assert all(len(table.rows) == 1 and len(table.states) == 3 for table in tables)
        assert pool.used == sum([len(table.rows[0]) + 3 for table in tables])
        most = max(most, len(tables))
    assert preempted
    assert instance.pool.used == 0
    assert most <= 40 // 4
    report = simulation.report()
    assert report.tokens.cached == 0
    assert report.requests.completed == 60
    assert report.kv.hit_rate == 0.0


def test_as_many_requests_run_as_have_room() -> None:
    """Prompts of 100 tokens with answers of 20: three blocks of tokens and three of states each, in 31 blocks."""
    document = experiment(kv_blocks=31, max_num_seqs=64)
    document["workload"]["clients"][0] |= {"prefix": None, "input_tokens": 100, "output_tokens": 20}
    del document["workload"]["clients"][0]["prefix"]
    report = blis_tui.run(blis_tui.load(document))
    assert report.instances[0].peak_running == 31 // (-(-120 // 48) + 3)
    assert report.kv.preemptions == 0


def test_a_resolved_document_gives_the_same_run() -> None:
    loaded = blis_tui.load(experiment(kv_blocks=40))
    engine = loaded.pools[0].engine
    assert (engine.block_size_tokens, engine.enable_prefix_caching) == (48, False)
    assert blis_tui.load(dict(loaded.document)).sha256 == loaded.sha256
