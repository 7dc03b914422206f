"""SGLang's hierarchical cache: a radix tree whose nodes are on the GPU, in host memory, or in both.

A node is written to the host when it has been inserted often enough (``write_through``, ``write_through_selective``),
or when the GPU evicts it (``write_back``). An evicted node that is on the host stays in the tree, and is loaded when an
admitted request continues from it. Writes and loads run concurrently with steps. Until they are over, the nodes they
move are locked, so that they do not count as room.

Source: SGLang 0.5.23, ``mem_cache/unified_radix_cache.py`` (``_execute_and_commit_kv_backup``, ``_evict_components``,
``load_back``, ``check_hicache_events``), ``mem_cache/unified_cache/unified_tree_core.py``
(``_inc_hit_count_and_check``, ``_build_backup_kv_action``, ``_reclaim_full_host_duplicates``, ``drop_subtree_no_host``)
and ``components/full.py``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.options.tiers import THRASHING_US, Tier, Tiers
from blis_tui.engine.plan import Reloaded
from blis_tui.engine.sglang.radix_pool import RadixPool
from blis_tui.engine.sglang.radix_tree import Evictable, Node, RadixTree, State, shared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.engine.kv.keys import PromptKeys
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request
    from blis_tui.model import KvTiers

_WRITE_THROUGH_THRESHOLD: Final = {"write_through": 1, "write_through_selective": 2}
"""How often a node must have been inserted before it is written to the host (``write_through_threshold``)."""
_LOAD_BACK_THRESHOLD: Final = 10
"""Fewer tokens than this are recomputed rather than loaded (``load_back_threshold``)."""
_NodePlaces = dict[int, tuple[bool, bool, int, int, int]]
_InFlight = tuple[list[tuple[int, int]], list[int]]
_State = tuple[State, _NodePlaces, "HostTier", int, int, int, _InFlight, list[int]]
_UNLIMITED: Final = 2**62


class HostNode(Node):
    """A stretch of content that may be in two places.

    Attributes:
        device: whether it is on the GPU.
        host: whether it is on the host.
        resident: number of its children on the GPU.
        hits: how often it was inserted.
        loading: the transfer that loads it; 0 = there is none.
        lost_us: when the GPU evicted it last.
    """

    __slots__ = ("device", "hits", "host", "loading", "lost_us", "resident")

    def __init__(self, number: int, keys: tuple[range, ...], parent: HostNode | None, used: int) -> None:
        super().__init__(number, keys, parent, used)
        self.device, self.host = True, False
        self.resident = self.hits = self.loading = self.lost_us = 0

    @property
    def evictable(self) -> bool:
        """Whether the GPU may evict it now: no child is on the GPU, and it has no holder."""
        return self.device and not self.references and not self.resident and self.parent is not None

    @property
    def host_evictable(self) -> bool:
        """Whether the host may drop it now: it is a leaf and not on the GPU."""
        return self.host and not self.device and not self.children and self.parent is not None


class Transfer(NamedTuple):
    """A transfer between GPU and host."""

    end_us: int
    owners: tuple[int, ...]
    """Owners in the tree that hold the content meanwhile."""


def _hosted(node: Node | None) -> HostNode:
    """Return the node as a ``HostNode``.

    Raises:
        TypeError: it belongs to another kind of tree.
    """
    if not isinstance(node, HostNode):
        raise TypeError(f"{node!r} is no node of a hierarchical cache")
    return node


def _host_evictable(node: HostNode) -> bool:
    return node.host_evictable


@mypyc_attr(allow_interpreted_subclasses=True)
class HostTier(Tier):
    """Host memory, counted in KV blocks; it stores whole nodes."""

    def __init__(self, spec: KvTiers, gpu_blocks: int) -> None:
        super().__init__(spec.tiers[0])
        self.total = int(gpu_blocks * spec.ratio) + 1  # (pages: ``pool_host/base.py``)
        self.used = 0

    @property
    def held(self) -> int:
        """Number of KV blocks stored there."""
        return self.used

    def state(self) -> tuple[object, ...]:
        """Return the whole state as plain values (for digests)."""
        return (self.used, self.stored, self.loaded, self.dropped)


class HostTree(RadixTree):
    """The content that can be found on the GPU or on the host. ``idle`` and ``held`` count blocks on the GPU.

    Attributes:
        host: the host tier.
        now: time at which the latest step was planned.
        queued: pending writes: the owner that holds the content meanwhile, and its blocks.
        written_back: blocks of each node that was written while the GPU waited to evict it.
        guarded: the node to be loaded next, which the host must not drop.
        duplicates: nodes that may be in both places, by number, in the order in which they came to be so; outdated
            entries are found when they matter (``full_host_duplicates``).
    """

    def __init__(self, host: HostTier, policy: str) -> None:
        self._begin(HostNode(0, (), None, 0))
        self.host = host
        self.now = 0
        self._often = _WRITE_THROUGH_THRESHOLD.get(policy, 0)
        self._owners = 0
        self._aside: list[HostNode] = []
        self._host_evictable: Evictable[HostNode] = Evictable(_host_evictable)
        self.queued: list[tuple[int, int]] = []
        self.written_back: list[int] = []
        self.guarded: HostNode | None = None
        self.duplicates: dict[int, HostNode] = {}

    def __getstate__(self) -> object:
        places = {
            node.number: (node.device, node.host, node.hits, node.loading, node.lost_us)
            for node in map(_hosted, self.nodes())
        }
        moving = (self.queued, self.written_back)
        return (self._rows(), places, self.host, self.now, self._often, self._owners, moving, [*self.duplicates])

    def __setstate__(self, state: _State) -> None:  # type: ignore[override]
        rows, places, self.host, self.now, self._often, self._owners, moving, duplicates = state
        self.queued, self.written_back = moving
        self._aside, self._host_evictable, self.guarded = [], Evictable(_host_evictable), None
        root = HostNode(0, (), None, 0)
        self._restore(root, rows)
        nodes = {node.number: node for node in map(_hosted, self.nodes())}
        for node in (root, *nodes.values()):
            node.resident = 0
        for number, node in nodes.items():
            node.device, node.host, node.hits, node.loading, node.lost_us = places[number]
            _hosted(node.parent).resident += node.device
            self.idle -= 0 if node.device else node.blocks
        # Drop entries of nodes that are gone.
        self.duplicates = {number: nodes[number] for number in duplicates if number in nodes}
        self._evictable.clear()
        for node in nodes.values():
            self._offer(node)

    # ---- lookup ----

    def on_gpu(self, node: Node) -> tuple[HostNode, int]:
        """Return where the GPU's part of a path ends, and how many blocks after that only the host has."""
        here, missing = _hosted(node), 0
        while not here.device:
            missing += here.blocks
            here = _hosted(here.parent)
        return here, missing

    # ---- changes ----

    def insert_computed(self, keys: Sequence[range], counted: int) -> tuple[Node, int]:
        """Insert content that a request has computed; return its last node, and the blocks that the GPU had already.

        Content that the GPU had evicted is on the GPU again. ``counted``: blocks of the path whose nodes have been
        counted for this request.
        """
        here, matched, depth = _hosted(self.root), 0, 0
        left = keys
        while left and (child := here.children.get(left[0].start)) is not None:
            node = _hosted(child)
            node.used = self._tick()
            alike, left = shared(node.keys, left)
            if alike < node.blocks:
                node = _hosted(self._split(node, alike))
            else:
                self._offer(node)
            depth += alike
            if node.device:
                matched += alike
            else:
                self._materialise(node)
                self._note_duplicate(node)
            if depth > counted:
                self._count_in(node)
            here = node
        if left:
            here = _hosted(self._add(here, tuple(left)))
            self.idle += here.blocks
            self._offer(here)
            if depth + here.blocks > counted:
                self._count_in(here)
        return here, matched

    def insert(self, keys: Sequence[range]) -> tuple[Node, int]:
        """Insert content without counting it."""
        return self.insert_computed(keys, _UNLIMITED)

    def insert_again(self, node: Node, depth: int, blocks: int) -> bool:  # noqa: ARG002  (the base's signature)
        """Return False: there is more to it here."""
        return False

    def _count_in(self, node: HostNode) -> None:
        """Count an insertion of a node; after enough of them, write it and its ancestors to the host."""
        if not self._often:
            return
        node.hits += 1
        if node.host or node.hits < self._often:
            return
        chain = [node]
        while not (above := _hosted(chain[-1].parent)).host and above.parent is not None:
            chain.append(above)
        for ancestor in reversed(chain):
            if not self._copy(ancestor):
                return
            owner = self._new_owner()
            self.hold(owner, ancestor)
            self.queued.append((owner, ancestor.blocks))

    def _new_owner(self) -> int:
        """Return a new owner that is not a request."""
        self._owners -= 1
        return self._owners

    def _copy(self, node: HostNode) -> bool:
        """Copy a node to the host, if it has room or can make room; return whether it did."""
        host = self.host
        lacking = node.blocks - (host.total - host.used)
        if lacking > 0 and self._forget(lacking) < lacking:
            return False
        node.host = True
        host.used += node.blocks
        host.stored += node.blocks
        return True

    def evict(self) -> int:
        """Evict the least recently used leaf from the GPU as a whole; return its number of blocks, 0 = none left."""
        blocks = 0
        while not blocks and (evictable := self._evictable.take()) is not None:
            node = _hosted(evictable)
            if not node.host and not self._often and self._copy(node):
                self._note_duplicate(node)
                self.written_back.append(node.blocks)
            if node.host:
                blocks = self._demote(node)
            elif self._droppable(node):
                blocks = self._drop(node)
            else:
                self._aside.append(node)
        for node in self._aside:
            self._offer(node)
        self._aside.clear()
        return blocks

    def _demote(self, node: HostNode) -> int:
        """Remove a node from the GPU; only the host has it from now on."""
        parent = _hosted(node.parent)
        node.device, node.lost_us = False, self.now
        self.idle -= node.blocks
        parent.resident -= 1
        self._offer(node)
        self._offer(parent)
        return node.blocks

    def _droppable(self, node: HostNode) -> bool:
        """Whether a node may be dropped with all its descendants."""
        below = [node]
        for child in below:
            if child.references or child.loading or child is self.guarded:
                return False
            below += map(_hosted, child.children.values())
        return True

    def _drop(self, node: HostNode) -> int:
        """Drop a node for which the host has no room, with its descendants there."""
        below = [node]
        for descendant in below:
            below += map(_hosted, descendant.children.values())
        for descendant in reversed(below):
            if descendant.host:
                self._release_host(descendant)
        for descendant in reversed(below):
            self._remove(descendant)
        self.idle -= node.blocks
        return node.blocks

    def _remove(self, node: HostNode) -> None:
        parent = _hosted(node.parent)
        del parent.children[node.keys[0].start]
        parent.resident -= node.device
        node.parent = None
        self._count -= 1
        self.duplicates.pop(node.number, None)
        self._offer(parent)

    def _release_host(self, node: HostNode) -> None:
        node.host = False
        self.host.used -= node.blocks
        self.host.dropped += node.blocks

    def _forget(self, blocks: int) -> int:
        """Make room on the host for ``blocks`` blocks if possible; return how many were freed."""
        freed = 0
        if not self._often:
            freed = self._forget_duplicates(blocks)
        while freed < blocks and (node := self._host_evictable.take()) is not None:
            if node is self.guarded:
                self._aside.append(node)
                continue
            freed += node.blocks
            self._release_host(node)
            self._remove(node)
        return freed

    def _forget_duplicates(self, blocks: int) -> int:
        """Free host copies of nodes that are on the GPU, too; those that the GPU would evict next go last."""
        freed, gone = 0, []
        for spares in (True, False):
            for number, node in self.duplicates.items():
                if freed >= blocks:
                    break
                if not (node.device and node.host):
                    gone.append(number)
                elif not (spares and node.evictable) and not node.loading and node is not self.guarded:
                    freed += node.blocks
                    self._release_host(node)
                    gone.append(number)
        for number in gone:
            self.duplicates.pop(number, None)
        return freed

    def _note_duplicate(self, node: HostNode) -> None:
        if node.device and node.host and not node.loading:
            self.duplicates.setdefault(node.number, node)
        else:
            self.duplicates.pop(node.number, None)

    def _materialise(self, node: HostNode) -> None:
        """Mark a node as on the GPU again."""
        node.device = True
        _hosted(node.parent).resident += 1
        self.idle += node.blocks
        self._offer(node)

    def load(self, node: HostNode) -> tuple[int, int]:
        """Load the path up to a node back to the GPU, which has room for it.

        Returns the owner that holds it meanwhile, and how many blocks the GPU had evicted only recently.
        """
        owner, here, thrashing = self._new_owner(), node, 0
        while not here.device:
            thrashing += here.blocks if self.now - here.lost_us <= THRASHING_US else 0
            here.loading = 0 if self._often else owner
            self._materialise(here)
            here = _hosted(here.parent)
        self.hold(owner, node)
        return owner, thrashing

    def loaded(self, owner: int) -> None:
        """Finish a load."""
        node = _hosted(self.holders[owner])
        while node.parent is not None:
            if self._often or node.loading == owner:
                node.loading = 0
                self._note_duplicate(node)
            node = _hosted(node.parent)

    def clear(self) -> None:
        """Drop everything; no node may have a holder."""
        super().clear()
        _hosted(self.root).resident = 0
        self.host.used = 0
        self.queued.clear()
        self.written_back.clear()
        self.duplicates.clear()
        self._host_evictable.clear()

    # ---- internals ----

    def _make(self, number: int, keys: tuple[range, ...], parent: Node, used: int) -> Node:
        above = _hosted(parent)
        above.resident += 1
        return HostNode(number, keys, above, used)

    def _split(self, node: Node, head: int) -> Node:
        tail = _hosted(node)
        first = _hosted(super()._split(tail, head))
        first.device, first.host, first.hits = tail.device, tail.host, tail.hits
        first.loading, first.lost_us = tail.loading, tail.lost_us
        # The head was created as if it were on the GPU, in the place of the other part.
        _hosted(first.parent).resident -= 1
        first.resident = int(tail.device)
        self._note_duplicate(first)
        return first

    def _offer(self, node: Node) -> None:
        super()._offer(node)
        self._host_evictable.offer(_hosted(node), self._count)

    # ---- for digests and invariants ----

    def state(self) -> tuple[object, ...]:
        """Return everything that determines its future, as plain values."""
        nodes = sorted(map(_hosted, self.nodes()), key=lambda node: node.number)
        places = tuple((node.number, node.device, node.host, node.hits, node.loading, node.lost_us) for node in nodes)
        kept = tuple(number for number, duplicate in self.duplicates.items() if duplicate.parent is not None)
        return (*super().state(), places, kept, self._owners, tuple(self.queued), tuple(self.written_back))

    def resident(self) -> Iterator[Node]:
        """Iterate over the nodes on the GPU."""
        return (node for node in self.nodes() if _hosted(node).device)

    def audit(self) -> str:
        """Check the books; return what is wrong, or an empty string."""
        used = 0
        for node in map(_hosted, self.nodes()):
            used += node.blocks if node.host else 0
            if not node.device and (node.references or not node.host or node.resident):
                return f"node {node.number} is on the host alone, and needed on the GPU"
            if node.resident != len([each for each in node.children.values() if _hosted(each).device]):
                return f"node {node.number} counts {node.resident} of its children on the GPU"
        if used != self.host.used or used > self.host.total:
            return f"the host holds {used} blocks, {self.host.used} are counted, and {self.host.total} fit"
        return super().audit()


@mypyc_attr(allow_interpreted_subclasses=True)
class HiCache(Tiers):
    """The transfers between the GPU and the host.

    Attributes:
        pool: the KV blocks.
        writes: transfers to the host, in the order in which they end.
        loads: transfers from the host, in the order in which they end.
        arriving: loads of the current plan: request, blocks, and how many of them had been evicted only recently.
    """

    def __init__(self, spec: KvTiers, block_tokens: int, total: int, prompts: PromptKeys) -> None:
        super().__init__(spec, block_tokens)
        self.looks_up = False
        host = HostTier(spec, total)
        self.tiers = [host]
        self.pool = HostPool(total, block_tokens, prompts, self, HostTree(host, spec.write_policy))
        self.writes: deque[Transfer] = deque()
        self.loads: deque[Transfer] = deque()
        self.arriving: list[tuple[Request, int, int]] = []
        self._loading: list[int] = []
        self._write_free_us = self._read_free_us = self._waited_us = 0

    def begin_plan(self, now: int) -> None:
        """Prepare for the planning of a step: start queued writes, and release content whose transfers have ended."""
        pool, tree = self.pool, self.pool.host_tree
        self.now = tree.now = now
        self.submit(now)
        for transfers, loads in ((self.writes, False), (self.loads, True)):
            while transfers and transfers[0].end_us <= now:
                for owner in transfers.popleft().owners:
                    if loads:
                        tree.loaded(owner)
                    pool.free += tree.let_go(owner)
                pool.epoch += 1

    def submit(self, now: int) -> None:
        """Start the queued writes as one transfer."""
        queued = self.pool.host_tree.queued
        if not queued:
            return
        blocks = whole_sum([count for _, count in queued])
        self._write_free_us = max(now, self._write_free_us) + self._book_transfer(blocks)
        self.writes.append(Transfer(self._write_free_us, tuple(owner for owner, _ in queued)))
        queued.clear()

    def restore_blocks(self, request: Request, node: HostNode, blocks: int) -> None:
        """Load what an admitted request continues from."""
        owner, thrashing = self.pool.host_tree.load(node)
        self._loading.append(owner)
        self.tiers[0].loaded += blocks
        self.thrashing += thrashing
        self.arriving.append((request, blocks, thrashing))

    def start_loading(self, now: int) -> int:
        """Start the loads of the formed batch as one transfer; return when it ends, 0 = nothing is loaded."""
        if not self._loading:
            return 0
        blocks = whole_sum([count for _, count, _ in self.arriving])
        self._read_free_us = max(now + self.waited_us, self._read_free_us) + self._book_transfer(blocks)
        self.loads.append(Transfer(self._read_free_us, tuple(self._loading)))
        self._loading = []
        self.arriving.clear()
        return self._read_free_us

    @property
    def waited_us(self) -> int:
        """How long the current plan has waited for writes of nodes it evicts."""
        for blocks in self.pool.host_tree.written_back:
            self._waited_us += self._book_transfer(blocks)
        self.pool.host_tree.written_back.clear()
        return self._waited_us

    def pop_waited_us(self) -> int:
        """Return that waiting time and reset it."""
        waited, self._waited_us = self.waited_us, 0
        return waited

    def _book_transfer(self, blocks: int) -> int:
        took = self.tiers[0].us(blocks * self._block_tokens)
        self.transfer_us += took
        return took

    def transfer_time_us(self, blocks: int) -> int:
        """How long a transfer of ``blocks`` blocks takes by itself."""
        return self.tiers[0].us(blocks * self._block_tokens)

    @property
    def under_way(self) -> bool:
        """Whether any concurrent transfer is in flight."""
        return bool(self.writes or self.loads)

    @property
    def next_end_us(self) -> int:
        """When the first transfer in flight ends; -1 = there is none."""
        return min((queue[0].end_us for queue in (self.writes, self.loads) if queue), default=-1)

    @property
    def last_end_us(self) -> int:
        """When the latest transfer ends or has ended; 0 = there was none."""
        return max(self._write_free_us, self._read_free_us)

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:
        """Return the step's duration; computing layer by layer as content is loaded, it lasts until the load ends.

        It also lasts until the next step has been planned, which may have waited for evictions.
        """
        whole = max(duration_us, plan.loaded_us - now, self.pop_waited_us())
        self.added_us += whole - duration_us
        return whole

    def reset(self) -> None:
        """Drop all content."""
        for transfers in (self.writes, self.loads):
            for transfer in transfers:
                for owner in transfer.owners:
                    self.pool.free += self.pool.host_tree.let_go(owner)
            transfers.clear()
        for owner in (*self._loading, *(owner for owner, _ in self.pool.host_tree.queued)):
            self.pool.free += self.pool.host_tree.let_go(owner)
        self._loading = []
        self.arriving.clear()

    def state(self) -> tuple[object, ...]:
        """Return everything that determines what it does next, and its counts, as plain values (for digests)."""
        under_way = (tuple(self.writes), tuple(self.loads), self._write_free_us, self._read_free_us, self._waited_us)
        return (*super().state(), under_way)

    def audit(self) -> str:
        """Return an empty string: the audit of the tree covers everything."""
        return ""


@mypyc_attr(allow_interpreted_subclasses=True)
class HostPool(RadixPool):
    """The KV blocks of an instance whose radix tree extends into host memory."""

    def __init__(
        self, total: int, block_size_tokens: int, prompts: PromptKeys, hicache: HiCache, tree: HostTree
    ) -> None:
        super().__init__(total, block_size_tokens, prompts)
        self.tree = self.host_tree = tree
        self.tiers = self.hicache = hicache
        self._counted: dict[int, int] = {}
        """By request, the number of its blocks whose insertion has been counted."""

    def split_hit(self, node: Node) -> tuple[Node, int]:
        """Return where the GPU's part of a hit ends, and how many blocks after that only the host has."""
        return self.host_tree.on_gpu(node)

    def load_back(self, request: Request, node: Node, blocks: int) -> bool:
        """Load what a request continues from, if worthwhile and there is room; then the request holds it."""
        tree = self.host_tree
        if blocks * self.block_size_tokens < _LOAD_BACK_THRESHOLD:
            return False
        tree.guarded = _hosted(node)
        roomy = self.make_room(blocks)
        tree.guarded = None
        if not roomy:
            return False
        before = tree.idle
        self.hicache.restore_blocks(request, _hosted(node), blocks)
        # Blocks without content hold it now, and an owner keeps it until it has arrived.
        self.free += tree.idle - before - blocks
        self.lock(request, node)
        self.hits -= blocks
        self.misses += blocks
        return True

    def start_loading(self, plan: Plan, now: int) -> None:
        """Start the loads of the formed batch."""
        hicache = self.hicache
        for request, blocks, thrashing in hicache.arriving:
            source = ((hicache.tiers[0].name, blocks),)
            plan.reloaded += (Reloaded(request, blocks, source, thrashing, hicache.transfer_time_us(blocks)),)
        plan.loaded_us = hicache.start_loading(now)

    def on_step_results(self, now: int) -> None:
        """Start queued writes, as a step's results have been inserted."""
        self.hicache.submit(now)

    def pop_waited_us(self) -> int:
        """How long the current plan has waited for evicted content to be written to the host."""
        return self.hicache.pop_waited_us()

    def next_change_us(self) -> int:
        """When content in transfer arrives, so that there is more room; -1 = none is in transfer."""
        return self.hicache.next_end_us

    def last_change_us(self) -> int:
        """When the latest transfer ends or has ended; 0 = there was none."""
        return self.hicache.last_end_us

    def _insert_computed(self, request: Request, tokens: int) -> tuple[Node, int]:
        return self.host_tree.insert_computed(self.keys(request, tokens), self._counted.get(request.index, 0))

    def checkpoint(self, request: Request, computed_tokens: int) -> None:
        """Make findable what a request has computed."""
        super().checkpoint(request, computed_tokens)
        if request.shared_blocks:
            self._counted[request.index] = max(self._counted.get(request.index, 0), request.shared_blocks)

    def release(
        self,
        request: Request,
        content_tokens: int,
        *,
        findable: bool = False,
        end: int | None = None,
        aborted_us: int | None = None,
    ) -> None:
        """Take back all blocks of ``request``."""
        super().release(request, content_tokens, findable=findable, end=end, aborted_us=aborted_us)
        self._counted.pop(request.index, None)

    def reset(self) -> None:
        """Drop all content; no request may hold any."""
        self.hicache.reset()
        super().reset()
