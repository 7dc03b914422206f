"""Work of the study screen that runs in threads: it looks up results, and makes runs in separate processes."""

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

from blis_tui.base.errors import InputError
from blis_tui.study.runners import ProcessRunner
from blis_tui.study.store import MemoryStore
from blis_tui.study.sweep import Sweep, progress_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from blis_tui.model import Expectation
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store
    from blis_tui.study.study_rows import Row
    from blis_tui.study.sweep import Progress
    from blis_tui.study.task import Outcome

_MOST_AT_ONCE: Final = 500
"""Maximum number of rows taken from the queue at once, so that keys are handled in between."""


class _Kept:
    """A store for the interactive board: results that cannot be written stay in memory, and look-ups can be stopped."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._memory = MemoryStore()
        self.ending = Event()
        self.looked_at = 0
        self.problem = ""

    def find(self, key: str, stop_at: Sequence[Expectation] = ()) -> Outcome | None:
        """See ``Store.find``. Raises CancelledError when it should stop."""
        if self.ending.is_set():
            raise CancelledError
        self.looked_at += 1
        return self._memory.find(key, stop_at) or self._store.find(key, stop_at)

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        """See ``Store.keep``; failures to write do not stop the work."""
        try:
            self._store.keep(key, stop_at, outcome)
        except InputError as error:
            self.problem = error.message
            self._memory.keep(key, stop_at, outcome)


class StudyWork:
    """The runs of a study: :meth:`work` runs in a thread, one at a time; all other methods in the main thread.

    Args:
        study: the study.
        store: where results are looked up and kept.
        jobs: number of simultaneous runs; None = one per core.
        early_stop: whether to end a run as soon as one of the constraints can no longer hold.
        prints: receives the output of the runs' processes, in the working thread; None = it goes to standard error.
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
        """The current work; empty = none."""

    def runner(self) -> Runner:
        """Return the runner."""
        return ProcessRunner(self._jobs, prints=self._prints)

    @property
    def problem(self) -> str:
        """Why results cannot be kept; empty = no known problem."""
        return self._kept.problem

    def begin(self, what: Literal["looking", "running"]) -> None:
        """Announce what :meth:`work` will do; from then on it can be stopped."""
        self.doing = what
        self._progress = None
        self._kept.ending.clear()
        self._kept.looked_at = 0
        self._began_s = monotonic()

    def work(self) -> None:
        """Look up known results, or make the missing runs."""
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
        """Stop the work; completed results are kept."""
        self._kept.ending.set()
        runner = self._runner
        if isinstance(runner, ProcessRunner):
            runner.stop()

    def take(self) -> list[Row]:
        """Return the rows since the last call."""
        rows: list[Row] = []
        try:
            while len(rows) < _MOST_AT_ONCE:
                rows.append(self._rows.get_nowait())
        except Empty:
            pass
        return rows

    def words(self) -> str:
        """Return the current work and its progress; empty = none."""
        if self.doing == "looking":
            return f"looking for known results: {self._kept.looked_at:,} of {self.study.runs:,}"
        if self.doing and self._progress is None:
            return f"starting {self._jobs} processes"
        return progress_text(self._progress, monotonic() - self._began_s) if self.doing and self._progress else ""


def _prepare_processes() -> None:
    """Start the resource tracker early, because it needs the descriptor of ``sys.stderr``, which Textual's lacks."""
    if os.name == "posix":
        with redirect_stderr(sys.__stderr__):
            resource_tracker.ensure_running()
