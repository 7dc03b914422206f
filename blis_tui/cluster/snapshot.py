"""A simulation for readers, taken without changing it: frozen snapshots, figures for conditions, a digest."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.cluster.life import CANDIDATES, FAILED, STARTING
from blis_tui.engine.options.pipelines import Stages
from blis_tui.engine.plan import NO_PLAN
from blis_tui.engine.records import ChunkDone
from blis_tui.engine.request import RequestState, handover_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.cluster.pipeline import Dispatcher
    from blis_tui.cluster.stages import NoGateway
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.events import Event
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.profile import Profile
    from blis_tui.engine.request import Request
    from blis_tui.model import Pool


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
    live = 0
    for instance in cluster.instances:
        live += instance.batch.live
    return cluster.arrived - cluster.closed() - live


def _load(instance: Instance) -> int:
    return len(instance.waiting.items) + len(instance.batch.running) + instance.seen.in_flight


def _gateway_waiting(cluster: Cluster) -> int:
    return cluster.gateway.waiting


def _gateway_saturation(cluster: Cluster) -> float:
    return cluster.gateway.saturation()


def _transfers_in_progress(cluster: Cluster) -> int:
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
    total = free = 0
    for instance in cluster.instances:
        total += instance.pool.total
        free += instance.pool.free
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
    Figure("transfers", "transfers", "KV transfers in progress", _transfers_in_progress),
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


_MOST_NODES: Final = 64
"""Maximum number of radix tree nodes in a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvent:
    """An event that has not happened yet."""

    time_us: int
    kind: str
    """Its name, such as ``arrival`` or ``step``."""
    request_id: str | None
    instance: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSnapshot:
    """The state of one live request. Times in microseconds, None = has not happened."""

    request_id: str
    phase: str
    """``in-transit``, ``waiting``, ``prefill``, ``decode`` or ``stalled`` (decoding, but without a token last step)."""
    instance: int | None
    """Where it is or, in transit, where it goes; None = not known yet."""
    arrival_us: int
    queued_us: int | None
    scheduled_us: int | None
    first_token_us: int | None
    deadline_us: int | None
    input_tokens: int
    max_output_tokens: int
    target_tokens: int
    """Computed tokens at which its current prefill ends."""
    computed_tokens: int
    generated_tokens: int
    cached_tokens: int
    held_blocks: int
    shared_blocks: int
    priority: int
    preemptions: int
    slo_class: str
    tenant_id: str
    reasoning_tokens: int = 0
    """Number of leading output tokens that are reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSnapshot:
    """A block pool: used blocks, and free ones by whether their content can still be found."""

    total_blocks: int
    used_blocks: int
    cached_free_blocks: int
    blank_blocks: int
    hits: int
    misses: int
    queried_tokens: int
    """Prompt tokens looked up in the prefix cache so far, by requests that were scheduled for the first time."""
    found_tokens: int
    """How many of them were found."""
    below: tuple[TierSnapshot, ...] = ()
    """Storage for blocks that have left the GPU: host memory for swapped victims, then tiers."""
    tree: TreeSnapshot | None = None
    """The radix tree, if one shares prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    """A stretch of content in a radix tree."""

    depth: int
    """Number of nodes between it and the root."""
    tokens: int
    locks: int
    """Requests that hold it or a descendant, which protects it from eviction."""
    accesses_ago: int
    """Number of lookups and insertions since it was last used."""
    requests: tuple[str, ...]
    """Requests whose locks end here, as far as shown."""
    host: bool = False
    """Whether it is in host memory (SGLang's HiCache)."""
    device: bool = True
    """Whether it is on the GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSnapshot:
    """A radix tree: its first nodes in depth-first order, recently used ones first."""

    nodes: tuple[NodeSnapshot, ...]
    count: int
    """Total number of nodes."""
    locked_tokens: int
    evictable_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSnapshot:
    """Storage for KV blocks that have left the GPU."""

    name: str
    used_blocks: int
    total_blocks: int
    came_back: int
    """Blocks that have come back from there so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSnapshot:
    """A step that is planned and not over; figures as of when it was planned."""

    chunks: tuple[ChunkDone, ...]
    decode_requests: int
    preempted: tuple[tuple[str, str], ...]
    """Each preempted request, and the request it was preempted for."""


class InFlightBatch(NamedTuple):
    """A batch in the pipeline."""

    end_us: int
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSnapshot:
    """The stages of an instance with ``pipeline_parallel``."""

    stages: int
    places: int
    """Maximum number of batches in flight."""
    at_first_stage: bool
    """Whether a batch is formed when the first stage is free; otherwise when the oldest batch ends."""
    batches: tuple[InFlightBatch, ...]
    """Batches in flight, in the order in which they entered."""
    active_us: int
    """Time during which any batch was in flight so far, to the end of the latest one."""
    computing_us: int
    """Computing time of all stages together."""

    @property
    def idle_us(self) -> int:
        """Idle time of all stages together while any batch was in flight: the bubble."""
        return self.active_us * self.stages - self.computing_us


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSnapshot:
    """An instance that is one of several ranks of a replica."""

    replica: int
    """Number within its pool, from 0."""
    rank: int
    """Number within its replica, from 0."""
    steps: int
    """Steps of its replica, if ranks step together; otherwise 0."""
    dummy_batches: int
    """Those of them in which it had nothing to compute."""
    waited_us: int
    """Time spent waiting for the slowest rank at the end of its own steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSnapshot:
    """One instance: its queue head first, its batch in order of admission."""

    index: int
    waiting: tuple[RequestSnapshot, ...]
    running: tuple[RequestSnapshot, ...]
    waiting_count: int
    """Number of waiting requests, even if only a window of them is shown; the next counts likewise.

    Both include requests that have timed out but keep their places for the time being, which are not shown.
    """
    running_count: int
    kv: KvSnapshot
    steps: int
    preemptions: int
    busy_us: int
    routed: int
    profile: Profile
    """Its limits and rules."""
    pool: str
    """The name of its pool."""
    in_flight: int
    """Requests sent there that have not ended, including those on the way to its queue."""
    life: str
    """Life-cycle state, such as ``loading``; ``active`` if instances neither come nor go."""
    transfers: int
    """KV transfers in flight from it or to it."""
    planned: PlannedSnapshot | None
    """With planning ahead, the next step; during a step, the current one; None = none is planned."""
    pipeline: PipelineSnapshot | None
    """Its pipeline, if it has several stages."""
    rank: RankSnapshot | None = None
    """Its rank, if it is one of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSnapshot:
    """Requests of one tenant in one band of the gateway."""

    tenant_id: str
    waiting: int
    head: str
    """The request that goes first."""
    since_us: int
    """Since when that request has been there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandSnapshot:
    """Requests of one priority in the gateway."""

    priority: int
    waiting: int
    ceiling: float
    """Saturation below which it is served."""
    flows: tuple[FlowSnapshot, ...]
    """By tenant, in alphabetical order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySnapshot:
    """The queue in front of the router."""

    waiting: int
    bands: tuple[BandSnapshot, ...]
    """The most urgent first; a single one without priority bands. Empty bands are left out."""
    upcoming: str
    """The request that is dispatched next; empty = none waits."""
    saturation: float
    """By the signals read last; from 1 on no request is dispatched."""
    rule: str
    """The definition of saturation, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSnapshot:
    """A transfer of a prompt's KV blocks to the decode instance."""

    request_id: str
    instance: int
    """Where its prompt was computed."""
    decode_instance: int | None
    """None = chosen when the blocks have arrived."""
    bytes: int
    since_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole simulation between two events."""

    event: int
    time_us: int
    arrived: int
    rejected: int
    ended: int
    in_transit: tuple[RequestSnapshot, ...]
    instances: tuple[InstanceSnapshot, ...]
    admission_rule: str
    """How admission control decides, in a sentence; empty if its name suffices."""
    routing_rules: Mapping[str, str]
    """How each routing policy chooses, by its name; empty if its name suffices, or routers with it differ."""
    deferred: int
    """Number of requests in transit that are deferred until the cluster is idle."""
    gateway: GatewaySnapshot | None
    """The gateway; None = there is none."""
    transfers: tuple[TransferSnapshot, ...]
    """Transfers in flight, the oldest first."""


def peek(cluster: Cluster) -> PendingEvent | None:
    """Return the next event; None = there is none within the horizon."""
    head = cluster.queue.head()
    if head is None or cluster.next_event_us() is None:
        return None
    time_us, _, _, event = head
    request = event.request
    return PendingEvent(
        time_us=time_us,
        kind=event.kind,
        request_id=None if request is None else request.request_id,
        instance=event.instance_index,
    )


def take_snapshot(cluster: Cluster, window: int | None = None) -> Snapshot:
    """Take a snapshot; ``window`` limits each queue and batch to its first requests."""
    admission_rule, routing_rules = cluster.rules()
    transfers = tuple(_transfers(cluster.dispatcher))
    busy = Counter(place for one in transfers for place in (one.instance, one.decode_instance))
    return Snapshot(
        event=cluster.events,
        time_us=cluster.now,
        arrived=cluster.arrived,
        rejected=cluster.rejected,
        ended=cluster.closed(),
        in_transit=tuple(_request(request, None, "in-transit") for request in cluster.in_transit()[:window]),
        instances=tuple(_instance(one, cluster, window, busy[one.index]) for one in cluster.instances),
        admission_rule=admission_rule,
        routing_rules=routing_rules,
        deferred=len(cluster.pipeline.deferral.waiting),
        gateway=_gateway(cluster.gateway) if cluster.gateway.holds else None,
        transfers=transfers,
    )


def find_request(cluster: Cluster, name: str) -> RequestSnapshot | None:
    """Return a live request by name."""
    for instance in cluster.instances:
        batch = instance.batch
        for request in batch.of_clients(batch.running.values()):
            if request.request_id == name:
                return _request(request, instance, _phase(instance, request))
        for request in batch.of_clients(instance.waiting.ordered()):
            if request.request_id == name:
                return _request(request, instance, "waiting")
    moving = next((request for request in cluster.in_transit() if request.request_id == name), None)
    return None if moving is None else _request(moving, None, "in-transit")


def _gateway(gateway: NoGateway) -> GatewaySnapshot:
    upcoming = gateway.upcoming()
    return GatewaySnapshot(
        waiting=gateway.waiting,
        bands=tuple(
            BandSnapshot(
                priority=priority,
                waiting=len(band),
                ceiling=ceiling,
                flows=tuple(
                    FlowSnapshot(
                        tenant_id=tenant,
                        waiting=len(flow),
                        head=flow[0].passage.request.request_id,
                        since_us=flow[0].since_us,
                    )
                    for tenant, flow in sorted(band.flows.items())
                ),
            )
            for priority, ceiling, band in gateway.bands()
            if band.flows
        ),
        upcoming="" if upcoming is None else upcoming.passage.request.request_id,
        saturation=gateway.saturation(),
        rule=gateway.rule,
    )


def _transfers(dispatcher: Dispatcher) -> Iterator[TransferSnapshot]:
    moving = [one.request for one in dispatcher.passages.values() if one.kind == "transfer-end"]
    for request in sorted(moving, key=lambda one: (handover_of(one).transfer_start_us, one.index)):
        handover = handover_of(request)
        yield TransferSnapshot(
            request_id=request.request_id,
            instance=handover.prefill_instance,
            decode_instance=_happened(handover.decode_instance),
            bytes=dispatcher.bytes_of(request),
            since_us=handover.transfer_start_us,
        )


def _instance(instance: Instance, cluster: Cluster, window: int | None, transfers: int) -> InstanceSnapshot:
    pool = instance.pool
    batch = instance.batch
    waiting = batch.of_clients(instance.waiting.first(window))
    running = islice(batch.of_clients(batch.running.values()), window)
    cached = pool.cached_free()
    return InstanceSnapshot(
        index=instance.index,
        waiting=tuple(_request(request, instance, "waiting") for request in waiting),
        running=tuple(_request(request, instance, _phase(instance, request)) for request in running),
        waiting_count=len(instance.waiting.items),
        running_count=len(instance.batch.running),
        kv=KvSnapshot(
            total_blocks=pool.total,
            used_blocks=pool.used,
            cached_free_blocks=cached,
            blank_blocks=pool.free - cached,
            hits=pool.hits,
            misses=pool.misses,
            queried_tokens=pool.queried_tokens,
            found_tokens=pool.found_tokens,
            below=tuple(_below(instance)),
            tree=_tree(instance, window) if instance.batch.traits.radix_tree else None,
        ),
        steps=instance.tallies.steps,
        preemptions=instance.tallies.preemptions,
        busy_us=instance.tallies.busy_us,
        routed=instance.routed,
        profile=instance.profile,
        pool=cluster.pools[instance.index].name,
        in_flight=instance.seen.in_flight,
        life=cluster.lifecycle.state_of(instance.index),
        transfers=transfers,
        planned=_planned(instance.batch),
        pipeline=_pipeline(instance.flow, cluster.now) if isinstance(instance.flow, Stages) else None,
        rank=_rank(cluster, instance) if cluster.pools[instance.index].engine.data_parallel > 1 else None,
    )


def _tree(instance: Instance, window: int | None) -> TreeSnapshot:
    from blis_tui.engine.sglang.radix_pool import radix_pool  # noqa: PLC0415  (most instances have no tree)

    pool = radix_pool(instance.pool)
    tree, size = pool.tree, pool.block_size_tokens
    ends: dict[int, list[str]] = {}
    for request in islice(instance.batch.running.values(), window):
        node = tree.holders.get(request.index)
        if node is not None:
            ends.setdefault(node.number, []).append(request.request_id)
    return TreeSnapshot(
        nodes=tuple(
            NodeSnapshot(
                depth=depth,
                tokens=node.blocks * size,
                locks=node.references,
                accesses_ago=tree.accesses_since(node),
                requests=tuple(ends.get(node.number, ())),
                host=node.host,
                device=node.device,
            )
            for depth, node in tree.outline(_MOST_NODES)
        ),
        count=tree.count,
        locked_tokens=tree.held * size,
        evictable_tokens=tree.idle * size,
    )


def _rank(cluster: Cluster, instance: Instance) -> RankSnapshot | None:
    from blis_tui.engine.options.ranks import Rank  # noqa: PLC0415

    place, flow = place_of(cluster.pools, instance.index), instance.flow
    if place is None:
        return None
    steps = dummies = waited = 0
    if isinstance(flow, Rank):
        group = flow.group
        steps, dummies = group.taken, group.dummies[place.rank]
        waited = instance.tallies.busy_us - group.alone_us[place.rank]
    return RankSnapshot(replica=place.replica, rank=place.rank, steps=steps, dummy_batches=dummies, waited_us=waited)


def _pipeline(flow: Stages, now: int) -> PipelineSnapshot:
    there = {**flow.batch.running, **flow.batch.ending}
    return PipelineSnapshot(
        stages=len(flow.pipe.free_us),
        places=flow.places,
        at_first_stage=flow.batch.traits.pipelines == "stage",
        batches=tuple(
            InFlightBatch(one.end_us, tuple(there[slot].request_id for slot in sorted(one.slots) if slot in there))
            for one in flow.under_way
            if one.end_us > now
        ),
        active_us=flow.steps.tallies.active_us,
        computing_us=flow.steps.tallies.computing_us,
    )


def _below(instance: Instance) -> Iterator[TierSnapshot]:
    host, tiers = instance.batch.host, instance.pool.tiers
    if host is not None:
        used = host.total - host.free
        yield TierSnapshot(name="swapped out", used_blocks=used, total_blocks=host.total, came_back=host.in_blocks)
    for tier in () if tiers is None else tiers.tiers:
        yield TierSnapshot(name=tier.name, used_blocks=tier.held, total_blocks=tier.total, came_back=tier.loaded)


def _planned(batch: Batch) -> PlannedSnapshot | None:
    if batch.planned is None:
        return None
    plan = batch.planned.plan or NO_PLAN
    return PlannedSnapshot(
        chunks=tuple(ChunkDone(one.request.request_id, one.computed, one.new) for one in plan.chunks),
        decode_requests=(batch.load.decode_requests if plan.decodes else 0) + len(plan.ghosts),
        preempted=tuple((one.victim.request_id, one.beneficiary.request_id) for one in plan.preempted),
    )


def _phase(instance: Instance, request: Request) -> str:
    if request.batch_slot in instance.batch.prefills:
        return "prefill"
    slot, batch = request.batch_slot, instance.batch
    return "stalled" if slot in batch.stalled and slot not in batch.busy else "decode"


def _request(request: Request, instance: Instance | None, phase: str) -> RequestSnapshot:
    computed = held = 0
    index, generated, handover = request.instance, request.generated_tokens, request.handover
    if instance is None:
        if handover is not None and handover.prefilled:
            index = handover.decode_instance
    else:
        cohort = instance.batch.cohort
        computed, generated = cohort.context_tokens(request), cohort.generated_tokens(request)
        held = cohort.held_blocks(request)
    return RequestSnapshot(
        request_id=request.request_id,
        phase=phase,
        instance=_happened(index),
        arrival_us=request.arrival_us,
        queued_us=_happened(request.queued_us),
        scheduled_us=_happened(request.scheduled_us),
        first_token_us=_happened(request.first_token_us),
        deadline_us=request.deadline_us or None,
        input_tokens=request.input_tokens,
        max_output_tokens=request.max_output_tokens,
        target_tokens=request.target_tokens,
        computed_tokens=computed,
        generated_tokens=generated,
        cached_tokens=request.cached_tokens,
        held_blocks=held,
        shared_blocks=request.shared_blocks,
        priority=request.priority,
        preemptions=request.preemptions,
        slo_class=request.slo_class,
        tenant_id=request.tenant,
        reasoning_tokens=0 if request.reasoning is None else request.reasoning.tokens,
    )


def _happened(value: int) -> int | None:
    return None if value < 0 else value


# The replica and rank of an instance.


class Place(NamedTuple):
    """A rank's place, from 0; replicas are numbered within each pool."""

    replica: int
    rank: int


def place_of(pools: Sequence[Pool], index: int) -> Place | None:
    """Return the place of an instance; None = it is a replica by itself.

    Args:
        pools: the pool of each instance; instances of a pool are contiguous, because none of them comes or goes.
        index: the instance's number.
    """
    pool = pools[index]
    ranks = pool.engine.data_parallel
    if ranks == 1:
        return None
    first = next(at for at, one in enumerate(pools) if one.name == pool.name)
    return Place(*divmod(index - first, ranks))


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
        return next((kind for one in value if (kind := address_holder(one))), "")
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
            (instance.routed, instance.seen.in_flight, instance.input_tokens, instance.flow.step_pending),
            (instance.seen.present, instance.seen.present_us(cluster.now)),
            instance.tallies.state(),
            instance.policy_state(),
            *((batch.preempted_for_reserved,) if batch.preempted_for_reserved else ()),
            (cohort.clock, cohort.last_advance_us, cohort.uneven),
            (cohort.load.decode_requests, cohort.load.decode_context_tokens),
            [_request_state(request) for request in batch.waiting.ordered()],
            [_request_state(request) for request in batch.running.values()],
            (sorted(batch.prefills), sorted(batch.stalled)),
            *((list(batch.given_up.items()),) if batch.given_up else ()),
            instance.pool.state(),
            *(
                one.state()
                for one in (batch.host, instance.pool.tiers, batch.adapters, batch.encoder)
                if one is not None
            ),
            instance.planned_state(),
        ]
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
        *(value for one in (request.handover, request.reasoning) if one is not None for value in one.state()),
    )
