"""The first requests of a ranking and what they have in common, for a screen that must not wait for them."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.base.classes import NamedTuple
from blis_tui.debugger.why.common import common, looked_at, traits_of
from blis_tui.debugger.why.ranking import Position, Ranking, slowest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.why.common import Common
    from blis_tui.debugger.why.ranking import Lives, Ranked

_T = TypeVar("_T")

AT_ONCE_S: Final = 0.03
"""Time for reading before the first look, in seconds: enough for some hundred lives."""


class Wanted(NamedTuple):
    """What a reader wants to see."""

    here: Position
    order: str
    """A key of ``ranking.ORDERS``."""
    limit: int
    """Maximum number of requests."""
    marked: tuple[str, ...]
    """The requests whose common traits are wanted; if empty, those of the first requests of the ranking."""


class RankedGroup:
    """A ranking that is read a few lives at a time.

    Attributes:
        ranked: the first requests of those read so far.
        common: what they have in common; empty until everything is read.
        unread: number of requests that are still to be read for the ranking, or to compare its first ones with.
    """

    def __init__(self, tape: EventStore) -> None:
        self.ranked: Sequence[Ranked] = ()
        self.common: Sequence[Common] = ()
        self.unread = 0
        self._tape = tape
        self._rankings: dict[str, Ranking] = {}
        self._traits = traits_of(tape)
        self._wanted: Wanted | None = None
        self._reading: Generator[None] | None = None
        self._grew = False

    @property
    def reading(self) -> bool:
        """Whether something is still to be read."""
        return self._reading is not None

    def show(self, wanted: Wanted) -> None:
        """Begin to read what is wanted, and read the first lives; what is wanted already goes on."""
        if wanted == self._wanted:
            return
        self._wanted = wanted
        self.common = ()
        self._reading = self._read(wanted)
        until_s = perf_counter() + AT_ONCE_S
        for _ in self.follow():
            if perf_counter() >= until_s:
                break
        if self.reading:
            self._rank(wanted)
        self._grew = False

    def follow(self) -> Generator[None]:
        """Go on reading; yield after each life. The caller may stop at any time."""
        for _ in self._reading or ():
            self._grew = True
            yield
        self._grew = True

    def look(self) -> bool:
        """Rank what has been read since the last look; return whether that was anything."""
        grew, self._grew = self._grew, False
        if grew and self._wanted is not None:
            self._rank(self._wanted)
        return grew

    def _read(self, wanted: Wanted) -> Generator[None]:
        if wanted.order != "e2e":
            ranking = self._rankings.setdefault(wanted.order, Ranking(self._tape, wanted.order))
            yield from self._read_lives(ranking, wanted.here, None)
        self._rank(wanted)
        group = wanted.marked or [ranked.name for ranked in self.ranked]
        yield from self._read_lives(self._traits, wanted.here, looked_at(self._tape, group))
        self.common = common(self._tape, group, wanted.here, self._traits)
        self._reading = None

    def _read_lives(self, lives: Lives[_T], here: Position, numbers: Sequence[int] | None) -> Generator[None]:
        unread = lives.unread(here, numbers)
        self.unread = len(unread)
        for number in unread:
            lives.read(number)
            self.unread -= 1
            yield

    def _rank(self, wanted: Wanted) -> None:
        if wanted.order == "e2e":
            self.ranked = slowest(self._tape, wanted.here, wanted.limit)
        else:
            self.ranked = self._rankings[wanted.order].largest(wanted.limit)
