"""Checkpoints of one run, and known events done again from them: for going back, and for what each event did."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.debugger.moment import WINDOW
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.errors import DivergenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.cluster.snapshot import Snapshot
    from blis_tui.conditions.breakpoints import Hit, Watch
    from blis_tui.debugger.tape import Tape
    from blis_tui.engine.records import Record
    from blis_tui.simulation import Mark, Simulation


SPACING: Final = 2000
"""Work between two checkpoints, in ordinary events: 3 to 10 ms of replay."""
_WORK_PER_REQUEST: Final = 2
"""The same, for each request that is there: what a checkpoint of it costs (measured, roughly)."""
CAP_BYTES: Final = 64 * 1024 * 1024
"""Memory that checkpoints may take; beyond it they thin out, the far ones first."""
_LADDER: Final = (512, 128, 32, 8)
"""Events before a place gone back to at which checkpoints are left, so that the next steps back are short."""
_DIGESTS: Final = 4096
"""Digests of places once looked at that are remembered."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A mark, with the work done before it and the digest its state must have."""

    event: int
    work: int
    mark: Mark
    digest: str


class History:
    """The checkpoints of a simulation, and the digests of states seen.

    Every return is verified: the state restored must have the digest it had when the checkpoint was made, and a place
    that was looked at before must look the same again.
    """

    def __init__(self, simulation: Simulation, *, cap_bytes: int = CAP_BYTES) -> None:
        self._cap_bytes = cap_bytes
        self._checkpoints: list[Checkpoint] = []
        self._events: list[int] = []
        self._bytes = 0
        self._digests: dict[int, str] = {}
        self.keep(simulation, work=0)

    @property
    def events(self) -> Sequence[int]:
        """At which events there are checkpoints, in order; the first is always 0."""
        return self._events

    def before(self, event: int) -> Checkpoint:
        """The latest checkpoint at or before an event."""
        return self._checkpoints[bisect_right(self._events, event) - 1]

    def is_due(self, simulation: Simulation, work: int, spacing: int = SPACING) -> bool:
        """Whether a simulation should leave a checkpoint where it stands.

        One that costs more than the replay it saves is none: in a queue of 100,000 requests it takes half a second.
        """
        done = work - self.before(simulation.events).work
        return done >= spacing and done >= _WORK_PER_REQUEST * (simulation.arrived - simulation.ended)

    def keep(self, simulation: Simulation, *, work: int) -> None:
        """Leave a checkpoint where the simulation stands."""
        event = simulation.events
        place = bisect_left(self._events, event)
        if place < len(self._events) and self._events[place] == event:
            return
        checkpoint = Checkpoint(event, work, simulation.mark(), simulation.digest())
        self._events.insert(place, event)
        self._checkpoints.insert(place, checkpoint)
        self._bytes += checkpoint.mark.size_bytes
        if self._bytes > self._cap_bytes:
            self._thin(event)

    def ladder(self, target: int, start: int) -> list[int]:
        """Events between ``start`` and ``target`` at which a replay to ``target`` should leave checkpoints."""
        return [target - distance for distance in _LADDER if target - distance > start]

    def return_to(self, simulation: Simulation, event: int) -> None:
        """Take a simulation to the latest checkpoint at or before an event.

        Raises:
            DivergenceError: its state is not the one that was kept.
        """
        checkpoint = self.before(event)
        simulation.return_to(checkpoint.mark)
        if simulation.digest() != checkpoint.digest:
            raise DivergenceError("the checkpoint does not restore the state it was taken from", event=checkpoint.event)

    def look(self, simulation: Simulation) -> str:
        """Remember the state at this place, or compare it with what it was the last time; returns its digest.

        Raises:
            DivergenceError: it is another one now.
        """
        event = simulation.events
        digest = simulation.digest()
        if self._digests.setdefault(event, digest) != digest:
            raise DivergenceError("the state differs from the previous visit", event=event)
        if len(self._digests) > _DIGESTS:
            del self._digests[next(iter(self._digests))]
        return digest

    def _thin(self, here: int) -> None:
        """Drop checkpoints until three quarters of the memory are used: those whose loss is felt least.

        Without one of them a replay to its neighbourhood gets longer by the gap before it. That matters less the
        farther it lies from where the reader is, so gaps grow geometrically with the distance.
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


# ---- known events done again ----

_REMEMBERED: Final = 64
"""Events whose records are remembered after they were looked up."""


@dataclass(frozen=True, slots=True)
class Done:
    """How an event came about: the state before it, what it did, and for a step the state in its middle."""

    before: Snapshot
    records: tuple[Record, ...]
    scheduled: Snapshot | None


def observed(simulation: Simulation, before: Snapshot, do: Callable[[], object]) -> Done:
    """Have a simulation do one event, and see how it comes about."""
    records: list[Record] = []
    middles: list[Snapshot] = []

    def look() -> None:
        if not middles:
            middles.append(simulation.snapshot(WINDOW))

    stops = [simulation.subscribe(kind, records.append) for kind in RECORD_KINDS]  # those on demand, too
    stops.append(simulation.pause_in_steps(look))
    do()
    for stop in stops:
        stop()
    if not middles or not records:
        return Done(before, tuple(records), None)
    # To the simulation the event is not there before all of it has happened.
    return Done(before, tuple(records), replace(middles[0], event=records[0].event, time_us=records[0].time_us))


@contextmanager
def watched(simulation: Simulation, watch: Watch) -> Iterator[list[Record]]:
    """Begin to watch a simulation; gives the list of the records that breakpoints look at, to be emptied at will."""
    watch.reset(simulation)
    collected: list[Record] = []
    stops = [simulation.subscribe(kind, collected.append) for kind in sorted(watch.needs)]
    try:
        yield collected
    finally:
        for stop in stops:
            stop()


class Replay:
    """Does known events again, and checks that they come out as they did.

    Args:
        twin: a simulation of its own.
        history: the checkpoints to begin at.
        tape: what happened.
    """

    def __init__(self, twin: Simulation, history: History, tape: Tape) -> None:
        self._twin = twin
        self._history = history
        self._tape = tape
        self._done: OrderedDict[int, Done] = OrderedDict()

    def of(self, event: int, digest: str | None = None) -> Done:
        """How a known event came about, by doing it again elsewhere.

        Args:
            event: the event.
            digest: what the state must be after it; None = that is not compared.
        """
        known = self._done.get(event)
        if known is not None:
            self._done.move_to_end(event)
            return known
        twin = self.before(event)
        done = observed(twin, twin.snapshot(WINDOW), lambda: twin.run(max_events=1))
        if not done.records or not self._tape.agrees(done.records):
            raise DivergenceError("replaying the event gave a different one", event=event)
        if digest is not None and twin.digest() != digest:
            raise DivergenceError("replaying the event gave a different state", event=event)
        return self.remember(event, done)

    def before(self, event: int) -> Simulation:
        """A simulation at the place where that event is the next one."""
        twin = self._twin
        if not self._history.before(event - 1).event <= twin.events < event:
            self._history.return_to(twin, event - 1)
        twin.run(max_events=event - 1 - twin.events)
        return twin

    def remember(self, event: int, done: Done) -> Done:
        """Keep what is known of an event, instead of what was not asked for longest."""
        self._done[event] = done
        if len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        return done

    def last_hit(self, watch: Watch, last: int) -> Generator[Progress, None, tuple[int, tuple[Hit, ...]]]:
        """The latest event up to one at which a breakpoint stops, 0 if none does; from checkpoint to checkpoint."""
        while last > 0:
            start = self._history.before(last - 1).event
            found, hits = yield from self._last_hit_since(watch, start, last)
            if found:
                return found, hits
            last = start
        return 0, ()

    def _last_hit_since(
        self, watch: Watch, start: int, last: int
    ) -> Generator[Progress, None, tuple[int, tuple[Hit, ...]]]:
        # One of its own: explanations may be asked for meanwhile.
        twin = self._twin.twin(self._history.before(start).mark)
        self._history.return_to(twin, start)
        found: tuple[int, tuple[Hit, ...]] = (0, ())
        with watched(twin, watch) as collected:
            while twin.events < last:
                twin.run(max_events=1)
                hits = watch.check(twin, collected)
                collected.clear()
                if hits:
                    found = (twin.events, hits)
                if not twin.events % SLICE:
                    yield Progress(twin.events, twin.now_us, None)
        return found


# Long ways through a run, a little at a time: the caller sets the pace.

SLICE: Final = 64
"""Events between two looks at whether to go on: a tenth of a millisecond, a few under memory pressure."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a move is. ``goal``: the event it goes to, None when it is not known how far that is."""

    event: int
    time_us: int
    goal: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """How a move ended.

    ``reason``: ``there`` (where it was meant to go), ``breakpoint`` (with ``hits``), ``end`` (of the run), ``start``,
    ``failed`` (the simulation cannot go on), ``unknown`` (the run ended without what was looked for).
    """

    reason: str
    hits: tuple[Hit, ...] = ()


Move = Generator[Progress, None, Stop]
"""A long way: each ``next`` goes a little further, and the caller may stop at any time."""


def run_to_stop(move: Move) -> Stop:
    """Drive a move to its end at once."""
    while True:
        try:
            next(move)
        except StopIteration as end:
            stop = end.value
            if not isinstance(stop, Stop):
                raise TypeError(f"a move ends in a stop, not in {stop!r}") from None
            return stop
