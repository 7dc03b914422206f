"""Consecutive KV blocks that others can find, handled as one."""

from __future__ import annotations

from blis_tui.classes import NamedTuple


class Extent:
    """Consecutive blocks of one chain of segments, each of which has the same holders.

    Attributes:
        key: of the first block; the others follow.
        count: how many blocks, at least one.
        label: tells copies of the same content apart.
        references: how many requests hold them.
        place: in the free order; -1 = in use.
    """

    __slots__ = ("count", "key", "label", "place", "references")

    def __init__(self, key: int, count: int, label: int, references: int, place: int = -1) -> None:
        self.key = key
        self.count = count
        self.label = label
        self.references = references
        self.place = place

    @property
    def keys(self) -> range:
        """Of all its blocks, first one first."""
        return range(self.key, self.key + self.count)

    def cut(self, head: int) -> Extent:
        """Keep the first ``head`` blocks; returns the others."""
        tail = Extent(self.key + head, self.count - head, self.label, self.references, self.place)
        self.count = head
        return tail


class Piece(NamedTuple):
    """What a request holds of one chain of segments: blocks of one copy, which may be several extents."""

    key: int
    blocks: int
    label: int

    @property
    def keys(self) -> range:
        """Of all its blocks, first one first."""
        return range(self.key, self.key + self.blocks)
