"""A chain of digests over a record stream, small enough to store and fine enough to locate the first difference.

Entry ``i`` is a digest of all records of the first ``(i + 1) * every`` events. Two streams agree up to the last entry
that is equal. The number of entries is bounded: when the bound is reached, every other entry is dropped and ``every``
doubles.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.results.record_lines import record_line

if TYPE_CHECKING:
    from blis_tui.engine.records import Record

MAX_ENTRIES: Final = 2048
_ENTRY_DIGITS: Final = 8
"""Digits per entry: 32 bits miss a difference once in 4 billion cases, and the next entry then detects it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The digests of one record stream."""

    events: int
    """Number of events of the run."""
    records: int
    """Number of records in the stream."""
    sha256: str
    """Digest of the whole stream, equal to that of the file that ``run --records`` writes."""
    every: int
    """Number of events between two entries: a power of two."""
    entries: tuple[str, ...]

    def coarser(self, every: int) -> tuple[str, ...]:
        """Return the entries for every ``every``-th event, a multiple of this chain's own interval."""
        step = every // self.every
        return self.entries[step - 1 :: step]


def divergence_window(old: Chain, new: Chain) -> tuple[int, int] | None:
    """Return the events ``(after, until]`` in which the streams first differ; None if they are equal."""
    if old.sha256 == new.sha256:
        return None
    every = max(old.every, new.every)
    pairs = list(zip(old.coarser(every), new.coarser(every), strict=False))
    for i, (before, after) in enumerate(pairs):
        if before != after:
            return (i * every, (i + 1) * every)
    # All common entries are equal, so the difference comes after the last one.
    return (len(pairs) * every, max(old.events, new.events))


class ChainRecorder:
    """Subscribes to all records of a simulation and computes their chain."""

    def __init__(self) -> None:
        self._hasher = sha256()
        self._records = 0
        self._every = 1
        self._boundary = 1
        self._entries: list[str] = []

    def __call__(self, record: Record) -> None:
        """Add a record."""
        self._close(record.event - 1)
        self._hasher.update(record_line(record).encode())
        self._records += 1

    def finish(self, events: int) -> Chain:
        """Return the chain of a run with this many events."""
        self._close(events)
        return Chain(
            events=events,
            records=self._records,
            sha256=self._hasher.hexdigest(),
            every=self._every,
            entries=tuple(self._entries),
        )

    def _close(self, event: int) -> None:
        """Add the entries of all boundaries up to ``event``."""
        while self._boundary <= event:
            self._entries.append(self._hasher.hexdigest()[:_ENTRY_DIGITS])
            if len(self._entries) == MAX_ENTRIES:
                self._entries = self._entries[1::2]
                self._every *= 2
            self._boundary = self._every * (len(self._entries) + 1)
