"""Content of KV blocks that a step is still computing, so that others do not see it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import mypyc_attr
from blis_tui.engine.kv.prompt_keys import chain_of
from blis_tui.pickling import Picklable

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEVER: Final = 1 << 62


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingBlocks(Picklable):
    """Blocks that became findable in steps that may not be over."""

    __slots__ = ("_fresh", "_until")

    def __init__(self) -> None:
        self._until: dict[int, list[tuple[range, int]]] = {}
        """Chain -> keys, and the end of the step that computes them."""
        self._fresh: list[range] = []
        """Keys whose step has no known end yet."""

    def note(self, keys: range, end: int | None) -> None:
        """Record keys that became findable; ``end``: end of the step computing them, None = ``computed`` will tell."""
        if end is None:
            self._fresh.append(keys)
        elif end >= 0:
            self._hide(keys, end)

    def _hide(self, keys: range, end: int) -> None:
        """Hide these keys until ``end``, replacing earlier ends."""
        self._show(keys)
        if end >= 0:
            self._until.setdefault(chain_of(keys.start), []).append((keys, end))

    def _show(self, gone: range) -> None:
        """Remove all entries for these keys."""
        chain = chain_of(gone.start)
        hidden = self._until.pop(chain, None)
        if hidden is not None:
            hidden = [(rest, until) for keys, until in hidden for rest in _without(keys, gone)]
            if hidden:
                self._until[chain] = hidden

    def planned(self) -> None:
        """Hide what came since the last call of ``computed`` until it is computed."""
        for keys in self._fresh:
            self._hide(keys, _NEVER)

    def computed(self, now: int, end: int) -> None:
        """Set ``end`` as the time at which what came since the last call is computed; others see it after that."""
        if self._until:
            kept = {
                chain: [(keys, until) for keys, until in hidden if now <= until < _NEVER]
                for chain, hidden in self._until.items()
            }
            self._until = {chain: hidden for chain, hidden in kept.items() if hidden}
        if self._fresh:
            for keys in self._fresh:
                self._hide(keys, end)
            self._fresh.clear()

    def publish_transferred(self, stretches: Iterable[range]) -> None:
        """Show keys transferred from elsewhere at once, even if a step here computes the same."""
        for stretch in stretches:
            chain = chain_of(stretch.start)
            self._fresh = [
                rest
                for keys in self._fresh
                for rest in (_without(keys, stretch) if chain_of(keys.start) == chain else (keys,))
            ]
            self._show(stretch)

    def seen(self, keys: range, now: int) -> Iterable[int]:
        """Return those of the keys, all of one chain, that others see."""
        hidden = self._hidden(keys, now)
        return keys if not hidden else [key for key in keys if not any(key in one for one in hidden)]

    def visible_count(self, stretches: Iterable[range], count: int, now: int) -> int:
        """Number of leading keys, at most ``count``, that others see."""
        at = 0
        for stretch in stretches:
            if at >= count:
                break
            for keys in self._hidden(stretch, now):
                count = min(count, at + max(keys.start - stretch.start, 0))
            at += len(stretch)
        return count

    def _hidden(self, stretch: range, now: int) -> list[range]:
        """Return the hidden parts of a stretch of a chain."""
        return [
            keys
            for keys, until in self._until.get(chain_of(stretch.start), ())
            if until >= now and keys.start < stretch.stop and stretch.start < keys.stop
        ]

    def clear(self) -> None:
        """Remove everything, as all content is gone."""
        self._until.clear()


def _without(keys: range, gone: range) -> list[range]:
    parts = (range(keys.start, min(keys.stop, gone.start)), range(max(keys.start, gone.stop), keys.stop))
    return [part for part in parts if part]
