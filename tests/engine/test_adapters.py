"""LoRA adapters, by hand. Steps take 100 + prefill + 10 * decodes microseconds, and what adapters add."""

from __future__ import annotations

from dataclasses import replace

import pytest

import blis_tui
from blis_tui.base.errors import PolicyError
from blis_tui.engine.options.adapters import bytes_per_rank, step_overhead
from blis_tui.engine.records import AdapterEvicted, AdapterHeld, AdapterLoad, AdapterReady, Scheduled, StepFinished
from blis_tui.model import Lora, Setting
from tests.builders import Outcome, experiment, request
from tests.nightly import every

LORA = Lora(
    max_loras=1,
    max_cpu_loras=2,
    max_lora_rank=8,
    bytes_per_rank=1,
    base_latency_us=20,
    storage_latency_us=100,
    step_overhead=0.0,
)
"""A load takes 20 us and 1 for its bytes; from storage 100 and 1 before that."""
HOST, STORAGE = 21, 122


def adapted(batching: str, lora: Lora = LORA, requests: str = "aba") -> Outcome:
    """Requests that arrive together, one for each letter: prompts of 8 tokens under that adapter, answers of 3."""
    settings: dict[str, Setting] = {"async_scheduling": False} if batching == "vllm-v1" else {}
    made = experiment(batching=batching, settings=settings)
    pool = replace(made.pools[0], engine=replace(made.pools[0].engine, lora=lora))
    asked = [request(at, 0, 8, 3, adapter="" if name == "-" else name) for at, name in enumerate(requests)]
    return Outcome(replace(made, pools=(pool,)), asked)


def steps_of(outcome: Outcome) -> list[StepFinished]:
    return [record for record in outcome.records if isinstance(record, StepFinished)]


def loads_of(outcome: Outcome) -> list[tuple[str, str, int]]:
    return [
        (record.adapter, record.source, record.load_us) for record in outcome.records if isinstance(record, AdapterLoad)
    ]


def test_vllm_passes_over_whose_adapter_has_no_place_and_loads_at_the_start_of_a_step() -> None:
    outcome = adapted("vllm-v1")
    first, *_, second_prefill = [step for step in steps_of(outcome) if step.admitted]
    assert (first.admitted, first.duration_us) == (("0", "2"), 100 + 16 + STORAGE)
    assert (second_prefill.admitted, second_prefill.duration_us) == (("1",), 100 + 8 + STORAGE)
    [held] = [record for record in outcome.records if isinstance(record, AdapterHeld)]
    assert (held.request_id, held.reason, held.in_use) == ("1", "slots", ("a",))
    assert [record.adapter for record in outcome.records if isinstance(record, AdapterEvicted)] == ["a"]


def test_under_blis_nobody_overtakes_and_loads_run_beside_steps() -> None:
    outcome = adapted("blis", requests="-aba")
    [ready, *_] = [record for record in outcome.records if isinstance(record, AdapterReady)]
    assert (ready.adapter, ready.time_us) == ("a", STORAGE)
    assert [step.admitted for step in steps_of(outcome) if step.admitted] == [("0",), ("1",), ("2",), ("3",)]
    assert all(step.duration_us <= 100 + 8 + 20 for step in steps_of(outcome))
    assert [source for _, source, _ in loads_of(outcome)] == ["storage", "storage", "host"]


def test_the_least_recently_used_makes_room_and_comes_back_from_the_host() -> None:
    two = replace(LORA, max_loras=2, max_cpu_loras=3)
    assert loads_of(adapted("vllm-v1", two, "abca")) == [
        ("a", "storage", STORAGE),
        ("b", "storage", STORAGE),
        ("c", "storage", STORAGE),
    ]
    assert loads_of(adapted("vllm-v1", LORA, "aba"))[:2] == [("a", "storage", STORAGE), ("b", "storage", STORAGE)]
    one_after_the_other = adapted("blis", requests="abab")
    assert loads_of(one_after_the_other)[2:] == [("a", "host", HOST), ("b", "host", HOST)]


def test_under_vllm_a_victim_comes_back_before_those_that_were_passed_over() -> None:
    made = experiment(batching="vllm-v1", blocks=6)
    pool = replace(made.pools[0], engine=replace(made.pools[0].engine, lora=LORA))
    asked = [
        request(0, 0, 8, 12, adapter="a"),
        request(1, 0, 4, 2, adapter="b"),
        request(2, 0, 8, 12, adapter="a"),
    ]
    outcome = Outcome(replace(made, pools=(pool,)), asked)
    assert [step.preempted for step in steps_of(outcome) if step.preempted] == [("2",)]
    assert [step.admitted for step in steps_of(outcome) if step.admitted] == [("0", "2"), ("2",), ("1",)]


@pytest.mark.parametrize("batching", ["vllm-v1", "blis"])
@pytest.mark.parametrize("requests", ["a", "aaa", "aba", "abab", "-a-a", "abcabc"])
def test_who_is_not_loaded_for_found_its_adapter(batching: str, requests: str) -> None:
    outcome = adapted(batching, requests=requests)
    adapters = outcome.cluster.instances[0].batch.adapters
    assert adapters is not None
    assert adapters.admitted == len(requests.replace("-", ""))
    assert adapters.hits == adapters.admitted - len(loads_of(outcome))


def test_each_adapter_of_a_batch_makes_steps_longer() -> None:
    slow = replace(LORA, max_loras=2, base_latency_us=0, storage_latency_us=0, step_overhead=0.5)
    first, decode, *_ = steps_of(adapted("vllm-v1", slow, "ab-"))
    assert first.duration_us == (100 + 24) * 2 + 2 * 2
    assert decode.duration_us == (100 + 30) * 2
    assert [step_overhead(replace(LORA, step_overhead=None, max_lora_rank=rank)) for rank in (1, 12, 13, 64)] == [
        0.02,
        0.02,
        0.035,
        0.06,
    ]


@pytest.mark.parametrize(("adapter", "cached"), [("a", 4), ("b", 0), ("", 0)])
def test_a_prompt_under_another_adapter_is_no_hit(adapter: str, cached: int) -> None:
    made = experiment()
    pool = replace(made.pools[0], engine=replace(made.pools[0].engine, lora=LORA))
    prompts = [
        request(0, 0, 8, 1, segments=(("x", 4),), adapter="a"),
        request(1, 5000, 8, 1, segments=(("x", 4),), adapter=adapter),
    ]
    outcome = Outcome(replace(made, pools=(pool,)), prompts)
    assert [record.cached_tokens for record in outcome.records if isinstance(record, Scheduled)] == [0, cached]
    assert (outcome.rows["1"].prefix_group, outcome.rows["1"].prefix_tokens) == ("x", 4)


def test_adapters_take_memory_from_the_kv_cache() -> None:
    """Rank 16 of all projections of Llama 3.1 8B has 42 million numbers of two bytes."""
    changes = {"engine.lora": {"max_loras": 8}}
    pool = blis_tui.load("quickstart", set={"model": "llama-3.1-8b-instruct"}).pools[0]
    other = blis_tui.load("quickstart", set={"model": "llama-3.1-8b-instruct", **changes}).pools[0]
    assert 16 * bytes_per_rank(pool.model) == 2 * 41_943_040
    block = 2 * 16 * pool.model.num_hidden_layers * pool.model.num_key_value_heads * pool.model.head_dim * 2
    expected = 8 * 16 * bytes_per_rank(pool.model) / block
    assert pool.engine.kv_blocks - other.engine.kv_blocks == pytest.approx(expected, abs=1)


def test_rules_without_adapters_refuse_them() -> None:
    made = experiment(batching="nano")
    pool = replace(made.pools[0], engine=replace(made.pools[0].engine, lora=LORA))
    with pytest.raises(PolicyError, match="does not support LoRA adapters"):
        Outcome(replace(made, pools=(pool,)), [])


CROWDED = {
    "apiVersion": "blis/v1",
    "kind": "Experiment",
    "metadata": {"name": "crowded"},
    "model": "llama-3.1-8b-instruct",
    "hardware": "h100",
    "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [5000, 20, 30]},
    "workload": {
        "requests": 60,
        "rate_per_s": 200,
        "clients": [
            {
                "id": "any",
                "input_tokens": {"kind": "uniform", "min": 20, "max": 500},
                "output_tokens": 30,
                "adapters": {"count": 6, "prefix": "a"},
            }
        ],
    },
    "policy": {"batching": {"kind": "vllm-v1"}},
    "engine": {"kv_blocks": 120, "max_num_seqs": 8, "max_num_batched_tokens": 512, "lora": {"max_loras": 1}},
}
APART = {"instances": 3, "disaggregation": {"prefill_instances": 1, "decode_instances": 2}}


@pytest.mark.parametrize("seed", every(2, range(6)))
@pytest.mark.parametrize(
    "set_",
    [
        {"engine.pipeline_parallel": 2},
        {"policy.batching.version": "0.33", "cluster": APART},
        {"policy.batching.version": "0.33", "cluster": APART, "engine.pipeline_parallel": 2},
    ],
    ids=["pipeline", "apart", "both"],
)
def test_adapters_keep_to_their_places_beside_victims_and_prompts_from_elsewhere(
    set_: dict[str, object], seed: int
) -> None:
    """Victims of a step under way are passed over, and who holds KV blocks goes first only if its adapter may."""
    report = blis_tui.run(blis_tui.load(CROWDED, set=set_, seed=seed), check="all")
    assert report.requests.completed + report.requests.dropped_unservable == 60
