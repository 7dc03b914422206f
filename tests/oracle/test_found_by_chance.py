"""Reduced cases in which engine and oracle once differed, and that random scenarios find too rarely."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from blis_tui.base.errors import StalledError
from blis_tui.cluster.cluster import Cluster as Engines
from blis_tui.cluster.records import GatewayTick
from blis_tui.engine.records import Observers, StepFinished
from blis_tui.model import (
    Cluster,
    Disaggregation,
    Encoder,
    Engine,
    Experiment,
    Gateway,
    KvTier,
    KvTiers,
    Lora,
    PluginConfig,
    Policy,
    Signals,
    Speculative,
    Transfer,
)
from blis_tui.results.request_log import RequestLog

from .oracle import Oracle
from .runs import source_of
from .sessions import PlannedCall, SessionOracle, SessionScenario
from .strategies import Asked, Scenario, assemble, pool_of
from .test_against_oracle import check as check_instance
from .test_clusters import check as check_cluster

_STEP: Final = PluginConfig(kind="blackbox", settings={"alpha": (0.0, 0.0, 0.0), "beta": (10.0, 0.0, 0.0)})
_ENGINE: Final = Engine(
    max_num_seqs=4,
    max_num_batched_tokens=64,
    long_prefill_token_threshold=0,
    max_model_len=None,
    block_size_tokens=1,
    kv_blocks=12,
)
_ASYNC: Final = PluginConfig(
    kind="vllm-v1",
    settings={
        "version": "0.32",
        "watermark": 0.0,
        "enable_chunked_prefill": True,
        "reserve_full_input": False,
        "async_scheduling": True,
        "long_prefill_token_threshold_adaptive": False,
    },
)
_POLICY: Final = Policy(
    name="by hand",
    admission=PluginConfig(kind="always-admit"),
    routing=PluginConfig(kind="round-robin"),
    scheduling=PluginConfig(kind="fcfs"),
    priority=PluginConfig(kind="slo-class"),
    batching=_ASYNC,
    preemption_victim="tail",
    preemption_restore="recompute",
)
_CLUSTER: Final = Cluster(admission_latency_us=0, routing_latency_us=0)


def _experiment(
    engine: Engine, policy: Policy, cluster: Cluster = _CLUSTER, horizon_us: int | None = None
) -> Experiment:
    return assemble(policy, cluster, (pool_of(engine, _STEP, instances=1),), horizon_us=horizon_us)


def _split(undisaggregated: str, *, bandwidth_gb_per_s: float, base_latency_us: int) -> Disaggregation:
    """Each request is prefilled, and then transferred over this link."""
    return Disaggregation(
        decider=PluginConfig(kind="always"),
        order="prefill-first",
        undisaggregated=undisaggregated,
        transfer=Transfer(
            bandwidth_gb_per_s=bandwidth_gb_per_s,
            base_latency_us=base_latency_us,
            bytes_per_token=1,
            starts="step-end",
            contention="none",
        ),
        prefill_routing=_POLICY.routing,
        decode_routing=_POLICY.routing,
    )


def _asked(*requests: tuple[int, int, int, str, str]) -> tuple[Asked, ...]:
    """Arrival, prompt, answer, SLO class, LoRA adapter."""
    return tuple(
        Asked(
            name="abcdef"[number],
            arrival_us=arrival_us,
            input_tokens=inputs,
            output_tokens=outputs,
            declared_tokens=outputs,
            slo_class=slo_class,
            adapter=adapter,
        )
        for number, (arrival_us, inputs, outputs, slo_class, adapter) in enumerate(requests)
    )


def _oracle(scenario: Scenario) -> Oracle:
    oracle = Oracle.of(scenario, 1000)
    oracle.run()
    return oracle


def test_a_decode_that_was_passed_over_has_all_its_tokens_in_the_cache() -> None:
    """Asynchronous scheduling: when it gets its next token, the one before has been known for a step.

    So when it is a victim while that step runs, the block of that token has content, and is reused last.
    """
    policy = replace(_POLICY, preemption_victim="priority")
    asked = _asked((0, 1, 3, "critical", ""), (0, 2, 2, "batch", ""), (0, 2, 3, "standard", ""))
    check_instance(Scenario(_experiment(replace(_ENGINE, kv_blocks=6), policy), asked))


def test_adapters_in_use_are_told_in_the_order_in_which_they_came_into_use() -> None:
    """The first request under ``s`` ends before ``q`` is held, the second began after that under ``p``."""
    lora = Lora(max_loras=2, max_cpu_loras=5, max_lora_rank=64, bytes_per_rank=1, base_latency_us=30)
    engine = replace(_ENGINE, max_num_seqs=3, lora=lora)
    policy = replace(_POLICY, batching=PluginConfig(kind="blis"), scheduling=PluginConfig(kind="reverse-priority"))
    asked = _asked(
        (0, 1, 2, "standard", "s"),
        (0, 1, 0, "batch", "s"),
        (0, 1, 0, "standard", "q"),
        (0, 1, 0, "background", "p"),
        (0, 1, 2, "batch", "p"),
    )
    check_instance(Scenario(_experiment(engine, policy), asked))


def test_an_adapter_that_comes_for_a_request_that_has_left_can_be_evicted() -> None:
    """The second request runs out of time between the plan that admits it and the step that loads its adapter."""
    lora = Lora(
        max_loras=2, max_cpu_loras=5, max_lora_rank=8, bytes_per_rank=1, base_latency_us=0, storage_latency_us=0
    )
    engine = replace(_ENGINE, lora=lora)
    long, late, last = _asked((0, 1, 8, "critical", "q"), (3, 1, 2, "critical", "p"), (60, 1, 2, "critical", "r"))
    check_instance(Scenario(_experiment(engine, _POLICY), (long, replace(late, deadline_us=15), last)))


def test_requests_are_in_flight_for_as_long_whether_the_router_looks_or_not() -> None:
    """The horizon is within the only step, whose results are visible from its start."""
    cluster = replace(_CLUSTER, signals=Signals(results="step-start"))
    scenario = Scenario(_experiment(_ENGINE, _POLICY, cluster, 5), _asked((0, 1, 1, "standard", "")))
    check_cluster(scenario, 0.5)
    assert _oracle(scenario).board.in_flight(0) == 0


def test_an_answer_counts_as_filled_when_it_is_over() -> None:
    """By the clock, the second call computes what the first one is about to answer, before that can be found.

    Of the two copies the newest is hit (``blis``): the answer's, which nobody holds any more when the third call looks.
    """
    asked = _asked((0, 2, 4, "standard", ""), (15, 1, 30, "standard", ""), (55, 1, 2, "standard", ""))
    call, second, third = asked
    session = (
        PlannedCall(call, 0, (), history=True),
        PlannedCall(second, 15, (0,), history=True),
        PlannedCall(third, 55, (0,), history=True),
    )
    policy = replace(_POLICY, batching=PluginConfig(kind="blis"))
    experiment = _experiment(replace(_ENGINE, kv_blocks=80), policy)
    scenario = SessionScenario(experiment, asked, (session,), users=0, by_clock=True, most=3)
    check_cluster(scenario, 0.5, SessionOracle)


def test_what_came_from_another_instance_has_all_its_tokens_in_the_cache() -> None:
    """Asynchronous scheduling: the token that it decodes first here was known when that was planned.

    It is its own victim in the plan after that, and finds that token's block when it is scheduled again.
    """
    split = _split("decode-pool", bandwidth_gb_per_s=1.0, base_latency_us=0)
    pools = tuple(
        pool_of(replace(_ENGINE, kv_blocks=blocks), _STEP, instances=1, name=role, role=role)
        for role, blocks in (("prefill", 20), ("decode", 7))
    )
    experiment = assemble(_POLICY, replace(_CLUSTER, disaggregation=split), pools, horizon_us=None)
    scenario = Scenario(experiment, _asked((0, 2, 2, "standard", ""), (0, 3, 3, "standard", "")))
    check_cluster(scenario, 0.5)
    assert [job.preemptions for job in _oracle(scenario).jobs] == [0, 1]


def test_an_arrival_lets_the_queue_head_in_whose_chunk_was_too_long() -> None:
    """The adaptive threshold goes down with every request: a prefill that did not fit does, without another block."""
    batching = replace(
        _ASYNC,
        settings={**_ASYNC.settings, "async_scheduling": False, "long_prefill_token_threshold_adaptive": True},
    )
    engine = replace(
        _ENGINE, block_size_tokens=4, kv_blocks=4, max_num_batched_tokens=28, long_prefill_token_threshold=1
    )
    asked = _asked((0, 2, 8, "standard", ""), (5, 14, 1, "standard", ""), (15, 1, 1, "standard", ""))
    scenario = Scenario(_experiment(engine, replace(_POLICY, batching=batching)), asked)
    check_instance(scenario)
    assert _oracle(scenario).jobs[1].scheduled_us == 20


def test_a_victim_that_was_served_before_it_leaves_with_what_has_been_computed() -> None:
    """``tensorrt-llm`` plans a token for it and preempts it for somebody behind it, in the same plan.

    The block of its latest token is being computed then, and goes to no tier: the host has the one before it.
    """
    settings: dict[str, bool | float | str] = {
        "capacity_scheduler_policy": "MAX_UTILIZATION",
        "enable_chunked_prefill": False,
        "disable_overlap_scheduler": False,
        "batch_wait_timeout_iters": 0,
        "batch_wait_max_tokens_ratio": 0.0,
    }
    policy = replace(
        _POLICY, batching=PluginConfig(kind="tensorrt-llm", settings=settings), preemption_victim="priority"
    )
    host = KvTier(name="cpu", blocks=9, bandwidth_tokens_per_us=1.0, base_latency_us=0)
    engine = replace(_ENGINE, kv_blocks=5, kv_tiers=KvTiers(kind="mirror", tiers=(host,)))
    scenario = Scenario(_experiment(engine, policy), _asked((0, 1, 4, "batch", ""), (10, 1, 2, "critical", "")))
    check_instance(scenario)
    assert [job.preemptions for job in _oracle(scenario).jobs] == [1, 0]


def test_two_adapters_are_not_loaded_in_turn_for_ever() -> None:
    """Nobody runs, one adapter fits: the queue's head needs blocks of somebody behind it, who needs another adapter."""
    split = _split("all", bandwidth_gb_per_s=0.008, base_latency_us=25)
    pools = tuple(
        pool_of(
            replace(
                _ENGINE,
                max_num_seqs=1,
                block_size_tokens=2,
                kv_blocks=20,
                lora=Lora(max_loras=1, max_cpu_loras=2, max_lora_rank=8, bytes_per_rank=1, base_latency_us=load_us),
            ),
            _STEP,
            instances=1,
            name=role,
            role=role,
        )
        for role, load_us in (("any", 200), ("prefill", 1))
    )
    policy = replace(_POLICY, batching=PluginConfig(kind="blis"))
    asked = _asked(
        (0, 12, 3, "critical", "q"),
        (0, 9, 1, "standard", "r"),
        (0, 32, 2, "background", "r"),
        (0, 34, 3, "sheddable", ""),
        (0, 26, 1, "batch", ""),
        (0, 23, 3, "background", "r"),
    )
    scenario = Scenario(assemble(policy, replace(_CLUSTER, disaggregation=split), pools, horizon_us=None), asked)
    check_cluster(scenario, 0.5)
    assert _oracle(scenario).events < 200


def test_with_drafts_what_came_from_another_instance_has_all_its_tokens_in_the_cache() -> None:
    """The first decode here is noted like any other; its own victim finds that block, too, when it comes back."""
    drafts = Speculative(draft_tokens=4, acceptance=0.0, method="ngram")
    engine = replace(_ENGINE, max_num_seqs=1, speculative=drafts)
    settings = {**_ASYNC.settings, "version": "0.10", "async_scheduling": False, "max_num_partial_prefills": 1}
    split = _split("decode-pool", bandwidth_gb_per_s=1.0, base_latency_us=0)
    pools = tuple(
        pool_of(replace(engine, kv_blocks=blocks), _STEP, instances=1, name=role, role=role)
        for role, blocks in (("prefill", 20), ("decode", 9))
    )
    policy = replace(_POLICY, batching=replace(_ASYNC, settings=settings))
    experiment = assemble(policy, replace(_CLUSTER, disaggregation=split), pools, horizon_us=None)
    scenario = Scenario(experiment, _asked((0, 2, 4, "standard", ""), (0, 3, 2, "standard", "")))
    check_cluster(scenario, 0.5)
    assert max(job.preemptions for job in _oracle(scenario).jobs) == 1


def test_a_pipeline_that_planned_on_sees_who_comes_with_its_last_token_when_the_next_batch_is_through() -> None:
    """A batch behind the last token's is in flight when a request comes at the very time of that token.

    The engine has planned, found nobody, and waits for that batch.
    """
    policy = replace(_POLICY, deferral="idle-only")
    engine = replace(_ENGINE, pipeline_parallel=2, block_size_tokens=4)
    asked = _asked((0, 1, 0, "standard", ""), (1, 6, 1, "background", ""))
    scenario = Scenario(_experiment(engine, policy), asked)
    check_cluster(scenario, 0.5)
    first, second = _oracle(scenario).jobs
    assert second.scheduled_us > first.completed_us


def test_a_tick_of_the_gateway_says_how_busy_the_instances_are_though_nobody_waits_any_more() -> None:
    """The held request runs out of time while the only instance is busy, which it is no more at the tick."""
    gateway = Gateway(
        saturation=PluginConfig(kind="concurrency", settings={"max_concurrency": 1}),
        dispatch="tick",
        tick_us=60,
        request_ttl_us=20,
    )
    asked = _asked((0, 1, 2, "standard", ""), (5, 1, 1, "standard", ""))
    scenario = Scenario(_experiment(_ENGINE, replace(_POLICY, gateway=gateway)), asked)
    check_cluster(scenario, 0.5)
    ticks = [record for record in _oracle(scenario).records if isinstance(record, GatewayTick)]
    assert [(tick.time_us, tick.waiting, tick.saturation_ppm) for tick in ticks] == [(65, 0, 0)]


def test_media_in_the_last_token_of_a_prompt_are_encoded_where_the_threshold_leaves_no_drafts() -> None:
    """With drafts it would be padded to a decode, for which nothing is encoded; but the threshold is one token."""
    encoder = Encoder(
        token_us=3.0,
        max_num_encoder_input_tokens=8,
        encoder_cache_size=8,
        max_tokens_per_mm_item=0,
        disable_chunked_mm_input=False,
    )
    drafts = Speculative(draft_tokens=4, acceptance=0.0, method="ngram_gpu")
    engine = replace(_ENGINE, block_size_tokens=2, long_prefill_token_threshold=1, speculative=drafts, encoder=encoder)
    policy = replace(_POLICY, batching=replace(_ASYNC, settings={**_ASYNC.settings, "async_scheduling": False}))
    first, other, seen, behind = _asked(
        (0, 4, 1, "standard", ""), (1, 1, 1, "standard", ""), (900, 5, 2, "standard", ""), (900, 1, 1, "standard", "")
    )
    head = (("x", 4),)
    asked = (replace(first, segments=head), other, replace(seen, segments=head), behind)
    scenario = Scenario(_experiment(engine, policy), asked)
    check_instance(scenario)
    assert scenario.requests()[2].media.tokens == 1
    steps = [record for record in _oracle(scenario).records if isinstance(record, StepFinished)]
    assert next(step.duration_us for step in steps if "c" in step.admitted) == 10 + 3


def test_requests_that_are_preempted_for_ever_are_an_error() -> None:
    """The first one waits for an item longer than the threshold, which only others keep in force, and holds two blocks.

    The other one needs two, takes the third, preempts itself, and is admitted again; none of them gets on.
    """
    encoder = Encoder(
        token_us=3.0,
        max_num_encoder_input_tokens=100,
        encoder_cache_size=12,
        max_tokens_per_mm_item=0,
        disable_chunked_mm_input=True,
    )
    engine = replace(
        _ENGINE,
        max_num_seqs=8,
        max_num_batched_tokens=12,
        long_prefill_token_threshold=1,
        block_size_tokens=4,
        kv_blocks=3,
        enable_prefix_caching=False,
        encoder=encoder,
    )
    settings = {**_ASYNC.settings, "version": "0.33", "async_scheduling": False}
    policy = replace(_POLICY, batching=replace(_ASYNC, settings=settings))
    short = ((0, 1, 1, "standard", ""),) * 3
    *others, stuck, small = _asked(*short, (47, 10, 1, "standard", ""), (47, 6, 1, "standard", ""))
    asked = (*others, replace(stuck, segments=(("x", 2), ("y", 4))), small)
    scenario = Scenario(_experiment(engine, policy), asked)
    assert scenario.requests()[3].media.tokens == 2
    cluster = Engines(scenario.experiment, source_of(scenario.requests(), 0), RequestLog(), Observers())
    with pytest.raises(StalledError, match=r"no progress .*1 running, 1 waiting"):
        cluster.run(100_000)
    assert cluster.instances[0].tallies.preemptions < 5000
