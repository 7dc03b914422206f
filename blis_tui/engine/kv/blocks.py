"""The KV blocks that can be found by their content, and the order in which free ones are allocated."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.kv.extent import Extent, Piece
from blis_tui.engine.kv.keys import chain_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_BY_KEY: Final = attrgetter("key")


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefixIndex(Picklable):
    """The extents of every chain, from its first block on without a gap.

    A request that holds a block holds all blocks before it, and releases them after it, so what is left of a prompt is
    always its head. There may be several copies of blocks with the same content, of which one is found at a time. All
    copies of an extent have the same bounds: if one is cut, all are.

    Args:
        order: the free order, which contains the extents without a holder.
        oldest: whether the copy that was computed first is found; otherwise the latest one.
    """

    __slots__ = ("_chains", "_copies", "_labels", "_oldest", "_order")

    def __init__(self, order: FreeOrder, *, oldest: bool) -> None:
        self._order = order
        self._oldest = oldest
        self._chains: dict[int, list[Extent]] = {}
        self._copies: dict[int, list[Extent]] = {}
        """Key of a found extent -> other copies of its content, in the order of their computation."""
        self._labels = 0

    def __iter__(self) -> Iterator[Extent]:
        for extents in self._chains.values():
            yield from extents

    def head(self, stretches: Iterable[range]) -> int:
        """Number of these keys of a prompt, from the first one on, that are indexed."""
        blocks = 0
        chains = self._chains
        for stretch in stretches:
            extents = chains.get(chain_of(stretch.start))
            if extents is None:
                return blocks
            last = extents[-1]
            end = last.key + last.count
            if end < stretch.stop:
                return blocks + end - stretch.start
            blocks += len(stretch)
        return blocks

    def found(self, stretches: Iterable[range]) -> list[Extent]:
        """Return the extents with these keys of a prompt, all of which must be indexed; cut one that exceeds them."""
        held: list[Extent] = []
        for stretch in stretches:
            extents = self._chains[chain_of(stretch.start)]
            last = extents[-1]
            held += extents if last.key + last.count == stretch.stop else extents[: self._at(extents, stretch.stop)]
        return held

    def unreferenced(self, stretches: Iterable[range]) -> int:
        """Number of blocks without a holder among these keys of a prompt, all of which must be indexed."""
        count = 0
        for stretch in stretches:
            for extent in self._chains[chain_of(stretch.start)]:
                if extent.key >= stretch.stop:
                    break
                if not extent.references:
                    count += min(extent.count, stretch.stop - extent.key)
        return count

    def held(self, piece: Piece) -> list[Extent]:
        """The extents of a piece, in order."""
        key, end, label = piece.key, piece.key + piece.blocks, piece.label
        extents = self._chains[chain_of(key)]
        at = bisect_left(extents, key, key=_BY_KEY) if len(extents) > 1 else 0
        held = []
        while key < end:
            extent = extents[at]
            if extent.label != label:
                extent = next(copy for copy in self._copies[key] if copy.label == label)
            held.append(extent)
            key += extent.count
            at += 1
        return held

    def add(self, stretch: range, references: int, before: Piece | None = None) -> tuple[Piece, list[Extent], int]:
        """Index blocks with this content, which can be found from now on.

        ``before``: what their only holder holds just before them.

        Returns:
            The piece that they form, together with ``before`` if that is of the same copy; the new extents; how many of
            the last keys could not be found until now.
        """
        start, stop = stretch.start, stretch.stop
        chain = chain_of(start)
        extents = self._chains.get(chain)
        if extents is None:
            self._chains[chain] = [new] = [self._new(stretch, references)]
            return Piece(start, stop - start, new.label), [new], stop - start
        last = extents[-1]
        end = last.key + last.count
        if start < end:
            return self._copy(extents, stretch, references, end)
        if (
            before is not None
            and before.label == last.label
            and before.key + before.blocks == start
            and last.references == references
            and last.key not in self._copies
        ):
            last.count += stop - start
            return before._replace(blocks=before.blocks + stop - start), [], stop - start
        new = self._new(stretch, references)
        extents.append(new)
        return Piece(start, stop - start, new.label), [new], stop - start

    def _new(self, stretch: range, references: int) -> Extent:
        self._labels += 1
        return Extent(stretch.start, len(stretch), self._labels, references)

    def _copy(
        self, extents: list[Extent], stretch: range, references: int, end: int
    ) -> tuple[Piece, list[Extent], int]:
        """Index a further copy of content that is partly there already, up to ``end``."""
        new = self._new(stretch, references)
        piece = Piece(new.key, new.count, new.label)
        made = []
        first = self._at(extents, stretch.start)
        past = self._at(extents, min(end, stretch.stop))
        for at in range(first, past):
            extent = extents[at]
            copy = Extent(extent.key, extent.count, new.label, references)
            made.append(copy)
            if self._oldest:
                self._copies.setdefault(copy.key, []).append(copy)
            else:
                self._copies.setdefault(copy.key, []).append(extent)
                extents[at] = copy
        fresh = max(0, stretch.stop - end)
        if fresh:
            rest = Extent(end, fresh, new.label, references)
            made.append(rest)
            extents.append(rest)
        return piece, made, fresh

    def forget(self, extent: Extent, count: int) -> None:
        """Remove the content of an extent's last ``count`` blocks; another copy, if there is one, is found then."""
        head = extent.count - count
        if head and extent.key not in self._copies:
            extent.count = head
            return
        extents = self._chains[chain_of(extent.key)]
        if head:
            first = extent.key + head
            self._at(extents, first)
            copies = (extents[bisect_left(extents, first, key=_BY_KEY)], *self._copies[first])
            extent = next(copy for copy in copies if copy.label == extent.label)
        if extent.place >= 0:
            self._order.remove(extent)
        others = self._copies.get(extent.key)
        if others is None:
            extents.remove(extent)
            if not extents:
                del self._chains[chain_of(extent.key)]
            return
        at = bisect_left(extents, extent.key, key=_BY_KEY)
        if extents[at] is extent:
            extents[at] = others.pop(0 if self._oldest else -1)
        else:
            others.remove(extent)
        if not others:
            del self._copies[extent.key]

    def clear(self) -> None:
        """Remove everything."""
        self._chains.clear()
        self._copies.clear()

    def audit(self) -> str:
        """Check the index; return what is wrong, or an empty string."""
        for extents in self._chains.values():
            for extent, following in zip(extents, [*extents[1:], None], strict=True):
                if following is not None and extent.key + extent.count != following.key:
                    return f"a gap follows the blocks {extent.key:#x} to {extent.key + extent.count - 1:#x}"
                copies = self._copies.get(extent.key, ())
                if any((copy.key, copy.count) != (extent.key, extent.count) for copy in copies):
                    return f"copies of the blocks from {extent.key:#x} on have other bounds"
        return ""

    def _at(self, extents: list[Extent], key: int) -> int:
        """Return the position of the extent that begins with ``key``, cutting one if necessary."""
        at = bisect_left(extents, key, key=_BY_KEY)
        if not at:
            return at
        before = extents[at - 1]
        head = key - before.key
        if head < before.count:
            copies: Sequence[Extent] = self._copies.get(before.key, ())
            if copies:
                self._copies[key] = [self._cut(copy, head) for copy in copies]
            extents.insert(at, self._cut(before, head))
        return at

    def _cut(self, extent: Extent, head: int) -> Extent:
        tail = extent.cut(head)
        if extent.place >= 0:
            self._order.insert(tail, extent)
        return tail


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
