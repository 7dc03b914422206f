"""Where the runs of a study are made: in this process, or in several of this machine.

A runner takes tasks as it has room for them, and gives their outcomes back in whatever order they end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.study.task import Outcome, execute

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from blis_tui.study.task import Task

ATTEMPTS: Final = 3
"""So often a run is tried whose process dies."""
_AHEAD: Final = 2
"""Tasks that wait for each process, so that none has to wait for us."""


class Runner(Protocol):
    """Makes runs."""

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Outcome]]:
        """Take tasks and give their outcomes, each once, in the order in which they end."""

    @property
    def name(self) -> str:
        """Where runs are made, in words."""


class HereRunner:
    """Runs one task after the other in this process."""

    name = "this process"

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Outcome]]:
        """As :meth:`Runner.run`."""
        for task in tasks:
            yield task, execute(task)


class ProcessRunner:
    """Runs tasks in processes of their own, several at once.

    A process that dies (out of memory, killed) takes no other result with it: its task and those beside it are tried
    again, one at a time, so that the one that kills its process is known; after ``ATTEMPTS`` attempts it has failed.

    Args:
        jobs: how many processes.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._stopped: Future[Outcome] = Future()

    def stop(self) -> None:
        """End the runs that are under way; ``run``, in whatever thread, gives no more outcomes. For good."""
        if not self._stopped.done():
            self._stopped.set_result(Outcome(status="failed", why="it was stopped"))

    @property
    def name(self) -> str:
        """As :attr:`Runner.name`."""
        return f"{self.jobs} processes"

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Outcome]]:
        """As :meth:`Runner.run`."""
        waiting = iter(tasks)
        while suspects := (yield from self._pooled(waiting)):
            for task in suspects:
                outcome = self._alone(task)
                if self._stopped.done():
                    return
                yield task, outcome

    def _pooled(self, waiting: Iterator[Task]) -> Generator[tuple[Task, Outcome], None, list[Task]]:
        """Run tasks until there are none left, or a process dies; returns those that were under way then."""
        running: dict[Future[Outcome], Task] = {}
        pool = _pool(self.jobs)
        try:
            while not self._stopped.done():
                while len(running) < self.jobs * _AHEAD and (task := next(waiting, None)) is not None:
                    try:
                        running[pool.submit(execute, task)] = task
                    except BrokenProcessPool:
                        return [*running.values(), task]
                if not running:
                    return []
                ended, _ = wait([*running, self._stopped], return_when=FIRST_COMPLETED)
                for future in sorted(ended - {self._stopped}, key=list(running).index):
                    if isinstance(future.exception(), BrokenProcessPool):
                        continue
                    yield running.pop(future), future.result()
                if any(isinstance(one.exception(), BrokenProcessPool) for one in ended):
                    return list(running.values())
            return []
        finally:
            _end(pool)

    def _alone(self, task: Task) -> Outcome:
        """Run a task in a process that does nothing else, again where that dies."""
        for _ in range(ATTEMPTS):
            pool = _pool(1)
            try:
                future = pool.submit(execute, task)
                wait([future, self._stopped], return_when=FIRST_COMPLETED)
                return (self._stopped if self._stopped.done() else future).result()
            except BrokenProcessPool:
                continue
            finally:
                _end(pool)
        return Outcome(status="failed", why=f"its process died {ATTEMPTS} times: is there too little memory?")


def _pool(jobs: int) -> ProcessPoolExecutor:
    """Processes that start afresh: whatever this one has (threads, a terminal) stays here."""
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker)


def _end(pool: ProcessPoolExecutor) -> None:
    """Give up what has not begun, and end its processes at once."""
    own = pool._processes  # noqa: SLF001  (`terminate_workers` is new in Python 3.14)
    processes = list(own.values()) if own else []
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end when it does, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
