"""Runners make the runs of a study: in this process, or in several on this machine.

A runner accepts tasks while it has room for them, and returns their outcomes in the order in which they end.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import CancelledError
from contextlib import nullcontext, redirect_stderr, suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import SimulationError
from blis_tui.base.processes import how_it_ended, start_process
from blis_tui.base.standard_output import Printed, Stream, reserved_for_results
from blis_tui.study.task import Outcome, execute

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from types import TracebackType
    from typing import Self

    from blis_tui.study.task import Task

ATTEMPTS: Final = 3
"""Maximum number of attempts of a run whose process dies."""
_AHEAD: Final = 2
"""Tasks accepted per process, so that none waits for the next one to be loaded."""
_LOOK_S: Final = 0.1
"""Maximum delay in seconds until a waiting thread notices that another one stops it."""
_READY: Final = "ready"
_DEAD: Final = "dead"


class Runner(ABC):
    """Makes runs; leave the ``with`` block, or call :meth:`close`, to free its resources."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Where runs are made, in words."""

    @property
    @abstractmethod
    def room(self) -> bool:
        """Whether another task would start at once or be next."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a task has no outcome yet."""

    @property
    def idle(self) -> bool:
        """Whether another task would take nothing from those in progress."""
        return False

    @abstractmethod
    def start(self, task: Task) -> None:
        """Accept a task."""

    @abstractmethod
    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        """Return the outcomes since the last call, each task once.

        Args:
            block: wait for an outcome if a task is in progress.

        Raises:
            SimulationError: no runs can be made any more.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Stop the tasks in progress at once, and forget them."""

    def close(self) -> None:
        """Stop the tasks in progress at once, and free all resources."""
        self.cancel()

    def run(self, tasks: Iterable[Task]) -> Generator[tuple[Task, Outcome]]:
        """Yield the outcomes of all tasks in the order in which they end; close the iterator to abort."""
        try:
            for task in tasks:
                while not self.room:
                    yield from self.collect(block=True)
                self.start(task)
                yield from self.collect(block=False)
            while self.busy:
                yield from self.collect(block=True)
        finally:
            self.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class InProcessRunner(Runner):
    """Runs one task after the other in this process."""

    name = "this process"

    def __init__(self) -> None:
        self._task: Task | None = None

    @property
    def room(self) -> bool:
        """See :attr:`Runner.room`."""
        return self._task is None

    @property
    def busy(self) -> bool:
        """See :attr:`Runner.busy`."""
        return self._task is not None

    def start(self, task: Task) -> None:
        """See :meth:`Runner.start`; the task runs when it is collected."""
        self._task = task

    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        """See :meth:`Runner.collect`."""
        if self._task is None or not block:
            return []
        task, self._task = self._task, None
        return [(task, execute(task))]

    def cancel(self) -> None:
        """See :meth:`Runner.cancel`."""
        self._task = None


@dataclass(frozen=True, slots=True)
class _PrintedOutput:
    """Output printed in a process."""

    text: str


@dataclass(slots=True, eq=False)
class _Worker:
    process: SpawnProcess
    connection: Connection
    task: Task | None = None
    ready: bool = False
    """Whether it has started and can accept a task."""


class ProcessRunner(Runner):
    """Runs tasks in several separate processes.

    If a process dies (out of memory, killed), its run is repeated in a new one, and fails after ``ATTEMPTS`` attempts.
    A ``concurrent.futures`` pool cannot do this: the death of one process breaks the whole pool, without saying which
    run it had. Processes are spawned, so that they inherit no threads or terminal.

    Args:
        jobs: maximum number of processes; they start when there is work.
        warn: called when a process has died.
        prints: called after each run with the last lines printed in its process; None = they go to standard error at
            once.
    """

    def __init__(
        self, jobs: int, warn: Callable[[str], None] | None = None, prints: Callable[[str], object] | None = None
    ) -> None:
        self.jobs = jobs
        self._warn = warn
        self._prints = prints
        self._workers: list[_Worker] = []
        self._queue: deque[Task] = deque()
        self._attempts: dict[int, int] = {}
        self._stillborn = 0
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make another thread's ``collect`` raise ``CancelledError``, permanently."""
        self._stopped.set()

    @property
    def name(self) -> str:
        """See :attr:`Runner.name`."""
        return f"{self.jobs} processes"

    @property
    def room(self) -> bool:
        """See :attr:`Runner.room`."""
        return len(self._queue) + len(self._working()) < self.jobs * _AHEAD

    @property
    def busy(self) -> bool:
        """See :attr:`Runner.busy`."""
        return bool(self._queue or self._working())

    @property
    def idle(self) -> bool:
        """See :attr:`Runner.idle`."""
        return len(self._queue) + len(self._working()) < self.jobs

    def start(self, task: Task) -> None:
        """See :meth:`Runner.start`."""
        self._queue.append(task)
        self._dispatch_tasks()

    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        """See :meth:`Runner.collect`."""
        ended: list[tuple[Task, Outcome]] = []
        while not ended and self.busy:
            if self._stopped.is_set():
                raise CancelledError
            speaking = wait([worker.connection for worker in self._workers], _LOOK_S if block else 0)
            for worker in [worker for worker in self._workers if worker.connection in speaking]:
                try:
                    message = worker.connection.recv()
                except (EOFError, OSError):
                    message = _DEAD
                if message == _READY:
                    worker.ready, self._stillborn = True, 0
                elif message == _DEAD:
                    ended += self._lost(worker)
                elif isinstance(message, _PrintedOutput):
                    if self._prints is not None:
                        self._prints(message.text)
                elif worker.task is not None:
                    self._attempts.pop(id(worker.task), None)
                    ended.append((worker.task, message))
                    worker.task = None
            self._dispatch_tasks()
            if not block:
                break
        return ended

    def cancel(self) -> None:
        """See :meth:`Runner.cancel`."""
        self._queue.clear()
        self._attempts.clear()
        self._end(self._working())

    def close(self) -> None:
        """See :meth:`Runner.close`."""
        self.cancel()
        self._end(self._workers)

    def _working(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.task is not None]

    def _dispatch_tasks(self) -> None:
        for worker in self._workers:
            if self._queue and worker.ready and worker.task is None:
                worker.task = self._queue.popleft()
                with suppress(OSError):  # the process is dead; `collect` will notice
                    worker.connection.send(worker.task)
        starting = len([worker for worker in self._workers if not worker.ready])
        for _ in range(min(self.jobs - len(self._workers), len(self._queue) - starting)):
            self._workers.append(_Worker(*start_process(_work, self._prints is not None)))

    def _lost(self, worker: _Worker) -> list[tuple[Task, Outcome]]:
        """Repeat the task of a process that died, unless that has happened too often."""
        self._end([worker])
        how = how_it_ended(worker.process.exitcode)
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn == ATTEMPTS:
                raise SimulationError(
                    f"processes to run in cannot be started: they end at once ({how})",
                    help="--jobs 1 needs none; a Python script that starts some needs `if __name__ == '__main__':`",
                )
        if worker.task is None:
            return []
        key = id(worker.task)  # equal runs may differ in where they stop
        tried = self._attempts[key] = self._attempts.get(key, 0) + 1
        if tried == ATTEMPTS:
            del self._attempts[key]
            why = f"its process died {ATTEMPTS} times ({how})"
            return [(worker.task, Outcome(status="failed", why=why))]
        if self._warn is not None:
            self._warn(f"a process died ({how}); what it ran is run again")
        self._queue.appendleft(worker.task)
        return []

    def _end(self, workers: Iterable[_Worker]) -> None:
        ending = list(workers)
        self._workers = [worker for worker in self._workers if worker not in ending]
        for worker in ending:
            worker.process.kill()
            worker.connection.close()
        for worker in ending:
            worker.process.join()


def _work(connection: Connection, keep: bool) -> None:
    """Run tasks in a worker process until the parent ends for any reason.

    Args:
        connection: connection to the parent.
        keep: whether output goes to the parent instead of standard error.
    """
    with suppress(EOFError, OSError), reserved_for_results():
        printed = Printed()
        connection.send(_READY)
        with redirect_stderr(Stream(printed.write)) if keep else nullcontext():
            while True:
                outcome = execute(connection.recv())
                if text := printed.take():
                    connection.send(_PrintedOutput(text))
                connection.send(outcome)
