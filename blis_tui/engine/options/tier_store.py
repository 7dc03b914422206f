"""The blocks of a tier that instances share, such as Mooncake's store or an LMCache server.

The capacity is the store's, and so is the order in which blocks are dropped. Content has the same keys on all
instances. It outlives the instance that stored it.
"""

from __future__ import annotations

from collections import OrderedDict


class Put:
    """Blocks that an instance stores together.

    Attributes:
        instance: which one.
        ends_us: when they are there; until then no other instance finds them.
    """

    __slots__ = ("ends_us", "instance")

    def __init__(self, instance: int) -> None:
        self.instance = instance
        self.ends_us = 0


class TierStore:
    """The blocks of a shared tier, with LRU eviction over all instances.

    Attributes:
        name: the tier's name in specs.
        total: capacity in blocks.
        blocks: key -> when the block came, and how; the least recently used first.
        dropped: blocks that were evicted.
        broken_off: blocks that never arrived, because their instance died on the way.
        changes: how often a block came or went.
        settled_us: when the latest of all transfers ends.
    """

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.blocks: OrderedDict[int, tuple[int, Put]] = OrderedDict()
        self.dropped = self.broken_off = self.changes = self.settled_us = 0

    def break_off(self, instance: int, now: int) -> int:
        """Remove what an instance has not stored completely by ``now``; return how many blocks that were."""
        gone = [key for key, (_, put) in self.blocks.items() if put.instance == instance and put.ends_us > now]
        for key in gone:
            del self.blocks[key]
        self.broken_off += len(gone)
        self.changes += len(gone)
        return len(gone)

    def state(self) -> tuple[object, ...]:
        """Return the whole state as plain values (for digests)."""
        blocks = tuple([(key, since, put.instance, put.ends_us) for key, (since, put) in self.blocks.items()])
        return (self.name, blocks, self.dropped, self.broken_off, self.changes, self.settled_us)

    def audit(self, stored: int) -> str:
        """Check the books against how many blocks all instances stored; return what is wrong, or an empty string."""
        held, left = len(self.blocks), stored - self.dropped - self.broken_off
        if held > self.total:
            return f"shared tier {self.name} holds {held} blocks, {self.total} fit"
        if held != left:
            return f"shared tier {self.name} holds {held} blocks, of those that came {left} are left"
        return ""
