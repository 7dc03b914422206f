"""What the screen of a study has done in threads: results are looked up, and runs made in processes of their own."""

from __future__ import annotations

import os
import sys
from concurrent.futures import CancelledError
from contextlib import closing, redirect_stderr
from multiprocessing import resource_tracker
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.errors import InputError
from blis_tui.study.runners import ProcessRunner
from blis_tui.study.store import MemoryStore
from blis_tui.study.sweep import Sweep, progress_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from blis_tui.spec.model import Expectation
    from blis_tui.spec.study.model import Study
    from blis_tui.study.rows import Row
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store
    from blis_tui.study.sweep import Progress
    from blis_tui.study.task import Outcome

_MOST_AT_ONCE: Final = 500
"""Rows taken from the queue at once; the reader's keys come between."""


class _Kept:
    """A store for the interactive board: what cannot be written is kept in memory, and searches can be ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._memory = MemoryStore()
        self.ending = Event()
        self.looked_at = 0
        self.problem = ""

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """As ``Store.find``. Raises CancelledError: it should end."""
        if self.ending.is_set():
            raise CancelledError
        self.looked_at += 1
        return self._memory.find(key, stop_at) or self._store.find(key, stop_at)

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """As ``Store.keep``, which goes on where nothing can be written."""
        try:
            self._store.keep(key, stop_at, outcome)
        except InputError as error:
            self.problem = error.message
            self._memory.keep(key, stop_at, outcome)


class StudyWork:
    """The runs of a study: ``work`` is for a thread, one at a time, everything else for the reader's.

    Args:
        study: what to run.
        store: where results are looked up and kept.
        jobs: runs at the same time; None = one for each core.
        early_stop: whether to end a run as soon as one of the constraints can no longer hold.
        prints: is given what the processes of runs print, by the thread that works; else it goes to standard error.
    """

    def __init__(
        self,
        study: Study,
        store: Store,
        *,
        jobs: int | None = None,
        early_stop: bool = False,
        prints: Callable[[str], object] | None = None,
    ) -> None:
        self.study = study
        self._kept = _Kept(store)
        self._sweep = Sweep(study, store=self._kept, early_stop=early_stop)
        self._jobs = jobs or os.cpu_count() or 1
        self._prints = prints
        self._rows: SimpleQueue[Row] = SimpleQueue()
        self._runner: Runner | None = None
        self._began_s = 0.0
        self._progress: Progress | None = None
        self.doing: Literal["", "looking", "running"] = ""
        """What is under way; empty = nothing."""

    def runner(self) -> Runner:
        """Where runs are made."""
        return ProcessRunner(self._jobs, prints=self._prints)

    @property
    def problem(self) -> str:
        """Why results cannot be kept; empty = they can, as far as is known."""
        return self._kept.problem

    def begin(self, what: Literal["looking", "running"]) -> None:
        """Say what :meth:`work` is about to do; from here on it can be stopped."""
        self.doing = what
        self._progress = None
        self._kept.ending.clear()
        self._kept.looked_at = 0
        self._began_s = monotonic()

    def work(self) -> None:
        """Find what is known already, or make the runs that are not known."""
        try:
            if self.doing == "looking":
                self._follow(self._sweep.look_up())
                return
            _prepare_processes()
            with self.runner() as runner:
                self._runner = runner
                if not self._kept.ending.is_set():
                    self._follow(self._sweep.run(runner))
        except CancelledError:
            pass
        finally:
            self._runner = None
            self.doing = ""

    def _follow(self, going: Generator[Progress]) -> None:
        with closing(going):
            for now in going:
                self._progress = now
                self._rows.put(now.latest)

    def stop(self) -> None:
        """End what is under way; what is done is kept."""
        self._kept.ending.set()
        runner = self._runner
        if isinstance(runner, ProcessRunner):
            runner.stop()

    def take(self) -> list[Row]:
        """The rows since the last time."""
        found: list[Row] = []
        try:
            while len(found) < _MOST_AT_ONCE:
                found.append(self._rows.get_nowait())
        except Empty:
            pass
        return found

    def words(self) -> str:
        """What is under way and how far it is; empty = nothing."""
        if self.doing == "looking":
            return f"looking for known results: {self._kept.looked_at:,} of {self.study.runs:,}"
        if self.doing and self._progress is None:
            return f"starting {self._jobs} processes"
        return progress_text(self._progress, monotonic() - self._began_s) if self.doing and self._progress else ""


def _prepare_processes() -> None:
    """Start what counts semaphores: it asks for the descriptor of ``sys.stderr``, and Textual's own has none."""
    if os.name == "posix":
        with redirect_stderr(sys.__stderr__):
            resource_tracker.ensure_running()
