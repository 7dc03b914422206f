"""The block pool for layers with a sliding window: what requests give back, what others find, and balanced books."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import SimulationError
from blis_tui.engine.kv.capacity import KvGroups
from blis_tui.engine.kv.keys import PromptKeys
from blis_tui.engine.options.windows import GroupedPool
from blis_tui.engine.records import StepFinished
from tests.builders import request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


def make_pool(
    total: int = 40, window: int = 8, windowed: int = 1, full: int = 1, *, ahead: bool = False
) -> GroupedPool:
    """Blocks of 4 tokens."""
    groups = KvGroups(windowed, full, 1, window)
    return GroupedPool(total, 4, PromptKeys(4), groups, 1000, caching=True, ahead=ahead)


def prompt(index: int, tokens: int, shared: int = 0) -> Request:
    return request(index, 0, tokens, 9, segments=(("s", shared),) if shared else ())


def compute(pool: GroupedPool, one: Request, tokens: int) -> None:
    pool.extend(one, tokens)
    one.computed_tokens = tokens


def test_blocks_that_the_window_has_passed_are_given_back() -> None:
    pool = make_pool()
    one = prompt(0, 40)
    compute(pool, one, 12)
    assert (pool.used, one.held_blocks) == (6, 6)
    compute(pool, one, 24)  # the tokens before 12 - 8 + 1 = 5 are of no use any more: one block
    assert (pool.used, one.held_blocks) == (11, 11)
    compute(pool, one, 28)  # before 17: four
    assert (pool.used, one.held_blocks) == (7 + 3, 10)
    assert pool.missing(one, 29) == 2
    assert pool.audit([(one, 10)]) == ""


def test_results_in_flight_keep_their_window() -> None:
    pool = make_pool(ahead=True)
    one = prompt(0, 40)
    for tokens, used in ((12, 6), (24, 12), (28, 13)):
        compute(pool, one, tokens)
        pool.planned()
        assert pool.used == used
    pool.computed(0, -1)
    pool.slide(one)
    assert pool.used == 7 + 2


def test_a_prompt_is_found_if_its_window_is() -> None:
    pool = make_pool(total=100)
    first = prompt(0, 40, shared=40)
    compute(pool, first, 40)
    pool.release(first, 40)
    assert pool.cached_prefix(prompt(1, 40, shared=32), 9) == 8
    # Whoever takes two blocks more than were never used takes the window's last two.
    other = prompt(2, 400)
    compute(pool, other, 41 * 4)
    assert pool.cached_prefix(prompt(1, 40, shared=40), 10) == 8
    second = prompt(1, 40, shared=32)
    assert pool.entry_blocks(second, 8, 40, 40) == 8 + 2 + 2 * 2
    pool.pin(second, 8)
    assert second.held_blocks == 8 + 2
    assert pool.hits == 16


def test_what_the_window_lost_counts_as_not_found() -> None:
    """The full group has the prompt, the other one only its beginning and its end."""
    pool = make_pool(total=100, window=12)
    first = prompt(0, 40, shared=40)
    compute(pool, first, 20)
    compute(pool, first, 40)
    assert pool.cached_prefix(prompt(1, 40, shared=40), 10) == 10
    assert pool.cached_prefix(prompt(1, 40, shared=28), 7) == 7
    lost = pool._tables[0].rows[0][4]
    pool._blocks_of_key[0].pop(pool._content[lost])
    assert pool.cached_prefix(prompt(1, 40, shared=40), 10) == 10
    assert pool.cached_prefix(prompt(1, 40, shared=28), 7) == 4


@pytest.mark.parametrize(("window", "found"), [(9, 7), (10, 4)])
def test_a_token_attends_to_itself_and_to_the_window_before_it(window: int, found: int) -> None:
    """Of 28 tokens the last two blocks are left: with the next token they make up a window of 9, not of 10."""
    pool = make_pool(total=100, window=window)
    first = prompt(0, 40, shared=40)
    compute(pool, first, 20)
    compute(pool, first, 40)
    pool._blocks_of_key[0].pop(pool._content[pool._tables[0].rows[0][4]])
    assert pool.cached_prefix(prompt(1, 40, shared=28), 7) == found


def test_no_block_is_taken_without_a_request() -> None:
    with pytest.raises(SimulationError, match="groups of layers"):
        make_pool().take(1)


@given(
    st.lists(st.tuples(st.sampled_from(["start", "go on", "end"]), st.integers(0, 5), st.integers(1, 30)), max_size=60),
    st.integers(2, 20),
    st.booleans(),
)
def test_the_books_balance(steps: list[tuple[str, int, int]], window: int, ahead: bool) -> None:
    pool = make_pool(total=60, window=window, windowed=2, ahead=ahead)
    live: dict[int, Request] = {}
    for number, (what, which, tokens) in enumerate(steps):
        if what == "start":
            one = prompt(number, 200, shared=4 * which)
            found = pool.cached_prefix(one, 49)
            if pool.entry_blocks(one, found, found * 4 + tokens, 0) <= pool.free:
                if found:
                    pool.pin(one, found)
                one.computed_tokens = found * 4
                compute(pool, one, found * 4 + tokens)
                live[number] = one
        elif live:
            index = sorted(live)[which % len(live)]
            one = live[index]
            if what == "end":
                pool.release(live.pop(index), one.computed_tokens)
            elif one.computed_tokens + tokens <= 200:
                pool.slide(one)
                if pool.missing(one, one.computed_tokens + tokens) <= pool.free:
                    compute(pool, one, one.computed_tokens + tokens)
        if number % 3 == 0:
            pool.planned()
        assert pool.audit([(one, one.held_blocks) for one in live.values()]) == ""
    assert 0 <= pool.free <= pool.total


# ---- against the pool without groups ----


def experiment(seed: int, *, ahead: bool, window: int) -> dict[str, Any]:
    model = {
        "config": {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "intermediate_size": 64,
            "vocab_size": 64,
            "max_position_embeddings": 4096,
            "hidden_act": "silu",
            "torch_dtype": "bfloat16",
            "sliding_window": window,
            "layer_types": ["sliding_attention"] * 2,
        }
    }
    header = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "all-windows"}}
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "windows"},
        "seed": seed,
        "model": {**header, **model},
        "hardware": "h100",
        "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [5000, 10, 20]},
        "policy": {"batching": {"kind": "vllm-v1", "async_scheduling": ahead}},
        "engine": {
            "kv_blocks": 60,
            "block_size_tokens": 8,
            "max_num_batched_tokens": 128,
            "max_model_len": 400,
            "disable_hybrid_kv_cache_manager": not window,
        },
        "workload": {
            "requests": 60,
            "rate_per_s": 20,
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
@pytest.mark.parametrize("seed", range(4))
def test_a_window_wider_than_any_request_changes_nothing(seed: int, ahead: bool) -> None:
    """Step by step, and block by block, it is the run of ``BlockPool``."""
    runs = []
    for window in (4096, 0):
        simulation = blis_tui.Simulation(blis_tui.load(experiment(seed, ahead=ahead, window=window)), check="all")
        steps: list[StepFinished] = []
        simulation.subscribe(StepFinished, steps.append)
        simulation.run()
        runs.append((steps, json.loads(simulation.report().to_json())["kv"]))
        assert isinstance(simulation.cluster.instances[0].pool, GroupedPool) == bool(window)
    assert runs[0] == runs[1]
    assert any(step.preempted for step in runs[0][0])
