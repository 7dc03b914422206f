"""Nodes that instances are placed on, written as plainly as possible."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from blis_tui.base.streams import Stream, stream_key
from blis_tui.cluster.records import NodeChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.model import Delay, NodePool
    from blis_tui.model import Pool as PoolSpec

    from .mortal import MortalOracle


def delay_us(delay: Delay, stream: Stream) -> int:
    """Draw from a normal distribution, at least 0; without variation nothing is drawn."""
    return max(0, int(delay.mean_us + delay.std_dev_us * stream.normal())) if delay.std_dev_us else delay.mean_us


@dataclass(eq=False)
class Node:
    """One node."""

    name: str
    kind: NodePool
    ready: bool
    hosted: dict[int, int] = field(default_factory=dict)
    """Instance -> its accelerators."""

    def has_room(self, need: PoolSpec) -> bool:
        return hosts(self.kind, need) and self.kind.gpus_per_node - sum(self.hosted.values()) >= gpus_of(need)


def gpus_of(need: PoolSpec) -> int:
    """Accelerators of an instance, of all its stages."""
    return need.tensor_parallel * need.engine.pipeline_parallel


def hosts(kind: NodePool, need: PoolSpec) -> bool:
    """Whether an instance fits on an empty one."""
    return kind.gpu == need.hardware.name and gpus_of(need) <= kind.gpus_per_node


class Nodes:
    """All nodes; ``placed`` is called when there is room for an instance that had to wait."""

    def __init__(self, oracle: MortalOracle, kinds: tuple[NodePool, ...], placed: Callable[[int, int], None]) -> None:
        self.oracle = oracle
        self.kinds = kinds
        self.placed = placed
        self.numbers = dict.fromkeys([kind.name for kind in kinds], 0)
        self.streams = {kind.name: Stream(stream_key(oracle.experiment.seed, f"node/{kind.name}")) for kind in kinds}
        self.waiting: list[int] = []
        """Instances without room."""
        self.there = [self._new(kind, ready=True) for kind in kinds for _ in range(kind.initial)]

    def _new(self, kind: NodePool, *, ready: bool) -> Node:
        number = self.numbers[kind.name]
        self.numbers[kind.name] += 1
        return Node(f"{kind.name}-{number}", kind, ready)

    def _in_order(self) -> list[Node]:
        """Nodes by kind, then by time of order."""
        return [node for kind in self.kinds for node in self.there if node.kind is kind]

    def find_room(self, number: int) -> bool:
        """Place an instance, or let it wait."""
        need = self.oracle.pool_of(number)
        for node in self._in_order():
            if node.ready and node.has_room(need):
                node.hosted[number] = gpus_of(need)
                if number in self.waiting:
                    self.waiting.remove(number)
                return True
        if number not in self.waiting:
            self.waiting.append(number)
        return False

    def order(self, now: int) -> None:
        """Order as many nodes as waiting instances need beyond those on their way."""
        coming = [Node("", node.kind, ready=False) for node in self._in_order() if not node.ready]
        for number in self.waiting:
            need = self.oracle.pool_of(number)
            node = next((node for node in coming if node.has_room(need)), None)
            if node is None:
                kinds = [kind for kind in self.kinds if hosts(kind, need) and self.count(kind) < kind.max]
                if not kinds:
                    continue
                ordered = self._new(kinds[0], ready=False)
                self.there.append(ordered)
                self.tell(ordered, "provisioning", now)
                at = now + delay_us(kinds[0].provisioning_delay, self.streams[kinds[0].name])
                self.oracle.later(at, partial(self._ready, ordered))
                coming.append(node := Node("", kinds[0], ready=False))
            node.hosted[number] = gpus_of(need)

    def count(self, kind: NodePool) -> int:
        return len([node for node in self.there if node.kind is kind])

    def _ready(self, node: Node, now: int) -> bool:
        node.ready = True
        self.tell(node, "ready", now)
        self._place_those_who_wait(now)
        return True

    def _place_those_who_wait(self, now: int) -> None:
        for number in list(self.waiting):
            if self.find_room(number):
                self.placed(number, now)

    def leave(self, number: int, now: int) -> None:
        """An instance is gone, or no longer waits."""
        if number in self.waiting:
            self.waiting.remove(number)
        for node in self.there:
            node.hosted.pop(number, None)
        self._place_those_who_wait(now)
        for node in self._in_order():
            if node.ready and not node.hosted and self.count(node.kind) > node.kind.min:
                self.there.remove(node)
                self.tell(node, "released", now)

    def expects(self, need: PoolSpec) -> bool:
        """Whether a node is on its way on which such an instance has room."""
        return any(not node.ready and hosts(node.kind, need) for node in self.there)

    def cost(self, need: PoolSpec) -> float | None:
        """An instance's share of the first kind of node that can host it."""
        for kind in self.kinds:
            if hosts(kind, need):
                share = kind.cost_per_hour
                return None if share is None else share / kind.gpus_per_node * gpus_of(need)
        return None

    def tell(self, node: Node, state: str, now: int) -> None:
        if self.oracle.events:
            self.oracle.records.append(
                NodeChanged(self.oracle.events, now, node.name, state, f"node {node.name} is {state}")
            )
