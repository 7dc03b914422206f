"""Known events done again elsewhere: the state before each, in its middle if it is a step, and what it did."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from blis_tui.debugger.moment import WINDOW
from blis_tui.debugger.moves import SLICE, Progress
from blis_tui.errors import DivergenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from blis_tui.cluster.snapshot import Snapshot
    from blis_tui.debugger.conditions.breakpoints import Hit, Watch
    from blis_tui.debugger.history import History
    from blis_tui.debugger.tape import Tape
    from blis_tui.engine.records import Record
    from blis_tui.simulation import Simulation

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

    stops = [simulation.subscribe("all", records.append), simulation.pause_in_steps(look)]
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
