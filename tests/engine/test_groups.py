"""Groups of layers with and without a sliding window: those of vLLM, and what requests hold in them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.engine.kv.capacity import InstanceMemory, KvGroups, groups_of, kv_capacity
from blis_tui.model import Model
from tests.engine.test_capacity import H100, QWEN3_14B

GROUPS = st.builds(
    KvGroups, windowed=st.integers(1, 6), full=st.integers(0, 3), layers=st.just(1), window=st.integers(2, 200)
)


def windowed(window_layers: int, full_layers: int, window: int = 128) -> Model:
    return replace(
        QWEN3_14B,
        num_hidden_layers=window_layers + full_layers,
        sliding_window_layers=window_layers,
        sliding_window=window,
    )


@pytest.mark.parametrize(
    ("layers", "groups"),
    [
        ((18, 18), (1, 1, 18)),
        ((52, 10), (6, 1, 10)),
        ((40, 8), (5, 1, 8)),
        ((22, 4), (6, 1, 4)),
        ((24, 8), (3, 1, 8)),
        ((12, 13), (1, 1, 13)),
        ((3, 4), (1, 1, 4)),
        ((20, 30), (1, 2, 20)),
        ((21, 7), (3, 1, 7)),
        ((1, 1), (1, 1, 1)),
        ((10, 1), (10, 1, 1)),
        ((5, 40), (1, 8, 5)),
    ],
)
def test_the_groups_are_vllms(layers: tuple[int, int], groups: tuple[int, int, int]) -> None:
    """What ``_get_kv_cache_groups_uniform_page_size`` of vLLM 0.32.0 returns for models with so many layers."""
    assert groups_of(windowed(*layers)) == KvGroups(*groups, window=128)


def test_without_windows_there_are_no_groups() -> None:
    assert groups_of(QWEN3_14B) is None
    assert groups_of(windowed(0, 40)) is None
    assert groups_of(windowed(20, 20, window=0)) is None
    assert groups_of(windowed(32, 0)) == KvGroups(1, 0, 32, 128)


def test_a_block_holds_its_tokens_for_the_layers_of_one_group() -> None:
    model = windowed(18, 18)
    memory = InstanceMemory(
        model=model,
        hardware=H100,
        tensor_parallel=1,
        block_size_tokens=16,
        gpu_memory_utilization=0.9,
        max_num_batched_tokens=2048,
        max_num_seqs=256,
    )
    whole, grouped = kv_capacity(memory), kv_capacity(replace(memory, groups=groups_of(model)))
    assert grouped.bytes_per_block * 2 == whole.bytes_per_block
    assert grouped.blocks in (whole.blocks * 2, whole.blocks * 2 + 1)


def test_a_request_holds_its_window_and_what_is_in_flight() -> None:
    groups = KvGroups(1, 1, 18, 128)
    assert groups.window_blocks(2048, 16, None) == -(-(127 + 2048) // 16) + 1
    assert groups.window_blocks(2048, 16, 1024) == 64 + 1
    assert groups.blocks_for(160, 16, 20) == 10 + 10
    assert groups.blocks_for(1600, 16, 20) == 100 + 20


@given(GROUPS, st.integers(1, 5000), st.sampled_from([1, 4, 16]), st.integers(1, 60))
def test_the_longest_request_that_fits_is_the_longest(groups: KvGroups, blocks: int, size: int, held: int) -> None:
    tokens = groups.tokens_in(blocks, size, held)
    assert groups.blocks_for(tokens, size, held) <= blocks
    if groups.full or blocks < held * groups.windowed:
        assert groups.blocks_for(tokens + 1, size, held) > blocks


@given(GROUPS, st.integers(1, 20), st.integers(1, 4000))
def test_tokens_are_estimated_from_blocks(groups: KvGroups, requests: int, tokens: int) -> None:
    """Of requests of equal length that hold no block beyond their windows."""
    each = groups.full * tokens + groups.windowed * min(tokens, groups.window)
    found = groups.tokens_held(requests * each, requests, 1)
    assert found == requests * (tokens if groups.full else min(tokens, groups.window))
