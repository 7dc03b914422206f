"""A request over two instances: its way, its times, and what becomes of those that do not fit."""

from dataclasses import replace

import pytest

from blis_tui.cluster.records import TransferFinished, TransferStarted
from blis_tui.engine.records import Completed, Dropped, FirstToken, Preempted, StepFinished
from blis_tui.model import Disaggregation, Experiment, PluginConfig, Transfer
from blis_tui.results.request_log import RequestLog
from tests.builders import MODEL, Outcome, experiment, request

ROUND_ROBIN = PluginConfig(kind="round-robin")


def split(
    *,
    order: str = "prefill-first",
    starts: str = "step-end",
    contention: str = "none",
    base_latency_us: int = 20,
    overlap: str = "none",
    reuse: bool = False,
) -> Experiment:
    """One instance that prefills and one that decodes; a block of KV travels for 4 us."""
    made = experiment(blocks=10)
    pool = made.pools[0]
    decode_latency = PluginConfig(kind="blackbox", settings={"alpha": (0.0, 0.0, 7.0), "beta": (50.0, 0.0, 0.0)})
    transfer = Transfer(
        bandwidth_gb_per_s=0.001,
        base_latency_us=base_latency_us,
        bytes_per_token=1,
        starts=starts,
        contention=contention,
        overlap=overlap,
        reuse_cached_blocks=reuse,
    )
    way = Disaggregation(
        decider=PluginConfig(kind="always"),
        order=order,
        undisaggregated="decode-pool",
        transfer=transfer,
        prefill_routing=ROUND_ROBIN,
        decode_routing=ROUND_ROBIN,
    )
    return replace(
        made,
        cluster=replace(made.cluster, disaggregation=way),
        pools=(
            replace(pool, name="prefill", role="prefill"),
            replace(pool, name="decode", role="decode", latency=decode_latency),
        ),
    )


def piped(made: Experiment) -> Experiment:
    """The same with two stages."""
    policy = replace(made.policy, batching=PluginConfig(kind="llm-serving-sim"))
    pools = tuple(replace(pool, engine=replace(pool.engine, pipeline_parallel=2)) for pool in made.pools)
    return replace(made, policy=policy, pools=pools)


def steps(outcome: Outcome) -> list[tuple[int, int, int]]:
    """The instance, start and duration of each."""
    found = [record for record in outcome.records if isinstance(record, StepFinished)]
    return [(step.instance, step.time_us, step.duration_us) for step in found]


@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
def test_prefill_transfer_and_decode_follow_each_other(order: str) -> None:
    outcome = Outcome(split(order=order), [request(0, 5, 8, 3)])
    row = outcome.rows["0"]
    prefilled = 5 + 108
    arrived = prefilled + 20 + 8
    assert (row.first_token_us, row.completed_us, row.instance) == (prefilled, arrived + 2 * 50, 1)
    assert [record.time_us for record in outcome.records if isinstance(record, TransferStarted)] == [prefilled]
    assert [record.duration_us for record in outcome.records if isinstance(record, TransferFinished)] == [28]


def test_the_first_token_pays_the_overhead_of_where_it_comes_from() -> None:
    outcome = Outcome(split(), [request(0, 0, 8, 3)])
    row = outcome.rows["0"]
    seen = [record.ttft_us for record in outcome.records if isinstance(record, FirstToken | Completed)]
    assert seen == [108, 108] == [row.ttft_us] * 2
    assert row.e2e_us == 108 + 28 + 2 * (50 + 7)


def test_a_request_between_two_instances_has_its_first_token() -> None:
    outcome = Outcome(replace(split(), horizon_us=110), [request(0, 0, 8, 3)])
    row = outcome.rows["0"]
    assert (row.state, row.output_tokens, row.ttft_us) == ("in-transit", 1, 108)
    assert [one.ttft_us for one in RequestLog().table(outcome.cluster)] == [108]


@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
def test_an_answer_that_can_never_fit_its_decode_instance_is_dropped_there(order: str) -> None:
    outcome = Outcome(split(order=order), [request(0, 0, 32, 20), request(1, 0, 8, 3)])
    dropped = [
        (record.request_id, record.instance, record.reason) for record in outcome.records if isinstance(record, Dropped)
    ]
    assert dropped == [("0", 1, "51 tokens need 13 KV blocks, there are 10")]
    assert outcome.rows["1"].state == "completed"
    assert [instance.pool.used for instance in outcome.cluster.instances] == [0, 0]


def test_a_prompt_that_does_not_fit_now_is_dropped_when_it_arrives() -> None:
    requests = [request(0, 0, 30, 9), request(1, 0, 20, 9)]
    outcome = Outcome(split(), requests)
    assert [record.reason for record in outcome.records if isinstance(record, Dropped)] == [
        "its KV blocks do not fit: 1 are free"
    ]


def test_a_victim_does_not_keep_those_waiting_whose_blocks_it_lacks() -> None:
    made = split()
    prefill, decode = made.pools
    made = replace(made, pools=(prefill, replace(decode, engine=replace(decode.engine, max_num_seqs=1))))
    outcome = Outcome(made, [request(0, 0, 16, 20), request(1, 0, 16, 20)])
    assert [(row.state, row.preemptions) for row in outcome.rows.values()] == [("completed", 1), ("completed", 0)]


@pytest.mark.parametrize("deadline_us", [120, 136])
def test_a_deadline_that_passes_during_a_transfer_is_noticed_after_it(deadline_us: int) -> None:
    outcome = Outcome(split(), [request(0, 0, 8, 3, deadline_us=deadline_us)])
    assert (outcome.rows["0"].state, outcome.cluster.now) == ("timed-out", 136)
    assert not [record for record in outcome.of_kind("scheduled") if getattr(record, "instance", None) == 1]
    assert outcome.cluster.instances[1].pool.used == 0


def test_a_transfer_may_start_with_the_step_that_completes_the_prefill() -> None:
    outcome = Outcome(split(starts="step-start"), [request(0, 0, 8, 3)])
    assert outcome.rows["0"].completed_us == 28 + 2 * 50


def test_an_instance_may_decode_what_it_has_prefilled_before_that_step_ends() -> None:
    made = split(starts="step-start", base_latency_us=0)
    both = replace(made, pools=(replace(made.pools[0], role="any"),))
    outcome = Outcome(both, [request(number, 0, 36, 0) for number in range(4)] + [request(4, 0, 9, 1)])
    assert [row.state for row in outcome.rows.values()] == ["completed"] * 5


@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
def test_prompts_that_fill_the_cache_together_do_not_wait_for_each_other(order: str) -> None:
    outcome = Outcome(split(order=order), [request(0, 0, 20, 5), request(1, 0, 20, 5)])
    assert [(row.state, row.preemptions) for row in outcome.rows.values()] == [("completed", 0), ("completed", 1)]
    [lost] = [record for record in outcome.records if isinstance(record, Preempted)]
    assert (lost.request_id, lost.for_request, lost.lost_tokens, lost.freed_blocks) == ("1", "0", 20, 5)


def test_an_instance_waits_for_kv_blocks_where_nobody_else_fits() -> None:
    made = split(order="decode-first", base_latency_us=2000)
    way = made.cluster.disaggregation
    assert way is not None
    long = PluginConfig(kind="direct-to-decode", settings={"threshold_tokens": 25})
    made = replace(made, cluster=replace(made.cluster, disaggregation=replace(way, decider=long)))
    outcome = Outcome(made, [request(0, 0, 30, 5), request(1, 400, 20, 5)])
    assert [row.scheduled_us for row in outcome.rows.values()] == [0, 2362]
    assert {row.state for row in outcome.rows.values()} == {"completed"}


def test_blocks_are_found_in_the_cache_when_they_have_arrived_and_not_before() -> None:
    made = split(order="decode-first", base_latency_us=500)
    made = replace(made, policy=replace(made.policy, routing=ROUND_ROBIN))
    way = made.cluster.disaggregation
    assert way is not None
    long = PluginConfig(kind="direct-to-decode", settings={"threshold_tokens": 14})
    made = replace(made, cluster=replace(made.cluster, disaggregation=replace(way, decider=long)))
    shared = (("system", 12),)
    requests = [
        request(0, 0, 16, 3, segments=shared),
        *(request(i, at, 13, 1, segments=shared) for i, at in ((1, 300), (2, 900))),
    ]
    outcome = Outcome(made, requests)
    assert [row.cached_tokens for row in outcome.rows.values()] == [0, 0, 12]


def test_only_what_the_last_step_of_a_prefill_does_not_cover_is_left_after_it() -> None:
    outcome = Outcome(split(overlap="layer-wise"), [request(0, 0, 32, 3)])
    [done] = [record for record in outcome.records if isinstance(record, TransferFinished)]
    assert (done.time_us, done.duration_us) == (132 + 32 // MODEL.num_hidden_layers, 32 // MODEL.num_hidden_layers)
    [started] = [record for record in outcome.records if isinstance(record, TransferStarted)]
    assert started.bytes == 32


def test_blocks_that_the_decode_instance_has_are_not_transferred() -> None:
    shared = (("system", 12),)
    requests = [request(i, 500 * i, 16, 3, segments=shared if i < 2 else ()) for i in range(3)]
    outcome = Outcome(split(order="decode-first", reuse=True), requests)
    assert [record.bytes for record in outcome.records if isinstance(record, TransferStarted)] == [16, 4, 16]
    assert [record.duration_us for record in outcome.records if isinstance(record, TransferFinished)] == [36, 24, 36]
    assert [row.state for row in outcome.rows.values()] == ["completed"] * 3
    decode = outcome.cluster.instances[1].pool
    assert (decode.hits, decode.used) == (3, 0)


def test_blocks_that_are_shared_and_then_given_back_are_there_for_others() -> None:
    shared = (("system", 12),)
    requests = [request(0, 0, 16, 3, segments=shared), request(1, 500, 16, 3, segments=shared, deadline_us=620)]
    outcome = Outcome(split(order="decode-first", reuse=True), [*requests, request(2, 1000, 16, 3, segments=shared)])
    assert [row.state for row in outcome.rows.values()] == ["completed", "timed-out", "completed"]
    assert [record.bytes for record in outcome.records if isinstance(record, TransferStarted)] == [16, 4, 4]
    assert outcome.cluster.instances[1].pool.used == 0


def test_the_bytes_of_a_token_are_those_of_its_own_model() -> None:
    made = split()
    way = made.cluster.disaggregation
    assert way is not None
    transfer = replace(way.transfer, bytes_per_token=None)
    halves = [
        replace(pool, name=f"{pool.name}-{model.name}", model=model)
        for model in (MODEL, replace(MODEL, name="small", num_hidden_layers=2))
        for pool in made.pools
    ]
    made = replace(
        made,
        pools=tuple(halves),
        cluster=replace(made.cluster, disaggregation=replace(way, transfer=transfer)),
    )
    requests = [request(0, 0, 8, 3), request(1, 0, 8, 3)]
    requests[0].model, requests[1].model = "tiny", "small"
    outcome = Outcome(made, requests)
    sizes = {record.request_id: record.bytes for record in outcome.records if isinstance(record, TransferStarted)}
    assert sizes == {"0": 8 * 2 * 128 * 8 * 8 * 2, "1": 8 * 2 * 128 * 8 * 2 * 2}


def test_transferred_blocks_are_kept_while_a_batch_is_under_way() -> None:
    made = piped(split())
    prefill, decode = made.pools
    decode = replace(decode, engine=replace(decode.engine, max_num_seqs=1))
    outcome = Outcome(replace(made, pools=(prefill, decode)), [request(0, 0, 8, 3), request(1, 1, 8, 2)])
    # 1 waits with its blocks from 190 on. At 211 the first stage is free, and 0, through by 236, has the only place.
    assert steps(outcome) == [(0, 0, 108), (0, 54, 108), (1, 136, 50), (1, 186, 50), (1, 236, 50)]
    assert not outcome.of_kind("preempted")


def test_an_answer_begins_before_the_batch_of_its_prompt_has_left_the_pipeline() -> None:
    made = piped(split(starts="step-start"))
    [prefill, _] = made.pools
    outcome = Outcome(replace(made, pools=(replace(prefill, role="any"),)), [request(0, 0, 8, 2)])
    # Its blocks arrive at 28, the first stage is free at 54 and the second one at 108.
    assert steps(outcome) == [(0, 0, 108), (0, 54, 110)]


def test_blocks_that_arrive_after_the_deadline_leave_nothing_in_the_cache() -> None:
    late = request(0, 0, 8, 2, deadline_us=110)
    late.content = (("a", 8), ("b", 2))
    outcome = Outcome(split(), [late])
    [_, decode] = outcome.cluster.instances
    assert outcome.rows["0"].state == "timed-out"
    assert decode.pool.visible_head(late.content, 1_000) == 0
