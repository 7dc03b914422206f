"""Searches that get their runs from a runner that fails."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.canonical import to_json
from blis_tui.base.errors import SimulationError
from blis_tui.study.planning.answer import Question
from blis_tui.study.planning.driver import Driver, Run, Search
from blis_tui.study.planning.plan import plan
from blis_tui.study.planning.plan_text import plan_data
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.store import MemoryStore
from blis_tui.study.task import execute
from tests.study.studies import study_of

if TYPE_CHECKING:
    from blis_tui.study.study_rows import Row
    from blis_tui.study.task import Outcome, Task


class GivesUp(InProcessRunner):
    """It takes a task, and cannot make it."""

    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        if not block:
            return []
        raise SimulationError("no more runs")


def search(wanted: list[Run]) -> Search[list[Row]]:
    return (yield wanted)


def test_what_is_under_way_is_cancelled_when_a_search_fails() -> None:
    study = study_of({"cluster.instances": [1]})
    runs = [Run(point=study.points[0], values={}, seed=1)]
    runner = GivesUp()
    with (
        pytest.raises(SimulationError, match="no more runs"),
        Driver(study, runner, MemoryStore()) as driver,
    ):
        driver.answer([search(runs)])
    assert not runner.busy
    [rows] = Driver(study, InProcessRunner(), MemoryStore()).answer([search(runs)])
    assert [row.status for row in rows] == ["done"]


class Slots(InProcessRunner):
    """It takes several tasks at a time, and ends the latest first, as what was begun early may, or the first."""

    ends = -1

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.started: list[Task] = []
        self.under_way: list[Task] = []
        self.together = 0
        self.beside: dict[str, list[Task]] = {}
        """Key of a task -> the others under way when it was started."""

    @property
    def room(self) -> bool:
        return len(self.under_way) < 2 * self.slots

    @property
    def busy(self) -> bool:
        return bool(self.under_way)

    @property
    def idle(self) -> bool:
        return len(self.under_way) < self.slots

    def start(self, task: Task) -> None:
        self.started.append(task)
        self.beside[task.key] = [*self.under_way]
        self.under_way.append(task)
        self.together = max(self.together, len(self.under_way))

    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        assert block
        task = self.under_way.pop(self.ends)
        return [(task, execute(task))]

    def cancel(self) -> None:
        self.under_way.clear()


def test_what_is_probably_needed_is_made_where_a_process_is_idle_and_only_once() -> None:
    study = study_of({"cluster.instances": [1]})
    first, second, third, never = (Run(point=study.points[0], values={}, seed=seed) for seed in range(4))

    def chain() -> Search[list[Row]]:
        rows = yield [replace(first, then=lambda: second)]
        rows += yield [second]
        return rows + (yield [replace(third, then=lambda: never), first])

    answers = []
    for slots, started in ((1, [0, 1, 2]), (2, [0, 1, 2, 3])):
        told: list[int] = []
        runner = Slots(slots)
        with Driver(study, runner, MemoryStore(), lambda row, told=told: told.append(row.seed)) as driver:  # type: ignore[misc]
            answers += driver.answer([chain()])
        assert [task.document["seed"] for task in runner.started] == started
        assert runner.together == slots
        assert not runner.busy
        assert (driver.runs, told) == (4, [0, 1, 0, 2])
    assert answers[0] == answers[1]


def test_what_is_needed_comes_before_what_probably_will_be() -> None:
    study = study_of({"cluster.instances": [1]})
    runs = [Run(point=study.points[0], values={}, seed=seed) for seed in range(3)]
    likely = Run(point=study.points[0], values={}, seed=3)
    runner = Slots(2)
    with Driver(study, runner, MemoryStore()) as driver:
        driver.answer([search([replace(run, then=lambda: likely) for run in runs])])
    assert [task.document["seed"] for task in runner.started] == [0, 1, 2, 3]
    assert driver.runs == 3


def test_a_plan_with_idle_processes_is_the_same_and_tries_a_slower_server_beside_its_answer() -> None:
    bounds = [{"metric": "latency.ttft_ms.p95", "max": 400}]
    question = Question(study=study_of({}, set={"expect": []}, constraints=bounds), rate_per_s=45.0, most=8)
    alone, beside = Slots(1), Slots(2)
    beside.ends = 0
    plans = [plan(question, runner) for runner in (alone, beside)]
    assert to_json(plan_data(plans[0])) == to_json(plan_data(plans[1]))
    assert {task.key for task in alone.started} <= {task.key for task in beside.started}
    best = plans[0].best
    assert best is not None
    (slow, *_) = [task for task in beside.started if _of(task, "latency", "steps") not in (None, 1.0)]
    (decides,) = beside.beside[slow.key]
    assert _of(decides, "cluster", "instances") == best.size
    assert alone.beside[slow.key] == []


def _of(task: Task, section: str, key: str) -> object:
    return json.loads(json.dumps(task.document))[section].get(key)


def test_a_run_that_fails_early_fails_only_whoever_needs_it() -> None:
    """An exception in a plug-in is raised where its run is needed, and nowhere before."""
    study = study_of({"cluster.instances": [1]})
    first, broken = (Run(point=study.points[0], values={}, seed=seed) for seed in (0, 1))

    class Breaks(Slots):
        def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
            [(task, outcome)] = super().collect(block=block)
            place = "plug.py:3" if task.document["seed"] == 1 else ""
            return [(task, replace(outcome, why="it raised KeyError", place=place))]

    def both() -> Search[list[Row]]:
        yield [first]
        return (yield [broken])

    with Driver(study, Breaks(2), MemoryStore()) as driver:
        [rows] = driver.answer([search([replace(first, then=lambda: broken)])])
        assert [row.status for row in rows] == ["done"]
        with pytest.raises(SimulationError, match="it raised KeyError"):
            driver.answer([both()])
