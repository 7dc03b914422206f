"""The KV block pool of one instance: what is used, what is free, and what free blocks still hold.

Four facts keep it small and fast:

* A prompt has no tokens here, only segments, so a block's content is a key (see ``PromptKeys``). Blocks whose content
  nobody but their holder could ever ask for are *private*: they are counted, never listed.
* Free blocks stand in the order in which they will be taken (least recently released first). A run of private blocks
  released together is one entry with a count; only findable blocks have entries of their own.
* ``blank`` counts the anonymous blocks at the very front of that order: never-used ones at first, later each run as
  it reaches the front. Taking blocks is then mostly one subtraction.
* Requests that run at the same time mostly share one and the same prefix: a ``Span``, pinned as a whole. Only the first
  of its holders and the last one touch its blocks.

Every allocation is checked by its caller first (``free`` is exact) and mutates afterwards; nothing is rolled back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from blis_tui.engine.kv.block import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.kv.prompt_keys import PromptKeys
    from blis_tui.engine.kv.tiers import Tiers
    from blis_tui.engine.request import Request, Segments

_NEVER: Final = 1 << 62


class Span:
    """The leading blocks of a prompt as several requests hold them together; each block counts it as one reference.

    Attributes:
        blocks: the blocks, first one first.
        holders: how many requests hold it.
        remaps: how often the pool had changed which of equal blocks is found when these were looked up.
    """

    __slots__ = ("blocks", "holders", "remaps")

    def __init__(self, blocks: list[Block], remaps: int) -> None:
        self.blocks = blocks
        self.holders = 1
        self.remaps = remaps


class BlockPool:
    """All KV blocks of one instance.

    Args:
        total: blocks in the pool.
        block_size_tokens: tokens of one.
        prompts: the keys of prompts.
        caching: whether computed blocks can be found again (``enable_prefix_caching``).
        as_vllm: the two rules in which vLLM and BLIS differ. Blocks that are given back without full content are
            reused first, not last; and of several blocks with the same content the one computed first is found, not
            the latest. Source: vLLM 0.32.0, ``v1/core/block_pool.py`` lines 61 and 784.

    Attributes:
        total: blocks in the pool.
        free: blocks that nobody references (their content may still be findable).
        caching: whether computed blocks can be found again (``enable_prefix_caching``).
        blank: how many anonymous free blocks will be taken before anything else.
        hits: blocks found in the cache at admission, ever.
        misses: blocks taken from the free list, ever.
        min_free: the lowest ``free`` has been.
        epoch: changes whenever something happened that may let in a request that did not fit before.
        unseen: keys that became findable in steps that may not be over -> the end of theirs; None = nobody asks.
        fresh: those of them whose step has no end yet.
        tiers: where content goes that would be lost; None = nowhere.
    """

    __slots__ = (
        "_as_vllm",
        "_free_order",
        "_index",
        "_next_place",
        "_others",
        "_pinned",
        "_remaps",
        "_spans",
        "blank",
        "block_size_tokens",
        "caching",
        "epoch",
        "free",
        "fresh",
        "hits",
        "min_free",
        "misses",
        "prompts",
        "tiers",
        "total",
        "unseen",
    )

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
        self.epoch = 0
        self._free_order: OrderedDict[int, Block | int] = OrderedDict()
        self._next_place = 0
        self._index: dict[int, Block] = {}
        self._others: dict[int, list[Block]] = {}
        """Blocks of the same content as one in the index, in the order of their computation."""
        self._remaps = 0
        self._spans: dict[int, Span] = {}
        """By the key of the last block: what the latest to pin that prefix holds."""
        self._pinned: dict[int, Span] = {}
        """By the index of the request that holds it."""
        self.unseen: dict[int, int] | None = None
        self.fresh: list[int] = []
        self.tiers: Tiers | None = None

    @property
    def used(self) -> int:
        """Blocks that some request holds."""
        return self.total - self.free

    def cached_prefix(self, request: Request, limit_blocks: int) -> int:
        """How many leading blocks of the prompt, at most ``limit_blocks``, are in the cache right now."""
        index = self._index
        keys = self.prompts.shareable(request.content)
        found = _cached_head(index, keys, min(limit_blocks, len(keys)))
        # Only a preempted request has left content of its own behind.
        if request.preemptions and found == len(keys):
            own = self.prompts.own
            while found < limit_blocks and own(request, found) in index:
                found += 1
        return found

    def visible_head(self, segments: Segments, now: int) -> int:
        """How many leading blocks of these segments others can see in the cache: what a step computes, after it."""
        keys = self.prompts.shareable(segments)
        found = _cached_head(self._index, keys, len(keys))
        if self.unseen:
            for i in range(found):
                if self.unseen.get(keys[i], -1) >= now:
                    return i
        return found

    def visible_keys(self, now: int) -> frozenset[int]:
        """The keys of all blocks that others can see in the cache."""
        unseen = self.unseen or {}
        return frozenset(key for key in self._index if unseen.get(key, -1) < now)

    def computed(self, now: int, end: int) -> None:
        """What has become findable since the last call is computed at ``end``; others see it after that."""
        unseen = self.unseen
        if unseen is None:
            return
        if unseen:
            self.unseen = unseen = {key: until for key, until in unseen.items() if until >= now}
        unseen.update(dict.fromkeys(self.fresh, end))
        self.fresh.clear()

    def planned(self) -> None:
        """What has become findable since the last call of ``computed`` will be computed: nobody sees it until then."""
        if self.unseen is not None:
            self.unseen.update(dict.fromkeys(self.fresh, _NEVER))

    def delivered(self, request: Request) -> None:
        """Its prompt has come from elsewhere: others see that at once, even while a step here computes the same."""
        if self.unseen is None:
            return
        for key in self._prefix(request, request.input_tokens // self.block_size_tokens):
            self.unseen.pop(key, None)
            if key in self.fresh:
                self.fresh.remove(key)

    def idle_among(self, request: Request, blocks: int) -> int:
        """How many of the first ``blocks`` cached blocks nobody references: pinning them takes free blocks."""
        if self._span(request, blocks) is not None:
            return 0
        return len([1 for key in self._prefix(request, blocks) if not self._index[key].references])

    def pin(self, request: Request, blocks: int) -> None:
        """Give ``request`` (which holds nothing) the first ``blocks`` cached blocks of its prompt, at least one."""
        span = self._span(request, blocks)
        if span is not None:
            span.holders += 1
        else:
            span = Span([self._index[key] for key in self._prefix(request, blocks)], self._remaps)
            for block in span.blocks:
                if not block.references:
                    del self._free_order[block.place]
                    block.place = -1
                    self.free -= 1
                block.references += 1
            self._spans[span.blocks[-1].key] = span
        self._pinned[request.index] = span
        request.shared_blocks.extend(span.blocks)
        request.held_blocks = blocks
        self.hits += blocks
        self.min_free = min(self.min_free, self.free)

    def missing(self, request: Request, computed_tokens: int) -> int:
        """Blocks to take before ``request`` can hold ``computed_tokens`` tokens."""
        return -(-computed_tokens // self.block_size_tokens) - request.held_blocks

    def kept_by_others(self, request: Request) -> int:
        """How many of its leading blocks others hold, too: they stay in the cache if it gives up its own."""
        span = self._pinned.get(request.index)
        common = len(span.blocks) if span is not None and span.holders > 1 else 0
        shared = request.shared_blocks
        while common < len(shared) and shared[common].references > 1:
            common += 1
        return common

    def hold(self, request: Request, tokens: int) -> None:
        """Make room for ``tokens`` tokens that are not there yet."""
        need = self.missing(request, tokens)
        if need > 0:
            self.take(need)
            request.held_blocks += need

    def extend(self, request: Request, computed_tokens: int) -> None:
        """Make room for ``computed_tokens`` tokens; blocks that become full and are shareable become findable."""
        self.hold(request, computed_tokens)
        size = self.block_size_tokens
        shared = request.shared_blocks
        if request.segments and self.caching:
            keys = self.prompts.shareable(request.segments)
            full = min(computed_tokens // size, len(keys))
            if len(shared) < full:
                shared.extend(self._publish_all(keys[len(shared) : full]))

    def take(self, count: int) -> None:
        """Take ``count`` blocks in free order; findable content in them is forgotten. ``count <= free`` must hold."""
        self.misses += count
        self.free -= count
        if self.free < self.min_free:  # noqa: PLR1730  (max() would double the cost of a step)
            self.min_free = self.free
        while count > self.blank:
            count -= self.blank
            _, entry = self._free_order.popitem(last=False)
            if isinstance(entry, int):
                self.blank = entry
            else:
                if self.tiers is not None:
                    self.tiers.evicted(entry.key, self.total - self.free - count, self.total)
                    self.epoch += 1
                self._forget(entry)
                self.blank = 1
        self.blank -= count

    def take_spare(self, request: Request, tokens: int) -> None:
        """Give ``request`` one more block, if it needs one for so many tokens and there is one."""
        if self.free and self.missing(request, tokens) > 0:
            self.take(1)
            request.held_blocks += 1

    def release(self, request: Request, content_tokens: int, *, findable: bool = False, end: int | None = None) -> None:
        """Take back all blocks of ``request``, last block first.

        What it has generated stays in the cache where other prompts begin with it. With ``findable`` all that it has
        computed does, under its own keys (a preempted request may come back for it); otherwise nobody will ever ask
        for the private part again. Only the first ``content_tokens`` have any content. ``end``: when the step ends
        that computes the last of it, -1 = it has; None = ``computed`` will tell.
        """
        self.epoch += 1
        shared = request.shared_blocks
        size = self.block_size_tokens
        computed = content_tokens // size
        # Blocks granted in a step that is given up were never computed: their content must not be found.
        while len(shared) > computed and shared[-1].references == 1:
            self._forget(shared.pop())
        private_from = len(shared)
        names: list[int] = []
        if self.caching and (findable or request.content is not request.segments):
            names = self._prefix(request, computed)[private_from:]
            if not findable:
                del names[max(0, len(self.prompts.shareable(request.content)) - private_from) :]
        if self.tiers is not None:
            keys = self.prompts.shareable(request.content)
            given = list(keys[: min(private_from + len(names), len(keys))])
            if findable:
                given += [self.prompts.own(request, i) for i in range(len(keys), computed)]
            self.tiers.given_up(given[::-1])
        tail = request.held_blocks - private_from
        anonymous = tail - len(names)
        if self._as_vllm:
            partial = request.held_blocks - max(computed, private_from)
            self.blank += partial
            anonymous -= partial
        self._park(anonymous)
        for key in reversed(names):
            block = Block(key, 0, -1)
            self._publish(block, end)
            self._park_block(block)
        self.free += tail
        span = self._pinned.pop(request.index, None)
        if span is not None:
            span.holders -= 1
            if span.holders:
                del shared[: len(span.blocks)]
            elif self._spans.get(last := span.blocks[-1].key) is span:
                del self._spans[last]
        order, place = self._free_order, self._next_place
        for block in reversed(shared):
            block.references -= 1
            if not block.references:
                block.place = place
                order[place] = block
                place += 1
        self.free += place - self._next_place
        self._next_place = place
        shared.clear()
        request.held_blocks = 0

    def wipe(self) -> None:
        """Forget the content of all blocks, which must all be free."""
        if self.tiers is not None:
            self.tiers.wipe()
        self.blank = self.total
        self.epoch += 1
        for entries in (self._free_order, self._index, self._others, self._spans):
            entries.clear()
        self._remaps += 1
        if self.unseen:
            self.unseen.clear()

    def keys_behind(self, request: Request, cached: int, limit: int) -> list[int]:
        """What somebody could know of the blocks of a prompt behind its first ``cached`` ones."""
        keys = self.prompts.shareable(request.content)
        own = range(max(cached, len(keys)), limit) if request.preemptions else ()
        return [*keys[cached:limit], *(self.prompts.own(request, block) for block in own)]

    def bring_back(self, request: Request, cached: int, keys: Sequence[int]) -> None:
        """Put content into free blocks that continues the first ``cached`` cached blocks of a prompt.

        All of them stay free, and are reused after all others, the last one of the prompt first: what is left of a
        prompt is always its head. The blocks must be free beside those of the head that are.
        """
        head = [self._index[key] for key in self._prefix(request, cached)]
        idle = [block for block in head if not block.references]
        for block in idle:
            del self._free_order[block.place]
        self.take(len(keys))
        self.free += len(keys)
        new = [Block(key, 0, -1) for key in keys]
        for block in new:
            self._publish(block)
        for block in reversed((*idle, *new)):
            self._park_block(block)

    def cached_free(self) -> int:
        """Free blocks whose content can still be found."""
        return len([1 for entry in self._free_order.values() if not isinstance(entry, int)])

    def state(self) -> tuple[object, ...]:
        """Everything that decides the pool's future, as plain values (for digests and invariants)."""
        order = tuple(entry if isinstance(entry, int) else ("block", entry.key) for entry in self._free_order.values())
        return (self.free, self.blank, self.hits, self.misses, self.min_free, order)

    def audit(self, holders: Sequence[tuple[Request, int]]) -> str:
        """What is wrong with the books, given who holds how many blocks; empty when nothing is."""
        parked = self.blank
        for place, entry in self._free_order.items():
            if isinstance(entry, int):
                parked += entry
            elif entry.references or entry.place != place:
                return f"block {entry.key:#x} stands in the free order with {entry.references} references"
            else:
                parked += 1
        if parked != self.free:
            return f"{self.free} blocks are said to be free, {parked} stand in the free order"
        references: dict[int, int] = {}
        blocks: dict[int, Block] = {}
        private = 0
        counted: dict[int, Span] = {}
        for request, held in holders:
            shared = request.shared_blocks
            private += held - len(shared)
            span = self._pinned.get(request.index)
            if span is not None:
                if shared[: len(span.blocks)] != span.blocks:
                    return f"request {request.request_id} does not hold the prefix that it has pinned"
                if id(span) in counted:
                    shared = shared[len(span.blocks) :]
                counted[id(span)] = span
            for block in shared:
                references[id(block)] = references.get(id(block), 0) + 1
                blocks[id(block)] = block
        for name, count in references.items():
            if blocks[name].references != count:
                return f"block {blocks[name].key:#x} counts {blocks[name].references} references, {count} are held"
        if private + len(blocks) + self.free != self.total:
            return f"{private} private + {len(blocks)} shared + {self.free} free blocks are not {self.total}"
        return ""

    def _span(self, request: Request, blocks: int) -> Span | None:
        """What holds the first ``blocks`` blocks of this prompt already, if those still are the ones to be found."""
        if not blocks:
            return None
        keys = self.prompts.shareable(request.content)
        last = keys[blocks - 1] if blocks <= len(keys) else self.prompts.own(request, blocks - 1)
        span = self._spans.get(last)
        return span if span is not None and span.remaps == self._remaps else None

    def _prefix(self, request: Request, blocks: int) -> list[int]:
        """Keys of the first ``blocks`` blocks of a request."""
        keys = self.prompts.shareable(request.content)
        own = self.prompts.own
        return [*keys[:blocks], *(own(request, i) for i in range(len(keys), blocks))]

    def _park(self, count: int) -> None:
        """Put ``count`` anonymous blocks at the end of the free order."""
        if count > 0:
            self._free_order[self._next_place] = count
            self._next_place += 1

    def _park_block(self, block: Block) -> None:
        block.place = self._next_place
        self._free_order[self._next_place] = block
        self._next_place += 1

    def _publish(self, block: Block, end: int | None = None) -> None:
        """Make a block findable; of blocks with the same content only one is found at a time.

        ``end``: when the step ends that computes it, -1 = it has; None = ``computed`` will tell.
        """
        self.epoch += 1
        found = self._index.get(block.key)
        if found is None:
            if self.unseen is not None:
                if end is None:
                    self.fresh.append(block.key)
                elif end >= 0:
                    self.unseen[block.key] = end
            self._index[block.key] = block
        elif self._as_vllm:
            self._others.setdefault(block.key, []).append(block)
        else:
            self._remaps += 1
            self._others.setdefault(block.key, []).append(found)
            self._index[block.key] = block

    def _publish_all(self, keys: Sequence[int]) -> list[Block]:
        """Blocks with this content, held once and findable: long prompts have hundreds, which are mostly new."""
        blocks = [Block(key, 1, -1) for key in keys]
        if self._index.keys().isdisjoint(keys):
            self.epoch += len(blocks)
            self._index.update(zip(keys, blocks, strict=True))
            if self.unseen is not None:
                self.fresh.extend(keys)
        else:
            for block in blocks:
                self._publish(block)
        return blocks

    def _forget(self, block: Block) -> None:
        """Its content is gone; another block of the same content, if one is left, is found from now on."""
        key = block.key
        others = self._others.get(key)
        if others is None:
            del self._index[key]
            return
        self._remaps += 1
        if self._index[key] is block:
            self._index[key] = others.pop(0 if self._as_vllm else -1)
        else:
            others.remove(block)
        if not others:
            del self._others[key]


def _cached_head(index: dict[int, Block], keys: Sequence[int], count: int) -> int:
    # Whoever holds a block holds all before it, and gives them back after it: what is left is always a head.
    return bisect_left(range(count), 1, key=lambda i: keys[i] not in index)
