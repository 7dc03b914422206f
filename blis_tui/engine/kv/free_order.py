"""The order in which free KV blocks are taken."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from blis_tui.classes import mypyc_attr
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.kv.extent import Extent


@mypyc_attr(allow_interpreted_subclasses=True)
class FreeOrder(Kept):
    """Free blocks, the least recently released first: numbers of anonymous ones, and extents.

    An extent is taken from its end: the first block of a prompt is the last to go.
    """

    __slots__ = ("_entries", "_next_place")

    def __init__(self) -> None:
        self._entries: OrderedDict[int, int | list[Extent]] = OrderedDict()
        """By place. Extents stand together where one was cut; the last of them goes first."""
        self._next_place = 0

    def __iter__(self) -> Iterator[int | Extent]:
        for entry in self._entries.values():
            if isinstance(entry, int):
                yield entry
            else:
                yield from reversed(entry)

    def park_anonymous(self, count: int) -> None:
        """Blocks that cannot be found are taken after all others."""
        if count > 0:
            self._entries[self._next_place] = count
            self._next_place += 1

    def park(self, extent: Extent) -> None:
        """An extent is taken after all others."""
        extent.place = self._next_place
        self._entries[self._next_place] = [extent]
        self._next_place += 1

    def remove(self, extent: Extent) -> None:
        """An extent is no longer free."""
        entry = self._entries[extent.place]
        if isinstance(entry, int) or len(entry) == 1:
            del self._entries[extent.place]
        else:
            entry.remove(extent)
        extent.place = -1

    def insert(self, tail: Extent, head: Extent) -> None:
        """``tail`` was cut off from ``head``: it is taken right before it."""
        entry = self._entries[head.place]
        if not isinstance(entry, int):
            entry.insert(entry.index(head) + 1, tail)

    def pop(self) -> int | Extent:
        """What is taken next; it is no longer there."""
        place, entry = self._entries.popitem(last=False)
        if isinstance(entry, int):
            return entry
        extent = entry.pop()
        extent.place = -1
        if entry:
            self._put_first(place, entry)
        return extent

    def put_back(self, extent: Extent) -> None:
        """Not all of an extent was taken: what is left is taken next."""
        extent.place = self._next_place
        self._next_place += 1
        self._put_first(extent.place, [extent])

    def _put_first(self, place: int, extents: list[Extent]) -> None:
        self._entries[place] = extents
        self._entries.move_to_end(place, last=False)

    def clear(self) -> None:
        """Nothing is there any more."""
        self._entries.clear()
