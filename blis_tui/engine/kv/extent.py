"""Consecutive KV blocks that other requests can find, handled as one."""

from __future__ import annotations

from blis_tui.base.classes import NamedTuple


class Extent:
    """Consecutive blocks of one chain of segments, each of which has the same holders.

    Attributes:
        key: of the first block; the others follow consecutively.
        count: number of blocks, at least one.
        label: tells copies of the same content apart.
        references: number of requests that hold them.
        place: position in the free order; -1 = in use.
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
        """Keys of all its blocks, in order."""
        return range(self.key, self.key + self.count)

    def cut(self, head: int) -> Extent:
        """Keep the first ``head`` blocks; return the rest as a new extent."""
        tail = Extent(self.key + head, self.count - head, self.label, self.references, self.place)
        self.count = head
        return tail


class Piece(NamedTuple):
    """What a request holds of one chain of segments: blocks of one copy, possibly in several extents."""

    key: int
    blocks: int
    label: int

    @property
    def keys(self) -> range:
        """Keys of all its blocks, in order."""
        return range(self.key, self.key + self.blocks)
