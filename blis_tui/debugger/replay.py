"""One event, watched while it happens: the state before it, in its middle if it is a step, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blis_tui.debugger.moment import WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.snapshot import Snapshot
    from blis_tui.debugger.conditions.breakpoints import Watch
    from blis_tui.engine.records import Record
    from blis_tui.simulation import Simulation


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


def watched(simulation: Simulation, watch: Watch, collected: list[Record]) -> Callable[[], None]:
    """Collect the records that breakpoints look at; returns what ends it."""
    stops = [simulation.subscribe(kind, collected.append) for kind in sorted(watch.needs)]

    def stop() -> None:
        for one in stops:
            one()

    return stop
