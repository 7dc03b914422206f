"""The tracks of a run: lanes, counters, and the tracks of an instance."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.records.perfetto.packets import Packets
    from blis_tui.spec.model import Pool


class Lanes:
    """Tracks with the same name, as many as are in use at once."""

    def __init__(self, packets: Packets, process: int, name: str, rank: int) -> None:
        self._new: Callable[[], int] = lambda: packets.track(process, name, rank)
        self._free: list[int] = []

    def take(self) -> int:
        """Return a free track, or a new one."""
        return heappop(self._free) if self._free else self._new()

    def release(self, track: int) -> None:
        """Mark a track as free again."""
        heappush(self._free, track)


class Counter:
    """A number over time, written when it changes."""

    def __init__(self, packets: Packets, process: int, name: str, unit: str) -> None:
        self._packets = packets
        self._track = packets.counter(process, name, unit, rank=-1)
        self._written = -1
        self.value = 0

    def write(self, time_us: int) -> None:
        """Write the value if it has changed."""
        if self.value != self._written:
            self._packets.count(self._track, time_us, self.value)
            self._written = self.value


class Load:
    """Counters of running requests, waiting requests, and KV blocks in use, of an instance or a pool."""

    def __init__(self, packets: Packets, process: int, above: Load | None) -> None:
        self._above = above
        self._running = Counter(packets, process, "running", "requests")
        self._waiting = Counter(packets, process, "waiting", "requests")
        self._kv = Counter(packets, process, "KV blocks used", "blocks")

    def add(self, *, running: int = 0, waiting: int = 0) -> None:
        """Change the numbers of requests."""
        self._running.value += running
        self._waiting.value += waiting
        if self._above is not None:
            self._above.add(running=running, waiting=waiting)

    def use(self, blocks: int, time_us: int) -> None:
        """Set the number of KV blocks in use from then on."""
        self._use_more(blocks - self._kv.value, time_us)

    def _use_more(self, blocks: int, time_us: int) -> None:
        self._kv.value += blocks
        self._kv.write(time_us)
        if self._above is not None:
            self._above._use_more(blocks, time_us)  # noqa: SLF001  (an object of the same class)

    def write(self, time_us: int) -> None:
        """Write the numbers of running and waiting requests."""
        self._running.write(time_us)
        self._waiting.write(time_us)
        if self._above is not None:
            self._above.write(time_us)


class Instance:
    """The tracks of an instance."""

    def __init__(self, packets: Packets, pid: int, name: str, pool: Pool, above: Load) -> None:
        self.process = packets.process(pid, name, (pool.name, pool.model.name, pool.hardware.name))
        self.load = Load(packets, self.process, above)
        self.requests = Lanes(packets, self.process, "requests", 2)
        self.steps: list[list[int]] = []
        """The lanes of steps: each lane's track, and when it becomes free."""
        self.state = 0
        """The track of its state, if instances come and go."""
