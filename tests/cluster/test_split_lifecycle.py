"""Instances that come and go under disaggregation: what becomes of requests between two instances."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import INVARIANTS, SPLIT_INVARIANTS
from blis_tui.cluster.options.lifecycle import LifecycleControl
from blis_tui.cluster.records import InstanceChanged, Lost, Retried, ScalingDecided, TransferBrokenOff, TransferStarted
from blis_tui.cluster.state import digest
from blis_tui.engine.records import Observers, Record
from blis_tui.model import Autoscaler, Delay, Failure, Lifecycle, NodePool, PluginConfig
from blis_tui.results.request_log import RequestLog
from blis_tui.results.sections.offered_load import Throughflow
from tests.builders import ListSource, Outcome, request
from tests.cluster.test_disaggregation import split
from tests.cluster.test_lifecycle import LIVES, NODES, failure

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment

ALL = (*INVARIANTS, *SPLIT_INVARIANTS)


def going(
    *failures: Failure,
    order: str = "prefill-first",
    contention: str = "none",
    base_latency_us: int = 200,
    instances: tuple[int, int] = (2, 2),
    lifecycle: Lifecycle | None = None,
    scaler: Autoscaler | None = None,
    nodes: tuple[NodePool, ...] = (),
    decider: str = "always",
) -> Experiment:
    """The first instances prefill, the next ones decode; a transfer takes 200 us and 4 us for each block."""
    made = split(order=order, contention=contention, base_latency_us=base_latency_us)
    way = made.cluster.disaggregation
    assert way is not None
    threshold = {"threshold_tokens": 11} if decider != "always" else {}
    pools = (replace(pool, instances=count) for pool, count in zip(made.pools, instances, strict=True))
    return replace(
        made,
        pools=tuple(pools),
        cluster=replace(
            made.cluster,
            disaggregation=replace(way, decider=PluginConfig(kind=decider, settings=threshold)),
            failures=failures,
            lifecycle=lifecycle,
            autoscaler=scaler,
            nodes=nodes,
        ),
    )


def scaler(low: int, high: int, *, window_us: int = 0) -> Autoscaler:
    return Autoscaler(
        interval_us=300,
        bounds={"prefill": (low, high), "decode": (low, high)},
        kv_utilization_threshold=0.8,
        scale_up_threshold=0.8,
        scale_down_boundary=0.4,
        avg_input_tokens=8,
        scale_up_window_us=0,
        scale_down_window_us=window_us,
        scrape_delay=Delay(),
    )


def asked(count: int, every_us: int) -> list[Request]:
    return [
        request(i, i * every_us, 8 + i % 5, 1 + i % 6, deadline_us=i * every_us + 900 if i % 7 == 3 else 0)
        for i in range(count)
    ]


@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
def test_a_transfer_from_an_instance_that_dies_is_broken_off(order: str) -> None:
    outcome = Outcome(going(failure(instance=0, at_us=200), order=order), [request(0, 0, 8, 3)])
    [broken] = [record for record in outcome.records if isinstance(record, TransferBrokenOff)]
    assert (broken.time_us, broken.instance, broken.reason) == (200, 0, "its prefill instance has gone")
    row = outcome.rows["0"]
    assert (row.state, row.prefill_instance, row.first_token_us) == ("completed", 1, 308)
    assert [instance.pool.used for instance in outcome.cluster.instances] == [0] * 4
    assert (outcome.cluster.dispatcher.link.active, outcome.cluster.dispatcher.broken_off) == (0, 1)


def test_a_transfer_to_an_instance_that_dies_is_broken_off() -> None:
    made = going(failure(instance=2, at_us=200), order="decode-first", contention="fair-share")
    outcome = Outcome(made, [request(0, 0, 8, 3), request(1, 0, 8, 3)])
    [broken] = [record for record in outcome.records if isinstance(record, TransferBrokenOff)]
    assert (broken.request_id, broken.instance, broken.reason) == ("0", 2, "its decode instance has gone")
    assert {row.state for row in outcome.rows.values()} == {"completed"}
    assert {row.instance for row in outcome.rows.values()} == {3}


def test_a_decode_instance_that_has_gone_before_the_transfer_is_replaced() -> None:
    outcome = Outcome(going(failure(instance=2, at_us=50), order="decode-first"), [request(0, 0, 8, 3)])
    assert not outcome.of_kind("retried")
    assert [record.decode_instance for record in outcome.records if isinstance(record, TransferStarted)] == [3]
    assert outcome.rows["0"].instance == 3


def test_a_prompt_computed_in_the_last_step_of_its_instance_is_computed_again() -> None:
    outcome = Outcome(going(failure(instance=0, at_us=50)), [request(0, 0, 8, 3)])
    assert [(record.time_us, record.instance) for record in outcome.records if isinstance(record, Retried)] == [
        (108, 0)
    ]
    assert outcome.rows["0"].prefill_instance == 1


def test_the_requests_of_a_transfer_may_be_lost_with_it() -> None:
    outcome = Outcome(going(failure(instance=0, at_us=200, requests="lose")), [request(0, 0, 8, 3)])
    assert [(record.instance, record.reason) for record in outcome.records if isinstance(record, Lost)] == [
        (0, "its instance died")
    ]
    assert (outcome.rows["0"].state, outcome.rows["0"].ttft_us) == ("lost", 108)


@pytest.mark.parametrize("dead", [(0, 1), (2, 3)])
@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
def test_requests_wait_while_one_of_the_roles_is_down(order: str, dead: tuple[int, int]) -> None:
    down = (failure(instance=index, at_us=0, repair_us=2000) for index in dead)
    outcome = Outcome(going(*down, order=order), asked(4, 50))
    assert outcome.of_kind("stranded")
    assert {name: row.state for name, row in outcome.rows.items()} == {
        "0": "completed",
        "1": "completed",
        "2": "completed",
        "3": "rejected",
    }


@pytest.mark.parametrize(("index", "ends_us"), [(0, 308 + 8), (2, 308 + 8 + 100)])
@pytest.mark.parametrize("how", ["wait", "redirect"])
def test_a_draining_instance_waits_for_its_transfers(how: str, index: int, ends_us: int) -> None:
    made = going(order="decode-first", lifecycle=Lifecycle(drain=how))
    observers = Observers()
    changes: list[Record] = []
    observers.add_all((InstanceChanged,), changes.append)
    log = RequestLog(detours=True)
    cluster = Cluster(made, ListSource([request(0, 0, 8, 3)]), log, observers)
    cluster.run(1000, until_us=200)
    assert isinstance(cluster.lifecycle, LifecycleControl)
    cluster.lifecycle.drain(index, cluster.now, "for a test")
    cluster.run(1000)
    assert [row.state for row in log.table(cluster)] == ["completed"]
    [_, ended] = [change for change in changes if isinstance(change, InstanceChanged)]
    if how == "wait" or index == 0:
        assert (ended.state, ended.time_us, cluster.lifecycle.retried) == ("terminated", ends_us, 0)
    else:
        assert (ended.state, ended.time_us, cluster.lifecycle.retried) == ("terminated", 316, 1)


def test_the_autoscaler_weighs_each_role_for_itself() -> None:
    made = going(scaler=scaler(1, 3), instances=(1, 1))
    outcome = Outcome(made, [request(i, 0, 32, 2) for i in range(12)])
    up = [
        record.pool for record in outcome.records if isinstance(record, ScalingDecided) and record.verdict == "scale-up"
    ]
    assert "prefill" in up
    assert up[0] == "prefill"
    assert outcome.cluster.closed() == 12


def test_both_roles_come_back_from_zero() -> None:
    made = going(scaler=scaler(0, 2), instances=(1, 1))
    outcome = Outcome(made, [request(0, 0, 8, 3), request(1, 9000, 8, 3)])
    assert [row.state for row in outcome.rows.values()] == ["completed", "completed"]
    assert outcome.of_kind("stranded")


FAILURES = st.lists(
    st.builds(
        failure,
        instance=st.sampled_from([None, 0, 1, 2, 3]),
        at_us=st.integers(0, 2000),
        repair_us=st.sampled_from([None, 0, 700]),
        requests=st.sampled_from(["retry", "lose"]),
    )
    | st.builds(failure, every_us=st.integers(300, 3000), repair_us=st.sampled_from([0, 400])),
    max_size=3,
)


@settings(max_examples=80, deadline=None)
@given(
    failures=FAILURES,
    lifecycle=LIVES,
    scaling=st.none() | st.builds(scaler, st.sampled_from([0, 1]), st.just(3), window_us=st.sampled_from([0, 900])),
    nodes=NODES,
    order=st.sampled_from(["prefill-first", "decode-first"]),
    contention=st.sampled_from(["none", "fair-share", "fixed-at-start"]),
    decider=st.sampled_from(["always", "direct-to-decode"]),
    count=st.integers(1, 16),
    every_us=st.sampled_from([0, 50, 400]),
)
def test_nothing_is_lost_between_two_instances(
    failures: list[Failure],
    lifecycle: Lifecycle,
    scaling: Autoscaler | None,
    nodes: tuple[NodePool, ...],
    order: str,
    contention: str,
    decider: str,
    count: int,
    every_us: int,
) -> None:
    made = going(
        *failures,
        order=order,
        contention=contention,
        lifecycle=lifecycle,
        scaler=scaling,
        nodes=nodes,
        decider=decider,
    )
    log = RequestLog(detours=True)
    cluster, twin = (
        Cluster(made, ListSource(asked(count, every_us)), books, Observers())
        for books in (log, RequestLog(detours=True))
    )
    for event in range(20_000):
        if event == 40:
            cluster = pickle.loads(pickle.dumps(cluster))  # noqa: S301
        more = cluster.run(1)
        twin.run(1)
        assert (more and event % 8) or digest(cluster) == digest(twin)
        if not more:
            break
        assert [(invariant.identifier, invariant.check(cluster)) for invariant in ALL if invariant.check(cluster)] == []
    assert cluster.next_event_us() is None
    assert cluster.arrived == count
    assert isinstance(cluster.lifecycle, LifecycleControl)
    left = cluster.in_transit()
    assert len(left) == len(cluster.lifecycle.parked)
    assert cluster.closed() + len(left) == count
    assert cluster.dispatcher.link.active == 0
    assert set(cluster.dispatcher.split_requests) <= set(cluster.lifecycle.parked)
    assert [instance.pool.used for instance in cluster.instances] == [0] * len(cluster.instances)


@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
def test_littles_law_holds_with_transfers_that_are_broken_off(order: str) -> None:
    made = going(failure(every_us=700, repair_us=100), order=order)
    log = RequestLog(detours=True)
    observers = Observers()
    broken: list[Record] = []
    observers.add_all((TransferBrokenOff,), broken.append)
    requests = [request(i, 60 * i, 8 + i % 5, 4) for i in range(40)]
    cluster = Cluster(made, ListSource(requests), log, observers)
    cluster.run(100_000)
    flow = Throughflow()
    for block in log.table(cluster).blocks():
        flow.add(block)
    assert broken
    assert cluster.present_us() == flow.present().total_us(cluster.now)


def test_a_run_ends_when_a_role_is_gone_for_good_though_others_fail_and_return_for_ever() -> None:
    gone = (failure(instance=index, at_us=300) for index in (2, 3))
    made = going(failure(every_us=900, repair_us=0), *gone, lifecycle=Lifecycle(loading_delay_us=10))
    cluster = Cluster(made, ListSource(asked(6, 100)), RequestLog(detours=True), Observers())
    assert cluster.run(20_000) < 20_000
    assert isinstance(cluster.lifecycle, LifecycleControl)
    assert cluster.arrived == cluster.closed() + len(cluster.lifecycle.parked)
