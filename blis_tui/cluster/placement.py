"""Where instances stand: nodes with accelerators, there from the start or provisioned when they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.lifecycle_records import NodeChanged
from blis_tui.cluster.passage import LIFECYCLE, Background

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.hosting import Host
    from blis_tui.engine.streams import Stream, Streams
    from blis_tui.spec.model import Delay, NodePool, Pool


def draw(delay: Delay, stream: Stream) -> int:
    """A time in microseconds, never below 0; nothing is drawn where it does not vary."""
    if not delay.std_dev_us:
        return delay.mean_us
    return max(0, int(delay.mean_us + delay.std_dev_us * stream.normal()))


def accelerators(pool: Pool) -> int:
    """How many an instance has: ``tensor_parallel`` of them for each stage of its pipeline."""
    return pool.tensor_parallel * pool.engine.pipeline_parallel


class Node:
    """One machine.

    Attributes:
        name: its pool and its number there.
        pool: the number of its pool.
        free: accelerators that no instance has.
        hosted: the instances on it, and how many accelerators each has.
        ready_us: since when it can be used; -1 = it is being provisioned.
    """

    __slots__ = ("free", "hosted", "name", "pool", "ready_us")

    def __init__(self, name: str, pool: int, free: int, ready_us: int) -> None:
        self.name = name
        self.pool = pool
        self.free = free
        self.hosted: dict[int, int] = {}
        self.ready_us = ready_us


class Placement:
    """Puts each instance on the first node with enough free accelerators; the others wait for one.

    Attributes:
        nodes: those there are or that are being provisioned, in order of pools and of their ordering.
        pending: instances that wait for room, by index, with what they need.
    """

    def __init__(
        self, pools: tuple[NodePool, ...], cluster: Host, streams: Streams, placed: Callable[[int, int], None]
    ) -> None:
        self._pools = pools
        self._cluster = cluster
        self._placed = placed
        self._streams = [streams.stream(f"node/{pool.name}") for pool in pools]
        self._ordered = [0] * len(pools)
        self._paid_us = [0] * len(pools)
        """Of nodes that were given back."""
        self.nodes: list[Node] = []
        self.pending: dict[int, Pool] = {}
        for number, pool in enumerate(pools):
            for _ in range(pool.initial):
                self.nodes.append(self._node(number, 0))

    def place(self, index: int, need: Pool, now: int) -> None:
        """An instance is to start as soon as there is room for it."""
        if self.place_now(index, need):
            self._placed(index, now)
        else:
            self.provision(now)

    def place_now(self, index: int, need: Pool) -> bool:
        """Put an instance on the first node with enough free accelerators; False = there is none, it waits."""
        for node in self.nodes:
            if node.ready_us >= 0 and self._fits(node.pool, need) and node.free >= accelerators(need):
                node.free -= accelerators(need)
                node.hosted[index] = accelerators(need)
                self.pending.pop(index, None)
                return True
        self.pending[index] = need
        return False

    def provision(self, now: int) -> None:
        """Order nodes for the instances that wait, as far as those under way do not suffice for them."""
        coming = [(node.pool, node.free) for node in self.nodes if node.ready_us < 0]
        for need in self.pending.values():
            split = accelerators(need)
            for at, (pool, free) in enumerate(coming):
                if self._fits(pool, need) and free >= split:
                    coming[at] = (pool, free - split)
                    break
            else:
                number = self._supplier(need)
                if number is not None:
                    self._order(number, now)
                    coming.append((number, self._pools[number].gpus_per_node - split))

    def free(self, index: int, now: int) -> None:
        """An instance is gone: others may get its accelerators; empty nodes are given back."""
        self.pending.pop(index, None)
        for node in self.nodes:
            if index in node.hosted:
                node.free += node.hosted.pop(index)
        self._place_pending(now)
        for node in list(self.nodes):
            if not node.hosted and node.ready_us >= 0 and self._count(node.pool) > self._pools[node.pool].min:
                self.nodes.remove(node)
                self._paid_us[node.pool] += now - node.ready_us
                self._tell(node, "released", now)

    def expects_room(self, need: Pool) -> bool:
        """Whether a node on which there is room for such an instance is being provisioned."""
        return any(node.ready_us < 0 and self._fits(node.pool, need) for node in self.nodes)

    def cost_per_hour(self, need: Pool) -> float | None:
        """What an instance costs: its share of the first kind of node that can host it; None = not known."""
        for number, pool in enumerate(self._pools):
            if self._fits(number, need):
                return (
                    None if pool.cost_per_hour is None else pool.cost_per_hour / pool.gpus_per_node * accelerators(need)
                )
        return None

    def node_us(self, now: int) -> list[int]:
        """How long the nodes of each pool have been there until now, added up."""
        times = list(self._paid_us)
        for node in self.nodes:
            if node.ready_us >= 0:
                times[node.pool] += now - node.ready_us
        return times

    def state(self) -> tuple[object, ...]:
        """Everything, as plain values (for digests)."""
        nodes = tuple((node.name, node.free, tuple(node.hosted.items()), node.ready_us) for node in self.nodes)
        streams = tuple(stream.state() for stream in self._streams)
        return (nodes, tuple(self.pending), tuple(self._ordered), tuple(self._paid_us), streams)

    def _fits(self, pool: int, need: Pool) -> bool:
        """Whether a node of that kind, empty, can host such an instance."""
        kind = self._pools[pool]
        return kind.gpu == need.hardware.name and kind.gpus_per_node >= accelerators(need)

    def _count(self, pool: int) -> int:
        return len([node for node in self.nodes if node.pool == pool])

    def _supplier(self, need: Pool) -> int | None:
        for number, pool in enumerate(self._pools):
            if self._fits(number, need) and self._count(number) < pool.max:
                return number
        return None

    def _node(self, pool: int, ready_us: int) -> Node:
        kind = self._pools[pool]
        number = self._ordered[pool]
        self._ordered[pool] = number + 1
        return Node(f"{kind.name}-{number}", pool, kind.gpus_per_node, ready_us)

    def _order(self, pool: int, now: int) -> None:
        node = self._node(pool, -1)
        later = [at for at, other in enumerate(self.nodes) if other.pool > pool]
        self.nodes.insert(later[0] if later else len(self.nodes), node)
        self._tell(node, "provisioning", now)
        time = now + draw(self._pools[pool].provisioning_delay, self._streams[pool])
        self._cluster.queue.push(time, LIFECYCLE, _Ready(self._cluster, self, node))

    def _place_pending(self, now: int) -> None:
        for index, need in list(self.pending.items()):
            if self.place_now(index, need):
                self._placed(index, now)

    def come(self, node: Node, now: int) -> None:
        """A node that was ordered is there."""
        node.ready_us = now
        self._tell(node, "ready", now)
        self._place_pending(now)

    def _tell(self, node: Node, state: str, now: int) -> None:
        observers = self._cluster.observers
        if NodeChanged in observers.kinds and observers.event:  # a record belongs to an event: the start is none
            observers.emit(NodeChanged(observers.event, now, node.name, state, f"node {node.name} is {state}"))


class _Ready(Background):
    """A node that was ordered is there."""

    __slots__ = ("_node", "_placement")

    def __init__(self, cluster: Host, placement: Placement, node: Node) -> None:
        super().__init__("node-ready", cluster, None, self._come)
        self._placement = placement
        self._node = node

    def _come(self, event: Background, now: int) -> bool:  # noqa: ARG002
        self._placement.come(self._node, now)
        return True
