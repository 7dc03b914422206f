"""The KV block pool of one instance: used blocks, free blocks, and the content that free blocks still hold.

Three facts keep it small and fast:

* A prompt has no tokens here, only segments, so a block's content is a key (see ``PromptKeys``). Blocks whose content
  only their holder could ever request are *private*: they are counted, never listed.
* Blocks that others can find are listed as *extents*: consecutive blocks that have the same holders, or are next to
  each other in the free order. A long prompt is a few extents, not hundreds of blocks.
* ``blank`` counts the anonymous blocks at the very front of the free order: never-used ones at first, later each run of
  private blocks as it reaches the front. Taking blocks is then mostly one subtraction.

Callers check every allocation first (``free`` is exact); nothing is rolled back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.kv.blocks import FreeOrder, PrefixIndex
from blis_tui.engine.kv.extent import Piece
from blis_tui.engine.kv.keys import INDEX_MASK, PendingBlocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.engine.kv.extent import Extent
    from blis_tui.engine.kv.keys import PromptKeys
    from blis_tui.engine.options.tiers import Tiers
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request, Segments


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockPool(Picklable):
    """All KV blocks of one instance.

    Args:
        total: blocks in the pool.
        block_size_tokens: tokens per block.
        prompts: the keys of prompts.
        caching: whether computed blocks can be found again (``enable_prefix_caching``).
        as_vllm: two rules in which vLLM differs from BLIS. Blocks that are given back without full content are reused
            first, not last; of several blocks with the same content, the one computed first is found, not the latest.
            Source: vLLM 0.32.0, ``v1/core/block_pool.py`` lines 61 and 784.

    Attributes:
        total: blocks in the pool.
        free: unreferenced blocks (their content may still be findable).
        caching: whether computed blocks can be found again (``enable_prefix_caching``).
        blank: number of anonymous free blocks that will be taken before anything else.
        hits: total of blocks found in the cache at admission.
        misses: total of blocks taken from the free list.
        queried_tokens: prompt tokens that requests looked up in the cache when they were first scheduled.
        found_tokens: how many of them they found, in tiers below the GPU's cache as well.
        preempted_lookups: how often preempted requests looked up their tokens in the cache when they came back.
        preempted_queries: tokens in these lookups.
        preempted_hits: tokens that these lookups found.
        min_free: the lowest value of ``free`` so far.
        epoch: changes whenever a request that did not fit before may fit now.
        pending_blocks: content that became findable in steps that may not be over; None = not tracked.
        tiers: where evicted content goes; None = nowhere.
        has_deadlines: whether requests may be given up while a step is in progress. Engines free their blocks before
            those of requests that end in it.
    """

    __slots__ = (
        "_as_vllm",
        "_ended",
        "_index",
        "_order",
        "blank",
        "block_size_tokens",
        "caching",
        "epoch",
        "found_tokens",
        "free",
        "has_deadlines",
        "hits",
        "min_free",
        "misses",
        "pending_blocks",
        "preempted_hits",
        "preempted_lookups",
        "preempted_queries",
        "prompts",
        "queried_tokens",
        "tiers",
        "total",
    )

    served_in_order: ClassVar[bool] = False
    """Whether the order in which the requests of a step get their blocks matters for what is evicted later."""

    def __init__(
        self, total: int, block_size_tokens: int, prompts: PromptKeys, *, caching: bool = True, as_vllm: bool = False
    ) -> None:
        self.caching = caching
        self._as_vllm = as_vllm
        self.total = total
        self.block_size_tokens = block_size_tokens
        self.prompts = prompts
        self.free = self.blank = self.min_free = total
        self.hits = 0
        self.misses = 0
        self.queried_tokens = self.found_tokens = 0
        self.preempted_lookups = self.preempted_queries = self.preempted_hits = 0
        self.epoch = 0
        self._order = FreeOrder()
        self.has_deadlines = False
        self._ended: tuple[int, list[tuple[range, list[Extent]]]] = (-1, [])
        """When the latest step ends, and for each request that ends in it where its blocks are in the free order, and
        the extents it held. Tracked where requests have deadlines."""
        self._index = PrefixIndex(self._order, oldest=as_vllm)
        self.pending_blocks: PendingBlocks | None = None
        self.tiers: Tiers | None = None

    @property
    def used(self) -> int:
        """Number of blocks that some request holds."""
        return self.total - self.free

    def cached_prefix(self, request: Request, limit_blocks: int) -> int:
        """Number of leading blocks of the prompt, at most ``limit_blocks``, that are in the cache now."""
        keys = self.prompts.key_ranges(request.content)
        cached = self._index.head(keys.parts)
        # Only a preempted request has left content of its own.
        if request.preemptions and cached == keys.blocks < limit_blocks:
            cached += self._index.head((self._own(request, cached, limit_blocks),))
        return min(cached, limit_blocks)

    def visible_head(self, segments: Segments, now: int) -> int:
        """Number of leading blocks of these segments that others see cached, which they do after the computing step."""
        parts = self.prompts.key_ranges(segments).parts
        cached = self._index.head(parts)
        return (
            self.pending_blocks.visible_count(parts, cached, now)
            if cached and self.pending_blocks is not None
            else cached
        )

    def visible_keys(self, now: int) -> frozenset[int]:
        """Return the keys of all blocks that others see in the cache."""
        unseen = self.pending_blocks
        return frozenset(
            key
            for extent in self._index
            for key in (unseen.seen(extent.keys, now) if unseen is not None else extent.keys)
        )

    def track_pending(self) -> None:
        """Track from now on which steps are over."""
        self.pending_blocks = PendingBlocks()

    def computed(self, now: int, end: int) -> None:
        """Record that content findable since the last call is computed at ``end``; others see it after that."""
        if self.pending_blocks is not None:
            self.pending_blocks.computed(now, end)

    def planned(self) -> None:
        """Hide what became findable since the last call of ``computed`` until it is computed."""
        if self.pending_blocks is not None:
            self.pending_blocks.planned()

    def publish_transferred(self, request: Request) -> None:
        """Show the prompt's content, transferred from elsewhere, at once, even if a step here computes the same."""
        if self.pending_blocks is not None:
            self.pending_blocks.publish_transferred(
                self._prefix(request, request.input_tokens // self.block_size_tokens)
            )

    def checkpoint(self, request: Request, computed_tokens: int) -> None:
        """Do nothing: content can be found since it was planned (``extend``)."""

    def idle_among(self, request: Request, blocks: int) -> int:
        """Number of unreferenced blocks among the first ``blocks`` cached ones; pinning them takes free blocks."""
        return self._index.unreferenced(self._prefix(request, blocks)) if blocks else 0

    def entry_blocks(self, request: Request, cached: int, slots: int, whole: int) -> int:
        """Number of free blocks needed to admit a request.

        Args:
            request: the request, which holds nothing.
            cached: leading blocks that need not be computed.
            slots: tokens for which it needs slots in the next step.
            whole: tokens for which there must be room, except where windows have passed them; 0 = ``slots`` suffice.
        """
        need = -(-(whole if whole > slots else slots) // self.block_size_tokens) - cached
        return need + self.idle_among(request, cached) if cached else need

    def pin(self, request: Request, blocks: int) -> None:
        """Give ``request`` (which holds nothing) the first ``blocks`` cached blocks of its prompt, at least one."""
        for extent in self._index.found(self._prefix(request, blocks)):
            if not extent.references:
                self._order.remove(extent)
                self.free -= extent.count
            extent.references += 1
            request.pieces.append(Piece(extent.key, extent.count, extent.label))
        request.held_blocks = request.shared_blocks = blocks
        self.hits += blocks
        self.min_free = min(self.min_free, self.free)

    def missing(self, request: Request, computed_tokens: int) -> int:
        """Number of blocks to take before ``request`` can hold ``computed_tokens`` tokens."""
        return -(-computed_tokens // self.block_size_tokens) - request.held_blocks

    def shared_prefix_blocks(self, request: Request) -> int:
        """Number of its leading blocks that others hold, too; they stay in the cache if it gives up its own."""
        common = 0
        for piece in request.pieces:
            for extent in self._index.held(piece):
                if extent.references == 1:
                    return common
                common += extent.count
        return common

    def common_blocks(self, request: Request, other: Request) -> int:
        """Number of blocks that both hold: of each content the same copy, always from the first block on."""
        common = 0
        for own in request.pieces:
            for its in other.pieces:
                if own.label == its.label:
                    common += max(min(own.keys.stop, its.keys.stop) - max(own.key, its.key), 0)
        return common

    def most_blocks(self, tokens: int) -> int:
        """Maximum number of blocks that a request of this length holds at the same time."""
        return -(-tokens // self.block_size_tokens)

    def most_tokens(self) -> int:
        """Length of the longest request that the pool has room for."""
        return self.total * self.block_size_tokens

    def tokens_held(self, blocks: int, requests: int) -> int:  # noqa: ARG002  (each block holds its tokens for all layers)
        """Number of tokens for which ``requests`` requests hold these blocks together."""
        return blocks * self.block_size_tokens

    def slide(self, request: Request) -> None:
        """Take back the blocks that no further token of a running request attends to; here each token does."""

    def hold(self, request: Request, tokens: int) -> None:
        """Reserve blocks for ``tokens`` tokens that are not computed yet."""
        need = self.missing(request, tokens)
        if need > 0:
            self.take(need)
            request.held_blocks += need

    def extend(self, request: Request, computed_tokens: int) -> None:
        """Allocate blocks for ``computed_tokens`` tokens; shareable blocks that become full become findable."""
        need = -(-computed_tokens // self.block_size_tokens) - request.held_blocks
        if need > 0:
            self.take(need)
            request.held_blocks += need
        if request.segments and self.caching:
            keys = self.prompts.key_ranges(request.content)
            known = computed_tokens
            if request.content is not request.segments:  # all of the prompt is shareable, but the answer not yet there
                known = min(known, request.input_tokens - self.prompts.lookahead_tokens)
            full = min(known // self.block_size_tokens, keys.blocks)
            if request.shared_blocks < full:
                self._publish(request, _between(keys.parts, request.shared_blocks, full))
                request.shared_blocks = full

    def take(self, count: int) -> None:
        """Take ``count`` blocks in free order and forget their findable content. ``count <= free`` must hold."""
        self.misses += count
        self.free -= count
        if self.free < self.min_free:
            self.min_free = self.free
        while count > self.blank:
            count -= self.blank
            first = self._order.pop()
            if isinstance(first, int):
                self.blank = first
                continue
            if self.tiers is not None:
                self._offer_to_tiers(self.tiers, first, count)
            self.blank = first.count
            if first.count > count:
                self.blank = count
                self._order.put_back(first)
            self._index.forget(first, self.blank)
        self.blank -= count

    def _offer_to_tiers(self, tiers: Tiers, extent: Extent, count: int) -> None:
        """Pass the last ``count`` blocks of an extent to the tiers before they are taken."""
        for key in reversed(extent.keys[-count:]):
            tiers.evicted(key, self.total - self.free - count, self.total)
            self.epoch += 1
            count -= 1

    def extend_if_free(self, request: Request, tokens: int) -> None:
        """Give ``request`` one more block if it needs one for ``tokens`` tokens and one is free."""
        if self.free and self.missing(request, tokens) > 0:
            self.take(1)
            request.held_blocks += 1

    def release(
        self,
        request: Request,
        content_tokens: int,
        *,
        findable: bool = False,
        end: int | None = None,
        aborted_us: int | None = None,
    ) -> None:
        """Take back all blocks of ``request``, last block first.

        Its generated tokens stay in the cache if other prompts begin with them. With ``findable``, everything it has
        computed stays, under its own keys (a preempted request may come back for it); otherwise nothing will ever
        request the private part again. Only the first ``content_tokens`` have any content. ``end``: when the step that
        computes the last of it ends; -1 = it is computed; None = ``computed`` will tell. ``aborted_us``: when the
        request was given up; vLLM frees its blocks before those of requests that end in the step in progress.
        """
        self.epoch += 1
        timed = self.has_deadlines and self._as_vllm
        place = self._order.next_place if timed else 0
        computed = content_tokens // self.block_size_tokens
        if request.shared_blocks > computed:
            self._unpublish_after(request, computed)
        shared = named = request.shared_blocks
        if self.caching and (findable or request.content is not request.segments):
            known = computed if findable else min(computed, self.prompts.key_ranges(request.content).blocks)
            named = max(shared, known)
        if self.tiers is not None:
            self.tiers.store_released(self._known(request, named, computed if findable else 0)[::-1])
        tail = request.held_blocks - shared
        anonymous = request.held_blocks - named
        if self._as_vllm:
            partial = request.held_blocks - (computed if computed > shared else shared)
            self.blank += partial
            anonymous -= partial
        order = self._order
        order.park_anonymous(anonymous)
        if named > shared:
            for keys in reversed(_between(self._prefix(request, named), shared, named)):
                self._park_new(keys, end)
        self.free += tail
        held: list[Extent] = []
        if request.pieces:
            for piece in reversed(request.pieces):
                for extent in reversed(self._index.held(piece)):
                    extent.references -= 1
                    if not extent.references:
                        order.park(extent)
                        self.free += extent.count
                    if timed:
                        held.append(extent)
            request.pieces.clear()
        request.shared_blocks = request.held_blocks = 0
        if timed:
            self._order_of_step(range(place, order.next_place), held, end, aborted_us)

    def _order_of_step(self, places: range, extents: list[Extent], end: int | None, aborted_us: int | None) -> None:
        """Keep blocks of requests that end in a step behind those of requests that are given up meanwhile.

        Args:
            places: where blocks of a request were appended to the free order.
            extents: all that it held, in the order in which it gave them up.
            end: of the step, if the request ends in it.
            aborted_us: when it was given up.
        """
        order, (step_end, ended) = self._order, self._ended
        if end is not None and end >= 0:
            self._ended = (end, [*(ended if step_end == end else ()), (places, extents)])
        elif aborted_us is not None and aborted_us < step_end:
            for own, held in ended:
                order.move_behind(own)
                for extent in held:
                    if extent.place >= 0 and extent.place not in own:  # somebody else held it, too
                        order.remove(extent)
                        order.park(extent)

    def _unpublish_after(self, request: Request, computed: int) -> None:
        """Make blocks unfindable that a cancelled step granted but never computed."""
        pieces = request.pieces
        while request.shared_blocks > computed:
            piece = pieces[-1]
            extent = self._index.held(piece)[-1]
            if extent.references > 1:
                break
            gone = min(extent.count, request.shared_blocks - computed)
            self._index.forget(extent, gone)
            request.shared_blocks -= gone
            pieces[-1] = piece._replace(blocks=piece.blocks - gone)
            if piece.blocks == gone:
                pieces.pop()

    def _known(self, request: Request, named: int, computed: int) -> list[int]:
        """Return the keys of everything that others could find of what a request gives up, first block first."""
        keys = self.prompts.shareable(request.content)
        own = self.prompts.own
        return [*keys[:named], *(own(request, block) for block in range(len(keys), computed))]

    def reset(self) -> None:
        """Drop the content of all blocks, which must all be free."""
        if self.tiers is not None:
            self.tiers.reset()
        self.blank = self.total
        self.epoch += 1
        self._order.clear()
        self._index.clear()
        if self.pending_blocks is not None:
            self.pending_blocks.clear()

    def keys_after(self, request: Request, cached: int, limit: int) -> list[int]:
        """Return possible keys of the blocks of a prompt after its first ``cached`` ones."""
        keys = self.prompts.shareable(request.content)
        own = range(max(cached, len(keys)), limit) if request.preemptions else ()
        return [*keys[cached:limit], *(self.prompts.own(request, block) for block in own)]

    def restore_blocks(self, request: Request, cached: int, keys: Sequence[int]) -> None:
        """Put content that continues the first ``cached`` cached blocks of a prompt into free blocks.

        All of them stay free. They are reused after all others, the last block of the prompt first, so that what is
        left of a prompt is always its head. There must be enough free blocks besides those of the head.
        """
        head = self._prefix(request, cached)
        for extent in self._index.found(head):
            if not extent.references:
                self._order.remove(extent)
        self.take(len(keys))
        self.free += len(keys)
        for stretch in reversed(_key_ranges(keys)):
            self._park_new(stretch)
        # Taking one of their copies may have cut them.
        for extent in reversed(
            [extent for extent in self._index.found(head) if extent.place < 0 and not extent.references]
        ):
            self._order.park(extent)

    def in_tiers(self, request: Request, cached: int, limit: int) -> list[int]:
        """Return the keys of tier content that extends the cached blocks up to ``limit``, if admissions use tiers."""
        tiers = self.tiers
        if tiers is None or not tiers.looks_up:
            return []
        keys = self.keys_after(request, cached, limit)
        return keys[: tiers.found(keys)]

    def reload(self, plan: Plan, request: Request, cached: int, limit: int, room: int) -> bool:
        """Reload a prompt that does not fit from tiers into ``room`` free blocks; return whether they had any of it."""
        tiers = self.tiers
        if tiers is None or tiers.looks_up:
            return False
        keys = self.keys_after(request, cached, min(limit, cached + room))
        keys = keys[: tiers.found(keys)]
        if keys:
            tiers.load_into(plan, request, keys)
            self.restore_blocks(request, cached, keys)
        return bool(keys)

    def cached_free(self) -> int:
        """Number of free blocks whose content can still be found."""
        return whole_sum([0 if isinstance(entry, int) else entry.count for entry in self._order])

    def state(self) -> tuple[object, ...]:
        """Return everything that determines the pool's future, as plain values (for digests and invariants)."""
        order: list[object] = []
        for entry in self._order:
            order += [entry] if isinstance(entry, int) else [("block", key) for key in reversed(entry.keys)]
        return (self.free, self.blank, self.hits, self.misses, self.min_free, tuple(order))

    def audit(self, holders: Sequence[tuple[Request, int]]) -> str:
        """Check the books against the holders and their block counts; return what is wrong, or an empty string."""
        parked = self.blank
        for entry in self._order:
            if isinstance(entry, int):
                parked += entry
            elif entry.references or entry.place < 0:
                return f"block {entry.key:#x} stands in the free order with {entry.references} references"
            else:
                parked += entry.count
        if parked != self.free:
            return f"{self.free} blocks are said to be free, {parked} stand in the free order"
        references: dict[tuple[int, int], int] = {}
        extents: dict[tuple[int, int], Extent] = {}
        private = shared = 0
        for request, held in holders:
            private += held - request.shared_blocks
            for piece in request.pieces:
                for extent in self._index.held(piece):
                    name = (extent.key, extent.label)
                    references[name] = references.get(name, 0) + 1
                    extents[name] = extent
        for name, extent in extents.items():
            shared += extent.count
            if extent.references != references[name]:
                return f"block {extent.key:#x} counts {extent.references} references, {references[name]} are held"
        if private + shared + self.free != self.total:
            return f"{private} private + {shared} shared + {self.free} free blocks are not {self.total}"
        return self._index.audit()

    def _own(self, request: Request, start: int, stop: int) -> range:
        """Keys of blocks that end in tokens only ``request`` has."""
        first = self.prompts.own(request, start)
        return range(first, first + stop - start)

    def _prefix(self, request: Request, blocks: int) -> Sequence[range]:
        """Keys of the first ``blocks`` blocks of a request."""
        keys = self.prompts.key_ranges(request.content)
        if blocks == keys.blocks:
            return keys.parts
        if blocks < keys.blocks:
            return _between(keys.parts, 0, blocks)
        return (*keys.parts, self._own(request, keys.blocks, blocks))

    def _publish(self, request: Request, stretches: Iterable[range]) -> None:
        """Make findable what a request computes; of blocks with the same content, one is found at a time."""
        pieces = request.pieces
        for keys in stretches:
            before = pieces[-1] if pieces else None
            piece, _, fresh = self._index.add(keys, 1, before)
            if before is not None and piece.key == before.key:
                pieces[-1] = piece
            else:
                pieces.append(piece)
            self._published(keys, fresh, None)

    def _park_new(self, keys: range, end: int | None = None) -> None:
        """Assign content to anonymous free blocks, which are then taken after all others.

        ``end``: when the step that computes it ends; -1 = it is computed; None = ``computed`` will tell.
        """
        _, extents, fresh = self._index.add(keys, 0)
        for extent in reversed(extents):
            self._order.park(extent)
        self._published(keys, fresh, end)

    def _published(self, keys: range, fresh: int, end: int | None) -> None:
        self.epoch += len(keys)
        if fresh and self.pending_blocks is not None:
            self.pending_blocks.note(keys[len(keys) - fresh :], end)


def _between(stretches: Sequence[range], start: int, stop: int) -> list[range]:
    """Return the keys of the blocks from ``start`` to ``stop`` in a prompt."""
    pieces = []
    for keys in reversed(stretches):
        first = keys.start & INDEX_MASK
        if first >= stop:
            continue
        if first + len(keys) <= start:
            break
        pieces.append(keys[max(0, start - first) : stop - first])
    return pieces[::-1]


def _key_ranges(keys: Iterable[int]) -> list[range]:
    """Join consecutive keys into ranges."""
    ranges: list[range] = []
    for key in keys:
        if ranges and ranges[-1].stop == key:
            ranges[-1] = range(ranges[-1].start, key + 1)
        else:
            ranges.append(range(key, key + 1))
    return ranges
