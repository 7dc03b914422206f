"""Instances that die, are repaired, come and go: nothing is lost that should not be, and everything can be repeated."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import INVARIANTS
from blis_tui.cluster.options.lifecycle import LifecycleControl
from blis_tui.cluster.records import GatewayTick, InstanceChanged, InstanceStopped, Lost, Retried
from blis_tui.cluster.state import digest
from blis_tui.engine.records import Observers, Record, Routed, StepFinished
from blis_tui.model import Autoscaler, Delay, Experiment, Failure, Gateway, Lifecycle, NodePool, PluginConfig
from blis_tui.results.request_log import RequestLog
from blis_tui.results.sections.offered_load import Throughflow
from tests.builders import VLLM, ListSource, Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


def failure(
    *,
    instance: int | None = None,
    at_us: int | None = None,
    every_us: int | None = None,
    repair_us: int | None = None,
    requests: str = "retry",
    max_retries: int = 3,
) -> Failure:
    return Failure(
        instance=instance,
        pool=None,
        at_us=at_us,
        mean_time_between_us=every_us,
        repair_us=repair_us,
        requests=requests,
        max_retries=max_retries,
    )


def autoscaler(
    least: int = 1, most: int = 4, *, interval_us: int = 500, up_us: int = 0, down_us: int = 2000, delay_us: int = 0
) -> Autoscaler:
    return Autoscaler(
        interval_us=interval_us,
        bounds={"only": (least, most)},
        kv_utilization_threshold=0.8,
        scale_up_threshold=0.8,
        scale_down_boundary=0.4,
        avg_input_tokens=16,
        scale_up_window_us=up_us,
        scale_down_window_us=down_us,
        scrape_delay=Delay(mean_us=delay_us),
    )


def varying(
    *failures: Failure,
    instances: int = 2,
    lifecycle: Lifecycle | None = None,
    scaler: Autoscaler | None = None,
    nodes: tuple[NodePool, ...] = (),
    routing: str = "round-robin",
) -> Experiment:
    made = experiment(max_num_seqs=2, blocks=40, instances=instances)
    cluster = replace(made.cluster, failures=failures, lifecycle=lifecycle, autoscaler=scaler, nodes=nodes)
    return replace(made, cluster=cluster, policy=replace(made.policy, routing=PluginConfig(kind=routing)))


def asked(count: int = 20, *, every_us: int = 60) -> list[Request]:
    shared = (("system", 4),)
    return [request(i, i * every_us, 8 + i % 5, 4 + i % 7, segments=shared if i % 3 else ()) for i in range(count)]


def states(outcome: Outcome, instance: int) -> list[tuple[int, str]]:
    changes = [
        record for record in outcome.records if isinstance(record, InstanceChanged) and record.instance == instance
    ]
    return [(change.time_us, change.state) for change in changes]


def test_the_requests_of_an_instance_that_dies_start_again_elsewhere() -> None:
    outcome = Outcome(varying(failure(instance=1, at_us=500)), asked())
    assert {row.state for row in outcome.rows.values()} == {"completed"}
    [stopped] = [record for record in outcome.records if isinstance(record, InstanceStopped)]
    retried = [record for record in outcome.records if isinstance(record, Retried)]
    assert stopped.requests
    assert [one.instance for one in retried] == [1] * len(retried)
    assert {one.request_id for one in retried} >= {one.request_id for one in retried if one.time_us == stopped.time_us}
    for one in retried:
        row = outcome.rows[one.request_id]
        assert row.instance == 0
        assert row.arrival_us == 60 * int(one.request_id)
        assert row.scheduled_us is not None
        assert row.scheduled_us >= one.time_us
    assert all(
        record.time_us <= 500 for record in outcome.records if isinstance(record, Routed) and record.instance == 1
    )


def test_a_step_is_never_torn_apart() -> None:
    outcome = Outcome(varying(failure(instance=1, at_us=500)), asked())
    steps = [record for record in outcome.records if isinstance(record, StepFinished) and record.instance == 1]
    [stopped] = [record for record in outcome.records if isinstance(record, InstanceStopped)]
    assert stopped.time_us == steps[-1].time_us + steps[-1].duration_us
    assert stopped.time_us >= 500
    assert steps[-1].time_us <= 500


@pytest.mark.parametrize("batching", ["vllm-v1", "llm-serving-sim"])
def test_a_pipeline_is_empty_before_its_instance_stops_and_nothing_enters_it(batching: str) -> None:
    settings = {**VLLM, "async_scheduling": False} if batching == "vllm-v1" else {}
    made = varying(failure(instance=1, at_us=500, repair_us=300))
    (pool,) = made.pools
    pool = replace(pool, engine=replace(pool.engine, pipeline_parallel=3, max_num_seqs=8, max_num_batched_tokens=8))
    policy = replace(made.policy, batching=PluginConfig(kind=batching, settings=settings))
    outcome = Outcome(replace(made, pools=(pool,), policy=policy), asked(60, every_us=20))
    steps = [record for record in outcome.records if isinstance(record, StepFinished) and record.instance == 1]
    [stopped] = [record for record in outcome.records if isinstance(record, InstanceStopped)]
    before = [step for step in steps if step.time_us <= stopped.time_us]
    ends = [step.time_us + step.duration_us for step in before]
    assert max(step.time_us for step in before) <= 500
    assert len([end for end in ends if end > 500]) > 1, "several batches were under way"
    assert stopped.time_us == max(ends)
    assert states(outcome, 1)[-1] == (stopped.time_us + 300, "active")
    assert min(step.time_us for step in steps if step not in before) >= stopped.time_us + 300
    assert {row.state for row in outcome.rows.values()} == {"completed"}


@pytest.mark.parametrize("requests", ["retry", "lose"])
def test_littles_law_holds_with_requests_that_start_again(requests: str) -> None:
    made, log = varying(failure(every_us=900, repair_us=100, requests=requests)), RequestLog()
    cluster = Cluster(made, ListSource(asked(30)), log, Observers())
    cluster.run(100_000)
    flow = Throughflow()
    for block in log.table(cluster).blocks():
        flow.add(block)
    assert isinstance(cluster.lifecycle, LifecycleControl)
    assert cluster.lifecycle.forfeited_us
    assert cluster.present_us() == flow.present().total_us(cluster.now)


def test_its_requests_may_be_lost_instead() -> None:
    outcome = Outcome(varying(failure(instance=1, at_us=500, requests="lose")), asked())
    lost = [record.request_id for record in outcome.records if isinstance(record, Lost)]
    assert lost
    assert {name for name, row in outcome.rows.items() if row.state == "lost"} == set(lost)
    assert {row.state for row in outcome.rows.values()} == {"completed", "lost"}


def test_a_request_is_not_retried_for_ever() -> None:
    made = varying(failure(every_us=300, repair_us=50, max_retries=2), instances=1)
    outcome = Outcome(made, [request(0, 0, 8, 90)])
    assert [record.failures for record in outcome.records if isinstance(record, Retried)] == [1, 2]
    assert outcome.rows["0"].state == "lost"


def test_nobody_is_lost_while_all_instances_are_down() -> None:
    made = varying(failure(at_us=300, repair_us=4000), lifecycle=Lifecycle(loading_delay_us=1000))
    outcome = Outcome(made, asked())
    assert {row.state for row in outcome.rows.values()} == {"completed"}
    assert outcome.of_kind("stranded")
    [_, (back_us, back), (up_us, up)] = states(outcome, 0)
    assert (back, up, up_us - back_us) == ("loading", "active", 1000)


def test_requests_that_no_instance_is_left_for_are_accounted_for() -> None:
    requests = [*asked(10), request(10, 700, 8, 4, deadline_us=900)]
    outcome = Outcome(varying(failure(at_us=300)), requests)
    assert outcome.rows["10"].state == "rejected"
    assert outcome.rows["9"].state == "in-transit"
    assert [invariant.identifier for invariant in INVARIANTS if invariant.check(outcome.cluster)] == []


def test_the_cache_dies_with_its_instance() -> None:
    shared = (("system", 16),)
    requests = [request(i, 2000 * i, 20, 4, segments=shared) for i in range(4)]
    outcome = Outcome(varying(failure(at_us=5000, repair_us=10), instances=1), requests)
    assert [row.cached_tokens for row in outcome.rows.values()] == [0, 16, 16, 0]


def test_an_instance_that_dies_while_it_loads_loads_anew() -> None:
    deaths = (failure(instance=0, at_us=0, repair_us=0), failure(instance=0, at_us=300, repair_us=200))
    made = varying(*deaths, instances=1, lifecycle=Lifecycle(loading_delay_us=1000))
    outcome = Outcome(made, [request(0, 1, 8, 1)])
    assert states(outcome, 0) == [(0, "failed"), (0, "loading"), (300, "failed"), (500, "loading"), (1500, "active")]


def test_an_instance_is_slow_until_it_is_warm() -> None:
    made = varying(
        failure(instance=0, at_us=0, repair_us=0),
        instances=1,
        lifecycle=Lifecycle(loading_delay_us=100, warm_up_requests=2, warm_up_factor=3.0),
    )
    outcome = Outcome(made, [request(i, 2000 * i + 1, 8, 1) for i in range(4)])
    durations = [record.duration_us for record in outcome.records if isinstance(record, StepFinished)]
    assert durations == [324, 324, 108, 108]
    assert [state for _, state in states(outcome, 0)] == ["failed", "loading", "warming-up", "active"]


def test_a_request_without_a_budget_stays_without_one() -> None:
    undeclared = request(0, 0, 8, 20)
    undeclared.declare(None)
    outcome = Outcome(varying(failure(instance=0, at_us=150)), [undeclared])
    assert outcome.of_kind("retried")
    assert isinstance(outcome.cluster.lifecycle, LifecycleControl)
    assert outcome.rows["0"].state == "completed"


@pytest.mark.parametrize("how", ["wait", "redirect", "immediate"])
def test_an_instance_drains(how: str) -> None:
    made, log = varying(lifecycle=Lifecycle(drain=how)), RequestLog()
    observers = Observers()
    records: list[Record] = []
    observers.add_all((InstanceChanged,), records.append)
    cluster = Cluster(made, ListSource(asked()), log, observers)
    cluster.run(1000, until_us=700)
    assert isinstance(cluster.lifecycle, LifecycleControl)
    waiting = len(cluster.instances[1].waiting.items)
    assert waiting
    routed = cluster.instances[1].routed
    cluster.lifecycle.drain(1, cluster.now, "for a test")
    while cluster.run(1):
        assert [invariant.identifier for invariant in INVARIANTS if invariant.check(cluster)] == []
    ended = [row.state for row in log.table(cluster)]
    assert [record.state for record in records if isinstance(record, InstanceChanged) and record.instance == 1] == [
        "draining",
        "terminated",
    ]
    assert cluster.instances[1].routed == routed
    assert ended.count("lost") == (waiting + 2 if how == "immediate" else 0)
    assert cluster.lifecycle.retried == (waiting if how == "redirect" else 0)
    assert len(ended) == ended.count("completed") + ended.count("lost") == 20


TICKING: Final = Gateway(
    order="fifo",
    saturation=PluginConfig(kind="concurrency", settings={"max_concurrency": 2}),
    dispatch="tick",
    tick_us=100,
    max_depth=0,
    when_full="reject",
    bands=False,
    per_band_capacity=0,
    fairness="global-strict",
    weights={},
    request_ttl_us=0,
    usage_limit=1.0,
    slo_targets_us={},
)


def test_a_gateway_goes_on_when_an_instance_comes_back() -> None:
    for dispatch, tick_us in (("on-completion", 0), ("tick", 500)):
        made = varying(failure(at_us=300, repair_us=2000))
        held = replace(TICKING, dispatch=dispatch, tick_us=tick_us)
        outcome = Outcome(replace(made, policy=replace(made.policy, gateway=held)), asked())
        assert {row.state for row in outcome.rows.values()} == {"completed"}


def test_a_gateway_does_not_tick_while_no_instance_receives_requests() -> None:
    made = varying(failure(instance=0, at_us=300, repair_us=5000), instances=1)
    held = replace(TICKING, saturation=PluginConfig(kind="concurrency", settings={"max_concurrency": 1}))
    outcome = Outcome(replace(made, policy=replace(made.policy, gateway=held)), asked())
    ticks = [record.time_us for record in outcome.records if isinstance(record, GatewayTick)]
    assert min(ticks) < 300
    assert max(ticks) > 5300
    assert [at for at in ticks if 300 + 500 < at < 5300] == []


def test_the_clock_stops_with_the_last_request() -> None:
    outcome = Outcome(varying(failure(at_us=10**9)), asked(4))
    assert outcome.cluster.now < 10_000
    assert outcome.cluster.next_event_us() is None


LIVES = st.builds(
    Lifecycle,
    loading_delay_us=st.sampled_from([0, 300]),
    warm_up_requests=st.sampled_from([0, 2]),
    warm_up_factor=st.sampled_from([1.0, 2.5]),
    drain=st.sampled_from(["wait", "redirect", "immediate"]),
)
FAILURES = st.lists(
    st.builds(
        failure,
        instance=st.sampled_from([None, 0, 1]),
        at_us=st.integers(0, 2000),
        repair_us=st.sampled_from([None, 0, 700]),
        requests=st.sampled_from(["retry", "lose"]),
    )
    | st.builds(failure, every_us=st.integers(200, 3000), repair_us=st.sampled_from([0, 400])),
    max_size=3,
)
SCALERS = st.none() | st.builds(
    autoscaler,
    st.sampled_from([0, 1]),
    st.integers(1, 4),
    up_us=st.sampled_from([0, 600]),
    down_us=st.sampled_from([0, 900]),
    delay_us=st.sampled_from([0, 100]),
)
NODES = st.just(()) | st.builds(
    lambda initial, most, delay: (
        NodePool(
            name="n",
            gpu="gpu",
            gpus_per_node=2,
            initial=initial,
            min=0,
            max=most,
            provisioning_delay=Delay(mean_us=delay, std_dev_us=delay // 2),
            cost_per_hour=1.0,
        ),
    ),
    st.integers(0, 2),
    st.integers(2, 3),
    st.sampled_from([0, 500]),
)


@settings(max_examples=60, deadline=None)
@given(
    failures=FAILURES,
    lifecycle=LIVES,
    scaler=SCALERS,
    nodes=NODES,
    routing=st.sampled_from(["round-robin", "least-loaded", "power-of-two", "session-affinity"]),
    count=st.integers(1, 16),
    every_us=st.sampled_from([0, 50, 400]),
)
def test_nothing_is_lost_and_everything_can_be_repeated(
    failures: list[Failure],
    lifecycle: Lifecycle,
    scaler: Autoscaler | None,
    nodes: tuple[NodePool, ...],
    routing: str,
    count: int,
    every_us: int,
) -> None:
    made = varying(*failures, lifecycle=lifecycle, scaler=scaler, nodes=nodes, routing=routing)
    cluster, twin = (
        Cluster(made, ListSource(asked(count, every_us=every_us)), RequestLog(), Observers()) for _ in range(2)
    )
    for event in range(20_000):
        if event == 40:
            cluster = pickle.loads(pickle.dumps(cluster))  # noqa: S301
        more = cluster.run(1)
        twin.run(1)
        assert (more and event % 8) or digest(cluster) == digest(twin)
        if not more:
            break
        assert [
            (invariant.identifier, invariant.check(cluster)) for invariant in INVARIANTS if invariant.check(cluster)
        ] == []
    assert cluster.next_event_us() is None
    assert cluster.arrived == count
    assert isinstance(cluster.lifecycle, LifecycleControl)
    left = cluster.in_transit()
    assert len(left) == len(cluster.lifecycle.parked)
    assert cluster.closed() + len(left) == count
    up = [life.state for life in cluster.lifecycle.lives]
    assert not left or not {"active", "warming-up", "loading"} & set(up)


def test_tenants_budgets_are_fractions_of_the_slots_of_the_instances_that_are_up() -> None:
    """All of ``max_num_seqs`` counts, whatever the batching rule makes of it, with a life cycle as without one."""
    made = experiment(batching="vllm-v1", settings={"max_num_active_seqs": 1}, max_num_seqs=4, instances=3)
    steady = Cluster(made, ListSource([]), RequestLog(), Observers())
    assert steady.instances[0].batch.limits.max_num_seqs == 1
    assert steady.registry.slots == 12
    mortal = replace(made, cluster=replace(made.cluster, failures=(failure(instance=1, at_us=500),)))
    dying = Cluster(mortal, ListSource([request(0, 0, 8, 200)]), RequestLog(detours=True), Observers())
    assert dying.registry.slots == 12
    dying.run(1_000)
    assert dying.registry.slots == 8


@pytest.mark.parametrize("batching", ["sglang", "vllm-v1", "blis"])
def test_who_came_back_to_an_instance_times_out_there_once(batching: str) -> None:
    """Its deadline is pending from before, and with SGLang it runs on until its next token."""
    made = {
        "policy.batching": batching,
        "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [20_000, 0, 0]},
        "cluster": {"instances": 1, "failures": [{"at_us": 50_000, "repair_us": 0}]},
        "workload": {
            "requests": 1,
            "rate_per_s": 1000,
            "clients": [{"id": "a", "input_tokens": 10, "output_tokens": 100, "timeout_us": 205_000}],
        },
    }
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=made), check="all")
    seen: list[Record] = []
    simulation.subscribe("timed-out", seen.append)
    simulation.subscribe("retried", seen.append)
    simulation.run()
    assert [record.kind for record in seen] == ["retried", "timed-out"]
    assert simulation.report().requests.timed_out == 1
