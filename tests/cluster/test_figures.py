"""Figures agree with the snapshot, which looks at every request, after every event."""

import pytest

from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.records import NodeChanged, Retried, Stranded
from blis_tui.cluster.snapshot import InstanceSnapshot, Snapshot, take_snapshot
from blis_tui.cluster.state import FIGURES
from blis_tui.engine.records import Observers, Record, Routed
from blis_tui.model import Delay, NodePool, PluginConfig
from blis_tui.results.request_log import RequestLog
from blis_tui.runs.simulation import Simulation
from tests.builders import ListSource, experiment, request
from tests.cluster.fleets import fleet
from tests.cluster.test_lifecycle import autoscaler, failure, varying


def busy_cluster() -> Cluster:
    """Two small instances: queues, prefills, stalls, preemptions, cache hits, timeouts and rejections happen."""
    made = experiment(
        max_num_seqs=6,
        budget=4,
        blocks=12,
        instances=2,
        admission=PluginConfig(kind="token-bucket", settings={"capacity_tokens": 120, "refill_tokens_per_s": 50_000}),
        admission_latency_us=15,
        routing_latency_us=40,
    )
    requests = [
        request(
            index,
            index * 60,
            4 if index % 2 else 4 + index % 3 * 4,
            6 + index % 5 * 3,
            segments=(("shared", 4),) if index % 2 else (),
            deadline_us=index * 60 + 1500 if index % 6 == 5 else 0,
        )
        for index in range(40)
    ]
    return Cluster(made, ListSource(requests), RequestLog(), Observers())


def of_instance(snapshot: InstanceSnapshot) -> dict[str, float]:
    phases = [one.phase for one in snapshot.running]
    kv = snapshot.kv
    return {
        "routed": snapshot.routed,
        "waiting": len(snapshot.waiting),
        "queue": len(snapshot.waiting),
        "in_flight": snapshot.in_flight,
        "load": len(snapshot.waiting) + len(phases) + snapshot.in_flight,
        "running": len(phases),
        "prefilling": phases.count("prefill"),
        "decoding": phases.count("decode"),
        "stalled": phases.count("stalled"),
        "preemptions": snapshot.preemptions,
        "steps": snapshot.steps,
        "busy_us": snapshot.busy_us,
        "kv.used": kv.used_blocks,
        "kv.free": kv.cached_free_blocks + kv.blank_blocks,
        "kv.total": kv.total_blocks,
        "kv.utilization": kv.used_blocks / kv.total_blocks,
        "kv.hits": kv.hits,
        "kv.misses": kv.misses,
    }


def of_lives(snapshot: Snapshot) -> dict[str, float]:
    states = [instance.life for instance in snapshot.instances]
    return {
        "instances.up": states.count("active") + states.count("warming-up"),
        "instances.coming": states.count("loading") + states.count("scheduling"),
        "instances.failed": states.count("failed"),
    }


def of_cluster(snapshot: Snapshot) -> dict[str, float]:
    instances = [of_instance(instance) for instance in snapshot.instances]
    sums: dict[str, float] = {name: sum(instance[name] for instance in instances) for name in instances[0]}
    return sums | {
        "time_us": snapshot.time_us,
        "time_ms": snapshot.time_us / 1000,
        "time_s": snapshot.time_us / 1_000_000,
        "event": snapshot.event,
        "arrived": snapshot.arrived,
        "in_transit": len(snapshot.in_transit),
        "rejected": snapshot.rejected,
        "ended": snapshot.ended,
        "deferred": snapshot.deferred,
        "gateway.waiting": 0 if snapshot.gateway is None else snapshot.gateway.waiting,
        "gateway.saturation": 0 if snapshot.gateway is None else snapshot.gateway.saturation,
        "transfers": len(snapshot.transfers),
        **of_lives(snapshot),
        "kv.utilization": sums["kv.used"] / sums["kv.total"],
    }


def test_every_figure_is_what_the_snapshot_says_after_every_event() -> None:
    highest = dict.fromkeys(FIGURES, 0.0)
    others = [Simulation(fleet(name, 40))._cluster for name in ("GATEWAY", "SPLIT", "IDLE", "GROWING")]
    for cluster, stride in ((busy_cluster(), 1), *((one, 19) for one in others)):
        found = highest_of(cluster, stride)
        highest = {name: max(highest[name], found[name]) for name in found}
    never = [name for name, value in highest.items() if not value and name not in BY_RECORDS]
    assert not never


BY_RECORDS = ("stranded", "retries", "nodes")


def test_what_no_snapshot_has_is_what_the_records_say() -> None:
    delay = Delay(mean_us=300)
    node = NodePool(
        name="n", gpu="gpu", gpus_per_node=1, initial=1, min=0, max=2, provisioning_delay=delay, cost_per_hour=None
    )
    deaths = (failure(at_us=300), failure(instance=1, at_us=0, repair_us=500))
    made = varying(*deaths, scaler=autoscaler(least=2), nodes=(node,), instances=2)
    observers = Observers()
    stream: list[Record] = []
    observers.add_all((Stranded, Retried, NodeChanged, Routed), stream.append)
    cluster = Cluster(made, ListSource([request(i, 40 * i, 8, 4) for i in range(12)]), RequestLog(), observers)
    highest = dict.fromkeys(BY_RECORDS, 0.0)
    while cluster.run(1):
        if cluster.next_event_us() == cluster.now:  # who was stranded is about to be routed
            continue
        last = {record.request_id: type(record) for record in stream if isinstance(record, Stranded | Routed)}
        states = [record.state for record in stream if isinstance(record, NodeChanged)]
        expected = {
            "stranded": [*last.values()].count(Stranded),
            "retries": len([record for record in stream if isinstance(record, Retried)]),
            "nodes": 1 + states.count("ready") - states.count("released"),
        }
        found = {name: FIGURES[name].of_cluster(cluster) for name in BY_RECORDS}
        assert found == expected
        highest = {name: max(highest[name], found[name]) for name in found}
    assert min(highest["stranded"], highest["retries"], highest["nodes"] - 1) > 0


def highest_of(cluster: Cluster, stride: int) -> dict[str, float]:
    """The most of each figure in a run, compared with the snapshot every few events."""
    highest = dict.fromkeys(FIGURES, 0.0)
    while True:
        snapshot = take_snapshot(cluster)
        found = {name: figure.of_cluster(cluster) for name, figure in FIGURES.items()}
        assert {name: value for name, value in found.items() if name not in BY_RECORDS} == of_cluster(snapshot)
        for instance, seen in zip(cluster.instances, snapshot.instances, strict=True):
            assert {
                name: figure.of_instance(instance) for name, figure in FIGURES.items() if figure.of_instance is not None
            } == of_instance(seen)
        highest = {name: max(highest[name], found[name]) for name in found}
        if not cluster.run(stride):
            return highest


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_explains_itself(name: str) -> None:
    figure = FIGURES[name]
    assert figure.name == name
    assert figure.meaning
    counted = {"requests", "blocks", "steps", "preemptions", "transfers", "instances", "nodes", "retries"}
    assert figure.unit in {"us", "ms", "s", "share", "", *counted}
