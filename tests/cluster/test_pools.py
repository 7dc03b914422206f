"""Instances that are not alike, and instances that come during a run."""

from dataclasses import replace
from statistics import mean

import pytest

from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import INVARIANTS
from blis_tui.cluster.snapshot import take_snapshot
from blis_tui.engine.records import Observers, Routed, StepFinished
from blis_tui.engine.request import Request
from blis_tui.model import Experiment, PluginConfig
from blis_tui.results.report import build_report
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, Outcome, experiment, request


def two_pools() -> Experiment:
    """A small, quick instance; and two larger, slow ones with an overhead for each token."""
    made = experiment(max_num_seqs=1)
    small = made.pools[0]
    large = replace(
        small,
        name="large",
        instances=2,
        engine=replace(small.engine, max_num_seqs=4, block_size_tokens=8, kv_blocks=50),
        latency=PluginConfig(kind="blackbox", settings={"alpha": (0.0, 0.0, 7.0), "beta": (1000.0, 1.0, 10.0)}),
    )
    return replace(made, pools=(small, large))


def asked(count: int) -> list[Request]:
    return [request(index, index * 40, 6 + index % 5, 3 + index % 4) for index in range(count)]


def test_each_instance_keeps_to_the_limits_of_its_pool() -> None:
    outcome = Outcome(two_pools(), asked(30))
    routed = [record.instance for record in outcome.records if isinstance(record, Routed)]
    assert routed == [index % 3 for index in range(30)]
    largest = [0, 0, 0]
    for step in (record for record in outcome.records if isinstance(record, StepFinished)):
        largest[step.instance] = max(largest[step.instance], step.running + len(step.completed))
        assert (step.duration_us >= 1000) == (step.instance > 0)
    assert largest == [1, 4, 4]
    assert all(row.state == "completed" for row in outcome.rows.values())


def test_snapshots_say_what_each_instance_is_like() -> None:
    cluster = Cluster(two_pools(), ListSource([]), RequestLog(), Observers())
    profiles = [instance.profile for instance in take_snapshot(cluster).instances]
    assert [profile.limits.max_num_seqs for profile in profiles] == [1, 4, 4]
    assert [(profile.limits.block_size_tokens, profile.limits.kv_blocks) for profile in profiles] == [
        (4, 100),
        (8, 50),
        (8, 50),
    ]


def test_the_report_adds_each_instances_own_overhead() -> None:
    made, log = two_pools(), RequestLog()
    cluster = Cluster(made, ListSource(asked(30)), log, Observers())
    cluster.run(10_000)
    report = build_report(made, cluster, log, complete=True, duration_us=cluster.now, invariants={})
    gaps: list[int] = []
    for instance, overhead_us in zip(cluster.instances, (0, 7, 7), strict=True):
        for gap_us, count in instance.tallies.itl_us.items():
            gaps += [gap_us + overhead_us] * count
    assert report.latency.itl_ms.mean == pytest.approx(mean(gaps) / 1e3)
    assert (report.latency.itl_ms.min, report.latency.itl_ms.max) == (min(gaps) / 1e3, max(gaps) / 1e3)


def test_an_instance_may_come_during_a_run() -> None:
    made, log = experiment(max_num_seqs=1), RequestLog()
    cluster = Cluster(made, ListSource(asked(20)), log, Observers())
    cluster.run(40)
    newcomer = cluster.registry.create(made.pools[0])
    cluster.registry.include(newcomer.index)
    assert newcomer.index == 1
    while cluster.run(1):
        assert [invariant.identifier for invariant in INVARIANTS if invariant.check(cluster)] == []
    assert newcomer.tallies.steps > 0
    assert [instance.routed for instance in take_snapshot(cluster).instances] == [
        instance.routed for instance in cluster.instances
    ]
    report = build_report(made, cluster, log, complete=True, duration_us=cluster.now, invariants={})
    assert sum(instance.completed for instance in report.instances) == report.requests.completed == 20


def test_a_digest_knows_the_policies_random_streams() -> None:
    clusters = [Cluster(experiment(), ListSource(asked(2)), RequestLog(), Observers()) for _ in range(2)]
    assert clusters[0].policy_state() == clusters[1].policy_state()
    clusters[1].dispatcher.router._context.stream.uniform()
    assert clusters[0].policy_state() != clusters[1].policy_state()
