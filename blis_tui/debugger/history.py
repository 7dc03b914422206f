"""Checkpoints of one run: where to start a replay from when somebody wants to go back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.errors import DivergenceError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    @property
    def size_bytes(self) -> int:
        """How much memory they take."""
        return self._bytes

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
