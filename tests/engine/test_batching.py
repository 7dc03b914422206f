"""The batching rules on cases small enough to follow by hand. Steps take 100 + prefill + 10 * decodes microseconds."""

from dataclasses import replace

import pytest

from blis_tui.base.errors import StalledError
from blis_tui.engine.records import Completed, Preempted, Scheduled, StepFinished
from blis_tui.model import PluginConfig
from tests.builders import Outcome, experiment, request


def steps(outcome: Outcome) -> list[StepFinished]:
    return [record for record in outcome.records if isinstance(record, StepFinished)]


def scheduled(outcome: Outcome) -> list[tuple[str, int, int]]:
    return [
        (record.request_id, record.cached_tokens, record.new_tokens)
        for record in outcome.records
        if isinstance(record, Scheduled)
    ]


def preempted(outcome: Outcome) -> list[tuple[str, str]]:
    return [(record.request_id, record.for_request) for record in outcome.records if isinstance(record, Preempted)]


def test_a_lone_request_takes_one_prefill_step_and_one_step_for_each_further_token() -> None:
    outcome = Outcome(experiment(), [request(0, 5, 8, 3)])
    row = outcome.rows["0"]
    assert (row.queued_us, row.scheduled_us, row.first_token_us) == (5, 5, 5 + 108)
    assert row.completed_us == 5 + 108 + 110 + 110
    assert (row.ttft_us, row.e2e_us, row.output_tokens) == (108, 328, 3)
    assert outcome.cluster.instances[0].tallies.itl_us == {110: 2}


def test_overheads_reach_the_client_but_not_the_steps() -> None:
    outcome = Outcome(experiment(alpha=(7.0, 0.5, 3.0)), [request(0, 0, 8, 3)])
    row = outcome.rows["0"]
    assert row.queued_us == 7 + 4
    assert row.first_token_us == 11 + 108
    assert row.ttft_us == 11 + 108 + 3
    assert row.e2e_us == 11 + 108 + 2 * 110 + 3 * 3


def test_an_answer_of_no_tokens_ends_with_the_prefill() -> None:
    row = Outcome(experiment(), [request(0, 0, 8, 0)]).rows["0"]
    assert (row.state, row.output_tokens, row.ttft_us, row.e2e_us) == ("completed", 0, 108, 108)


def test_what_comes_after_decoding_is_not_charged_where_nothing_was_decoded() -> None:
    overheads = PluginConfig(kind="trained-physics", settings={"alpha": (7.0, 500.0, 3.0), "beta": (1.0,) * 7})
    plain = experiment()
    made = replace(plain, pools=(replace(plain.pools[0], latency=overheads),))
    for output_tokens, after_us in ((0, 3), (1, 3 + 500)):
        row = Outcome(made, [request(0, 0, 8, output_tokens)]).rows["0"]
        assert row.completed_us is not None
        assert row.e2e_us == row.completed_us + after_us


def test_requests_that_end_with_the_same_step_leave_in_the_order_of_their_admission() -> None:
    # In the third step 0 ends with its prefill, 1 and 2 decode their last token; 2 has decoded since the first step.
    outcome = Outcome(experiment(threshold=8), [request(0, 0, 20, 1), request(1, 0, 16, 2), request(2, 0, 8, 3)])
    assert [step.completed for step in steps(outcome)] == [(), (), ("0", "1", "2")]
    assert [record.request_id for record in outcome.records if isinstance(record, Completed)] == ["0", "1", "2"]


def test_decodes_come_before_the_prefill_behind_them_when_the_budget_is_short() -> None:
    outcome = Outcome(experiment(budget=10), [request(0, 0, 4, 9), request(1, 100, 30, 1)])
    chunks = [(step.decode_requests, [c.new_tokens for c in step.chunks]) for step in steps(outcome)]
    assert chunks[:5] == [(0, [4]), (1, [9]), (1, [9]), (1, [9]), (1, [3])]


def test_the_threshold_cuts_long_prefills_so_that_others_get_in() -> None:
    outcome = Outcome(experiment(budget=64, threshold=8), [request(0, 0, 20, 1), request(1, 0, 20, 1)])
    assert [[(c.request_id, c.new_tokens) for c in step.chunks] for step in steps(outcome)] == [
        [("0", 8), ("1", 8)],
        [("0", 8), ("1", 8)],
        [("0", 4), ("1", 4)],
    ]


def test_a_prefill_before_decodes_can_starve_them_for_a_step_and_the_gap_is_told_truly() -> None:
    # 0 and 1 are fully cached and take no budget on admission, so three requests run on a budget of one token.
    prefix = (("shared", 4),)
    outcome = Outcome(
        experiment(budget=1, threshold=1),
        [
            request(0, 0, 4, 1, segments=prefix),
            request(1, 1000, 4, 3, segments=prefix),
            request(2, 1000, 4, 3, segments=prefix),
        ],
    )
    assert [step.stalled for step in steps(outcome)] == [(), (), (), (), (), ("2",), ("2",), (), ()]
    assert outcome.rows["2"].completed_us == 1000 + 100 + 4 * 110
    # 1 waits one step for each token; 2 waits for all of 1's tokens before its second.
    assert outcome.cluster.instances[0].tallies.itl_us == {110: 3, 330: 1}


@pytest.mark.parametrize("batching", ["blis", "vllm-v1"])
def test_the_youngest_is_preempted_and_comes_back_first(batching: str) -> None:
    outcome = Outcome(
        experiment(blocks=6, batching=batching),
        [request(0, 0, 8, 8), request(1, 0, 8, 8), request(2, 50, 8, 1)],
    )
    assert preempted(outcome)[0] == ("1", "0")
    assert [name for name, _, _ in scheduled(outcome)][:3] == ["0", "1", "1"]
    assert all(row.state == "completed" for row in outcome.rows.values())


def test_blis_generates_again_what_a_victim_had_generated() -> None:
    outcome = Outcome(experiment(blocks=6), [request(0, 0, 8, 8), request(1, 0, 8, 8)])
    row = outcome.rows["1"]
    assert row.preemptions >= 1
    assert row.output_tokens == 8
    readmitted = [record.time_us for record in outcome.records if isinstance(record, Scheduled)][-1]
    assert row.first_token_us is not None
    assert row.first_token_us > readmitted


def test_vllm_keeps_what_a_victim_had_generated_and_prefills_it() -> None:
    outcome = Outcome(experiment(blocks=6, batching="vllm-v1"), [request(0, 0, 8, 8), request(1, 0, 8, 8)])
    row = outcome.rows["1"]
    first = steps(outcome)[0]
    assert row.first_token_us == first.time_us + first.duration_us
    # 8 prompt tokens + 5 generated before the preemption; blocks of 4 that survived are hit again.
    last = [record for record in outcome.records if isinstance(record, Scheduled)][-1]
    assert last.cached_tokens + last.new_tokens == 8 + 5
    assert row.output_tokens == 8


def test_blis_takes_a_wholly_cached_prompt_for_nothing_and_vllm_computes_its_last_token() -> None:
    prefix = (("shared", 8),)
    requests = [request(0, 0, 8, 1, segments=prefix), request(1, 1000, 8, 1, segments=prefix)]
    assert scheduled(Outcome(experiment(), requests))[1] == ("1", 8, 0)
    again = [request(0, 0, 8, 1, segments=prefix), request(1, 1000, 8, 1, segments=prefix)]
    assert scheduled(Outcome(experiment(batching="vllm-v1"), again))[1] == ("1", 4, 4)


def test_prompts_share_the_head_of_a_segment_even_if_it_goes_on_differently() -> None:
    outcome = Outcome(
        experiment(), [request(0, 0, 17, 1, segments=(("s", 16),)), request(1, 1000, 17, 1, segments=(("s", 9),))]
    )
    assert scheduled(outcome)[1] == ("1", 8, 9)


def test_reserving_the_full_input_keeps_a_long_prompt_out_until_all_of_it_fits() -> None:
    # 0 holds 2 of 11 blocks from the start; 1 needs 10 for all of its prompt, 2 for its first chunk.
    scheduled_us = {}
    for reserve in (True, False):
        made = experiment(blocks=11, budget=16, batching="vllm-v1", settings={"reserve_full_input": reserve})
        outcome = Outcome(made, [request(0, 0, 8, 8), request(1, 0, 40, 1)])
        scheduled_us[reserve] = (outcome.rows["1"].scheduled_us, outcome.rows["0"].completed_us)
    assert scheduled_us[False][0] == 0
    assert scheduled_us[True][0] == scheduled_us[True][1]


def test_the_watermark_counts_only_while_somebody_runs() -> None:
    made = experiment(blocks=10, batching="vllm-v1", settings={"watermark": 0.5})
    outcome = Outcome(made, [request(0, 0, 32, 4), request(1, 0, 4, 1)])
    # Alone, 0 may take 8 of 10 blocks; 1 must leave 5 of them free as long as 0 runs.
    assert outcome.rows["0"].scheduled_us == 0
    assert outcome.rows["1"].scheduled_us == outcome.rows["0"].completed_us


def test_several_partial_prefills_turn_the_threshold_on() -> None:
    made = experiment(
        batching="vllm-v1", max_model_len=100, budget=64, settings={"max_num_partial_prefills": 2, "version": "0.10"}
    )
    outcome = Outcome(made, [request(0, 0, 10, 1)])
    assert [c.new_tokens for step in steps(outcome) for c in step.chunks] == [4, 4, 2]


def test_without_chunked_prefill_a_prompt_beyond_the_budget_stalls_with_a_reason() -> None:
    made = experiment(batching="vllm-v1", budget=8, settings={"enable_chunked_prefill": False})
    with pytest.raises(StalledError, match=r"request 0 needs 9 more tokens"):
        Outcome(made, [request(0, 0, 9, 1)])


def test_the_least_urgent_is_preempted_under_priority() -> None:
    made = experiment(blocks=6, victim="priority", priority="slo-class", scheduling="fcfs")
    outcome = Outcome(made, [request(0, 0, 8, 8, slo_class="batch"), request(1, 0, 8, 8, slo_class="critical")])
    assert {name for name, _ in preempted(outcome)} == {"0"}
    assert outcome.rows["1"].preemptions == 0


def test_the_budget_that_a_victim_was_given_goes_to_those_behind_it() -> None:
    # Blocks of 4 tokens. In the second step, 0 takes 6 of 12 tokens and the last block; 1 decodes into a new block, for
    # which 0 has to go, with its 6 tokens: 2 gets as many as the threshold allows, not just the 5 left beside them.
    made = experiment(blocks=5, budget=12, threshold=6, victim="priority", priority="slo-class", scheduling="fcfs")
    outcome = Outcome(
        made,
        [
            request(0, 0, 18, 1, slo_class="batch"),
            request(1, 0, 4, 10, slo_class="critical"),
            request(2, 0, 16, 1, slo_class="critical"),
        ],
    )
    first, second, *_ = steps(outcome)
    assert [(chunk.request_id, chunk.new_tokens) for chunk in first.chunks] == [("0", 6), ("1", 4), ("2", 2)]
    assert (second.preempted, second.decode_requests) == (("0",), 1)
    assert [(chunk.request_id, chunk.new_tokens) for chunk in second.chunks] == [("2", 6)]


def test_length_capped_requests_end_at_the_context_limit() -> None:
    longer = request(0, 0, 6, 50)
    longer.declare(4)
    outcome = Outcome(experiment(max_model_len=10), [longer])
    row = outcome.rows["0"]
    assert (row.state, row.output_tokens) == ("completed", 4)
    assert outcome.cluster.instances[0].batch.running == {}


@pytest.mark.parametrize(("batching", "counted"), [("blis", 3), ("vllm-v1", 4), ("nano", 4), ("tensorrt-llm", 4)])
def test_an_answer_that_max_model_len_ends_does_not_count_its_last_token_under_blis(
    batching: str, counted: int
) -> None:
    endless, exact = request(0, 0, 6, 50), request(1, 0, 6, 4)
    endless.declare(None)
    exact.declare(None)
    outcome = Outcome(experiment(max_model_len=10, batching=batching, alpha=(0.0, 0.0, 3.0)), [endless, exact])
    row, whole = outcome.rows["0"], outcome.rows["1"]
    assert (row.output_tokens, whole.output_tokens) == (counted, 4)
    # Both have their last token at the same time: BLIS computes it for either, and counts it only for the whole answer.
    assert (row.completed_us, row.e2e_us) == (whole.completed_us, whole.e2e_us)
    first, second = (record for record in outcome.records if isinstance(record, Completed))
    assert (first.output_tokens, first.e2e_us, first.length_capped) == (counted, row.e2e_us, True)
    assert (second.output_tokens, second.length_capped) == (4, False)


@pytest.mark.parametrize("batching", ["blis", "vllm-v1"])
def test_without_prefix_caching_every_request_computes_its_whole_prompt(batching: str) -> None:
    prefix = (("system", 8),)
    asked = [request(0, 0, 12, 9, segments=prefix), request(1, 1000, 12, 9, segments=prefix)]
    shared, alone = (
        Outcome(experiment(batching=batching, caching=caching), [*asked]).cluster.instances[0].pool.hits
        for caching in (True, False)
    )
    assert (shared, alone) == (2, 0)


@pytest.mark.parametrize("batching", ["blis", "vllm-v1"])
def test_without_prefix_caching_a_victim_starts_again_from_nothing(batching: str) -> None:
    asked = [request(0, 0, 12, 10), request(1, 0, 12, 10)]
    outcome = Outcome(experiment(batching=batching, blocks=8, caching=False), asked)
    assert ("1", "0") in preempted(outcome)
    assert {cached for _, cached, _ in scheduled(outcome)} == {0}
