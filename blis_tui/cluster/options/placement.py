"""Placement of instances on nodes, which exist from the start or are provisioned on demand.

Nodes of a pool differ only in what they host, and instances of a pool are alike. To scale to thousands of instances
waiting for thousands of nodes, nodes are indexed by their free accelerators, and consecutive waiting instances with the
same need are kept as one entry.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from blis_tui.base.classes import NamedTuple
from blis_tui.base.portable_math import whole_sum
from blis_tui.cluster.records import NodeChanged
from blis_tui.cluster.routed_request import LIFECYCLE
from blis_tui.cluster.stages import Node, UnlimitedPlacement, accelerators
from blis_tui.engine.events import Revocable

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.base.streams import Stream, Streams
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.model import Delay, NodePool, Pool


def draw(delay: Delay, stream: Stream) -> int:
    """Draw a time in microseconds, at least 0; without variation nothing is drawn."""
    if not delay.std_dev_us:
        return delay.mean_us
    return max(0, int(delay.mean_us + delay.std_dev_us * stream.normal()))


class GpuDemand(NamedTuple):
    """The GPU type and the number of GPUs that an instance needs."""

    gpu: str
    gpus: int


def gpu_demand_of(pool: Pool) -> GpuDemand:
    """Return what the instances of a pool need."""
    return GpuDemand(pool.hardware.name, accelerators(pool))


class NodeGroup:
    """The nodes of one pool.

    Attributes:
        pool: the node pool.
        nodes: by number, without those that were released.
        coming: how many of them are being provisioned.
        ordered: how many have ever been ordered.
        paid_us: total time that released nodes existed.
    """

    def __init__(self, pool: NodePool, stream: Stream) -> None:
        self.pool = pool
        self.stream = stream
        self.nodes: dict[int, Node] = {}
        self.coming = 0
        self.paid_us = 0
        self.ordered = 0
        self._by_room: dict[int, list[int]] = {}
        """Free accelerators -> sorted numbers of the ready nodes with that many."""

    def fits(self, need: GpuDemand) -> bool:
        """Whether an empty node can host such an instance."""
        return self.pool.gpu == need.gpu and self.pool.gpus_per_node >= need.gpus

    def order(self) -> Node:
        """Order one more node, which is then being provisioned."""
        number = self.ordered
        self.ordered += 1
        self.coming += 1
        node = self.nodes[number] = Node(f"{self.pool.name}-{number}", number, self.pool.gpus_per_node)
        return node

    def ready(self, node: Node, now: int) -> None:
        """Mark a node as ready."""
        self.coming -= 1
        node.ready_us = now
        self._enter(node)

    def with_room(self, gpus: int) -> Node | None:
        """Return the first node with enough free accelerators."""
        heads = [numbers[0] for free, numbers in self._by_room.items() if free >= gpus]
        return self.nodes[min(heads)] if heads else None

    def host(self, node: Node, index: int, gpus: int) -> None:
        """Put an instance on a node."""
        self._leave(node)
        node.free -= gpus
        node.hosted[index] = gpus
        self._enter(node)

    def free(self, node: Node, index: int) -> None:
        """Remove an instance from its node."""
        self._leave(node)
        node.free += node.hosted.pop(index)
        self._enter(node)

    def release(self, now: int) -> Node | None:
        """Release the first empty node, if there are more nodes than the minimum."""
        empty = self._by_room.get(self.pool.gpus_per_node)
        if not empty or len(self.nodes) <= self.pool.min:
            return None
        node = self.nodes[empty[0]]
        self._leave(node)
        del self.nodes[node.number]
        self.paid_us += now - node.ready_us
        return node

    def node_us(self, now: int) -> int:
        """Total time that its nodes have existed until now."""
        time_us = self.paid_us
        for node in self.nodes.values():
            if node.ready_us >= 0:
                time_us += now - node.ready_us
        return time_us

    def _enter(self, node: Node) -> None:
        if node.free:
            insort(self._by_room.setdefault(node.free, []), node.number)

    def _leave(self, node: Node) -> None:
        if node.free:
            numbers = self._by_room[node.free]
            del numbers[bisect_left(numbers, node.number)]
            if not numbers:
                del self._by_room[node.free]


class _AssignedNode(NamedTuple):
    """The node of an instance."""

    group: NodeGroup
    node: Node


class _Row(NamedTuple):
    """Consecutive waiting instances with the same need."""

    need: GpuDemand
    indices: deque[int]


class _PendingNodes(NamedTuple):
    """Consecutive nodes of one pool that are being provisioned, and what is free on each."""

    group: NodeGroup
    free: int
    nodes: int


class Placement(UnlimitedPlacement):
    """Puts each instance on the first node with enough free accelerators; the others wait for one.

    Attributes:
        groups: the nodes of each pool.
    """

    def __init__(
        self, pools: tuple[NodePool, ...], pipeline: Pipeline, streams: Streams, placed: Callable[[int, int], None]
    ) -> None:
        self._pipeline = pipeline
        self._placed = placed
        self.groups = [NodeGroup(pool, streams.stream(f"node/{pool.name}")) for pool in pools]
        self._places: dict[int, _AssignedNode] = {}
        """Instance -> its node."""
        self._waiting: list[_Row] = []
        """Instances without a node, in their order."""
        for group in self.groups:
            for _ in range(group.pool.initial):
                group.ready(group.order(), 0)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that exist or are being provisioned, by pool and time of ordering."""
        return [node for group in self.groups for node in group.nodes.values()]

    @property
    def ready_nodes(self) -> int:
        """Number of nodes that are ready."""
        return whole_sum([len(group.nodes) - group.coming for group in self.groups])

    def place(self, index: int, pool: Pool) -> bool:
        """Put a new instance on the first node with enough free accelerators; False = there is none, so it waits."""
        need = gpu_demand_of(pool)
        if self._host(index, need):
            return True
        if not self._waiting or self._waiting[-1].need != need:
            self._waiting.append(_Row(need, deque()))
        self._waiting[-1].indices.append(index)
        return False

    def _host(self, index: int, need: GpuDemand) -> bool:
        for group in self.groups:
            if group.fits(need) and (node := group.with_room(need.gpus)) is not None:
                group.host(node, index, need.gpus)
                self._places[index] = _AssignedNode(group, node)
                return True
        return False

    def provision(self, now: int) -> None:
        """Order nodes for the waiting instances, as far as those being provisioned do not suffice."""
        coming = [_PendingNodes(group, group.pool.gpus_per_node, group.coming) for group in self.groups if group.coming]
        for need, indices in self._waiting:
            coming, left = _fill(coming, need, len(indices))
            while left and (group := self._pool_with_capacity(need)) is not None:
                self._order(group, now)
                gpus = group.pool.gpus_per_node
                served = min(left, gpus // need.gpus)
                left -= served
                _append(coming, group, gpus - served * need.gpus, 1)

    def free(self, index: int, now: int) -> None:
        """Free the accelerators of an instance that is gone, for others; release empty nodes."""
        if (place := self._places.pop(index, None)) is not None:
            place.group.free(place.node, index)
        else:
            self._forget(index)
        self._place_waiting(now)
        for group in self.groups:
            while (empty := group.release(now)) is not None:
                self._tell(empty, "released", now)

    def will_have_room(self, pool: Pool) -> bool:
        """Whether a node being provisioned will have room for such an instance."""
        need = gpu_demand_of(pool)
        return any(group.coming and group.fits(need) for group in self.groups)

    def cost_per_hour(self, pool: Pool) -> float | None:
        """Cost of an instance: its share of the first node type that can host it; None = unknown."""
        need = gpu_demand_of(pool)
        for group in self.groups:
            if group.fits(need):
                cost = group.pool.cost_per_hour
                return None if cost is None else cost / group.pool.gpus_per_node * need.gpus
        return None

    def node_us(self, now: int) -> list[int]:
        """Total time that the nodes of each pool have existed until now."""
        return [group.node_us(now) for group in self.groups]

    def state(self) -> tuple[object, ...]:
        """Return everything as plain values (for digests)."""
        nodes = tuple((node.name, node.free, tuple(node.hosted.items()), node.ready_us) for node in self.nodes)
        waiting = tuple(index for row in self._waiting for index in row.indices)
        ordered = tuple(group.ordered for group in self.groups)
        paid_us = tuple(group.paid_us for group in self.groups)
        return (nodes, waiting, ordered, paid_us, tuple(group.stream.state() for group in self.groups))

    def _pool_with_capacity(self, need: GpuDemand) -> NodeGroup | None:
        """Return the first pool that may add a node for such an instance."""
        return next((group for group in self.groups if group.fits(need) and len(group.nodes) < group.pool.max), None)

    def _order(self, group: NodeGroup, now: int) -> None:
        node = group.order()
        self._tell(node, "provisioning", now)
        time = now + draw(group.pool.provisioning_delay, group.stream)
        arrival = Revocable("node-ready", self._is_late, partial(self.node_arrived, group, node))
        self._pipeline.queue.push(time, LIFECYCLE, arrival)

    def _is_late(self) -> bool:
        """Whether no request is left for which a node could matter."""
        return self._pipeline.finished

    def _place_waiting(self, now: int) -> None:
        """Place waiting instances in order; where one finds no room, neither do others with the same need."""
        full: dict[GpuDemand, None] = {}
        for need, indices in self._waiting:
            while indices and need not in full:
                if self._host(indices[0], need):
                    self._placed(indices.popleft(), now)
                else:
                    full[need] = None
        self._waiting = [row for row in self._waiting if row.indices]

    def _forget(self, index: int) -> None:
        """Remove an instance from the waiting ones."""
        for at, (_, indices) in enumerate(self._waiting):
            if index in indices:
                indices.remove(index)
                if not indices:
                    del self._waiting[at]
                return

    def node_arrived(self, group: NodeGroup, node: Node, now: int) -> None:
        """Handle the arrival of an ordered node."""
        group.ready(node, now)
        self._tell(node, "ready", now)
        self._place_waiting(now)

    def _tell(self, node: Node, state: str, now: int) -> None:
        observers = self._pipeline.observers
        if NodeChanged in observers.kinds and observers.event:  # a record needs an event; the start has none
            observers.emit(NodeChanged(observers.event, now, node.name, state, f"node {node.name} is {state}"))


def _fill(coming: list[_PendingNodes], need: GpuDemand, count: int) -> tuple[list[_PendingNodes], int]:
    """Assign ``count`` instances to the first nodes with room; return the rest of the nodes and of the instances."""
    rest: list[_PendingNodes] = []
    for group, free, nodes in coming:
        each = free // need.gpus if group.fits(need) else 0
        taken = min(count, each * nodes)
        count -= taken
        full, more = divmod(taken, each) if taken else (0, 0)
        _append(rest, group, free - each * need.gpus, full)
        _append(rest, group, free - more * need.gpus, 1 if more else 0)
        _append(rest, group, free, nodes - full - (1 if more else 0))
    return rest, count


def _append(coming: list[_PendingNodes], group: NodeGroup, free: int, nodes: int) -> None:
    """Append ``nodes`` nodes, unless they have no room."""
    if not free or not nodes:
        return
    if coming and coming[-1].group is group and coming[-1].free == free:
        nodes += coming.pop().nodes
    coming.append(_PendingNodes(group, free, nodes))
