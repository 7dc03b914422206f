"""The KV blocks of an instance that shares prompts through a radix tree, as in SGLang.

A block is an SGLang page: one token, unless ``block_size_tokens`` says more. A request holds what it found in the tree
and blocks of its own. What it computes becomes findable when SGLang processes the step's result, and stays in the tree
after the request has left, until it is evicted. Eviction takes whole leaves, the least recently used first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.kv.pool import BlockPool
from blis_tui.engine.sglang.radix_tree import RadixTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.kv.keys import PromptKeys
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request, Segments
    from blis_tui.engine.sglang.radix_tree import Node


@mypyc_attr(allow_interpreted_subclasses=True)
class RadixPool(BlockPool):
    """All KV blocks of one instance.

    Args:
        total: blocks in the pool.
        block_size_tokens: tokens per block.
        prompts: the keys of prompts.
        caching: whether anything can be found again (``enable_prefix_caching``).

    Attributes:
        tree: the findable content. ``free`` includes its blocks without a holder, as they can be evicted.
    """

    def __init__(self, total: int, block_size_tokens: int, prompts: PromptKeys, *, caching: bool = True) -> None:
        super().__init__(total, block_size_tokens, prompts, caching=caching)
        self.tree = RadixTree()

    # ---- operations for batching rules ----

    def keys(self, request: Request, tokens: int) -> Sequence[range]:
        """The keys of the whole blocks among the first ``tokens`` tokens of a request, generated ones included."""
        return self._prefix(request, tokens // self.block_size_tokens)

    def match(self, request: Request, tokens: int) -> tuple[Node, int]:
        """Look up the first tokens of a request; return the last node found, and the number of blocks found."""
        return self.tree.match(self.keys(request, tokens) if self.caching else ())

    def lock(self, request: Request, node: Node) -> None:
        """Protect the path to a node from eviction, because the request needs it."""
        self.free += self.tree.hold(request.index, node)
        if self.free < self.min_free:
            self.min_free = self.free

    def unlock(self, request: Request) -> None:
        """Undo a lock."""
        self.free += self.tree.let_go(request.index)

    def make_room(self, blocks: int) -> bool:
        """Evict until ``blocks`` blocks have no content; return whether that succeeded."""
        while self.free - self.tree.idle < blocks:
            if not self.tree.evict():
                return False
            self.epoch += 1
        return True

    def pin(self, request: Request, blocks: int) -> None:
        """Record that the request continues from what it has locked."""
        request.held_blocks = request.shared_blocks = blocks
        self.hits += blocks

    def extend(self, request: Request, computed_tokens: int) -> None:
        """Reserve room for what a request computes; it becomes findable once computed (``checkpoint``)."""
        self.hold(request, computed_tokens)

    def take(self, count: int) -> None:
        """Take blocks without content, evicting as many as necessary. ``count <= free`` must hold."""
        if self.free - self.tree.idle < count:
            self.make_room(count)
        self.misses += count
        self.free -= count
        if self.free < self.min_free:
            self.min_free = self.free

    def checkpoint(self, request: Request, computed_tokens: int) -> None:
        """Make findable what a request has computed; release its duplicates of content that was there already.

        A leaf ends where the prompt does, so that generated tokens can be evicted without the prompt.
        """
        node = self._enter(request, computed_tokens)
        if node is not None:
            self.lock(request, node)

    def _enter(self, request: Request, computed_tokens: int) -> Node | None:
        """Do the same without a lock; return the last node, None = there is no content."""
        blocks = computed_tokens // self.block_size_tokens
        if not self.caching or not blocks or blocks < request.shared_blocks:
            return None
        tree, before = self.tree, self.tree.idle
        node, known = self._insert_computed(request, computed_tokens)
        prompt = request.input_tokens // self.block_size_tokens
        if 0 < prompt < blocks and not tree.insert_again(node, blocks, prompt):
            tree.insert(self.keys(request, request.input_tokens))
        self.free += known - request.shared_blocks + tree.idle - before
        request.shared_blocks = blocks
        self.epoch += 1
        return node

    def _insert_computed(self, request: Request, tokens: int) -> tuple[Node, int]:
        """Insert a request's first tokens; return the last node, and how many of the blocks were there already."""
        return self.tree.insert(self.keys(request, tokens))

    def common_blocks(self, request: Request, other: Request) -> int:
        """Number of blocks that both hold: those of the nodes on the paths to what each has locked."""
        paths = [self.tree.path_of(each.index) for each in (request, other)]
        return whole_sum([node.blocks for node in paths[0] if node in paths[1]])

    # ---- for pools that extend into host memory ----

    def split_hit(self, node: Node) -> tuple[Node, int]:
        """Return where the GPU's part of a hit ends, and how many blocks after that only the host has."""
        return node, 0

    def load_back(self, request: Request, node: Node, blocks: int) -> bool:  # noqa: ARG002  (there is no host memory)
        """Load what a request continues from, if worthwhile and there is room; then the request holds it."""
        return False

    def start_loading(self, plan: Plan, now: int) -> None:
        """Start the loads of the formed batch."""

    def on_step_results(self, now: int) -> None:
        """React to the insertion of a step's results."""

    def pop_waited_us(self) -> int:
        """How long the current plan has waited for evicted content to be written to the host."""
        return 0

    def next_change_us(self) -> int:
        """When content in transfer arrives, so that there is more room; -1 = none is in transfer."""
        return -1

    def last_change_us(self) -> int:
        """When the latest transfer ends or has ended; -1 = there was none."""
        return -1

    def release(
        self,
        request: Request,
        content_tokens: int,
        *,
        findable: bool = False,  # noqa: ARG002  (all content can be found)
        end: int | None = None,  # noqa: ARG002  (for pools that hide content)
        aborted_us: int | None = None,  # noqa: ARG002  (for pools that give up requests before others end)
    ) -> None:
        """Take back all blocks of ``request``; its first ``content_tokens`` stay in the tree."""
        self._enter(request, content_tokens)
        self.free += request.held_blocks - request.shared_blocks
        self.unlock(request)
        request.held_blocks = request.shared_blocks = 0
        self.epoch += 1

    # ---- what others see ----

    def visible_head(self, segments: Segments, now: int) -> int:  # noqa: ARG002  (everything in the tree is computed)
        """Number of leading blocks of these segments in the tree."""
        return self.tree.length(self.prompts.key_ranges(segments).parts)

    def visible_keys(self, now: int) -> frozenset[int]:  # noqa: ARG002  (as above)
        """Return the keys of all blocks in the tree."""
        return frozenset(key for node in self.tree.nodes() for keys in node.keys for key in keys)

    def track_pending(self) -> None:
        """Do nothing: only computed content is in the tree."""

    def cached_free(self) -> int:
        """Number of findable blocks without a holder."""
        return self.tree.idle

    def reset(self) -> None:
        """Drop all content, which may have no holder."""
        self.tree.clear()
        self.epoch += 1

    def state(self) -> tuple[object, ...]:
        """Return everything that determines the pool's future, as plain values (for digests and invariants)."""
        return (self.free, self.hits, self.misses, self.min_free, self.tree.state())

    def audit(self, holders: Sequence[tuple[Request, int]]) -> str:
        """Check the books against the holders and their block counts; return what is wrong, or an empty string."""
        private = whole_sum([held - request.shared_blocks for request, held in holders])
        if private + self.tree.held + self.free != self.total:
            return f"{private} private + {self.tree.held} shared + {self.free} free blocks are not {self.total}"
        return self.tree.audit()


def radix_pool(pool: BlockPool) -> RadixPool:
    """Return the pool as a ``RadixPool``.

    Raises:
        TypeError: it has no radix tree.
    """
    if not isinstance(pool, RadixPool):
        raise TypeError(f"{pool!r} has no radix tree")
    return pool
