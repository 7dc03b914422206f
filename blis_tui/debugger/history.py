"""Checkpoints of one run, and the replay of recorded events from them, to go back and to see what each event did."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import DivergenceError
from blis_tui.debugger.state import WINDOW
from blis_tui.engine.records import RECORD_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.cluster.snapshot import Snapshot
    from blis_tui.debugger.event_store import EventStore
    from blis_tui.engine.records import Record
    from blis_tui.results.conditions.breakpoints import Hit, Watch
    from blis_tui.runs.simulation import Mark, Simulation


SPACING: Final = 2000
"""Minimum work between two checkpoints, in ordinary events: 3 to 10 ms of replay."""
_WORK_PER_REQUEST: Final = 2
"""Additional minimum work for each live request, because a checkpoint costs that much (rough measurement)."""
MAX_CHECKPOINT_BYTES: Final = 64 * 1024 * 1024
"""Memory that checkpoints may take. Beyond it, checkpoints are thinned out, those far from the reader first."""
RUN_UP: Final = 64
"""Distance, in events, before the target of a move back at which a checkpoint is kept, to make the next ones short."""
_DIGESTS: Final = 4096
"""Number of visited events whose digests are remembered."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's mark, the work done before it, and the digest that its state must have."""

    event: int
    work: int
    mark: Mark
    digest: str


class History:
    """The checkpoints of a simulation, and the digests of visited states.

    Every return is verified: the restored state must have the digest that it had when the checkpoint was made, and an
    event visited before must have the same digest again.
    """

    def __init__(self, simulation: Simulation, *, cap_bytes: int = MAX_CHECKPOINT_BYTES) -> None:
        self._cap_bytes = cap_bytes
        self._checkpoints: list[Checkpoint] = []
        self._events: list[int] = []
        self._bytes = 0
        self._digests: dict[int, str] = {}
        self.keep(simulation, work=0)

    @property
    def events(self) -> Sequence[int]:
        """Events that have checkpoints, in order; the first is always 0."""
        return self._events

    def before(self, event: int) -> Checkpoint:
        """Return the latest checkpoint at or before an event."""
        return self._checkpoints[bisect_right(self._events, event) - 1]

    def is_due(self, simulation: Simulation, work: int, spacing: int = SPACING) -> bool:
        """Return whether a simulation should keep a checkpoint at its current event.

        A checkpoint is not due while it would cost more than the replay it saves: with a queue of 100,000 requests one
        takes half a second.
        """
        done = work - self.before(simulation.events).work
        return done >= spacing and done >= _WORK_PER_REQUEST * (simulation.arrived - simulation.ended)

    def keep(self, simulation: Simulation, *, work: int) -> None:
        """Keep a checkpoint of the simulation's current state."""
        event = simulation.events
        place = bisect_left(self._events, event)
        if place < len(self._events) and self._events[place] == event:
            return
        digest = simulation.digest()  # first, so that the mark has the digests of all rows so far
        checkpoint = Checkpoint(event, work, simulation.mark(), digest)
        self._events.insert(place, event)
        self._checkpoints.insert(place, checkpoint)
        self._bytes += checkpoint.mark.size_bytes
        if self._bytes > self._cap_bytes:
            self._evict_checkpoints(event)

    def return_to(self, simulation: Simulation, event: int) -> None:
        """Return a simulation to the latest checkpoint at or before an event.

        Raises:
            DivergenceError: the restored state differs from the one that was saved.
        """
        checkpoint = self.before(event)
        simulation.return_to(checkpoint.mark)
        if simulation.digest() != checkpoint.digest:
            raise DivergenceError("the checkpoint does not restore the state it was taken from", event=checkpoint.event)

    def look(self, simulation: Simulation) -> str:
        """Remember the digest of the current state, or compare it with that of the last visit; return it.

        Raises:
            DivergenceError: the digest differs from that of the last visit.
        """
        event = simulation.events
        digest = simulation.digest()
        if self._digests.setdefault(event, digest) != digest:
            raise DivergenceError("the state differs from the previous visit", event=event)
        if len(self._digests) > _DIGESTS:
            del self._digests[next(iter(self._digests))]
        return digest

    def _evict_checkpoints(self, here: int) -> None:
        """Drop the least useful checkpoints until they use at most three quarters of the allowed memory.

        Without a checkpoint, a replay to an event shortly after it grows by the gap before it. That matters less the
        farther the checkpoint lies from the reader, so gaps grow geometrically with the distance.
        """
        order = sorted(
            range(1, len(self._events)),
            key=lambda place: (self._events[place] - self._events[place - 1]) / (abs(here - self._events[place]) + 1),
        )
        dropped: dict[int, None] = {}
        for place in order:
            if self._bytes <= self._cap_bytes * 3 // 4:
                break
            if place - 1 in dropped or place + 1 in dropped or self._events[place] == here:
                continue
            dropped[place] = None
            self._bytes -= self._checkpoints[place].mark.size_bytes
        kept = [place for place in range(len(self._events)) if place not in dropped]
        self._checkpoints = [self._checkpoints[place] for place in kept]
        self._events = [self._events[place] for place in kept]


# ---- replay of recorded events ----

_REMEMBERED: Final = 64
"""Number of replayed events whose details are cached."""
_REMEMBERED_RECORDS: Final = 1024
"""Number of replayed events whose records alone are cached."""


@dataclass(frozen=True, slots=True)
class EventDetails:
    """One event in detail: the state before it, its records, and for a step the state in the middle."""

    before: Snapshot
    records: tuple[Record, ...]
    scheduled: Snapshot | None


def observed(simulation: Simulation, before: Snapshot, do: Callable[[], object]) -> EventDetails:
    """Run one event of a simulation and return it in detail."""
    records: list[Record] = []
    middles: list[Snapshot] = []

    def look() -> None:
        if not middles:
            middles.append(simulation.snapshot(WINDOW))

    stop = simulation.pause_in_steps(look)
    _collect(simulation, records, do)
    stop()
    if not middles or not records:
        return EventDetails(before, tuple(records), None)
    # The simulation counts the event only after it is complete, so the snapshot in the middle still has the one before.
    return EventDetails(before, tuple(records), replace(middles[0], event=records[0].event, time_us=records[0].time_us))


def _collect(simulation: Simulation, records: list[Record], do: Callable[[], object]) -> None:
    """Run one event of a simulation and add its records, also of kinds that are emitted only on demand."""
    kinds = ["all", *(name for name, kind in RECORD_KINDS.items() if kind.shown.on_demand)]
    stops = [simulation.subscribe(kind, records.append) for kind in kinds]
    do()
    for stop in stops:
        stop()


@contextmanager
def watched(simulation: Simulation, watch: Watch) -> Iterator[list[Record]]:
    """Start to watch a simulation; yield the list of records for the breakpoints, which the caller may clear."""
    watch.reset(simulation)
    collected: list[Record] = []
    stops = [simulation.subscribe(kind, collected.append) for kind in sorted(watch.needs)]
    try:
        yield collected
    finally:
        for stop in stops:
            stop()


class Replay:
    """Replays recorded events and verifies that they match the tape.

    Args:
        twin: a separate simulation of the same experiment.
        history: the checkpoints to start from.
        tape: the recorded events.
    """

    def __init__(self, twin: Simulation, history: History, tape: EventStore) -> None:
        self._twin = twin
        self._history = history
        self._tape = tape
        self._done: OrderedDict[int, EventDetails] = OrderedDict()
        self._records: OrderedDict[int, tuple[Record, ...]] = OrderedDict()

    def of(self, event: int, digest: str | None = None) -> EventDetails:
        """Return a recorded event in detail, by replaying it in the twin.

        Args:
            event: the event.
            digest: the expected digest of the state after it; None = not compared.
        """
        known = self._done.get(event)
        if known is not None:
            self._done.move_to_end(event)
            return known
        twin = self.before(event)
        done = observed(twin, twin.snapshot(WINDOW), lambda: twin.run(max_events=1))
        self._require_agreement(event, done.records)
        if digest is not None and twin.digest() != digest:
            raise DivergenceError("replaying the event gave a different state", event=event)
        return self.remember(event, done)

    def records_of(self, event: int) -> tuple[Record, ...]:
        """Return the records of a recorded event: without the states around it, which take longer than the event."""
        if event in self._done:
            return self.of(event).records
        known = self._records.get(event)
        if known is not None:
            self._records.move_to_end(event)
            return known
        twin = self.before(event)
        records: list[Record] = []
        _collect(twin, records, lambda: twin.run(max_events=1))
        self._require_agreement(event, records)
        self._records[event] = tuple(records)
        if len(self._records) > _REMEMBERED_RECORDS:
            self._records.popitem(last=False)
        return self._records[event]

    def _require_agreement(self, event: int, records: Sequence[Record]) -> None:
        if not records or not self._tape.agrees(records):
            raise DivergenceError("replaying the event gave a different one", event=event)

    def before(self, event: int) -> Simulation:
        """Return a simulation positioned just before an event."""
        twin = self._twin
        if not self._history.before(event - 1).event <= twin.events < event:
            self._history.return_to(twin, event - 1)
        twin.run(max_events=event - 1 - twin.events)
        return twin

    def beginning(self) -> Simulation:
        """Return a simulation of the run before its first event, for the caller alone."""
        return self._twin.twin(self._history.before(0).mark)

    def remember(self, event: int, done: EventDetails) -> EventDetails:
        """Cache an event's details, and evict the least recently used ones."""
        self._done[event] = done
        if len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        return done

    def first_time(self, holds: Callable[[Simulation], bool], last: int) -> Generator[Progress, None, int]:
        """Find the first event up to ``last`` after which something holds that then goes on to hold.

        Returns:
            The event; ``last`` if it does not hold before.
        """
        twin, history = self.beginning(), self._history
        low, high = 0, bisect_right(history.events, last) - 1
        while low < high:
            middle = (low + high + 1) // 2
            history.return_to(twin, history.events[middle])
            yield Progress(twin.events, twin.now_us, None)
            low, high = (low, middle - 1) if holds(twin) else (middle, high)
        history.return_to(twin, history.events[low])
        while not holds(twin) and twin.events < last:
            twin.run(max_events=1)
            if not twin.events % SLICE:
                yield Progress(twin.events, twin.now_us, None)
        return twin.events

    def last_hit(self, watch: Watch, last: int) -> Generator[Progress, None, tuple[int, tuple[Hit, ...]]]:
        """Find the latest event up to ``last`` at which a breakpoint stops; 0 if there is none."""
        while last > 0:
            start = self._history.before(last - 1).event
            event, hits = yield from self._last_hit_since(watch, start, last)
            if event:
                return event, hits
            last = start
        return 0, ()

    def _last_hit_since(
        self, watch: Watch, start: int, last: int
    ) -> Generator[Progress, None, tuple[int, tuple[Hit, ...]]]:
        # Use another twin, because explanations may use the shared one between two steps of this move.
        twin = self._twin.twin(self._history.before(start).mark)
        self._history.return_to(twin, start)
        latest: tuple[int, tuple[Hit, ...]] = (0, ())
        with watched(twin, watch) as collected:
            while twin.events < last:
                twin.run(max_events=1)
                hits = watch.check(twin, collected)
                collected.clear()
                if hits:
                    latest = (twin.events, hits)
                if not twin.events % SLICE:
                    yield Progress(twin.events, twin.now_us, None)
        return latest


# Long moves through a run, done a little at a time so that the caller sets the pace.

SLICE: Final = 64
"""Events between two yields of a move: a tenth of a millisecond, or a few milliseconds under memory pressure."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a move. ``goal``: the target event; None if the distance is unknown."""

    event: int
    time_us: int
    goal: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """How a move ended.

    ``reason``: ``there`` (the target was reached), ``breakpoint`` (with ``hits``), ``end`` (of the run), ``start``,
    ``failed`` (the simulation cannot go on), ``unknown`` (the run ended before the target was found), ``unchanged``
    (nothing changes there, and the position is where it was).
    """

    reason: str
    hits: tuple[Hit, ...] = ()


Move = Generator[Progress, None, Stop]
"""A long movement: each ``next`` goes a little further, and the caller may stop at any time."""


def run_to_stop(move: Move) -> Stop:
    """Run a move to its end at once."""
    while True:
        try:
            next(move)
        except StopIteration as end:
            stop = end.value
            if not isinstance(stop, Stop):
                raise TypeError(f"a move ends in a stop, not in {stop!r}") from None
            return stop
