"""Answers the requests of searches with simulations: many searches at once, each run made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import SimulationError, SpecError
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.study.document import experiment_of
from blis_tui.spec.study.study_records import Point
from blis_tui.study.store import Results
from blis_tui.study.study_rows import Row
from blis_tui.study.task import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from blis_tui.model import Experiment
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.runners import Runner
    from blis_tui.study.steady import Steady
    from blis_tui.study.store import Store
    from blis_tui.study.task import Outcome, Task

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
Search: TypeAlias = "Generator[list[Run], list[Row], T]"
"""Requests runs, and is sent their rows."""


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
    then: Callable[[], Run | None] | None = None
    """Returns the run that is probably needed after it, and is made meanwhile where a process has nothing else to do.
    """


class _Made(NamedTuple):
    """A run that can be made."""

    point: Point
    seed: int
    experiment: Experiment
    task: Task


class _PendingSearch(Generic[T]):
    """A search, and the rows it waits for."""

    def __init__(self, number: int, search: Search[T]) -> None:
        self.number = number
        self.search = search
        self.rows: list[Row | None] = []
        self.missing = 0


class Driver:
    """Makes the runs that searches request; leave the ``with`` block to stop those that nobody needs any more.

    Args:
        study: the study.
        runner: makes the runs.
        store: where results are looked up and kept.
        on_run: called with each row.
        warn: called once for each problem that does not stop the work: results that cannot be kept, or trace entries
            that are no requests.
    """

    def __init__(
        self,
        study: Study,
        runner: Runner,
        store: Store,
        on_run: Callable[[Row], None] = lambda _: None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._study = study
        self._runner = runner
        self._results = Results(study, store, warn)
        self._on_run = on_run
        self._waiting: dict[str, list[tuple[_PendingSearch[object], int, _Made]]] = {}
        self._ready: list[Task] = []
        self._likely: list[Callable[[], Run | None]] = []
        self._early: dict[str, Outcome | None] = {}
        """Runs that were begun before anybody needed them, by their keys; None = they go on."""
        self.runs = 0
        """Number of runs that were needed, including those known before."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.cancel()

    def answer(self, searches: Sequence[Search[T]]) -> list[T]:
        """Run all searches to their ends, and return their results in order.

        Raises:
            SimulationError: the runner cannot make runs any more, or a plug-in has raised an exception.
        """
        answers: dict[int, T] = {}

        def advance(asking: _PendingSearch[T], rows: list[Row] | None) -> None:
            """Advance a search until it needs runs that are not known."""
            while True:
                try:
                    wanted = next(asking.search) if rows is None else asking.search.send(rows)
                except StopIteration as stop:
                    answers[asking.number] = stop.value
                    return
                asking.rows, asking.missing = [None] * len(wanted), 0
                self._likely = [run.then for run in wanted if run.then is not None]
                for place, run in enumerate(wanted):
                    self._ask(asking, place, run)  # type: ignore[arg-type]
                if asking.missing:
                    return
                rows = [row for row in asking.rows if row is not None]

        for number, search in enumerate(searches):
            advance(_PendingSearch(number, search), None)
        while self._waiting:
            self._start()
            for task, outcome in self._runner.collect(block=True):
                if task.key in self._early:
                    self._early[task.key] = outcome
                for number, (asking, place, asked) in enumerate(self._waiting.pop(task.key, ())):
                    self._fill(asking, place, self._row(asked, task.key, outcome, kept=number > 0))
                    asking.missing -= 1
                    if not asking.missing:
                        advance(asking, [row for row in asking.rows if row is not None])  # type: ignore[arg-type]
        return [answers[number] for number in range(len(searches))]

    def answer_each(self, first: Search[T], second: Search[U], third: Search[V]) -> tuple[T, U, V]:
        """Run three searches to their ends, whose results are of different types."""
        searches: list[Search[object]] = [first, second, third]
        one, two, three = self.answer(searches)
        return cast("T", one), cast("U", two), cast("V", three)

    def _start(self) -> None:
        """Start the runs that are needed and, where a process has nothing else to do, what probably will be."""
        while self._ready and self._runner.room:
            self._runner.start(self._ready.pop(0))
        while self._likely and not self._ready and self._runner.idle:
            run = self._likely.pop(0)()
            made = None if run is None else self._made(run)
            if not isinstance(made, _Made) or made.task.key in self._waiting or made.task.key in self._early:
                continue
            if self._results.find(made.task.key, (), made.point, made.seed, made.experiment) is None:
                self._early[made.task.key] = None
                self._runner.start(made.task)

    def _made(self, run: Run) -> _Made | Row:
        """Return the experiment and the task of a run; the row of a run that cannot be made."""
        point = Point(run.point.number, (*run.point.overrides, *parse_overrides(run.values)))
        try:
            experiment = experiment_of(self._study, point, run.seed)
        except SpecError as error:
            return Row(point=point, seed=run.seed, status="invalid", ok=None, why=error.diagnostics[0].message)
        return _Made(point, run.seed, experiment, task_of(experiment, steady=run.steady))

    def _ask(self, asking: _PendingSearch[object], place: int, run: Run) -> None:
        """Find the result of a run, or request the run."""
        made = self._made(run)
        if isinstance(made, Row):
            self._fill(asking, place, made)
            return
        key = made.task.key
        known = self._results.find(key, (), made.point, made.seed, made.experiment)
        if known is None and (outcome := self._early.get(key)) is not None:
            known = self._row(made, key, outcome, kept=False)
        if known is not None:
            self._fill(asking, place, known)
            return
        asking.missing += 1
        waiting = self._waiting.setdefault(key, [])
        waiting.append((asking, place, made))
        if len(waiting) == 1 and key not in self._early:
            self._ready.append(made.task)

    def _row(self, made: _Made, key: str, outcome: Outcome, *, kept: bool) -> Row:
        """Return the row of a run that somebody needs, and keep its outcome unless it is."""
        if outcome.place:  # an exception in a plug-in says nothing about the bounds
            raise SimulationError(outcome.why, help=outcome.place)
        row = self._results.row(made.point, made.seed, made.experiment, outcome)
        if not kept:
            self._results.keep(key, (), outcome, row)
        return row

    def _fill(self, asking: _PendingSearch[object], place: int, row: Row) -> None:
        asking.rows[place] = row
        self.runs += 1
        self._on_run(row)
