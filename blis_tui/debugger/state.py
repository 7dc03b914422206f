"""One moment of a run, frozen: everything needed to display it and to say what just happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.records import Preempted, Scheduled, StepFinished

if TYPE_CHECKING:
    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot, Snapshot
    from blis_tui.engine.records import Record

PHASES: Final = ("schedule", "execute", "complete", "next")
"""The phases of a step, in order; a position within a step is the phase that the reader has reached."""
LAST_PHASE: Final = len(PHASES) - 1
WINDOW: Final = 300
"""Maximum number of requests of each queue and batch in a moment."""
_COMPLETE: Final = PHASES.index("complete")


def settles(phase: int | None) -> bool:
    """Return whether, at a phase (None = the event is no step), all results of the event are in effect."""
    return phase is None or phase >= _COMPLETE


def before_results(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """Return the records of a step that apply in its middle: no results, and no plan for the following step."""
    over = False
    found: list[Record] = []
    for record in records:
        over = over or isinstance(record, StepFinished)
        if not record.shown.result and not (over and isinstance(record, Scheduled | Preempted)):
            found.append(record)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebuggerState:
    """The simulation right after an event, or in the middle of a step, and how it got there.

    A step is one event. Its results carry the time at which the step ends, and are in effect from its phase
    ``complete``. The reader sees ``state``, ``applied_records`` and the events up to ``settled``; the rest is future.
    """

    event: int
    """Number of events so far; 0 = nothing has happened yet."""
    phase: int | None
    """For a step, the phase that the reader has reached, as an index of ``PHASES``. None for other events."""
    time_us: int
    """Simulated time of the event, in microseconds."""
    records: tuple[Record, ...]
    """All records of the event; empty while running, and at the start."""
    before: Snapshot | None
    """The state just before the event; None while running, and at the start."""
    scheduled: Snapshot | None = None
    """For a step, the state in its middle: the batch is formed, but nothing is computed. None for other events."""
    after: Snapshot
    frontier: int
    """Number of recorded events; greater than ``event`` if the reader has gone back."""
    at_end: bool
    """Whether no event follows (or only events beyond the horizon)."""
    complete: bool = False
    """Whether the whole run is recorded, that is, no event follows ``frontier``."""
    failure: str
    """Why the simulation cannot go on from its end; empty if it did not fail."""

    @property
    def step(self) -> StepFinished | None:
        """The record of the step, if the event is a step."""
        return next((record for record in self.records if isinstance(record, StepFinished)), None)

    @property
    def settled(self) -> int:
        """The last event whose results are all in effect: the current one, or in the middle of a step the previous."""
        return self.event if settles(self.phase) else self.event - 1

    @property
    def state(self) -> Snapshot:
        """The state at the reader's phase."""
        return self.after if self.scheduled is None or settles(self.phase) else self.scheduled

    @property
    def applied_records(self) -> tuple[Record, ...]:
        """The records of the event that apply at the reader's phase."""
        if settles(self.phase):
            return self.records
        return before_results(self.records)

    def instance(self, index: int) -> InstanceSnapshot:
        """Return an instance at the reader's phase."""
        return next(one for one in self.state.instances if one.index == index)

    def request(self, name: str) -> RequestSnapshot | None:
        """Return a live request at the reader's phase, if the snapshot holds it."""
        return next((request for request in live(self.state) if request.request_id == name), None)


def live(snapshot: Snapshot) -> tuple[RequestSnapshot, ...]:
    """Return all requests of a snapshot: those in transit, then by instance those waiting and running."""
    found = [*snapshot.in_transit]
    for instance in snapshot.instances:
        found += [*instance.waiting, *instance.running]
    return tuple(found)
