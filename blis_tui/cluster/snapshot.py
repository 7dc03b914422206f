"""Frozen snapshots of a simulation for readers, taken without changing it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.engine.options.pipelines import Stages
from blis_tui.engine.plan import NO_PLAN
from blis_tui.engine.records import ChunkDone
from blis_tui.engine.request import declared_segments, handover_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.cluster.pipeline import Dispatcher
    from blis_tui.cluster.stages import NoGateway
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.profile import Profile
    from blis_tui.engine.request import Request
    from blis_tui.model import Pool


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
class SharedTierSnapshot(TierSnapshot):
    """A tier that is one store for several instances: its blocks are those of all, ``came_back`` is of this one."""

    from_others: int
    """Of ``came_back``, those that another instance had stored."""


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


@dataclass(frozen=True, slots=True)
class KvSharer:
    """A running request that holds some of the same KV blocks as another one."""

    request_id: str
    blocks: int
    """How many; of layers with and without windows, those of all groups."""
    tokens: int
    """Tokens in them, from the first one of the prompt on."""
    cached_tokens: int
    """Tokens that it found in the cache when it was last scheduled; it computed the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSharing:
    """With whom a running request shares KV blocks."""

    cached_tokens: int
    """Tokens that it found in the cache itself."""
    segments: tuple[tuple[str, int], ...]
    """What its prompt begins with that other prompts may begin with, too: names and tokens."""
    others: tuple[KvSharer, ...]
    """In the order of the batch."""


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
    busy = Counter(place for transfer in transfers for place in (transfer.instance, transfer.decode_instance))
    return Snapshot(
        event=cluster.events,
        time_us=cluster.now,
        arrived=cluster.arrived,
        rejected=cluster.rejected,
        ended=cluster.closed(),
        in_transit=tuple(_request(request, None, "in-transit") for request in cluster.in_transit()[:window]),
        instances=tuple(_instance(instance, cluster, window, busy[instance.index]) for instance in cluster.instances),
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


def kv_sharing(cluster: Cluster, name: str) -> KvSharing | None:
    """Return with whom a running request shares KV blocks; None = no request of that name runs."""
    for instance in cluster.instances:
        batch = instance.batch
        running = list(batch.of_clients(batch.running.values()))
        request = next((each for each in running if each.request_id == name), None)
        if request is None:
            continue
        pool = instance.pool
        common = [(each, pool.common_blocks(request, each)) for each in running if each is not request]
        return KvSharing(
            cached_tokens=request.cached_tokens,
            segments=tuple(declared_segments(request)),
            others=tuple(
                KvSharer(each.request_id, blocks, pool.tokens_held(blocks, 1), each.cached_tokens)
                for each, blocks in common
                if blocks
            ),
        )
    return None


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
                        head=flow[0].routed.request.request_id,
                        since_us=flow[0].since_us,
                    )
                    for tenant, flow in sorted(band.flows.items())
                ),
            )
            for priority, ceiling, band in gateway.bands()
            if band.flows
        ),
        upcoming="" if upcoming is None else upcoming.routed.request.request_id,
        saturation=gateway.saturation(),
        rule=gateway.rule,
    )


def _transfers(dispatcher: Dispatcher) -> Iterator[TransferSnapshot]:
    moving = [transfer.request for transfer in dispatcher.split_requests.values() if transfer.kind == "transfer-end"]
    for request in sorted(moving, key=lambda request: (handover_of(request).transfer_start_us, request.index)):
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
        pipeline=_pipeline(instance.loop, cluster.now) if isinstance(instance.loop, Stages) else None,
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

    place, loop = place_of(cluster.pools, instance.index), instance.loop
    if place is None:
        return None
    steps = dummies = waited = 0
    if isinstance(loop, Rank):
        group = loop.group
        steps, dummies = group.taken, group.dummies[place.rank]
        waited = instance.tallies.busy_us - group.alone_us[place.rank]
    return RankSnapshot(replica=place.replica, rank=place.rank, steps=steps, dummy_batches=dummies, waited_us=waited)


def _pipeline(loop: Stages, now: int) -> PipelineSnapshot:
    there = {**loop.batch.running, **loop.batch.finishing}
    return PipelineSnapshot(
        stages=len(loop.pipe.free_us),
        places=loop.places,
        at_first_stage=loop.batch.traits.pipelines == "stage",
        batches=tuple(
            InFlightBatch(
                in_flight_batch.end_us,
                tuple(there[slot].request_id for slot in sorted(in_flight_batch.slots) if slot in there),
            )
            for in_flight_batch in loop.under_way
            if in_flight_batch.end_us > now
        ),
        active_us=loop.steps.tallies.active_us,
        computing_us=loop.steps.tallies.computing_us,
    )


def _below(instance: Instance) -> Iterator[TierSnapshot]:
    host, tiers = instance.batch.host, instance.pool.tiers
    if host is not None:
        used = host.total - host.free
        yield TierSnapshot(name="swapped out", used_blocks=used, total_blocks=host.total, came_back=host.in_blocks)
    for tier in () if tiers is None else tiers.tiers:
        name, used, total, back = tier.name, tier.held, tier.total, tier.loaded
        if tier.place is tier:
            yield TierSnapshot(name=name, used_blocks=used, total_blocks=total, came_back=back)
        else:
            yield SharedTierSnapshot(
                name=name, used_blocks=used, total_blocks=total, came_back=back, from_others=tier.from_others
            )


def _planned(batch: Batch) -> PlannedSnapshot | None:
    if batch.planned is None:
        return None
    plan = batch.planned.plan or NO_PLAN
    return PlannedSnapshot(
        chunks=tuple(ChunkDone(chunk.request.request_id, chunk.computed, chunk.new) for chunk in plan.chunks),
        decode_requests=(batch.load.decode_requests if plan.decodes else 0) + len(plan.ghosts),
        preempted=tuple(
            (preemption.victim.request_id, preemption.beneficiary.request_id) for preemption in plan.preempted
        ),
    )


def _phase(instance: Instance, request: Request) -> str:
    if request.batch_slot in instance.batch.prefills:
        return "prefill"
    slot, batch = request.batch_slot, instance.batch
    return "stalled" if slot in batch.stalled and slot not in batch.in_flight_until else "decode"


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
    first = next(at for at, other in enumerate(pools) if other.name == pool.name)
    return Place(*divmod(index - first, ranks))
