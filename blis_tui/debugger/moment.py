"""One moment of a run, frozen: everything a reader needs to show it and to say what just happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.engine.records import StepFinished

if TYPE_CHECKING:
    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot, Snapshot
    from blis_tui.engine.records import Record

PHASES: Final = ("schedule", "execute", "complete", "next")
"""The phases of a step, in order. A position within a step says how much of it has been looked at."""
LAST_PHASE: Final = len(PHASES) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The simulation right after an event, and how it got there."""

    event: int
    """Events so far; 0 = nothing has happened yet."""
    phase: int | None
    """For a step: how many of its phases have been looked at, as an index of ``PHASES``. None for other events."""
    time_us: int
    """Simulated time of the event, in microseconds."""
    records: tuple[Record, ...]
    """What the event did; empty while running, and at the start."""
    before: Snapshot | None
    """The state just before the event; None while running, and at the start."""
    after: Snapshot
    frontier: int
    """How many events are known; more than ``event`` when the reader has gone back."""
    at_end: bool
    """Nothing will happen any more (or only beyond the horizon)."""
    complete: bool = False
    """The whole run is known: nothing follows behind ``frontier``."""
    failure: str
    """Why the simulation cannot go on from its end; empty when it did not fail."""

    @property
    def step(self) -> StepFinished | None:
        """The step that the event was, if it was one."""
        return next((record for record in self.records if isinstance(record, StepFinished)), None)

    def instance(self, index: int) -> InstanceSnapshot:
        """An instance right after the event."""
        return self.after.instances[index]

    def request(self, name: str, *, before: bool = False) -> RequestSnapshot | None:
        """A live request right after (or before) the event, if it is among those looked at."""
        snapshot = self.before if before else self.after
        return None if snapshot is None else find(snapshot, name)


def live(snapshot: Snapshot) -> tuple[RequestSnapshot, ...]:
    """All requests of a snapshot: on the way, then by instance waiting and running."""
    found = [*snapshot.in_transit]
    for instance in snapshot.instances:
        found += [*instance.waiting, *instance.running]
    return tuple(found)


def find(snapshot: Snapshot, name: str) -> RequestSnapshot | None:
    """A live request by name."""
    return next((request for request in live(snapshot) if request.request_id == name), None)
