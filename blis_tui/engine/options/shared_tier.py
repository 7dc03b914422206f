"""The tiers of an instance that shares the last one with others: one store of KV blocks behind all of them.

Each instance has a link of its own to it. What one stores, others find when the transfer is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.options.tier_store import Put
from blis_tui.engine.options.tiers import THRASHING_US, Tier, Tiers
from blis_tui.engine.records import STORED_BY_OTHERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.options.tier_store import TierStore
    from blis_tui.engine.steps import Steps
    from blis_tui.model import KvTier, KvTiers


class SharedTier(Tier):
    """A shared tier as one instance uses it: its link, and what moved over that.

    Attributes:
        store: the blocks.
    """

    def __init__(self, spec: KvTier, store: TierStore) -> None:
        super().__init__(spec)
        self.store = store

    @property
    def place(self) -> object:
        """What holds the blocks."""
        return self.store

    @property
    def held(self) -> int:
        """Number of KV blocks stored there by all instances."""
        return len(self.store.blocks)

    def state(self) -> tuple[object, ...]:
        """Return this instance's part of the state as plain values (for digests)."""
        return (self.stored, self.loaded, self.dropped, self.from_others)


class SharingTiers(Tiers):
    """The tiers of an instance, the last of which it shares with others.

    Its steps must be attached before anything happens.
    """

    def __init__(self, spec: KvTiers, block_tokens: int, store: TierStore) -> None:
        super().__init__(spec, block_tokens)
        self._shared = SharedTier(spec.tiers[-1], store)
        self._private = self.tiers[:-1]
        self.tiers = [*self._private, self._shared]
        self._put_now = Put(-1)
        self._is_gone = False
        self._own_changes = self._foreign_changes = self._settles_us = 0

    def attach(self, steps: Steps) -> None:
        """Set whose tiers they are."""
        self._steps = steps

    @property
    def store(self) -> TierStore:
        """The blocks of the shared tier."""
        return self._shared.store

    def begin_plan(self, now: int) -> None:
        """Prepare for the planning of a step: what others have stored since may make a request fit, or no longer."""
        before, store = self.now, self.store
        super().begin_plan(now)
        foreign = store.changes - self._own_changes
        if foreign != self._foreign_changes:
            self._foreign_changes, self._settles_us = foreign, store.settled_us
        elif before >= self._settles_us:
            return
        self._steps.batch.pool.epoch += 1

    # ---- offloading ----

    def store_released(self, keys: Sequence[int]) -> None:
        """Store blocks with this content that a request gives up, last one first; an instance that died cannot."""
        if not self._is_gone:
            super().store_released(keys)

    def _store(self, keys: Sequence[int]) -> None:
        """Store blocks. Those for others follow what is to be moved already, once the step in progress is over."""
        put = self._put_now = Put(self._steps.index)
        before, store = self._shared.stored, self.store
        super()._store(keys)
        if self._shared.stored > before:
            put.ends_us = max(self.now, self._steps.free_us) + self._pending_us
            store.settled_us = max(store.settled_us, put.ends_us)

    def _put(self, level: int, key: int, since: int) -> None:
        if level < len(self._private):
            super()._put(level, key, since)
            return
        tier, store = self._shared, self.store
        if key in store.blocks:
            store.blocks.move_to_end(key)
            return
        if not store.total:
            return
        if len(store.blocks) == store.total:
            store.blocks.popitem(last=False)
            store.dropped += 1
            tier.dropped += 1
            self._note_changes(1)
        store.blocks[key] = (since, self._put_now)
        tier.stored += 1
        self._note_changes(1)

    def _note_changes(self, count: int) -> None:
        self.store.changes += count
        self._own_changes += count

    # ---- loading ----

    def found(self, keys: Sequence[int]) -> int:
        """Number of leading keys that are in some tier."""
        count, private, blocks, now, own = 0, self._private, self.store.blocks, self.now, self._steps.index
        for key in keys:
            if not any(key in tier.blocks for tier in private):
                if key not in blocks:
                    break
                put = blocks[key][1]
                if put.ends_us > now and put.instance != own:
                    break
            count += 1
        return count

    def load(self, keys: Sequence[int]) -> tuple[tuple[str, int], ...]:
        """Load blocks, each from the fastest tier that has it; return the number per tier, and of others' blocks apart.

        What another instance has stored is not back soon, but here for the first time: it never counts as thrashing.
        """
        counts, shared, blocks = [0] * len(self.tiers), self._shared, self.store.blocks
        foreign = shared.from_others
        for key in keys:
            level = next((level for level, tier in enumerate(self._private) if key in tier.blocks), -1)
            tier = self.tiers[level]
            if tier is shared:
                since, put = blocks[key]
                own = put.instance == self._steps.index
                shared.from_others += not own
                blocks.move_to_end(key)
            else:
                since, own = tier.blocks[key], True
                tier.blocks.move_to_end(key)
            self.thrashing += own and self.now - since <= THRASHING_US
            tier.loaded += 1
            counts[level] += 1
        for tier, count in zip(self.tiers, counts, strict=True):
            self._moved(tier, count)
        foreign = shared.from_others - foreign
        counts[-1] -= foreign
        sources = [(tier.name, count) for tier, count in zip(self.tiers, counts, strict=True)]
        sources.append((f"{shared.name} ({STORED_BY_OTHERS})", foreign))
        return tuple(source for source in sources if source[1])

    # ---- the rest ----

    def die(self, now: int) -> None:
        """Break off what is on its way to the store; from now on, nothing else gets there."""
        self._is_gone = True
        self._own_changes += self.store.break_off(self._steps.index, now)

    def reset(self) -> None:
        """Drop all content of the instance's own tiers; that of the shared one stays."""
        super().reset()
        self._is_gone = False

    def state(self) -> tuple[object, ...]:
        """Return everything but the store as plain values (for digests); the store is there once for all instances."""
        changes = (self._own_changes, self._foreign_changes, self._settles_us, self._is_gone)
        return (*super().state(), changes)

    def audit(self) -> str:
        """Check the books of the instance's own tiers; return what is wrong, or an empty string."""
        for tier in self._private:
            if wrong := tier.audit():
                return wrong
        return ""
