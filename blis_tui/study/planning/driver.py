"""Answers the requests of searches with simulations: many searches at once, each run made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import SimulationError, SpecError
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.study.document import experiment_of
from blis_tui.spec.study.study_records import Point
from blis_tui.study.store import Results
from blis_tui.study.study_rows import Row
from blis_tui.study.task import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from blis_tui.model import Experiment
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.runners import Runner
    from blis_tui.study.steady import Steady
    from blis_tui.study.store import Store
    from blis_tui.study.task import Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that a search needs."""

    point: Point
    """The configuration of the run."""
    values: Mapping[str, object]
    """Additional assignments."""
    seed: int
    steady: Steady | None = None
    """What must be known of the long run; None = the run ends by itself."""


class _PendingSearch(Generic[T]):
    """A search, and the rows it waits for."""

    def __init__(self, number: int, search: Generator[list[Run], list[Row], T]) -> None:
        self.number = number
        self.search = search
        self.rows: list[Row | None] = []
        self.missing = 0


class Driver:
    """Makes the runs that searches request.

    Args:
        study: the study.
        store: where results are looked up and kept.
        on_run: called with each row.
        warn: called once for each problem that does not stop the work: results that cannot be kept, or trace entries
            that are no requests.
    """

    def __init__(
        self,
        study: Study,
        store: Store,
        on_run: Callable[[Row], None] = lambda _: None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._study = study
        self._results = Results(study, store, warn)
        self._on_run = on_run
        self._waiting: dict[str, list[tuple[_PendingSearch[object], int, Point, int, Experiment]]] = {}
        self.runs = 0
        """Number of runs, including those known before."""

    def answer(self, searches: Sequence[Generator[list[Run], list[Row], T]], runner: Runner) -> list[T]:
        """Run all searches to their ends, and return their results in order.

        Raises:
            SimulationError: the runner cannot make runs any more, or a plug-in has raised an exception.
        """
        answers: dict[int, T] = {}
        ready: list[Task] = []

        def advance(asking: _PendingSearch[T], rows: list[Row] | None) -> None:
            """Advance a search until it needs runs that are not known."""
            while True:
                try:
                    wanted = next(asking.search) if rows is None else asking.search.send(rows)
                except StopIteration as stop:
                    answers[asking.number] = stop.value
                    return
                asking.rows, asking.missing = [None] * len(wanted), 0
                for place, run in enumerate(wanted):
                    self._ask(asking, place, run, ready)  # type: ignore[arg-type]
                if asking.missing:
                    return
                rows = [row for row in asking.rows if row is not None]

        for number, search in enumerate(searches):
            advance(_PendingSearch(number, search), None)
        try:
            while ready or runner.busy:
                while ready and runner.room:
                    runner.start(ready.pop(0))
                for task, outcome in runner.collect(block=True):
                    if outcome.place:  # an exception in a plug-in says nothing about the bounds
                        raise SimulationError(outcome.why, help=outcome.place)
                    waiting = self._waiting.pop(task.key)
                    for number, (asking, place, point, seed, experiment) in enumerate(waiting):
                        row = self._results.row(point, seed, experiment, outcome)
                        if not number:
                            self._results.keep(task.key, (), outcome, row)
                        self._fill(asking, place, row)
                        asking.missing -= 1
                        if not asking.missing:
                            advance(asking, [row for row in asking.rows if row is not None])  # type: ignore[arg-type]
        finally:
            runner.cancel()
        return [answers[number] for number in range(len(searches))]

    def _ask(self, asking: _PendingSearch[object], place: int, run: Run, ready: list[Task]) -> None:
        """Find the result of a run, or request the run."""
        point = Point(run.point.number, (*run.point.overrides, *parse_overrides(run.values)))
        try:
            experiment = experiment_of(self._study, point, run.seed)
        except SpecError as error:
            why = error.diagnostics[0].message
            self._fill(asking, place, Row(point=point, seed=run.seed, status="invalid", ok=None, why=why))
            return
        task = task_of(experiment, steady=run.steady)
        known = self._results.find(task.key, (), point, run.seed, experiment)
        if known is not None:
            self._fill(asking, place, known)
            return
        asking.missing += 1
        waiting = self._waiting.setdefault(task.key, [])
        waiting.append((asking, place, point, run.seed, experiment))
        if len(waiting) == 1:
            ready.append(task)

    def _fill(self, asking: _PendingSearch[object], place: int, row: Row) -> None:
        asking.rows[place] = row
        self.runs += 1
        self._on_run(row)
