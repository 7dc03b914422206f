"""Runners: every task has one outcome, whatever happens to the processes."""

from __future__ import annotations

import subprocess
import sys
from operator import neg
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import SimulationError
from blis_tui.spec.study.document import experiment_of
from blis_tui.study import runners
from blis_tui.study.runners import InProcessRunner, ProcessRunner
from blis_tui.study.task import Outcome, Task, task_of
from tests.study.mishaps import ONCE
from tests.study.studies import study_with

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("processes")

LIMIT_S = 60


def tasks_of(*happenings: str) -> list[Task]:
    study = study_with(*happenings)
    return [task_of(experiment_of(study, point, seed)) for point in study.points for seed in study.seeds]


def numbered(tasks: list[Task], ended: list[tuple[Task, Outcome]]) -> list[Outcome]:
    """The outcomes in the order of the tasks; each task has one."""
    assert len(ended) == len(tasks)
    found = {task.key: outcome for task, outcome in ended}
    return [found[task.key] for task in tasks]


def test_processes_die_and_what_they_ran_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run dies once, one always; both leave the others alone."""
    once = tmp_path / "once"
    once.touch()
    monkeypatch.setenv(ONCE, str(once))
    warnings: list[str] = []
    tasks = tasks_of("nothing", "killed once", "killed", "nothing", "nothing")
    with ProcessRunner(2, warnings.append) as runner:
        outcomes = numbered(tasks, list(runner.run(tasks)))
        assert not runner.busy
        again = numbered(tasks[:1], list(runner.run(tasks[:1])))
        kept = [worker.process.pid for worker in runner._workers]
        assert numbered(tasks[:1], list(runner.run(tasks[:1]))) == again
        assert [worker.process.pid for worker in runner._workers] == kept  # they stay for more
        processes = [worker.process for worker in runner._workers]
    assert [outcome.status for outcome in outcomes] == ["done", "done", "failed", "done", "done"]
    assert outcomes[2].why == "its process died 3 times (SIGKILL: was there too little memory?)"
    assert warnings == ["a process died (SIGKILL: was there too little memory?); what it ran is run again"] * 3
    assert [process.is_alive() for process in processes] == [False] * len(processes)
    here = numbered(tasks[3:], list(InProcessRunner().run(tasks[3:])))
    assert outcomes[3:] == here
    assert again == outcomes[:1]


def test_breaking_off_ends_what_runs_at_once() -> None:
    tasks = tasks_of("nothing", "endless", "endless", "endless")
    with ProcessRunner(1) as runner:
        going = runner.run(tasks)
        next(going)
        [worker] = runner._workers
        assert worker.task is tasks[1]
        going.close()
        worker.process.join(LIMIT_S)
        assert not worker.process.is_alive()
        assert not runner.busy
        assert runner.room


@pytest.mark.parametrize("jobs", [1, 3])
def test_there_is_room_for_two_tasks_of_each_process(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    monkeypatch.setattr(ProcessRunner, "_dispatch_tasks", lambda _self: None)  # they wait
    with ProcessRunner(jobs) as runner:
        taken = 0
        for task in tasks_of(*["nothing"] * 9):
            if runner.room:
                runner.start(task)
                taken += 1
        assert taken == 2 * jobs


def test_processes_that_cannot_start_are_one_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runners, "_work", neg)  # which takes no pipe
    with ProcessRunner(2) as runner, pytest.raises(SimulationError, match="cannot be started"):
        list(runner.run(tasks_of("nothing")))
    assert "TypeError" in capfd.readouterr().err


def test_processes_import_what_runs_need_and_nothing_else() -> None:
    script = "import sys, blis_tui.study.runners; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"yaml", "jsonschema", "referencing", "click", "textual", "rich", "platformdirs", "asyncio", "pyarrow"}
    assert not heavy & set(loaded)
    assert "blis_tui.runs.simulation" in loaded


def test_what_is_printed_in_processes_comes_back_where_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    tasks = tasks_of("printing", "printing", "nothing")
    with ProcessRunner(1, prints=printed.append) as runner:
        outcomes = numbered(tasks, list(runner.run(tasks)))
    assert [outcome.status for outcome in outcomes] == ["done"] * 3
    lines = [f"printed request_{number}\nlogged\n" for number in range(20)]
    assert printed == ["".join(lines)] * 2
    assert capfd.readouterr() == ("", "")
