"""Tiers below an instance's KV cache: blocks that the GPU gives up stay in host memory, on disk or elsewhere.

Only content that could be requested again is kept: shared prefixes, and what preempted requests have computed. Content
is identified by keys, as in the pool.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.engine.plan import Reloaded, StepPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.options.tier_store import TierStore
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request
    from blis_tui.model import KvTier, KvTiers

THRASHING_US: Final = 1000
"""A block that is needed again within this time counts as thrashing."""


class Tier:
    """One place for blocks, with LRU eviction.

    Attributes:
        name: its name in specs.
        blocks: key -> when the block came, the least recently used first.
        total: capacity in blocks.
        stored: total of blocks that came. The following counts are totals, too.
        loaded: blocks that went back to the GPU.
        dropped: blocks that were evicted.
        from_others: those of ``loaded`` that another instance had stored, where it is shared.
    """

    def __init__(self, spec: KvTier) -> None:
        self.name = spec.name
        self.total = spec.blocks
        self._base_us = spec.base_latency_us
        self._bandwidth = spec.bandwidth_tokens_per_us
        self.blocks: OrderedDict[int, int] = OrderedDict()
        self.stored = self.loaded = self.dropped = self.from_others = 0

    @property
    def place(self) -> object:
        """What holds the blocks: itself, or what it shares with other instances."""
        return self

    @property
    def held(self) -> int:
        """Number of KV blocks stored there."""
        return len(self.blocks)

    def us(self, tokens: int) -> int:
        """How long it takes to move ``tokens`` tokens together, rounded up."""
        return self._base_us + ceil(tokens / self._bandwidth) if tokens else 0

    def state(self) -> tuple[object, ...]:
        """Return the whole state as plain values (for digests)."""
        return (tuple(self.blocks.items()), self.stored, self.loaded, self.dropped)

    def audit(self) -> str:
        """Check the books; return what is wrong, or an empty string."""
        if len(self.blocks) > self.total or self.stored - self.dropped < len(self.blocks):
            return f"tier {self.name} holds {len(self.blocks)} blocks, {self.total} fit"
        return ""


class Tiers(StepPart):
    """The tiers to which the GPU's blocks move and from which they come back.

    Attributes:
        tiers: the fastest first; blocks evicted from one move to the next.
        looks_up: whether admissions use tier content directly; otherwise it is reloaded when a request does not fit.
        now: time at which the latest step was planned.
        thrashing: blocks that came back within ``THRASHING_US``.
        transfer_us: total time of all transfers.
        added_us: time by which they lengthened steps.
    """

    def __init__(self, spec: KvTiers, block_tokens: int) -> None:
        self.tiers = [Tier(tier) for tier in spec.tiers]
        self.looks_up = spec.kind == "offload"
        self._each_block = spec.kind != "offload"
        self._on_eviction = spec.kind == "threshold"
        self._offload_at = spec.offload_at
        self._overlap = spec.overlap
        self._block_tokens = block_tokens
        self.now = 0
        self._pending_us = self._last_end_us = 0
        self.thrashing = self.transfer_us = self.added_us = 0

    def begin_plan(self, now: int) -> None:
        """Prepare for the planning of a step: deduct the transfer time that passed while the instance was idle."""
        self._pending_us = max(0, self._pending_us - max(0, now - self._last_end_us))
        self._last_end_us = max(self._last_end_us, now)
        self.now = now

    @property
    def under_way(self) -> bool:
        """Whether any concurrent transfer is in flight."""
        return False

    @property
    def store(self) -> TierStore | None:
        """The blocks of the tier that instances share; None = all tiers are the instance's own."""
        return None

    # ---- offloading ----

    def store_released(self, keys: Sequence[int]) -> None:
        """Store blocks with this content that a request gives up, last one first."""
        if not self._on_eviction:
            self._store(keys)

    def evicted(self, key: int, used: int, total: int) -> None:
        """Store a block that is about to be overwritten, if enough of all blocks are in use (``offload_at``)."""
        if self._on_eviction and used >= self._offload_at * total:
            self._store((key,))

    def _store(self, keys: Sequence[int]) -> None:
        before = [tier.stored for tier in self.tiers]
        for key in keys:
            self._put(0, key, self.now)
        for tier, stored in zip(self.tiers, before, strict=True):
            self._moved(tier, tier.stored - stored)

    def _put(self, level: int, key: int, since: int) -> None:
        """Store a block in a tier; a block evicted there moves to the next tier, if any."""
        if level == len(self.tiers):
            return
        tier = self.tiers[level]
        if key in tier.blocks:
            tier.blocks.move_to_end(key)
            return
        if not tier.total:
            self._put(level + 1, key, since)
            return
        if len(tier.blocks) == tier.total:
            oldest, came = tier.blocks.popitem(last=False)
            tier.dropped += 1
            self._put(level + 1, oldest, came)
        tier.blocks[key] = since
        tier.stored += 1

    # ---- loading ----

    def found(self, keys: Sequence[int]) -> int:
        """Number of leading keys that are in some tier."""
        count = 0
        for key in keys:
            if not any(key in tier.blocks for tier in self.tiers):
                break
            count += 1
        return count

    def load(self, keys: Sequence[int]) -> tuple[tuple[str, int], ...]:
        """Load blocks, each from the fastest tier that has it; return the number per tier."""
        counts = [0] * len(self.tiers)
        for key in keys:
            level = next(level for level, tier in enumerate(self.tiers) if key in tier.blocks)
            tier = self.tiers[level]
            self.thrashing += self.now - tier.blocks[key] <= THRASHING_US
            tier.blocks.move_to_end(key)
            tier.loaded += 1
            counts[level] += 1
        for tier, count in zip(self.tiers, counts, strict=True):
            self._moved(tier, count)
        return tuple((tier.name, count) for tier, count in zip(self.tiers, counts, strict=True) if count)

    def load_into(self, plan: Plan, request: Request, keys: Sequence[int]) -> None:
        """Load content for a request, as part of a plan."""
        before = self.thrashing, self.transfer_us
        sources = self.load(keys)
        again, took = self.thrashing - before[0], self.transfer_us - before[1]
        plan.reloaded += (Reloaded(request, len(keys), sources, again, took),)

    # ---- transfer times ----

    def _moved(self, tier: Tier, blocks: int) -> None:
        size = self._block_tokens
        took = blocks * tier.us(size) if self._each_block else tier.us(blocks * size)
        self.transfer_us += took
        self._pending_us += took

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:  # noqa: ARG002  (any plan pays for them)
        """Return the step's duration including the transfers since the previous step."""
        pending, self._pending_us = self._pending_us, 0
        whole = max(duration_us, pending) if self._overlap else duration_us + pending
        self.added_us += whole - duration_us
        self._last_end_us = now + whole
        return whole

    def die(self, now: int) -> None:
        """Note that the instance dies at ``now``, before its requests are taken out; ``reset`` follows."""

    def reset(self) -> None:
        """Drop all content."""
        for tier in self.tiers:
            tier.blocks.clear()
        self._pending_us = 0

    def books(self) -> tuple[object, ...]:
        """Return all counters."""
        counts = tuple((tier.stored, tier.loaded, tier.dropped, tier.held) for tier in self.tiers)
        return (counts, self.thrashing, self.transfer_us, self.added_us)

    def state(self) -> tuple[object, ...]:
        """Return everything that determines what it does next, and its counts, as plain values (for digests)."""
        return (*(tier.state() for tier in self.tiers), self.books(), self.now, self._pending_us, self._last_end_us)

    def audit(self) -> str:
        """Check the books; return what is wrong, or an empty string."""
        for tier in self.tiers:
            if wrong := tier.audit():
                return wrong
        return ""
