"""A chain of digests over a record stream: small enough to store, fine enough to say where two streams first differ.

Entry ``i`` is a digest of all records of the first ``(i + 1) * every`` events. Two streams agree up to the last entry
they have in common. The number of entries is bounded: when it is reached, every other one is dropped and ``every``
doubles.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.records.tables import record_line

if TYPE_CHECKING:
    from blis_tui.engine.records import Record

MAX_ENTRIES: Final = 2048
_ENTRY_DIGITS: Final = 8
"""32 bits an entry: a difference is missed by one entry in 4 billion, and then found by the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The digests of one record stream."""

    events: int
    """Events of the run."""
    records: int
    """Records in the stream."""
    sha256: str
    """Digest of the whole stream, as of the file that ``run --records`` writes."""
    every: int
    """Events from one entry to the next: a power of two."""
    entries: tuple[str, ...]

    def coarser(self, every: int) -> tuple[str, ...]:
        """The entries for every ``every``-th event, a multiple of this chain's own step."""
        step = every // self.every
        return self.entries[step - 1 :: step]


def divergence_window(old: Chain, new: Chain) -> tuple[int, int] | None:
    """The events ``(after, until]`` among which the streams first differ; None when they are equal."""
    if old.sha256 == new.sha256:
        return None
    every = max(old.every, new.every)
    pairs = list(zip(old.coarser(every), new.coarser(every), strict=False))
    for i, (before, after) in enumerate(pairs):
        if before != after:
            return (i * every, (i + 1) * every)
    # Equal as far as both have entries: they differ in what comes after the last common one.
    return (len(pairs) * every, max(old.events, new.events))


class ChainRecorder:
    """Listens to all records of a simulation and keeps their chain."""

    def __init__(self) -> None:
        self._hasher = sha256()
        self._records = 0
        self._every = 1
        self._boundary = 1
        self._entries: list[str] = []

    def __call__(self, record: Record) -> None:
        """Take in the next record."""
        self._close(record.event - 1)
        self._hasher.update(record_line(record).encode())
        self._records += 1

    def finish(self, events: int) -> Chain:
        """The chain of a run of so many events."""
        self._close(events)
        return Chain(
            events=events,
            records=self._records,
            sha256=self._hasher.hexdigest(),
            every=self._every,
            entries=tuple(self._entries),
        )

    def _close(self, event: int) -> None:
        """Write the entries of all boundaries up to ``event``."""
        while self._boundary <= event:
            self._entries.append(self._hasher.hexdigest()[:_ENTRY_DIGITS])
            if len(self._entries) == MAX_ENTRIES:
                self._entries = self._entries[1::2]
                self._every *= 2
            self._boundary = self._every * (len(self._entries) + 1)
