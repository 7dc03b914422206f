"""One moment of a run, frozen: everything a reader needs to show it and to say what just happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.records import Preempted, Scheduled, StepFinished

if TYPE_CHECKING:
    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot, Snapshot
    from blis_tui.engine.records import Record

PHASES: Final = ("schedule", "execute", "complete", "next")
"""The phases of a step, in order. A position within a step says how much of it has been looked at."""
LAST_PHASE: Final = len(PHASES) - 1
WINDOW: Final = 300
"""Requests of each queue and batch in a moment."""
_COMPLETE: Final = PHASES.index("complete")


def settles(phase: int | None) -> bool:
    """Whether at a phase (None = that of another event than a step) everything that the event did is past."""
    return phase is None or phase >= _COMPLETE


def before_results(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """What of a step's records is past in its middle: no results, and no plan for the step after it."""
    over = False
    found: list[Record] = []
    for record in records:
        over = over or isinstance(record, StepFinished)
        if not record.shown.result and not (over and isinstance(record, Scheduled | Preempted)):
            found.append(record)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The simulation right after an event, or in the middle of a step, and how it got there.

    A step is one event: its results carry the time at which it ends, and are past once its phase ``complete`` is. So
    what a reader sees is ``state``, ``past`` and what happened up to ``settled``; the rest is the known future.
    """

    event: int
    """Events so far; 0 = nothing has happened yet."""
    phase: int | None
    """For a step: how many of its phases have been looked at, as an index of ``PHASES``. None for other events."""
    time_us: int
    """Simulated time of the event, in microseconds."""
    records: tuple[Record, ...]
    """All that the event did; empty while running, and at the start."""
    before: Snapshot | None
    """The state just before the event; None while running, and at the start."""
    scheduled: Snapshot | None = None
    """Of a step, the state in its middle: who takes part is decided, nothing is computed. None for other events."""
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

    @property
    def settled(self) -> int:
        """The last event of which all is past: the present one, or the one before in the middle of a step."""
        return self.event if settles(self.phase) else self.event - 1

    @property
    def state(self) -> Snapshot:
        """The state at the phase the reader is in."""
        return self.after if self.scheduled is None or settles(self.phase) else self.scheduled

    @property
    def past(self) -> tuple[Record, ...]:
        """What the event has done so far at the phase the reader is in."""
        if settles(self.phase):
            return self.records
        return before_results(self.records)

    def instance(self, index: int) -> InstanceSnapshot:
        """An instance at the phase the reader is in."""
        return next(one for one in self.state.instances if one.index == index)

    def request(self, name: str) -> RequestSnapshot | None:
        """A live request at the phase the reader is in, if it is among those looked at."""
        return next((request for request in live(self.state) if request.request_id == name), None)


def live(snapshot: Snapshot) -> tuple[RequestSnapshot, ...]:
    """All requests of a snapshot: on the way, then by instance waiting and running."""
    found = [*snapshot.in_transit]
    for instance in snapshot.instances:
        found += [*instance.waiting, *instance.running]
    return tuple(found)
