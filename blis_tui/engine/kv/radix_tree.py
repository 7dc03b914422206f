"""A radix tree over the content of prompts, as SGLang keeps it: one path for each prefix, eviction leaf by leaf.

A node holds a stretch of content; its children go on behind it. Content is a run of keys (see ``PromptKeys``), of which
those of one stretch are consecutive numbers, so that a node is a few ranges however long it is.

Source: SGLang 0.5.23, ``mem_cache/unified_cache/unified_tree_core.py`` (``_match_prefix_helper``,
``_insert_walk_step``, ``_split_node``) and ``components/full.py`` (``_evict_device_next_node``).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DEPTHS: Final = 2**24
"""More levels than a tree can have: on the path to what was found, parents are the older the higher they stand."""
_SPARE: Final = 64
State = tuple[int, int, list[tuple[int, int, tuple[range, ...], int, int]], dict[int, int]]
"""What a checkpoint has of a tree: clock, numbers, nodes as rows, and who holds which."""


class Node:
    """A stretch of content.

    Attributes:
        keys: of its blocks, as ranges; empty for the root alone.
        blocks: how many.
        parent: what it goes on from; None = it is the root, or has been evicted.
        children: what goes on from it, by their first key.
        references: how many requests hold it, or something behind it.
        used: when it was used last, as a number that grows.
        number: tells it from all others.
    """

    __slots__ = ("blocks", "children", "keys", "number", "parent", "references", "used")

    def __init__(self, number: int, keys: tuple[range, ...], parent: Node | None, used: int) -> None:
        self.number = number
        self.keys = keys
        self.blocks = _length(keys)
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.references = 0
        self.used = used

    device = True
    """Whether the GPU has it, and the host: trees that go on in host memory have others (``kv.hicache``)."""
    host = False

    @property
    def evictable(self) -> bool:
        """Whether it may be evicted now: a leaf without a holder."""
        return not self.references and not self.children and self.parent is not None


N = TypeVar("N", bound=Node)


class Evictable(Generic[N]):
    """Nodes that may be evicted, in the order of their last use; what a node's use or its place changes is found late.

    A node stands here once for each time that it was offered, of which all but the latest have become void.

    Args:
        still: whether a node may be evicted now.
    """

    __slots__ = ("_heap", "_still")

    def __init__(self, still: Callable[[N], bool]) -> None:
        self._still = still
        self._heap: list[tuple[int, int, N]] = []

    def offer(self, node: N, nodes: int) -> None:
        """It may be the next, if it may be evicted at all; ``nodes``: how many the tree has."""
        if not self._still(node):
            return
        heap = self._heap
        if len(heap) > _SPARE and len(heap) > 4 * nodes:
            heap[:] = [entry for entry in heap if self._still(entry[2]) and entry[2].used == entry[0]]
            heapify(heap)
        heappush(heap, (node.used, node.number, node))

    def take(self) -> N | None:
        """The one that was used least recently, which is no longer here then; None = there is none."""
        heap = self._heap
        while heap:
            used, _, node = heappop(heap)
            if node.used == used and self._still(node):
                return node
        return None

    def clear(self) -> None:
        """None may be evicted."""
        self._heap.clear()


def _evictable(node: Node) -> bool:
    return node.evictable


class RadixTree:
    """The content that can be found.

    Attributes:
        root: holds nothing.
        holders: by request, where that ends which it holds.
        idle: blocks in nodes without a holder.
        held: blocks in the others.
    """

    __slots__ = ("_clock", "_count", "_evictable", "_numbers", "held", "holders", "idle", "root")

    def __init__(self) -> None:
        self._begin(Node(0, (), None, 0))

    def _begin(self, root: Node) -> None:
        """There is nothing yet."""
        self._clock = self._numbers = self._count = 0
        self.root = root
        self.holders: dict[int, Node] = {}
        self.idle = self.held = 0
        self._evictable: Evictable[Node] = Evictable(_evictable)

    def __getstate__(self) -> object:
        return self._rows()

    def _rows(self) -> State:
        # Node by node: a long talk is a chain of nodes, too deep to be followed.
        rows = [(one.number, _parent_of(one), one.keys, one.references, one.used) for one in self.nodes()]
        return (self._clock, self._numbers, rows, {owner: node.number for owner, node in self.holders.items()})

    def __setstate__(self, state: State) -> None:
        self._restore(Node(0, (), None, 0), state)

    def _restore(self, root: Node, state: State) -> None:
        self._begin(root)
        self._clock, self._numbers, rows, holders = state
        nodes = {0: self.root}
        for number, parent, keys, references, used in rows:
            node = nodes[number] = self._make(number, keys, nodes[parent], used)
            nodes[parent].children[keys[0].start] = node
            node.references = references
            self.idle += 0 if references else node.blocks
            self.held += node.blocks if references else 0
        self._count = len(rows)
        self.holders = {owner: nodes[number] for owner, number in holders.items()}
        for node in nodes.values():
            self._offer(node)

    def nodes(self) -> Iterator[Node]:
        """All but the root, parents before their children."""
        waiting = [*self.root.children.values()]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()

    def resident(self) -> Iterator[Node]:
        """Those that the GPU has."""
        return self.nodes()

    @property
    def count(self) -> int:
        """How many nodes there are, but for the root."""
        return self._count

    def accesses_since(self, node: Node) -> int:
        """How often something was looked up or put in since a node was used last."""
        return self._clock + (-node.used // _DEPTHS)

    def outline(self, most: int) -> list[tuple[int, Node]]:
        """The first nodes, each with how deep it stands, parents before their children; what was used last goes first.

        Args:
            most: nodes.
        """
        found: list[tuple[int, Node]] = []
        waiting = [(0, node) for node in sorted(self.root.children.values(), key=_last_use)]
        while waiting and len(found) < most:
            depth, node = waiting.pop()
            found.append((depth, node))
            waiting += [(depth + 1, child) for child in sorted(node.children.values(), key=_last_use)]
        return found

    # ---- finding ----

    def length(self, keys: Sequence[range]) -> int:
        """How many of these blocks are here; that counts as no access."""
        node, found = self.root, 0
        while keys and (child := node.children.get(keys[0].start)) is not None:
            alike = common(child.keys, keys)
            found += alike
            if alike < child.blocks:
                break
            keys = behind(keys, alike)
            node = child
        return found

    def match(self, keys: Sequence[range]) -> tuple[Node, int]:
        """Where the longest head of these blocks ends that is here, and how long it is; it counts as used now."""
        node, found = self.root, 0
        if not keys:
            return node, found
        while keys and (child := node.children.get(keys[0].start)) is not None:
            alike = common(child.keys, keys)
            found += alike
            if alike < child.blocks:
                node = self._split(child, alike)
                break
            keys = behind(keys, alike)
            node = child
        self._use_path(node)
        return node, found

    # ---- changing ----

    def insert(self, keys: Sequence[range]) -> tuple[Node, int]:
        """Put content in; returns the node in which it ends, and how many blocks of it were here already."""
        node, found = self.root, 0
        while keys and (child := node.children.get(keys[0].start)) is not None:
            child.used = self._tick()
            alike = common(child.keys, keys)
            found += alike
            keys = behind(keys, alike)
            if alike < child.blocks:
                node = self._split(child, alike)
            else:
                self._offer(child)
                node = child
        if keys:
            node = self._add(node, tuple(keys))
            self.idle += node.blocks
            self._offer(node)
        return node, found

    def hold(self, owner: int, node: Node) -> int:
        """A request holds everything up to a node, and no longer what it held; returns how many more are idle now."""
        before, idle = self.holders.get(owner), self.idle
        self.holders[owner] = node
        while node.parent is not None:
            if not node.references:
                self.idle -= node.blocks
                self.held += node.blocks
            node.references += 1
            node = node.parent
        if before is not None:
            self._let_go(before)
        return self.idle - idle

    def let_go(self, owner: int) -> int:
        """A request no longer holds anything; returns how many more blocks are idle now."""
        node, idle = self.holders.pop(owner, None), self.idle
        if node is not None:
            self._let_go(node)
        return self.idle - idle

    def _let_go(self, node: Node) -> None:
        while node.parent is not None:
            node.references -= 1
            if not node.references:
                self.idle += node.blocks
                self.held -= node.blocks
                self._offer(node)
            node = node.parent

    def evict(self) -> int:
        """Forget the leaf that was used least recently, as a whole; returns its blocks, 0 = there is none."""
        node = self._evictable.take()
        if node is None:
            return 0
        parent = node.parent
        assert parent is not None  # noqa: S101  (it is evictable)
        del parent.children[node.keys[0].start]
        node.parent = None
        self._count -= 1
        self.idle -= node.blocks
        self._offer(parent)
        return node.blocks

    def clear(self) -> None:
        """Forget everything; no node may have a holder."""
        self.root.children.clear()
        self._evictable.clear()
        self.idle = self._count = 0

    # ---- for digests and invariants ----

    def state(self) -> tuple[object, ...]:
        """Everything that decides its future, as plain values."""
        nodes = sorted(self.nodes(), key=_number)
        rows = [
            (one.number, _parent_of(one), one.references, one.used, *((keys.start, len(keys)) for keys in one.keys))
            for one in nodes
        ]
        held = sorted((owner, node.number) for owner, node in self.holders.items())
        return (self._clock, self._numbers, tuple(rows), tuple(held))

    def audit(self) -> str:
        """What is wrong with the books; empty when nothing is."""
        references: dict[int, int] = {}
        for held in self.holders.values():
            node = held
            while node.parent is not None:
                references[node.number] = references.get(node.number, 0) + 1
                node = node.parent
        idle = used = 0
        for one in self.resident():
            if one.references != references.pop(one.number, 0):
                return f"node {one.number} counts {one.references} references, others are held"
            idle += 0 if one.references else one.blocks
            used += one.blocks if one.references else 0
        if references:
            return f"{len(references)} nodes are held that the tree does not have"
        if (idle, used) != (self.idle, self.held):
            return f"the tree counts {self.idle} idle and {self.held} held blocks, it has {idle} and {used}"
        return ""

    # ---- within ----

    def _tick(self) -> int:
        self._clock += 1
        return self._clock * _DEPTHS

    def _use_path(self, node: Node | None) -> None:
        """What ends in a node was used now; of its parts, the first as if it had been the earliest."""
        now = self._tick()
        while node is not None and node.parent is not None:
            node.used = now
            self._offer(node)
            now -= 1
            node = node.parent

    def _add(self, parent: Node, keys: tuple[range, ...]) -> Node:
        self._numbers += 1
        self._count += 1
        node = parent.children[keys[0].start] = self._make(self._numbers, keys, parent, self._tick())
        return node

    def _make(self, number: int, keys: tuple[range, ...], parent: Node, used: int) -> Node:
        """A node of this tree."""
        return Node(number, keys, parent, used)

    def _split(self, node: Node, head: int) -> Node:
        """Part a node behind its first blocks; returns the head. The other part counts as used now."""
        parent = node.parent
        assert parent is not None  # noqa: S101  (the root is empty)
        first = self._add(parent, _head(node.keys, head))
        first.references = node.references
        node.keys = behind(node.keys, head)
        node.blocks -= head
        node.parent = first
        node.used = self._tick()
        first.children[node.keys[0].start] = node
        self._offer(node)
        return first

    def _offer(self, node: Node) -> None:
        """It may be the next to be evicted."""
        self._evictable.offer(node, self._count)


def _last_use(node: Node) -> int:
    return node.used


def _number(node: Node) -> int:
    return node.number


def _parent_of(node: Node) -> int:
    return 0 if node.parent is None else node.parent.number


def _length(keys: Sequence[range]) -> int:
    blocks = 0
    for one in keys:
        blocks += len(one)
    return blocks


def common(left: Sequence[range], right: Sequence[range]) -> int:
    """How many keys two runs have in common at their beginning."""
    found = 0
    for one, other in zip(left, right, strict=False):
        if one.start != other.start:
            break
        if len(one) != len(other):
            return found + min(len(one), len(other))
        found += len(one)
    return found


def _head(keys: Sequence[range], blocks: int) -> tuple[range, ...]:
    """The first of them."""
    found = []
    for one in keys:
        if blocks <= 0:
            break
        found.append(one[:blocks])
        blocks -= len(one)
    return tuple(found)


def behind(keys: Sequence[range], blocks: int) -> tuple[range, ...]:
    """All but the first of them."""
    for at, one in enumerate(keys):
        if blocks < len(one):
            return (one[blocks:], *keys[at + 1 :])
        blocks -= len(one)
    return ()
