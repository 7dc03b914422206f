"""Run a study: every point with every seed, each run once, results in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.errors import SpecError
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.rows import Row, StudyResult, row_of
from blis_tui.study.runners import HereRunner
from blis_tui.study.store import MemoryStore
from blis_tui.study.task import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from blis_tui.spec.model import Experiment
    from blis_tui.spec.study.model import Point, Study
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store
    from blis_tui.study.task import Outcome, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a sweep is."""

    done: int
    """Runs with a row."""
    known: int
    """Those of them that were known before, or equal another one."""
    total: int
    latest: Row


@dataclass(frozen=True, slots=True)
class _Place:
    """Which run of a study."""

    number: int
    point: Point
    seed: int


class Sweep:
    """The runs of a study, some of which may be known already.

    Args:
        study: what to run.
        store: where results are looked up and kept.
        early_stop: whether to end a run as soon as one of the constraints can no longer hold; whether they hold is
            the same then, figures are not.
    """

    def __init__(self, study: Study, *, store: Store | None = None, early_stop: bool = False) -> None:
        self.study = study
        self._store = MemoryStore() if store is None else store
        self._stop_at = study.constraints if early_stop else ()
        self._rows: dict[int, Row] = {}
        self._known = 0
        self._waiting: dict[str, list[tuple[_Place, Experiment]]] = {}

    def run(self, runner: Runner | None = None) -> Generator[Progress]:
        """Make the runs that are not known; after each the progress. To break off, close the iterator.

        Raises:
            InputError: a result cannot be kept.
        """
        fresh: list[Row] = []
        tasks = self._tasks(fresh.append)
        try:
            for task, outcome in (runner or HereRunner()).run(tasks):
                yield from self._progress(fresh)
                self._store.keep(task.key, task.stop_at, outcome)
                places = self._waiting.pop(task.key)
                self._known += len(places) - 1
                for place, experiment in places:
                    fresh.append(self._take(place, experiment, outcome))
                yield from self._progress(fresh)
            yield from self._progress(fresh)
        finally:
            self._waiting.clear()  # what was under way is to be run again

    def result(self) -> StudyResult:
        """The rows so far, in order."""
        return StudyResult(study=self.study, rows=tuple(self._rows[number] for number in sorted(self._rows)))

    def look_up(self) -> Iterator[Progress]:
        """As :meth:`run`, but without running anything: what is known already."""
        fresh: list[Row] = []
        try:
            for _ in self._tasks(fresh.append):
                yield from self._progress(fresh)
            yield from self._progress(fresh)
        finally:
            self._waiting.clear()

    def _progress(self, fresh: list[Row]) -> Iterator[Progress]:
        rows = list(fresh)
        fresh.clear()
        for number, row in enumerate(rows, 1):
            done = len(self._rows) - len(rows) + number
            yield Progress(done=done, known=self._known, total=self.study.runs, latest=row)

    def _tasks(self, told: Callable[[Row], None]) -> Iterator[Task]:
        """What has to be run; rows that need no run are told on the way."""
        number = -1
        for point in self.study.points:
            for seed in self.study.seeds:
                number += 1
                if number in self._rows:
                    continue
                place = _Place(number, point, seed)
                try:
                    experiment = experiment_of(self.study, point, seed)
                except SpecError as error:
                    why = error.diagnostics[0].message
                    self._rows[number] = Row(point=point, seed=seed, status="invalid", ok=None, why=why)
                    told(self._rows[number])
                    continue
                task = task_of(experiment, self._stop_at)
                found = self._store.find(task.key, self._stop_at)
                if found is not None:
                    self._known += 1
                    told(self._take(place, experiment, found))
                elif task.key in self._waiting:
                    self._waiting[task.key].append((place, experiment))
                else:
                    self._waiting[task.key] = [(place, experiment)]
                    yield task

    def _take(self, place: _Place, experiment: Experiment, outcome: Outcome) -> Row:
        row = row_of(self.study, place.point, place.seed, experiment, outcome)
        self._rows[place.number] = row
        return row
