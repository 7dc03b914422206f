"""Runs a study: every point with every seed, each run once, results in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import SpecError
from blis_tui.base.units import plural
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.store import MemoryStore, Results
from blis_tui.study.study_rows import Row, StudyResult
from blis_tui.study.task import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from blis_tui.model import Experiment
    from blis_tui.spec.study.study_records import Point, Study
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store
    from blis_tui.study.task import Outcome, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a sweep."""

    done: int
    """Number of runs with a row."""
    known: int
    """Of these, runs that were known before, equal another run, or are no valid experiments."""
    total: int
    latest: Row


@dataclass(frozen=True, slots=True)
class _Place:
    """The point and seed of a run."""

    number: int
    point: Point
    seed: int
    experiment: Experiment


class Sweep:
    """The runs of a study, some of which may be known already.

    Args:
        study: the study.
        store: where results are looked up and kept.
        early_stop: whether to end a run as soon as one of the constraints can no longer hold; the verdicts stay the
            same, but figures change.
        warn: called once for each problem that does not stop the sweep: results that cannot be kept, or trace entries
            that are no requests.
    """

    def __init__(
        self,
        study: Study,
        *,
        store: Store | None = None,
        early_stop: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.study = study
        self._results = Results(study, MemoryStore() if store is None else store, warn)
        self._stop_at = study.constraints if early_stop else ()
        self._rows: dict[int, Row] = {}
        self._known = 0
        self._waiting: dict[str, list[_Place]] = {}

    def run(self, runner: Runner | None = None) -> Generator[Progress]:
        """Make the unknown runs and yield the progress after each; close the iterator to abort.

        Raises:
            SimulationError: the runner cannot make runs any more.
        """
        makes = InProcessRunner() if runner is None else runner
        try:
            for missing in self._missing():
                if isinstance(missing, Row):
                    yield self._progress(missing)
                elif missing is not None:
                    while not makes.room:
                        yield from self._taken(makes.collect(block=True))
                    makes.start(missing)
                yield from self._taken(makes.collect(block=False))
            while makes.busy:
                yield from self._taken(makes.collect(block=True))
        finally:
            makes.cancel()
            self._waiting.clear()

    def look_up(self) -> Generator[Progress]:
        """Look up known results like :meth:`run`, but without running anything."""
        try:
            for missing in self._missing():
                if isinstance(missing, Row):
                    yield self._progress(missing)
        finally:
            self._waiting.clear()

    @property
    def unsaved(self) -> int:
        """Number of results that could not be kept."""
        return self._results.unsaved

    def result(self) -> StudyResult:
        """Return the rows so far, in order."""
        return StudyResult(study=self.study, rows=tuple(self._rows[number] for number in sorted(self._rows)))

    def _missing(self) -> Iterator[Row | Task | None]:
        """Yield for each run without a row either its row, if known, or its task, once for equal runs."""
        seeds = self.study.seeds
        for at, point in enumerate(self.study.points):
            for number, seed in enumerate(seeds, at * len(seeds)):
                if number in self._rows:
                    continue
                try:
                    experiment = experiment_of(self.study, point, seed)
                except SpecError as error:
                    why = error.diagnostics[0].message
                    self._known += 1
                    yield self._enter(number, Row(point=point, seed=seed, status="invalid", ok=None, why=why))
                    continue
                task = task_of(experiment, self._stop_at)
                place = _Place(number, point, seed, experiment)
                if task.key in self._waiting:
                    self._waiting[task.key].append(place)
                    yield None
                elif (row := self._find(place, task.key)) is not None:
                    self._known += 1
                    yield self._enter(number, row)
                else:
                    self._waiting[task.key] = [place]
                    yield task

    def _taken(self, ended: Iterable[tuple[Task, Outcome]]) -> Iterator[Progress]:
        for task, outcome in ended:
            places = self._waiting.pop(task.key)
            rows = [self._row(place, outcome) for place in places]
            # Enter the rows before the result is kept, so that an interruption in between loses no row.
            self._enter(places[0].number, rows[0])
            self._results.keep(task.key, self._stop_at, outcome, rows[0])
            self._known += len(places) - 1
            for place, row in zip(places, rows, strict=True):
                yield self._progress(self._enter(place.number, row))

    def _find(self, place: _Place, key: str) -> Row | None:
        return self._results.find(key, self._stop_at, place.point, place.seed, place.experiment)

    def _row(self, place: _Place, outcome: Outcome) -> Row:
        return self._results.row(place.point, place.seed, place.experiment, outcome)

    def _enter(self, number: int, row: Row) -> Row:
        self._rows[number] = row
        return row

    def _progress(self, row: Row) -> Progress:
        return Progress(done=len(self._rows), known=self._known, total=self.study.runs, latest=row)


# Progress of a sweep, in words.


def progress_text(now: Progress, elapsed_s: float) -> str:
    """Return how many runs have results, and about how long the others take.

    Args:
        now: the progress.
        elapsed_s: seconds since the first run started.
    """
    made = now.done - now.known
    left = (now.total - now.done) * elapsed_s / made if made else 0.0
    rest = f", about {_duration(left)} left" if made and now.done < now.total else ""
    known = f" ({now.known:,} cached)" if now.known else ""
    return f"{now.done:,} of {plural(now.total, 'run')}{known}{rest}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
