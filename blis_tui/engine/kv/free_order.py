"""The order in which free KV blocks are allocated."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from blis_tui.classes import mypyc_attr
from blis_tui.pickling import Picklable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.kv.extent import Extent


@mypyc_attr(allow_interpreted_subclasses=True)
class FreeOrder(Picklable):
    """Free blocks, the least recently released first: counts of anonymous blocks, and extents.

    An extent is taken from its end: the first block of a prompt is evicted last.
    """

    __slots__ = ("_entries", "_next_place")

    def __init__(self) -> None:
        self._entries: OrderedDict[int, int | list[Extent]] = OrderedDict()
        """Entries by position. Parts of an extent that was cut share an entry; the last of them goes first."""
        self._next_place = 0

    def __iter__(self) -> Iterator[int | Extent]:
        for entry in self._entries.values():
            if isinstance(entry, int):
                yield entry
            else:
                yield from reversed(entry)

    def park_anonymous(self, count: int) -> None:
        """Append blocks without findable content, to be taken after all others."""
        if count > 0:
            self._entries[self._next_place] = count
            self._next_place += 1

    def park(self, extent: Extent) -> None:
        """Append an extent, to be taken after all others."""
        extent.place = self._next_place
        self._entries[self._next_place] = [extent]
        self._next_place += 1

    @property
    def next_place(self) -> int:
        """The place of what is appended next."""
        return self._next_place

    def move_behind(self, places: range) -> None:
        """Take what was appended at these places, if it is still there, after all others."""
        for place in places:
            if place in self._entries:
                self._entries.move_to_end(place)

    def remove(self, extent: Extent) -> None:
        """Remove an extent that is no longer free."""
        entry = self._entries[extent.place]
        if isinstance(entry, int) or len(entry) == 1:
            del self._entries[extent.place]
        else:
            entry.remove(extent)
        extent.place = -1

    def insert(self, tail: Extent, head: Extent) -> None:
        """Insert ``tail``, which was cut off ``head``, to be taken right before it."""
        entry = self._entries[head.place]
        if not isinstance(entry, int):
            entry.insert(entry.index(head) + 1, tail)

    def pop(self) -> int | Extent:
        """Remove and return the next entry to take."""
        place, entry = self._entries.popitem(last=False)
        if isinstance(entry, int):
            return entry
        extent = entry.pop()
        extent.place = -1
        if entry:
            self._put_first(place, entry)
        return extent

    def put_back(self, extent: Extent) -> None:
        """Put back the rest of a partly taken extent, to be taken next."""
        extent.place = self._next_place
        self._next_place += 1
        self._put_first(extent.place, [extent])

    def _put_first(self, place: int, extents: list[Extent]) -> None:
        self._entries[place] = extents
        self._entries.move_to_end(place, last=False)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
