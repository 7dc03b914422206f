"""A radix tree over the content of prompts, as in SGLang: one path for each prefix, eviction leaf by leaf.

A node holds a stretch of content, which its children continue. Content is a run of keys (see ``PromptKeys``); those of
one stretch are consecutive numbers, so that a node is a few ranges however long it is.

Source: SGLang 0.5.23, ``mem_cache/unified_cache/unified_tree_core.py`` (``_match_prefix_helper``,
``_insert_walk_step``, ``_split_node``) and ``components/full.py`` (``_evict_device_next_node``).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from blis_tui.base.portable_math import whole_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DEPTHS: Final = 2**24
"""More levels than a tree can have. On the path to a hit, each parent counts as older than its child."""
_SPARE: Final = 64
State = tuple[int, int, list[tuple[int, int, tuple[range, ...], int, int]], dict[int, int]]
"""What a checkpoint stores of a tree: clock, node counter, nodes as rows, and the node that each owner holds."""


class Node:
    """A stretch of content.

    Attributes:
        keys: of its blocks, as ranges; empty only for the root.
        blocks: number of its blocks.
        parent: the node that it continues; None = it is the root, or has been evicted.
        children: the nodes that continue it, by their first key.
        references: number of requests that hold it or a descendant.
        used: when it was last used, as an increasing number.
        number: its unique number.
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
    """Whether it is on the GPU and on the host; trees that extend into host memory override both (``kv.hicache``)."""
    host = False

    @property
    def evictable(self) -> bool:
        """Whether it may be evicted now: it is a leaf without a holder."""
        return not self.references and not self.children and self.parent is not None


N = TypeVar("N", bound=Node)


class Evictable(Generic[N]):
    """Evictable nodes in the order of their last use, with lazy updates.

    There is one entry for each time that a node was offered; all but the latest are void.

    Args:
        still: returns whether a node may be evicted now.
    """

    def __init__(self, still: Callable[[N], bool]) -> None:
        self._still = still
        self._heap: list[tuple[int, int, N]] = []

    def offer(self, node: N, nodes: int) -> None:
        """Add a node if it may be evicted; ``nodes``: number of nodes in the tree."""
        if not self._still(node):
            return
        heap = self._heap
        if len(heap) > _SPARE and len(heap) > 4 * nodes:
            heap[:] = [entry for entry in heap if self._still(entry[2]) and entry[2].used == entry[0]]
            heapify(heap)
        heappush(heap, (node.used, node.number, node))

    def take(self) -> N | None:
        """Remove and return the least recently used node; None = there is none."""
        heap = self._heap
        while heap:
            used, _, node = heappop(heap)
            if node.used == used and self._still(node):
                return node
        return None

    def clear(self) -> None:
        """Remove all entries."""
        self._heap.clear()


def _evictable(node: Node) -> bool:
    return node.evictable


class RadixTree:
    """The content that can be found.

    Attributes:
        root: the empty root node.
        holders: request -> the last node that it holds.
        idle: number of blocks in nodes without a holder.
        held: number of blocks in the other nodes.
    """

    def __init__(self) -> None:
        self._begin(Node(0, (), None, 0))

    def _begin(self, root: Node) -> None:
        """Initialize the empty tree."""
        self._clock = self._numbers = self._count = 0
        self.root = root
        self.holders: dict[int, Node] = {}
        self.idle = self.held = 0
        self._evictable: Evictable[Node] = Evictable(_evictable)

    def __getstate__(self) -> object:
        return self._rows()

    def _rows(self) -> State:
        # Node by node: a long conversation is a chain of nodes, too deep for recursive pickling.
        rows = [(node.number, _parent_of(node), node.keys, node.references, node.used) for node in self.nodes()]
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
        """Iterate over all nodes but the root, parents before their children."""
        waiting = [*self.root.children.values()]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()

    def resident(self) -> Iterator[Node]:
        """Iterate over the nodes on the GPU."""
        return self.nodes()

    @property
    def count(self) -> int:
        """Number of nodes without the root."""
        return self._count

    def accesses_since(self, node: Node) -> int:
        """Number of lookups and insertions since a node was last used."""
        return self._clock + (-node.used // _DEPTHS)

    def outline(self, most: int) -> list[tuple[int, Node]]:
        """Return the first nodes with their depths, parents before their children, recently used ones first.

        Args:
            most: maximum number of nodes.
        """
        nodes: list[tuple[int, Node]] = []
        waiting = [(0, node) for node in sorted(self.root.children.values(), key=_recency)]
        while waiting and len(nodes) < most:
            depth, node = waiting.pop()
            nodes.append((depth, node))
            waiting += [(depth + 1, child) for child in sorted(node.children.values(), key=_recency)]
        return nodes

    # ---- lookup ----

    def length(self, keys: Sequence[range]) -> int:
        """Number of leading blocks that are in the tree; does not count as an access."""
        node, matched = self.root, 0
        while keys and (child := node.children.get(keys[0].start)) is not None:
            alike, keys = shared(child.keys, keys)
            matched += alike
            if alike < child.blocks:
                break
            node = child
        return matched

    def match(self, keys: Sequence[range]) -> tuple[Node, int]:
        """Return the last node and the length of the longest prefix in the tree, and mark it as used now."""
        node, matched = self.root, 0
        if not keys:
            return node, matched
        while keys and (child := node.children.get(keys[0].start)) is not None:
            alike, keys = shared(child.keys, keys)
            matched += alike
            if alike < child.blocks:
                node = self._split(child, alike)
                break
            node = child
        self._touch_path(node)
        return node, matched

    # ---- changes ----

    def insert(self, keys: Sequence[range]) -> tuple[Node, int]:
        """Insert content; return its last node, and how many of its blocks were there already."""
        node, matched = self.root, 0
        while keys and (child := node.children.get(keys[0].start)) is not None:
            child.used = self._tick()
            alike, keys = shared(child.keys, keys)
            matched += alike
            if alike < child.blocks:
                node = self._split(child, alike)
            else:
                self._offer(child)
                node = child
        if keys:
            node = self._add(node, tuple(keys))
            self.idle += node.blocks
            self._offer(node)
        return node, matched

    def insert_again(self, node: Node, depth: int, blocks: int) -> bool:
        """Do what it does to insert the first ``blocks`` blocks of what was just inserted, if a node ends there.

        ``node``: the last one of what was inserted, ``depth`` blocks. Returns False, doing nothing, if none ends there.
        """
        while depth > blocks and node.parent is not None:
            depth -= node.blocks
            node = node.parent
        if depth != blocks:
            return False
        path = []
        while node.parent is not None:
            path.append(node)
            node = node.parent
        for ancestor in reversed(path):
            ancestor.used = self._tick()
            self._offer(ancestor)
        return True

    def hold(self, owner: int, node: Node) -> int:
        """Let a request hold the path to a node instead of what it held; return by how much ``idle`` grew."""
        before, idle = self.holders.get(owner), self.idle
        self.holders[owner] = node
        while node is not before and node.parent is not None:  # what it held may be the beginning of the path
            if not node.references:
                self.idle -= node.blocks
                self.held += node.blocks
            node.references += 1
            node = node.parent
        if before is not None and before is not node:
            self._unreference(before)
        return self.idle - idle

    def let_go(self, owner: int) -> int:
        """Release everything that a request holds; return by how much ``idle`` grew."""
        node, idle = self.holders.pop(owner, None), self.idle
        if node is not None:
            self._unreference(node)
        return self.idle - idle

    def path_of(self, owner: int) -> list[Node]:
        """Return the nodes that a request holds, from the last one back to the first."""
        node, path = self.holders.get(owner), []
        while node is not None and node.parent is not None:
            path.append(node)
            node = node.parent
        return path

    def _unreference(self, node: Node) -> None:
        while node.parent is not None:
            node.references -= 1
            if not node.references:
                self.idle += node.blocks
                self.held -= node.blocks
                self._offer(node)
            node = node.parent

    def evict(self) -> int:
        """Remove the least recently used leaf as a whole; return its number of blocks, 0 = there is none."""
        node = self._evictable.take()
        if node is None:
            return 0
        parent = node.parent
        assert parent is not None  # noqa: S101  (an evictable node has a parent)
        del parent.children[node.keys[0].start]
        node.parent = None
        self._count -= 1
        self.idle -= node.blocks
        self._offer(parent)
        return node.blocks

    def clear(self) -> None:
        """Remove everything; no node may have a holder."""
        self.root.children.clear()
        self._evictable.clear()
        self.idle = self._count = 0

    # ---- for digests and invariants ----

    def state(self) -> tuple[object, ...]:
        """Return everything that determines its future, as plain values."""
        nodes = sorted(self.nodes(), key=_number)
        rows = [
            (
                node.number,
                _parent_of(node),
                node.references,
                node.used,
                *((keys.start, len(keys)) for keys in node.keys),
            )
            for node in nodes
        ]
        held = sorted((owner, node.number) for owner, node in self.holders.items())
        return (self._clock, self._numbers, tuple(rows), tuple(held))

    def audit(self) -> str:
        """Check the books; return what is wrong, or an empty string."""
        references: dict[int, int] = {}
        for held in self.holders.values():
            node = held
            while node.parent is not None:
                references[node.number] = references.get(node.number, 0) + 1
                node = node.parent
        idle = used = 0
        for node in self.resident():
            if node.references != references.pop(node.number, 0):
                return f"node {node.number} counts {node.references} references, others are held"
            idle += 0 if node.references else node.blocks
            used += node.blocks if node.references else 0
        if references:
            return f"{len(references)} nodes are held that the tree does not have"
        if (idle, used) != (self.idle, self.held):
            return f"the tree counts {self.idle} idle and {self.held} held blocks, it has {idle} and {used}"
        return ""

    # ---- internals ----

    def _tick(self) -> int:
        self._clock += 1
        return self._clock * _DEPTHS

    def _touch_path(self, node: Node | None) -> None:
        """Mark the path to a node as used now, each parent as slightly earlier than its child."""
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
        """Create a node of this tree."""
        return Node(number, keys, parent, used)

    def _split(self, node: Node, head: int) -> Node:
        """Split a node after its first ``head`` blocks; return the head. The rest counts as used now."""
        parent = node.parent
        assert parent is not None  # noqa: S101  (the root is empty)
        first = self._add(parent, _head(node.keys, head))
        first.references = node.references
        node.keys = keys_from(node.keys, head)
        node.blocks -= head
        node.parent = first
        node.used = self._tick()
        first.children[node.keys[0].start] = node
        self._offer(node)
        return first

    def _offer(self, node: Node) -> None:
        """Offer a node for eviction."""
        if not node.references:
            self._evictable.offer(node, self._count)


def _recency(node: Node) -> int:
    return node.used


def _number(node: Node) -> int:
    return node.number


def _parent_of(node: Node) -> int:
    return 0 if node.parent is None else node.parent.number


def _length(keys: Sequence[range]) -> int:
    return len(keys[0]) if len(keys) == 1 else whole_sum([len(key) for key in keys])


def shared(left: Sequence[range], right: Sequence[range]) -> tuple[int, Sequence[range]]:
    """Return how many keys two runs have in common at their beginning, and what of the right one comes after them."""
    if len(left) == 1 and left[0] == right[0]:  # the usual case
        return len(left[0]), right[1:]
    alike_blocks = 0
    for at, (stretch, other) in enumerate(zip(left, right, strict=False)):
        if stretch != other:
            alike = min(len(stretch), len(other)) if stretch.start == other.start else 0
            return alike_blocks + alike, keys_from(right[at:], alike)
        alike_blocks += len(stretch)
    return alike_blocks, right[len(left) :]


def _head(keys: Sequence[range], blocks: int) -> tuple[range, ...]:
    """Return the first ``blocks`` keys."""
    head = []
    for key in keys:
        if blocks <= 0:
            break
        head.append(key[:blocks])
        blocks -= len(key)
    return tuple(head)


def keys_from(keys: Sequence[range], blocks: int) -> tuple[range, ...]:
    """Return all but the first ``blocks`` keys."""
    for at, key in enumerate(keys):
        if blocks < len(key):
            return (key[blocks:], *keys[at + 1 :])
        blocks -= len(key)
    return ()
