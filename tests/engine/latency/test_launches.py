"""Steps without CUDA graphs: what is launched, and that it never takes less than a graph."""

from __future__ import annotations

import pytest

import blis_tui
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.latency.wrappers import COMPUTED, Launched, launched, launches
from blis_tui.spec.library import names
from blis_tui.spec.shipped import builtin
from tests.builders import request

OPERATORS = {
    # by hand: 10 of a dense layer, 2 more with tensor parallelism; embedding, norm, head, choosing
    ("llama-3.1-8b-instruct", 1): 32 * 10 + 4,
    ("llama-3.1-70b-instruct", 4): 80 * 12 + 4,
    # norms of queries and keys; router, choice, sorting, two products with an activation between, sum
    ("qwen3-30b-a3b", 4): 48 * (7 + 2 + 2 + 7) + 4,
}
LOADS = [StepLoad([], decodes, decodes * context) for decodes in (1, 3, 9, 17, 100, 256) for context in (1, 700, 9000)]
LOADS += [
    StepLoad([Chunk(request(0, 0, new, 1), 0, new, new)], decodes, 500 * decodes)
    for new in (1, 200, 2048)
    for decodes in (0, 20)
]


def experiment(**keys: object) -> blis_tui.Experiment:
    return blis_tui.load("steady-chat", set={"workload.requests": 20, "expect": [], **keys})


@pytest.mark.parametrize(("model", "split"), OPERATORS)
def test_operators_are_counted(model: str, split: int) -> None:
    (pool,) = experiment(**{"model": model, "cluster.tensor_parallel": split, "latency": "fitted"}).pools
    assert launches(pool.model, split) == OPERATORS[model, split]


def test_every_model_launches_at_least_its_attention_and_its_products() -> None:
    for model in names("Model"):
        split = 2 if model == "phi-4" else 4  # it has ten heads of keys and values
        (pool,) = experiment(
            **{
                "model": model,
                "hardware": "b300",
                "cluster.tensor_parallel": split,
                "engine.kv_blocks": 9000,
                "latency": "fitted",
            }
        ).pools
        assert 12 <= launches(pool.model, split) / pool.model.num_hidden_layers < 32, model


@pytest.mark.parametrize("kind", COMPUTED)
@pytest.mark.parametrize("batching", ["nano", "vllm-v1"])
def test_eager_is_never_faster_than_graphs(kind: str, batching: str) -> None:
    """A small batch waits for the host; whatever is in it, a step takes no less than its graph."""
    settings: dict[str, object] = {"latency": {"kind": kind}, "policy": batching, "hardware.launch_us": 20}
    if batching == "nano":
        settings |= {"engine.max_num_batched_tokens": 4096, "engine.max_model_len": 2048}
    pools = [experiment(**settings, **{"engine.enforce_eager": eager}).pools[0] for eager in (False, True)]
    graph, eager = (launched(create_latency(builtin(), pool), pool, batching) for pool in pools)
    least = launches(pools[1].model, 1) * 20
    assert not isinstance(graph, Launched)
    for load in LOADS:
        assert eager.step_time_us(load) == max(graph.step_time_us(load), least)
    assert eager.step_time_us(StepLoad()) == graph.step_time_us(StepLoad())


@pytest.mark.parametrize("kind", COMPUTED)
def test_steps_of_decodes_alone_may_be_the_only_graphs(kind: str) -> None:
    """vLLM's FULL_DECODE_ONLY: a step with a part of a prompt takes what it takes eagerly, others what graphs take."""
    settings: dict[str, object] = {"latency": {"kind": kind}, "hardware.launch_us": 20}
    keys: list[dict[str, object]] = [
        {},
        {"engine.cudagraph_mode": "FULL_AND_PIECEWISE"},
        {"engine.cudagraph_mode": "FULL_DECODE_ONLY"},
        {"engine.enforce_eager": True},
        {"engine.enforce_eager": True, "engine.cudagraph_mode": "FULL_DECODE_ONLY"},
    ]
    pools = [experiment(**settings, **key).pools[0] for key in keys]
    graph, same, decodes, eager, both = (launched(create_latency(builtin(), pool), pool, "vllm-v1") for pool in pools)
    assert not isinstance(same, Launched)
    for load in LOADS:
        assert decodes.step_time_us(load) == (eager if load.chunks else graph).step_time_us(load)
        assert both.step_time_us(load) == eager.step_time_us(load)


@pytest.mark.parametrize(("split", "largest"), [(2, 256), (4, 512)])
def test_sglangs_graphs_hold_decodes_of_up_to_a_batch(split: int, largest: int) -> None:
    """On an H100; more of them wait for the host, with a prompt beside them as without one, and prompts do not."""
    (pool,) = experiment(
        **{"model": "llama-3.1-70b-instruct", "cluster.tensor_parallel": split, "latency": "operators"}
    ).pools
    graph, limited = (launched(create_latency(builtin(), pool), pool, batching) for batching in ("vllm-v1", "sglang"))
    least = int(1.5 * launches(pool.model, split) * 38)
    assert not isinstance(graph, Launched)
    assert isinstance(limited, Launched)
    for decodes in (1, largest, largest + 1, 2 * largest):
        load = StepLoad([], decodes, 100 * decodes)
        expected = graph.step_time_us(load) if decodes <= largest else max(graph.step_time_us(load), least)
        assert limited.step_time_us(load) == limited.decode_runs(load, 3)[0][0] == expected
    assert limited.step_time_us(LOADS[-1]) == graph.step_time_us(LOADS[-1])
    beside = StepLoad(LOADS[-1].chunks, largest + 1, 100 * largest)
    assert limited.step_time_us(beside) == max(graph.step_time_us(beside), least)


def test_prompts_of_sglang_wait_for_the_host_where_graphs_hold_decodes_alone() -> None:
    """As they did before it had graphs of prompts; a short one then takes as long as its launches."""
    keys = {"model": "qwen3.5-397b-a17b", "hardware": "h200", "cluster.tensor_parallel": 8, "latency": "operators"}
    graphs, only_decodes = (
        launched(create_latency(builtin(), pool), pool, "sglang")
        for mode in ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY")
        for pool in experiment(**keys, **{"engine.cudagraph_mode": mode, "policy": "sglang"}).pools
    )
    (pool,) = experiment(**keys).pools
    least = int(1.5 * launches(pool.model, 8, prompts=True) * 38)
    for load in LOADS:
        expected = max(graphs.step_time_us(load), least if load.chunks else 0)
        assert only_decodes.step_time_us(load) == expected
    assert any(only_decodes.step_time_us(load) > graphs.step_time_us(load) for load in LOADS)


def test_a_scan_of_a_prompt_launches_more_than_a_step_of_decodes() -> None:
    """Qwen3.5: in each of its 45 layers with a state seven kernels more; other models launch as many for both."""
    pools = [
        experiment(**{"model": model, "hardware": "h200", "cluster.tensor_parallel": 8, "latency": "fitted"}).pools[0]
        for model in ("qwen3.5-397b-a17b", "qwen3-235b-a22b-fp8")
    ]
    more = [launches(pool.model, 8, prompts=True) - launches(pool.model, 8) for pool in pools]
    assert more == [45 * 7, 0]


@pytest.mark.parametrize("batching", ["nano", "vllm-v1"])
def test_a_run_without_graphs(batching: str) -> None:
    """Alone on the server, a request gets a token whenever all operators have been launched."""
    alone = {
        "workload": {
            "requests": 1,
            "rate_per_s": 1,
            "clients": [{"id": "c", "input_tokens": 100, "output_tokens": 50}],
        },
        "model": "llama-3.1-8b-instruct",
        "policy": batching,
        "latency": "operators",
        "engine": {"max_num_batched_tokens": 4096, "max_model_len": 2048},
        "horizon_us": "none",
    }
    graph, eager = (
        blis_tui.run(experiment(**alone, **{"engine.enforce_eager": one})).latency.itl_ms for one in (False, True)
    )
    assert eager.p50 == eager.max == pytest.approx(324 * 38 / 1e3)
    assert graph.p50 is not None
    assert graph.p50 < 0.6 * 12.312


def test_what_is_not_known_is_said() -> None:
    """Measured step times hold for the server that was measured, with graphs or without."""
    box = {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [5000, 10, 10]}
    runs = [
        blis_tui.run(experiment(**{"engine.enforce_eager": eager, "latency": latency}))
        for latency in (box, "fitted")
        for eager in (False, True)
    ]
    warned = [[warning.id for warning in run.warnings if warning.id == "eager-without-cost"] for run in runs]
    assert warned == [[], ["eager-without-cost"], [], []]
    assert [*runs[0].rows] == [*runs[1].rows]
    assert [*runs[2].rows] != [*runs[3].rows]
    (eager_warning,) = (
        warning
        for warning in blis_tui.run(
            experiment(**{"engine.cudagraph_mode": "FULL_DECODE_ONLY", "latency": box})
        ).warnings
        if warning.id == "eager-without-cost"
    )
    assert eager_warning.message.startswith("engine.cudagraph_mode has no effect")
