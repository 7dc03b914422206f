"""Tiers below the GPU, written as plainly as possible: lists of contents, least recently used first."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.model import KvTiers

    from .instance import Token

    Content = tuple[Token, ...]


class Shelf:
    """One tier."""

    def __init__(self, name: str, room: int) -> None:
        self.name = name
        self.room = room
        self.there: list[tuple[Content, int]] = []
        """Contents with their times of arrival."""
        self.stored = self.loaded = self.dropped = 0

    def came_us(self, content: Content) -> int | None:
        return next((came for one, came in self.there if one == content), None)

    def touch(self, content: Content) -> None:
        came = self.came_us(content)
        assert came is not None
        self.there.remove((content, came))
        self.there.append((content, came))


class Shelves:
    """All tiers of an instance."""

    def __init__(self, spec: KvTiers, size: int) -> None:
        self.spec = spec
        self.size = size
        self.shelves = [Shelf(tier.name, tier.blocks) for tier in spec.tiers]
        self.now = 0
        self.pending_us = self.last_end_us = 0
        self.thrashing = self.transfer_us = self.added_us = 0

    def begin(self, now: int) -> None:
        """Move pending blocks for the time since the last step."""
        self.now = now
        if now > self.last_end_us:
            self.pending_us = max(0, self.pending_us - (now - self.last_end_us))
            self.last_end_us = now

    def given_up(self, contents: Sequence[Content]) -> None:
        if self.spec.kind != "threshold":
            self._keep(contents)

    def overwritten(self, content: Content, used: int, total: int) -> None:
        if self.spec.kind == "threshold" and used >= self.spec.offload_at * total:
            self._keep([content])

    def _keep(self, contents: Sequence[Content]) -> None:
        moved = [0] * len(self.shelves)
        for content in contents:
            self._put(0, content, self.now, moved)
        self._move(moved)

    def _put(self, level: int, content: Content, came: int, moved: list[int]) -> None:
        if level == len(self.shelves):
            return
        shelf = self.shelves[level]
        if shelf.came_us(content) is not None:
            shelf.touch(content)
        elif not shelf.room:
            self._put(level + 1, content, came, moved)
        else:
            if len(shelf.there) == shelf.room:
                oldest, its_time = shelf.there.pop(0)
                shelf.dropped += 1
                self._put(level + 1, oldest, its_time, moved)
            shelf.there.append((content, came))
            shelf.stored += 1
            moved[level] += 1

    def has(self, content: Content) -> bool:
        return any(shelf.came_us(content) is not None for shelf in self.shelves)

    def load(self, contents: Sequence[Content]) -> None:
        moved = [0] * len(self.shelves)
        for content in contents:
            level = next(level for level, shelf in enumerate(self.shelves) if shelf.came_us(content) is not None)
            came = self.shelves[level].came_us(content)
            assert came is not None
            self.thrashing += self.now - came <= 1000
            self.shelves[level].touch(content)
            self.shelves[level].loaded += 1
            moved[level] += 1
        self._move(moved)

    def _move(self, moved: Sequence[int]) -> None:
        for spec, blocks in zip(self.spec.tiers, moved, strict=True):
            pieces = [self.size] * blocks if self.spec.kind != "offload" else [blocks * self.size] if blocks else []
            took = sum(spec.base_latency_us + ceil(tokens / spec.bandwidth_tokens_per_us) for tokens in pieces)
            self.transfer_us += took
            self.pending_us += took

    def step_us(self, now: int, computing_us: int) -> int:
        left, self.pending_us = self.pending_us, 0
        whole = max(computing_us, left) if self.spec.overlap else computing_us + left
        self.added_us += whole - computing_us
        self.last_end_us = now + whole
        return whole

    def books(self) -> tuple[object, ...]:
        counts = tuple((shelf.stored, shelf.loaded, shelf.dropped, len(shelf.there)) for shelf in self.shelves)
        return (counts, self.thrashing, self.transfer_us, self.added_us)
