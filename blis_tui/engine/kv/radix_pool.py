"""The KV blocks of an instance that shares prompts by a radix tree, as SGLang does.

A block is a page of SGLang's: one token, unless ``block_size_tokens`` says more. A request holds what it found in the
tree and blocks of its own; what it computes becomes findable when SGLang sees the step's result, and stays in the tree
when it leaves, until it is evicted: leaf by leaf, as a whole, the one first that was used least recently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import mypyc_attr
from blis_tui.engine.kv.pool import BlockPool
from blis_tui.engine.kv.radix_tree import RadixTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.kv.prompt_keys import PromptKeys
    from blis_tui.engine.kv.radix_tree import Node
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request, Segments


@mypyc_attr(allow_interpreted_subclasses=True)
class RadixPool(BlockPool):
    """All KV blocks of one instance.

    Args:
        total: blocks in the pool.
        block_size_tokens: tokens of one.
        prompts: the keys of prompts.
        caching: whether anything can be found again (``enable_prefix_caching``).

    Attributes:
        tree: what can be found. ``free`` counts its blocks without a holder, too: they can be evicted.
    """

    __slots__ = ("tree",)

    def __init__(self, total: int, block_size_tokens: int, prompts: PromptKeys, *, caching: bool = True) -> None:
        super().__init__(total, block_size_tokens, prompts, caching=caching)
        self.tree = RadixTree()

    @property
    def available(self) -> int:
        """Blocks without any content."""
        return self.free - self.tree.idle

    # ---- what a batching rule does with it ----

    def keys(self, request: Request, tokens: int) -> Sequence[range]:
        """The keys of the whole blocks among the first tokens of a request, those it generates included."""
        return self._prefix(request, tokens // self.block_size_tokens)

    def match(self, request: Request, tokens: int) -> tuple[Node, int]:
        """Look up the first tokens of a request: where what is found ends, and how many blocks that are."""
        return self.tree.match(self.keys(request, tokens) if self.caching else ())

    def lock(self, request: Request, node: Node) -> None:
        """What ends there is no longer evicted: the request needs it."""
        self.free += self.tree.hold(request.index, node)
        self.min_free = min(self.min_free, self.free)

    def unlock(self, request: Request) -> None:
        """It does not, after all."""
        self.free += self.tree.let_go(request.index)

    def make_room(self, blocks: int) -> bool:
        """Evict until so many blocks have no content; returns whether they have."""
        while self.available < blocks:
            if not self.tree.evict():
                return False
            self.epoch += 1
        return True

    def pin(self, request: Request, blocks: int) -> None:
        """Note that the request goes on from what it has locked."""
        request.held_blocks = request.shared_blocks = blocks
        self.hits += blocks

    def extend(self, request: Request, computed_tokens: int) -> None:
        """Take room for what a request computes; it is found when it is there (``checkpoint``)."""
        self.hold(request, computed_tokens)

    def take(self, count: int) -> None:
        """Take blocks without content, evicting as many as need be. ``count <= free`` must hold."""
        self.make_room(count)
        self.misses += count
        self.free -= count
        self.min_free = min(self.min_free, self.free)

    def checkpoint(self, request: Request, computed_tokens: int) -> None:
        """What a request has computed can be found from now on; what was there already, it holds no longer twice.

        A leaf ends where the prompt does: what was generated can be evicted without it.
        """
        blocks = computed_tokens // self.block_size_tokens
        if not self.caching or blocks < max(1, request.shared_blocks):
            return
        tree, before = self.tree, self.tree.idle
        node, found = self._put_in(request, computed_tokens)
        prompt = request.input_tokens // self.block_size_tokens
        if 0 < prompt < blocks:
            tree.insert(self.keys(request, request.input_tokens))
        self.free += found - request.shared_blocks + tree.idle - before
        self.lock(request, node)
        request.shared_blocks = blocks
        self.epoch += 1

    def _put_in(self, request: Request, tokens: int) -> tuple[Node, int]:
        """Put its first tokens in; returns where they end, and how many blocks of them were there."""
        return self.tree.insert(self.keys(request, tokens))

    # ---- what pools have that go on in host memory ----

    def split_hit(self, node: Node) -> tuple[Node, int]:
        """Of what was found, where that ends which the GPU has, and the blocks behind that the host alone has."""
        return node, 0

    def load_back(self, request: Request, node: Node, blocks: int) -> bool:  # noqa: ARG002  (there is nothing)
        """Load what a request goes on from, if that is worth it and there is room; then the request holds it."""
        return False

    def start_loading(self, plan: Plan, now: int) -> None:
        """Load for the batch that has been formed."""

    def results_taken(self, now: int) -> None:
        """A step's results have been put in."""

    def take_waited_us(self) -> int:
        """How long the plan at hand has waited for what it evicted to be written to the host."""
        return 0

    def next_change_us(self) -> int:
        """When content arrives that is on its way, so that there is more room; -1 = none is."""
        return -1

    def release(self, request: Request, content_tokens: int, *, findable: bool = False, end: int | None = None) -> None:  # noqa: ARG002  (for pools that hide content)
        """Take back all blocks of ``request``; its first ``content_tokens`` stay in the tree."""
        self.checkpoint(request, content_tokens)
        self.free += request.held_blocks - request.shared_blocks
        self.unlock(request)
        request.held_blocks = request.shared_blocks = 0
        self.epoch += 1

    # ---- what others see of it ----

    def visible_head(self, segments: Segments, now: int) -> int:  # noqa: ARG002  (all that is found is computed)
        """How many leading blocks of these segments are in the tree."""
        return self.tree.length(self.prompts.stretches(segments).parts)

    def visible_keys(self, now: int) -> frozenset[int]:  # noqa: ARG002  (all that is found is computed)
        """The keys of all blocks in the tree."""
        return frozenset(key for node in self.tree.nodes() for keys in node.keys for key in keys)

    def hide_unseen(self) -> None:
        """What is not computed is not in the tree."""

    def cached_free(self) -> int:
        """Blocks without a holder that can be found."""
        return self.tree.idle

    def wipe(self) -> None:
        """Forget all content; none may have a holder."""
        self.tree.clear()
        self.epoch += 1

    def state(self) -> tuple[object, ...]:
        """Everything that decides the pool's future, as plain values (for digests and invariants)."""
        return (self.free, self.hits, self.misses, self.min_free, self.tree.state())

    def audit(self, holders: Sequence[tuple[Request, int]]) -> str:
        """What is wrong with the books, given who holds how many blocks; empty when nothing is."""
        private = 0
        for request, held in holders:
            private += held - request.shared_blocks
        if private + self.tree.held + self.free != self.total:
            return f"{private} private + {self.tree.held} shared + {self.free} free blocks are not {self.total}"
        return self.tree.audit()


def radix_pool(pool: BlockPool) -> RadixPool:
    """The same pool, as who needs its tree sees it.

    Raises:
        TypeError: it has none.
    """
    if not isinstance(pool, RadixPool):
        raise TypeError(f"{pool!r} has no radix tree")
    return pool
