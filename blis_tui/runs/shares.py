"""One run in several processes, each of which simulates a share of the instances: every n-th one.

The report is that of one process, byte for byte: routing and admission read no state (``why_whole``), so each instance
gets the same requests at the same times, and nothing but requests reaches it from outside.
"""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import SimulationError
from blis_tui.base.processes import how_it_ended, start_process
from blis_tui.cluster.cluster import Cluster
from blis_tui.engine.records import Observers
from blis_tui.results.request_log import RequestLog
from blis_tui.runs.checkpoints import packed
from blis_tui.runs.simulation import SLICE_EVENTS
from blis_tui.workload.source import create_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from blis_tui.model import Experiment
    from blis_tui.runs.simulation import Simulation

_LOOK_S: Final = 0.1
"""Time between two looks at whether the run is to stop."""


class SharedRun:
    """A run by several processes.

    Args:
        simulation: a simulation at its beginning, without a reason to stay whole (``Simulation.why_whole``).
        jobs: number of processes; there are at most as many as instances.

    Attributes:
        ended: number of requests that have ended so far.
    """

    def __init__(self, simulation: Simulation, jobs: int) -> None:
        self.ended = 0
        self._simulation = simulation
        self._jobs = min(jobs, len(simulation.cluster.instances))
        self._stopping = False

    def stop(self) -> None:
        """Let :meth:`run` end soon; safe in signal handlers."""
        self._stopping = True
        self._simulation.stop()  # which runs itself where a process has come to an error

    def run(self, show: Callable[[], None] | None = None) -> bool:
        """Simulate to the end; the simulation is then where its own ``run`` would have left it.

        Args:
            show: called whenever ``ended`` has changed.

        Returns:
            False if it was stopped. The simulation is then still at its beginning, or (after an error in a process)
            between two events.

        Raises:
            SimulationError: a process died.
            BlisError: as from ``Simulation.run``.
        """
        experiment = self._simulation.experiment
        started = [start_process(_simulate, experiment, number, self._jobs) for number in range(self._jobs)]
        try:
            shares = self._collect(started, show)
        finally:
            for process, connection in started:
                process.kill()
                connection.close()
            for process, _ in started:
                process.join()
        if self._stopping:
            return False
        if None in shares:  # an error; the run in one process finds the first one
            return self._simulation.run()
        self._simulation.take_shares([share for share in shares if share is not None])
        return True

    def _collect(
        self, started: list[tuple[SpawnProcess, Connection]], show: Callable[[], None] | None
    ) -> list[bytes | None]:
        """Return the outcome of each process in order; None = there was an error."""
        ended, outcomes = [0] * len(started), dict[int, bytes | None]()
        while len(outcomes) < len(started) and not self._stopping and None not in outcomes.values():
            waiting = [connection for number, (_, connection) in enumerate(started) if number not in outcomes]
            ready = wait(waiting, _LOOK_S)
            for number, (process, connection) in enumerate(started):
                if connection not in ready:
                    continue
                try:
                    message = connection.recv()
                except (EOFError, OSError):
                    process.join()
                    how = how_it_ended(process.exitcode)
                    raise SimulationError(
                        f"a process that simulated a part of the instances died ({how})",
                        help="a Python script that starts processes needs `if __name__ == '__main__':`",
                    ) from None
                if isinstance(message, int):
                    ended[number] = message
                else:
                    outcomes[number] = message
            if show is not None and ready:
                self.ended = 0
                for count in ended:
                    self.ended += count
                show()
        return [outcomes.get(number) for number in range(len(started))]


def _simulate(connection: Connection, experiment: Experiment, number: int, shares: int) -> None:
    """Simulate a share in a process: send how many requests have ended from time to time, and the outcome."""
    with suppress(OSError):  # nobody listens any more
        outcome: bytes | None = None
        with suppress(Exception):  # whatever it is, the run in one process comes to it, too
            outcome = simulated_share(experiment, number, shares, connection.send)
        connection.send(outcome)


def simulated_share(
    experiment: Experiment, number: int, shares: int, tell: Callable[[int], None] = lambda _: None
) -> bytes:
    """Simulate every ``shares``-th instance from the ``number``-th on; return the state at the end.

    ``tell`` is called with the number of requests that have ended, from time to time.
    """
    log = RequestLog(detours=experiment.has_detours, facts=experiment.request_facts)
    source = create_source(experiment.workload, experiment.seed, experiment.plugins)
    share = range(number, sum(pool.instances for pool in experiment.pools), shares)
    cluster = Cluster(experiment, source, log, Observers(), share=share)
    while cluster.run(SLICE_EVENTS, exact=False) >= SLICE_EVENTS:
        tell(len(log))
    log.flush()
    return packed((cluster, log), parts=cluster.registry.fixed_parts())
