"""One KV block that others can find."""

from __future__ import annotations


class Block:
    """A block whose content can be found: its key, its holders, and its place in the free order (-1 = in use)."""

    __slots__ = ("key", "place", "references")

    def __init__(self, key: int, references: int, place: int) -> None:
        self.key = key
        self.references = references
        self.place = place
