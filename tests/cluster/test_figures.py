"""Figures agree with the snapshot, which looks at every request, after every event."""

import pytest

from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.figures import FIGURES
from blis_tui.cluster.snapshot import InstanceSnapshot, Snapshot, take_snapshot
from blis_tui.engine.records import Observers
from blis_tui.metrics.request_log import RequestLog
from blis_tui.simulation import Simulation
from blis_tui.spec.model import PluginConfig
from tests.builders import ListSource, experiment, request
from tests.cluster.fleets import fleet


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


def of_cluster(snapshot: Snapshot) -> dict[str, float]:
    instances = [of_instance(one) for one in snapshot.instances]
    sums: dict[str, float] = {name: sum(one[name] for one in instances) for name in instances[0]}
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
        "kv.utilization": sums["kv.used"] / sums["kv.total"],
    }


def test_every_figure_is_what_the_snapshot_says_after_every_event() -> None:
    highest = dict.fromkeys(FIGURES, 0.0)
    others = [Simulation(fleet(name, 40))._cluster for name in ("GATEWAY", "SPLIT", "IDLE")]
    for cluster, stride in ((busy_cluster(), 1), *((one, 19) for one in others)):
        found = highest_of(cluster, stride)
        highest = {name: max(highest[name], found[name]) for name in found}
    assert min(highest.values()) > 0, f"never seen: {[name for name, value in highest.items() if not value]}"


def highest_of(cluster: Cluster, stride: int) -> dict[str, float]:
    """The most of each figure in a run, compared with the snapshot every few events."""
    highest = dict.fromkeys(FIGURES, 0.0)
    while True:
        snapshot = take_snapshot(cluster)
        found = {name: figure.of_cluster(cluster) for name, figure in FIGURES.items()}
        assert found == of_cluster(snapshot)
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
    assert figure.unit in {"us", "ms", "s", "share", "", "requests", "blocks", "steps", "preemptions", "transfers"}
