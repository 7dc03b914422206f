"""Tiers below the GPU, written as plainly as possible: lists of contents, least recently used first."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.model import KvTiers

    from .instance import Token

    Content = tuple[Token, ...]


@dataclass(eq=False)
class Thing:
    """A block in a tier."""

    content: Content
    came_us: int
    who: int
    """The instance that stored it."""
    there_us: int = -1
    """When others find it."""


class Shelf:
    """One tier, of one instance or of several."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.there: list[Thing] = []

    def thing(self, content: Content) -> Thing | None:
        return next((one for one in self.there if one.content == content), None)

    def touch(self, thing: Thing) -> None:
        self.there.remove(thing)
        self.there.append(thing)


class Shelves:
    """All tiers of an instance.

    ``common``: the last shelf, if it has that in common with others. ``idle_us``: when its step in progress is over.
    """

    def __init__(
        self, spec: KvTiers, size: int, number: int, idle_us: Callable[[], int], common: Shelf | None = None
    ) -> None:
        self.spec = spec
        self.size = size
        self.number = number
        self.idle_us = idle_us
        self.shelves = [Shelf(tier.blocks) for tier in spec.tiers]
        self.common = common
        if common is not None:
            self.shelves[-1] = common
        self.now = 0
        self.pending_us = self.last_end_us = 0
        self.thrashing = self.transfer_us = self.added_us = 0
        self.stored, self.loaded, self.dropped = ([0] * len(spec.tiers) for _ in range(3))

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
        new: list[Thing] = []
        for content in contents:
            self._put(0, content, self.now, moved, new)
        self._move(moved)
        for thing in new:
            thing.there_us = max(self.now, self.idle_us()) + self.pending_us

    def _put(self, level: int, content: Content, came: int, moved: list[int], new: list[Thing]) -> None:
        if level == len(self.shelves):
            return
        shelf = self.shelves[level]
        thing = shelf.thing(content)
        if thing is not None:
            shelf.touch(thing)
        elif not shelf.room:
            self._put(level + 1, content, came, moved, new)
        else:
            if len(shelf.there) == shelf.room:
                oldest = shelf.there.pop(0)
                self.dropped[level] += 1
                self._put(level + 1, oldest.content, oldest.came_us, moved, new)
            new.append(Thing(content, came, self.number))
            shelf.there.append(new[-1])
            self.stored[level] += 1
            moved[level] += 1

    def _found(self, content: Content) -> tuple[int, Thing] | None:
        for level, shelf in enumerate(self.shelves):
            thing = shelf.thing(content)
            if thing is not None and (thing.who == self.number or thing.there_us <= self.now):
                return level, thing
        return None

    def has(self, content: Content) -> bool:
        return self._found(content) is not None

    def load(self, contents: Sequence[Content]) -> None:
        moved = [0] * len(self.shelves)
        for content in contents:
            found = self._found(content)
            assert found is not None
            level, thing = found
            self.thrashing += thing.who == self.number and self.now - thing.came_us <= 1000
            self.shelves[level].touch(thing)
            self.loaded[level] += 1
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

    def wipe(self, now: int) -> None:
        """The instance dies: what it has is lost, and what is on its way to others."""
        for shelf in self.shelves:
            if shelf is self.common:
                shelf.there = [one for one in shelf.there if one.who != self.number or one.there_us <= now]
            else:
                shelf.there = []
        self.pending_us = 0

    def books(self) -> tuple[object, ...]:
        held = [len(shelf.there) for shelf in self.shelves]
        counts = tuple(zip(self.stored, self.loaded, self.dropped, held, strict=True))
        return (counts, self.thrashing, self.transfer_us, self.added_us)
