"""The state between two events: its digest, on which time travel relies, and the figures that conditions may use.

Computing a figure takes time at most in proportion to the number of instances, never to the number of requests. No
figure reveals what admission and routing must not know, namely how long an answer will be (INV-9).
"""

from __future__ import annotations

from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.cluster.instance_registry import shared_stores
from blis_tui.cluster.stages import CANDIDATES, FAILED, STARTING
from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.events import Event
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request

_DEAD: Final = frozenset({FAILED})


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about a cluster, or about one of its instances."""

    name: str
    unit: str
    """``us``, ``ms``, ``s``, ``share`` (0 to 1), or what is counted, such as ``requests``; empty for ordinals."""
    meaning: str
    """A phrase for help texts."""
    of_cluster: Callable[[Cluster], float]
    of_instance: Callable[[Instance], float] | None = None
    """Value for one instance; None = undefined for single instances."""


def _sum(name: str, unit: str, meaning: str, of_instance: Callable[[Instance], float]) -> Figure:
    """Create a figure whose cluster value is the sum over all instances."""

    def of_cluster(cluster: Cluster) -> float:
        total: float = 0
        for instance in cluster.instances:
            total += of_instance(instance)
        return total

    return Figure(name, unit, meaning, of_cluster, of_instance)


def _in_transit(cluster: Cluster) -> int:
    """Number of requests in transit, derived by conservation (INV-1): arrived, but not waiting, running or ended."""
    live = whole_sum([instance.batch.live for instance in cluster.instances])
    return cluster.arrived - cluster.closed() - live


def _load(instance: Instance) -> int:
    return len(instance.waiting.items) + len(instance.batch.running) + instance.seen.in_flight


def _gateway_waiting(cluster: Cluster) -> int:
    return cluster.gateway.waiting


def _gateway_saturation(cluster: Cluster) -> float:
    return cluster.gateway.saturation()


def _transfers(cluster: Cluster) -> int:
    return cluster.dispatcher.link.active


def _in_states(states: frozenset[str]) -> Callable[[Cluster], int]:
    """Create a function that counts instances in any of these life-cycle states."""

    def count(cluster: Cluster) -> int:
        state_of = cluster.lifecycle.state_of
        return len([index for index in range(len(cluster.instances)) if state_of(index) in states])

    return count


def _deferred(cluster: Cluster) -> int:
    return len(cluster.pipeline.deferral.waiting)


def _stranded(cluster: Cluster) -> int:
    return len(cluster.lifecycle.parked)


def _retries(cluster: Cluster) -> int:
    return cluster.lifecycle.retried


def _nodes(cluster: Cluster) -> int:
    return cluster.lifecycle.ready_nodes


def _kv_utilization(cluster: Cluster) -> float:
    total = whole_sum([instance.pool.total for instance in cluster.instances])
    free = whole_sum([instance.pool.free for instance in cluster.instances])
    return (total - free) / total


_TABLE: Final = (
    Figure("time_us", "us", "simulated time", lambda cluster: cluster.now),
    Figure("time_ms", "ms", "simulated time", lambda cluster: cluster.now / 1e3),
    Figure("time_s", "s", "simulated time", lambda cluster: cluster.now / 1e6),
    Figure("event", "", "number of the latest event, from 1", lambda cluster: cluster.events),
    Figure("arrived", "requests", "requests that have arrived", lambda cluster: cluster.arrived),
    Figure("in_transit", "requests", "requests on their way to a queue", _in_transit),
    Figure("rejected", "requests", "requests rejected by admission control", lambda cluster: cluster.rejected),
    Figure("deferred", "requests", "requests deferred until the cluster is idle", _deferred),
    Figure("gateway.waiting", "requests", "requests in the gateway's queue", _gateway_waiting),
    Figure("gateway.saturation", "share", "saturation of the instances, as the gateway sees it", _gateway_saturation),
    Figure("transfers", "transfers", "KV transfers in progress", _transfers),
    Figure("instances.up", "instances", "instances that receive requests", _in_states(CANDIDATES)),
    Figure("instances.coming", "instances", "instances that are loading or waiting for a node", _in_states(STARTING)),
    Figure(
        "instances.failed", "instances", "instances that have failed, being repaired or permanently", _in_states(_DEAD)
    ),
    Figure("stranded", "requests", "requests waiting for an instance to become available", _stranded),
    Figure("retries", "retries", "how often requests had to start again", _retries),
    Figure("nodes", "nodes", "nodes that are ready", _nodes),
    Figure("ended", "requests", "requests that have completed, or ended otherwise", lambda cluster: cluster.closed()),
    _sum("routed", "requests", "requests sent to an instance", lambda instance: instance.routed),
    _sum("waiting", "requests", "requests in waiting queues", lambda instance: len(instance.waiting.items)),
    _sum("queue", "requests", "the same", lambda instance: len(instance.waiting.items)),
    _sum(
        "in_flight",
        "requests",
        "requests sent to instances that have not ended",
        lambda instance: instance.seen.in_flight,
    ),
    _sum("load", "requests", "queue + batch + in flight: waiting and running requests count twice", _load),
    _sum("running", "requests", "requests in running batches", lambda instance: len(instance.batch.running)),
    _sum("prefilling", "requests", "running requests in prefill", lambda instance: len(instance.batch.prefills)),
    _sum(
        "decoding",
        "requests",
        "running requests in decode",
        lambda instance: len(instance.batch.running) - len(instance.batch.prefills) - len(instance.batch.stalled),
    ),
    _sum(
        "stalled",
        "requests",
        "running requests that got no token in the last step",
        lambda instance: len(instance.batch.stalled),
    ),
    _sum("preemptions", "preemptions", "preemptions so far", lambda instance: instance.tallies.preemptions),
    _sum("steps", "steps", "steps so far", lambda instance: instance.tallies.steps),
    _sum("busy_us", "us", "total duration of all steps so far", lambda instance: instance.tallies.busy_us),
    _sum("kv.used", "blocks", "KV blocks that requests hold", lambda instance: instance.pool.used),
    _sum("kv.free", "blocks", "free KV blocks, evictable (cached) ones included", lambda instance: instance.pool.free),
    _sum("kv.total", "blocks", "all KV blocks", lambda instance: instance.pool.total),
    Figure(
        "kv.utilization",
        "share",
        "used share of the KV blocks, 0 to 1",
        _kv_utilization,
        lambda instance: instance.pool.used / instance.pool.total,
    ),
    _sum("kv.hits", "blocks", "prompt blocks found in the cache so far", lambda instance: instance.pool.hits),
    _sum("kv.misses", "blocks", "free blocks allocated so far", lambda instance: instance.pool.misses),
)


FIGURES: Final[Mapping[str, Figure]] = MappingProxyType({figure.name: figure for figure in _TABLE})
"""Every figure by its name."""


_ADDRESS: Final = " at 0x"
"""Part of the default ``repr`` of objects."""


def digest(cluster: Cluster) -> str:
    """Return a SHA-256 digest over everything that determines the simulation's future and its report.

    Two simulations of one experiment with equal digests behave identically from then on.

    Raises:
        AddressError: some state contains a memory address, which differs between processes.
    """
    hasher = sha256()
    for part in _state(cluster):
        text = repr(part)
        if _ADDRESS in text and address_holder(part):
            raise AddressError
        hasher.update(text.encode())
    return hasher.hexdigest()


def address_holder(value: object) -> str:
    """Return the type of the first value in a state whose ``repr`` has a memory address; empty = there is none."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, tuple | list | set | frozenset):
        return next((kind for element in value if (kind := address_holder(element))), "")
    return "" if isinstance(value, str | bytes) or _ADDRESS not in repr(value) else type(value).__name__


class AddressError(Exception):
    """A state cannot be digested, as it would differ in each process."""


def _state(cluster: Cluster) -> list[object]:
    queue, offered = cluster.queue, cluster.pipeline.offered_output_tokens
    pending = [(time, order, seq, event.kind, _about(event)) for time, order, seq, event in queue.entries()]
    state: list[object] = [
        (cluster.now, cluster.events, cluster.arrived, cluster.rejected, queue.seq, offered),
        sorted(pending),
        cluster.policy_state(),
    ]
    for instance in cluster.instances:
        batch = instance.batch
        cohort = batch.cohort
        state += [
            (instance.routed, instance.seen.in_flight, instance.input_tokens, instance.loop.step_pending),
            (instance.seen.present, instance.seen.present_us(cluster.now)),
            instance.tallies.state(),
            instance.policy_state(),
            *((batch.preempted_for_reserved,) if batch.preempted_for_reserved else ()),
            (cohort.clock, cohort.last_advance_us, bool(cohort.uneven)),
            (cohort.load.decode_requests, cohort.load.decode_context_tokens),
            [_request_state(request) for request in batch.waiting.ordered()],
            [_request_state(request) for request in batch.running.values()],
            (sorted(batch.prefills), sorted(batch.stalled)),
            *((list(batch.given_up.items()),) if batch.given_up else ()),
            instance.pool.state(),
            *(
                holder.state()
                for holder in (batch.host, instance.pool.tiers, batch.adapters, batch.encoder)
                if holder is not None
            ),
            instance.planned_state(),
        ]
    state += [store.state() for store in shared_stores(cluster.instances)]
    state.append(cluster.ledger.fingerprint())
    return state


def _about(event: Event) -> tuple[object, ...]:
    request = event.request
    return ("instance", event.instance_index) if request is None else _request_state(request)


def _request_state(request: Request) -> tuple[object, ...]:
    if request.state > RequestState.RUNNING:
        return (request.index, int(request.state))
    return (
        request.index,
        int(request.state),
        request.priority,
        request.queued_us,
        request.scheduled_us,
        request.first_token_us,
        request.computed_tokens,
        request.generated_tokens,
        request.target_tokens,
        request.cached_tokens,
        request.preemptions,
        request.batch_slot,
        request.joined_clock,
        request.joined_us,
        request.finish_clock,
        request.known_clock,
        request.held_blocks,
        tuple(key for piece in request.pieces for key in piece.keys),
        *(value for part in (request.handover, request.reasoning) if part is not None for value in part.state()),
    )
