"""Requests over two instances under SGLang's scheduler: room before the prompt, KV kept until sent, retraction."""

from __future__ import annotations

import pickle
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.errors import PolicyError, SpecError
from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import CLUSTER_INVARIANTS, INVARIANTS
from blis_tui.cluster.records import TransferFinished
from blis_tui.engine.records import Observers, Preempted, Scheduled, StepFinished
from blis_tui.model import Disaggregation, Experiment, Lifecycle, PluginConfig, Setting, Transfer
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, Outcome, experiment, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Request

ALL = (*INVARIANTS, *CLUSTER_INVARIANTS)
ROUND_ROBIN = PluginConfig(kind="round-robin")


def split(
    *,
    prefill_blocks: int = 1000,
    decode_blocks: int = 1000,
    page: int = 1,
    prefills: int = 1,
    decodes: int = 1,
    max_num_seqs: int = 8,
    base_latency_us: int = 20,
    settings: dict[str, Setting] | None = None,
) -> Experiment:
    """Instances that prefill in 100 us and 1 us a token, and ones that decode in 50 us; a token travels for 1 us."""
    chosen: dict[str, Setting] = {"num_reserved_decode_tokens": 4, **(settings or {})}
    made = experiment(
        batching="sglang", settings=chosen, block_size=page, blocks=prefill_blocks, max_num_seqs=max_num_seqs
    )
    pool = made.pools[0]
    way = Disaggregation(
        decider=PluginConfig(kind="always"),
        order="decode-first",
        transfer=Transfer(bandwidth_gb_per_s=0.001, base_latency_us=base_latency_us, bytes_per_token=1),
        prefill_routing=ROUND_ROBIN,
        decode_routing=ROUND_ROBIN,
    )
    constant = PluginConfig(kind="blackbox", settings={"alpha": (0.0, 0.0, 0.0), "beta": (50.0, 0.0, 0.0)})
    engine = replace(pool.engine, kv_blocks=decode_blocks)
    return replace(
        made,
        cluster=replace(made.cluster, disaggregation=way),
        pools=(
            replace(pool, name="prefill", role="prefill", instances=prefills),
            replace(pool, name="decode", role="decode", instances=decodes, engine=engine, latency=constant),
        ),
    )


# ---- random runs ----


def drawn(seed: int) -> tuple[Experiment, list[Request]]:
    """A small cluster and requests that crowd it."""
    random = Random(seed)  # noqa: S311  (a test)
    page = random.choice((1, 1, 4))
    settings: dict[str, Setting] = {
        "num_reserved_decode_tokens": random.choice((1, 4, 30)),
        "overlap_schedule": random.random() < 0.6,
        "chunked_prefill_size": random.choice((8, 16, 64)),
        "enable_mixed_chunk": random.random() < 0.2,
    }
    made = split(
        prefill_blocks=random.randint(90, 200) // page,
        decode_blocks=random.randint(90, 200) // page,
        page=page,
        prefills=random.randint(1, 2),
        decodes=random.randint(1, 2),
        max_num_seqs=random.choice((1, 2, 8, 40)),
        base_latency_us=random.choice((1, 20, 400)),
        settings=settings,
    )
    if random.random() < 0.2:
        caching = tuple(replace(pool, engine=replace(pool.engine, enable_prefix_caching=False)) for pool in made.pools)
        made = replace(made, pools=caching)
    if random.random() < 0.25 and made.cluster.disaggregation is not None:
        decider = PluginConfig(kind="prefix-threshold", settings={"threshold_tokens": 12})
        way = replace(made.cluster.disaggregation, decider=decider)
        made = replace(made, cluster=replace(made.cluster, disaggregation=way))
    requests, now = [], 0
    for index in range(random.randint(2, 24)):
        now += random.choice((0, 0, 5, 60, 400))
        prompt, answer = random.randint(1, 40), random.randint(1, 30)
        shared = random.randint(0, prompt)
        deadline = now + random.randint(1, 2500) if random.random() < 0.15 else 0
        segments = (("shared", shared),) if shared and random.random() < 0.5 else ()
        one = request(index, now, prompt, answer, segments=segments, deadline_us=deadline)
        if random.random() < 0.3:
            one.declare(answer + random.randint(0, 10))
        requests.append(one)
    return made, requests


def run_checked(made: Experiment, requests: Sequence[Request], *, pickled: bool = False) -> Cluster:
    """Run with all invariants checked after every event; ``pickled``: as if restored after each, too."""
    cluster = Cluster(made, ListSource(requests), RequestLog(detours=True), Observers())
    for _ in range(20_000):
        if not cluster.run(1):
            break
        wrong = [verdict for one in ALL if (verdict := one.verdict(cluster))]
        assert not wrong, (cluster.now, wrong)
        if pickled:
            cluster = pickle.loads(pickle.dumps(cluster))  # noqa: S301  (our own)
    else:
        pytest.fail("the simulation does not end")
    return cluster


def left_behind(cluster: Cluster) -> list[object]:
    """What must be empty when all requests have ended."""
    found: list[object] = [*cluster.dispatcher.split_requests, *cluster.in_transit()]
    for instance in cluster.instances:
        batch = instance.batch
        found += [*batch.running, *batch.reserved, *batch.sending, *batch.stalled, *batch.waiting.items]
        if instance.pool.free != instance.pool.total:
            found.append((instance.index, instance.pool.free))
    return found


def rows_of(cluster: Cluster) -> list[tuple[object, ...]]:
    assert isinstance(cluster.ledger, RequestLog)
    rows = sorted(cluster.ledger.table(cluster), key=lambda row: row.request_id)
    return [(row.request_id, row.state, row.first_token_us, row.completed_us, row.instance) for row in rows]


@pytest.mark.parametrize("seed", range(50))
def test_invariants_hold_after_every_event_of_random_runs(seed: int) -> None:
    cluster = run_checked(*drawn(seed))
    assert left_behind(cluster) == []
    assert cluster.closed() == cluster.arrived
    made, requests = drawn(seed)
    at_once = Cluster(made, ListSource(requests), RequestLog(detours=True), Observers())
    at_once.run(100_000)
    assert rows_of(at_once) == rows_of(cluster)
    assert rows_of(Outcome(*drawn(seed)).cluster) == rows_of(cluster)


@pytest.mark.parametrize("seed", range(0, 50, 5))
def test_a_restored_run_goes_on_alike(seed: int) -> None:
    made, requests = drawn(seed)
    assert rows_of(run_checked(made, requests, pickled=True)) == rows_of(run_checked(*drawn(seed)))


# ---- by hand ----


@pytest.mark.parametrize("overlap", [False, True])
def test_an_instance_with_room_for_one_request_lets_the_next_prompt_be_computed_when_it_has_left(
    *, overlap: bool
) -> None:
    # 20 tokens: the first prompt takes 10; the second one and its reserve need 14, beside the 4 reserved for the first.
    made = split(decode_blocks=20, settings={"overlap_schedule": overlap})
    outcome = Outcome(made, [request(0, 0, 10, 3), request(1, 0, 10, 3)])
    first, second = outcome.rows["0"], outcome.rows["1"]
    sent = 110 + 20 + 10
    assert (first.first_token_us, first.completed_us) == (110, sent + 2 * 50)
    assert (second.first_token_us, second.completed_us) == (240 + 110, 240 + sent + 2 * 50)


def test_room_for_two_lets_their_prompts_be_computed_together() -> None:
    outcome = Outcome(split(decode_blocks=40), [request(0, 0, 10, 3), request(1, 0, 10, 3)])
    assert [outcome.rows[name].first_token_us for name in "01"] == [120, 120]


def test_blocks_of_a_computed_prompt_are_kept_until_they_are_sent() -> None:
    # 20 tokens: a prompt of 10, its token and a page need more than the 10 that the first prompt leaves until 520.
    made = split(prefill_blocks=20, base_latency_us=400)
    outcome = Outcome(made, [request(0, 0, 10, 3), request(1, 0, 10, 3)])
    assert [record.time_us for record in outcome.records if isinstance(record, TransferFinished)] == [520, 1040]
    assert [outcome.rows[name].first_token_us for name in "01"] == [110, 520 + 110]


def test_requests_whose_kv_has_arrived_decode_without_a_step_for_their_prompts() -> None:
    outcome = Outcome(split(), [request(index, 0, 10, 4) for index in range(3)])
    steps = [record for record in outcome.records if isinstance(record, StepFinished) and record.instance == 1]
    assert steps
    assert not [step for step in steps if step.chunks]
    joined = [record for record in outcome.records if isinstance(record, Scheduled) and record.instance == 1]
    assert [(record.cached_tokens, record.new_tokens) for record in joined] == [(10, 0)] * 3


@pytest.mark.parametrize("overlap", [False, True])
def test_a_retracted_request_keeps_its_kv_and_waits_for_room(*, overlap: bool) -> None:
    # Both find room: 45 - 10 - 4 = 31 tokens for one that may need 30. Together they need 58.
    made = split(decode_blocks=45, settings={"overlap_schedule": overlap})
    outcome = Outcome(made, [request(0, 0, 10, 20), request(1, 0, 10, 20)])
    [retracted] = [record for record in outcome.records if isinstance(record, Preempted)]
    assert (retracted.instance, retracted.request_id) == (1, "1")
    steps = [record for record in outcome.records if isinstance(record, StepFinished) and record.instance == 1]
    assert not [step for step in steps if step.chunks]
    joined = [record for record in outcome.records if isinstance(record, Scheduled) and record.instance == 1]
    assert [record.request_id for record in joined] == ["0", "1", "1"]
    assert joined[-1].cached_tokens == retracted.lost_tokens
    # It comes back when the other has left: before, its KV and the reserve of both do not fit.
    assert joined[-1].time_us >= (outcome.rows["0"].completed_us or 0) - 50
    assert [outcome.rows[name].output_tokens for name in "01"] == [20, 20]


def test_a_request_that_waits_for_room_times_out_at_its_deadline() -> None:
    outcome = Outcome(split(decode_blocks=20), [request(0, 0, 10, 3), request(1, 0, 10, 3, deadline_us=200)])
    row = outcome.rows["1"]
    assert (row.state, row.first_token_us, row.completed_us) == ("timed-out", None, None)
    [expired] = outcome.of_kind("timed-out")
    assert expired.time_us == 200
    assert left_behind(outcome.cluster) == []


@pytest.mark.parametrize(("chunk", "free_us"), [(64, 140), (8, 50)])
def test_a_prompt_that_times_out_gives_its_room_back(chunk: int, free_us: int) -> None:
    # A split prompt is given up at once; one in its last step when its KV arrives.
    requests = [request(0, 0, 10, 3, deadline_us=50), request(1, 0, 10, 3)]
    outcome = Outcome(split(decode_blocks=20, settings={"chunked_prefill_size": chunk}), requests)
    assert [outcome.rows[name].state for name in "01"] == ["timed-out", "completed"]
    assert outcome.rows["1"].queued_us == free_us
    assert left_behind(outcome.cluster) == []


def test_a_prompt_that_never_finds_room_is_dropped() -> None:
    outcome = Outcome(split(decode_blocks=20), [request(0, 0, 17, 1), request(1, 0, 10, 3)])
    assert [outcome.rows[name].state for name in "01"] == ["dropped-unservable", "completed"]


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"order": "prefill-first"}, "makes room where the answer is generated before the prompt is computed"),
        ({"transfer": Transfer(starts="step-start")}, "when the step that completes it is over"),
        ({"transfer": Transfer(reuse_cached_blocks=True)}, "no prefix cache where answers are generated"),
    ],
)
def test_what_sglang_does_otherwise_is_refused(way: dict[str, Setting], message: str) -> None:
    made = split()
    changed = replace(made.cluster, disaggregation=replace(made.cluster.disaggregation, **way))  # type: ignore[type-var]
    with pytest.raises(PolicyError, match=message):
        Outcome(replace(made, cluster=changed), [])


def test_instances_that_come_and_go_are_refused() -> None:
    made = split()
    with pytest.raises(PolicyError, match=r"`lifecycle` with `cluster\.disaggregation` is not simulated"):
        Outcome(replace(made, cluster=replace(made.cluster, lifecycle=Lifecycle())), [])


def test_a_document_is_told_what_it_has_to_change() -> None:
    wrong = {
        "policy.batching": {"kind": "sglang"},
        "engine.kv_tiers": {"kind": "hicache"},
        "cluster": {"disaggregation": {"prefill_instances": 1, "decode_instances": 1}, "instances": 2},
        "cluster.failures": [{"at_us": 10}],
        "cluster.disaggregation.transfer": {"starts": "step-start"},
    }
    with pytest.raises(SpecError) as refused:
        blis_tui.load("disaggregation", set=wrong)
    assert sorted(str(one.help) for one in refused.value.diagnostics if one.code == "BLIS2027") == [
        "remove `failures`, or use vllm-v1 batching",
        "remove `kv_tiers`, or use vllm-v1 batching",
        "set `order: decode-first`",
        "set `starts: step-end`",
    ]
