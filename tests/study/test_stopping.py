"""A sweep that is broken off goes on where it was."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

import pytest

from blis_tui.spec.load import load
from blis_tui.spec.study.arguments import study_of_arguments
from blis_tui.spec.study.document import read_study
from blis_tui.spec.study.opening import open_study_or_experiment
from blis_tui.study.runners import HereRunner, ProcessRunner
from blis_tui.study.sweep import Sweep
from blis_tui.study.task import execute, task_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.spec.study.model import Study
    from blis_tui.study.task import Outcome, Task


@pytest.fixture(scope="module")
def study() -> Study:
    document, base = open_study_or_experiment("quickstart")
    study_of_arguments(document, axes=["cluster.instances=1..3", "workload.requests=5"], seeds="")
    return read_study(document, base=base)


class GivesUp:
    """Takes two tasks and makes one run."""

    name = "one run"

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Outcome]]:
        first, _ = (task for task, _ in zip(tasks, range(2), strict=False))
        yield first, execute(first)


def test_what_was_under_way_is_run_when_the_sweep_goes_on(study: Study) -> None:
    sweep = Sweep(study)
    assert [now.done for now in sweep.run(GivesUp())] == [1]
    assert [now.done for now in sweep.run(HereRunner())] == [2, 3]
    assert sweep.result().complete


def test_looking_up_can_be_broken_off(study: Study) -> None:
    sweep = Sweep(study)
    next(sweep.run(HereRunner()))
    looking = sweep.look_up()
    assert list(looking) == []  # nothing else is known
    assert len(list(sweep.run(HereRunner()))) == 2


def test_processes_are_stopped_in_the_middle_of_a_run() -> None:
    short, endless = (load("quickstart", overrides=[f"workload.requests={count}"]) for count in (2, 5_000_000))
    runner = ProcessRunner(1)
    outcomes = []
    for _, outcome in runner.run([task_of(short), task_of(endless)]):
        outcomes.append(outcome.status)
        runner.stop()
    runner.stop()
    assert outcomes == ["done"]
    assert multiprocessing.active_children() == []
    assert list(runner.run([task_of(short)])) == []
