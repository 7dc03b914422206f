"""``nano`` and ``llm-serving-sim`` on cases small enough to follow by hand.

Steps take 100 + prefill + 10 * decodes microseconds; blocks hold four tokens.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blis_tui.engine.kv.capacity import InstanceMemory, kv_capacity
from blis_tui.engine.latency.wrappers import captured_size
from blis_tui.engine.records import Preempted, StepFinished
from blis_tui.engine.rules.llm_serving_sim import LoggedSteps
from blis_tui.engine.rules.traits import RULES, SIMULATED, VERSIONS
from blis_tui.engine.rules.vllm import VllmSettings, VllmV1Batching
from blis_tui.engine.steps import Steps
from blis_tui.model.engine import UNLIMITED
from blis_tui.spec.shipped import builtin
from docs.make_schedulers import COMPARED, IMAGES, MEANINGS, PAGE, page, pictures
from tests.builders import HARDWARE, MODEL, Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Setting


def steps(outcome: Outcome) -> list[StepFinished]:
    return [record for record in outcome.records if isinstance(record, StepFinished)]


def work(outcome: Outcome) -> list[tuple[dict[str, int], int, tuple[str, ...]]]:
    """Of each step: prefilled tokens by request, decodes, and who stalled."""
    return [
        ({chunk.request_id: chunk.new_tokens for chunk in step.chunks}, step.decode_requests, step.stalled)
        for step in steps(outcome)
    ]


def run(kind: str, requests: list[Request], settings: dict[str, Setting] | None = None, **limits: int) -> Outcome:
    return Outcome(experiment(batching=kind, settings=settings, **limits), requests)  # type: ignore[arg-type]


# nano


def test_a_step_prefills_or_decodes_and_decodes_wait_for_prompts() -> None:
    outcome = run("nano", [request(0, 0, 8, 3), request(1, 50, 8, 3)])
    assert work(outcome) == [({"0": 8}, 0, ()), ({"1": 8}, 0, ("0",)), ({}, 2, ()), ({}, 2, ())]


def test_prompts_are_taken_whole_or_not_at_all_and_nobody_overtakes() -> None:
    requests = [request(0, 0, 10, 1), request(1, 0, 8, 1), request(2, 0, 4, 1)]
    assert work(run("nano", requests, budget=16)) == [({"0": 10}, 0, ()), ({"1": 8, "2": 4}, 0, ())]


def test_the_blocks_of_the_whole_prompt_must_be_free_though_decodes_could_use_them() -> None:
    outcome = run("nano", [request(0, 0, 8, 5), request(1, 50, 12, 1)], blocks=4)
    assert [chunks for chunks, _, _ in work(outcome)] == [{"0": 8}, {}, {}, {}, {}, {"1": 12}]


def test_a_decode_step_serves_the_oldest_and_takes_as_long_as_the_captured_batch() -> None:
    def five() -> list[Request]:
        return [request(number, 0, 4, 3) for number in range(5)]

    outcome = run("nano", five(), max_num_seqs=3)
    # Two steps of prompts; then three at a time, padded to a graph of three (there is none larger).
    assert [decodes for _, decodes, _ in work(outcome)] == [0, 0, 3, 3, 2, 2]
    assert [step.duration_us for step in steps(outcome)] == [112, 108, 130, 130, 120, 120]
    assert steps(run("nano", five()))[1].duration_us == 100 + 10 * 8


def test_without_cuda_graphs_no_step_is_padded() -> None:
    plain = experiment(batching="nano")
    pool = plain.pools[0]
    eager = replace(plain, pools=(replace(pool, engine=replace(pool.engine, enforce_eager=True)),))
    asked = [[request(number, 0, 4, 2) for number in range(5)] for _ in range(2)]
    padded, exact = steps(Outcome(plain, asked[0])), steps(Outcome(eager, asked[1]))
    assert [step.duration_us for step in padded] == [120, 180]  # 5 decodes in a graph of 8
    assert [step.duration_us for step in exact] == [120, 150]


def test_captured_sizes() -> None:
    sizes = {captured_size(count, 100) for count in range(1, 101)}
    assert sorted(sizes) == [1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 100]
    assert [captured_size(count, 6) for count in range(1, 8)] == [1, 2, 4, 4, 6, 6, 7]


def test_a_victim_keeps_its_answer_and_prefills_it_with_the_prompt() -> None:
    outcome = run("nano", [request(0, 0, 8, 8), request(1, 0, 8, 8)], blocks=6)
    lost = [(record.request_id, record.for_request) for record in outcome.records if isinstance(record, Preempted)]
    # With the fifth token 0 needs its fourth block, and both hold three.
    assert lost == [("1", "0")]
    again = [chunks["1"] for chunks, _, _ in work(outcome) if "1" in chunks]
    assert again == [8, 13 - 8]  # two of its three full blocks are still in the cache
    assert {row.output_tokens for row in outcome.rows.values()} == {8}


def test_the_smallest_rank_decides_how_many_blocks_there_are() -> None:
    memory = InstanceMemory(
        model=MODEL,
        hardware=HARDWARE,
        tensor_parallel=2,
        block_size_tokens=16,
        gpu_memory_utilization=0.9,
        max_num_batched_tokens=16384,
        max_num_seqs=512,
    )
    made = kv_capacity(memory, "rank")
    # 2 (K, V) * 8 layers * 4 of 8 heads * 128 * 2 bytes * 16 tokens on each of the two ranks.
    block_gib = 2 * 8 * 4 * 128 * 2 * 16 / 2**30
    free_gib = 80.0 - made.weights_gib / 2
    peak_gib = (made.activation_gib + made.overhead_gib) / 2
    assert made.blocks == int((free_gib * 0.9 - peak_gib) / block_gib)
    assert made.blocks != kv_capacity(memory).blocks


# llm-serving-sim


def test_the_pass_goes_by_arrival_whether_one_waits_prefills_or_decodes() -> None:
    outcome = run("llm-serving-sim", [request(0, 0, 4, 4), request(1, 1, 24, 2), request(2, 2, 4, 2)], budget=10)
    assert work(outcome)[:4] == [
        ({"0": 4}, 0, ()),
        ({"1": 9}, 1, ()),
        ({"1": 9}, 1, ()),
        ({"1": 6, "2": 3}, 1, ()),
    ]


def test_prefills_go_first_where_they_are_told_to() -> None:
    requests = [request(0, 0, 4, 4), request(1, 1, 24, 2)]
    outcome = run("llm-serving-sim", requests, {"prioritize_prefill": True}, budget=10)
    assert work(outcome)[:4] == [({"0": 4}, 0, ()), ({"1": 10}, 0, ("0",)), ({"1": 10}, 0, ("0",)), ({"1": 4}, 1, ())]


def test_who_does_not_fit_is_skipped() -> None:
    def three() -> list[Request]:
        return [request(0, 0, 8, 4), request(1, 1, 16, 1), request(2, 2, 4, 1)]

    outcome = run("llm-serving-sim", three(), blocks=5)
    assert [step.admitted for step in steps(outcome)] == [("0",), ("2",), (), (), ("1",)]
    in_line = run("vllm-v1", three(), blocks=5)
    assert [step.admitted for step in steps(in_line)] == [("0",), (), (), (), ("1", "2")]


def test_a_limit_of_requests_holds_for_each_pass_and_none_for_any_number() -> None:
    few, many = (
        run("llm-serving-sim", [request(number, 0, 4, 2) for number in range(12)], max_num_seqs=most)
        for most in (5, UNLIMITED)
    )
    assert [step.decode_requests + len(step.chunks) for step in steps(few)] == [5, 5, 5, 5, 2, 2]
    assert [step.decode_requests + len(step.chunks) for step in steps(many)] == [12, 12]


def test_nobody_is_preempted_while_anybody_can_go_on() -> None:
    requests = [request(0, 0, 8, 8), request(1, 0, 8, 3)]
    outcome = run("llm-serving-sim", requests, blocks=5)
    # After the first token both need a third block, and one is left: 1 stalls until 0 needs a fourth.
    assert [stalled for _, _, stalled in work(outcome)[:6]] == [(), ("1",), ("1",), ("1",), ("1",), ()]
    lost = [(record.request_id, record.for_request) for record in outcome.records if isinstance(record, Preempted)]
    assert lost == [("1", "0")]


def test_cached_tokens_cost_nothing_and_count_in_the_prompt_throughput() -> None:
    prefix = (("shared", 600),)
    outcome = run(
        "llm-serving-sim",
        [request(0, 0, 600, 1, segments=prefix), request(1, 5000, 1000, 1, segments=prefix)],
        blocks=1000,
        budget=400,
    )
    assert work(outcome)[-1] == ({"1": 400}, 0, ())
    tallies = outcome.cluster.instances[0].tallies
    assert (tallies.prefill_tokens, tallies.cached_tokens) == (600 + 400, 600)


@pytest.mark.parametrize("version", ["1.1", "2026-08"])
def test_the_log_has_the_iterations_of_each_interval(version: str) -> None:
    """0.4 ms are three steps here; the fourth ends at 0.448 ms."""
    prefix = (("shared", 8),)
    requests = [request(0, 0, 12, 3, segments=prefix), request(1, 200, 10, 3, segments=prefix), request(2, 900, 4, 1)]
    settings: dict[str, Setting] = {"version": version, "log_interval": 0.0004}
    outcome = run("llm-serving-sim", requests, settings=settings)
    assert [step.time_us + step.duration_us for step in steps(outcome)] == [112, 222, 334, 444, 554, 1004]
    logged = outcome.cluster.instances[0].steps
    assert isinstance(logged, LoggedSteps)
    # First tokens of 0 and 1; of 1 two tokens of ten are computed, and all count. Nothing ends from 0.8 to 0.9 ms.
    assert logged.intervals == {0: (3, 12 + 10, 2 + 2), 1: (2, 0, 2), 2: (1, 4, 1)}
    assert type(run("llm-serving-sim", requests).cluster.instances[0].steps) is Steps


# Both


@pytest.mark.parametrize("kind", ["nano", "llm-serving-sim"])
def test_an_answer_ends_where_the_longest_sequence_does(kind: str) -> None:
    row = run(kind, [request(0, 0, 8, 10)], max_model_len=12).rows["0"]
    assert (row.state, row.output_tokens) == ("completed", 4)


def test_the_pictures_of_steps_are_those_of_the_rules() -> None:
    for name, text in pictures().items():
        assert Path(IMAGES, name).read_text(encoding="utf-8") == text, "`make docs` draws them"


def test_the_tables_of_versions_are_what_the_rules_go_by() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "`python docs/make_schedulers.py` writes them"
    assert MEANINGS.keys() == RULES.keys()
    assert COMPARED.keys() == SIMULATED.keys() == {*builtin().names("policy.batching")} - {"blis"}


def test_each_rule_of_a_version_is_that_of_the_versions_named() -> None:
    for version in VERSIONS:
        made = experiment(batching="vllm-v1", settings={"version": version}, threshold=8)
        alone = work(Outcome(made, [request(0, 0, 40, 1)]))
        traits = VllmV1Batching(VllmSettings(version=version)).traits
        found = {
            "serves-behind-own-victim": traits.serves_behind_own_victim,
            "ending-use-adapters": traits.ending_use_adapters,
            "keeps-accepted-drafts": traits.keeps_accepted_drafts,
            "hashes-lookahead": traits.hashes_lookahead,
            "lone-request-has-no-threshold": alone[0][0] == {"0": 40},
        }
        assert found == {name: version in RULES[name] for name in found}


# pipeline_parallel


def piped(requests: list[Request], stages: int, **limits: int) -> Outcome:
    made = experiment(batching="llm-serving-sim", **limits)  # type: ignore[arg-type]
    pool = made.pools[0]
    engine = replace(pool.engine, pipeline_parallel=stages)
    return Outcome(replace(made, pools=(replace(pool, engine=engine),)), requests)


def test_batches_of_different_requests_are_under_way_at_the_same_time() -> None:
    outcome = piped([request(0, 0, 8, 2), request(1, 1, 8, 2), request(2, 2, 8, 1)], 2)
    # 0 leaves the first of two equal stages at 54, where 1 and 2 enter; they find the second one free at 108.
    assert [(step.time_us, step.duration_us, step.next_step_us) for step in steps(outcome)] == [
        (0, 108, 54),
        (54, 116, 112),
        (112, 113, 170),
        (170, 110, -1),
    ]
    assert [step.running for step in steps(outcome)] == [1, 2, 1, 0]
    assert all(not step.stalled for step in steps(outcome))


def test_nothing_is_scheduled_while_the_pipe_is_full() -> None:
    outcome = piped([request(number, 20 * number, 8, 1) for number in range(4)], 2, budget=8)
    # Every batch of 108 has its end 54 after the one before; the third enters when the first has left.
    assert [step.time_us for step in steps(outcome)] == [0, 54, 108, 162]
    tallies = outcome.cluster.instances[0].tallies
    assert (tallies.active_us, tallies.computing_us) == (162 + 108, 4 * 108)


def test_a_pass_that_came_to_nothing_holds_nobody_up() -> None:
    outcome = piped([request(0, 0, 8, 9, deadline_us=20), request(1, 200, 8, 1)], 2)
    assert [step.time_us for step in steps(outcome)] == [0, 200]


def test_a_request_that_has_ended_keeps_its_blocks_until_its_batch_has_left() -> None:
    outcome = piped([request(0, 0, 8, 1), request(1, 10, 8, 1)], 2, blocks=3)
    assert [step.time_us for step in steps(outcome)] == [0, 108]


def test_a_pipeline_holds_the_blocks_of_its_largest_stage() -> None:
    def blocks(stages: int) -> int:
        memory = InstanceMemory(
            model=MODEL,
            hardware=HARDWARE,
            tensor_parallel=1,
            block_size_tokens=16,
            gpu_memory_utilization=0.9,
            max_num_batched_tokens=2048,
            max_num_seqs=256,
            pipeline_parallel=stages,
        )
        return kv_capacity(memory).blocks

    assert MODEL.num_hidden_layers == 8
    assert blocks(1) < blocks(2) < blocks(3) < blocks(4)
    assert blocks(5) == blocks(6) == blocks(7) == blocks(4)  # one stage has two layers
