"""A sweep that is broken off goes on where it was."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import CancelledError
from contextlib import closing
from threading import Timer
from typing import TYPE_CHECKING

import pytest

from blis_tui.spec.load import load
from blis_tui.spec.study.arguments import study_of_arguments
from blis_tui.spec.study.document import open_study_or_experiment, read_study
from blis_tui.study.runners import InProcessRunner, ProcessRunner
from blis_tui.study.sweep import Sweep
from blis_tui.study.task import task_of

if TYPE_CHECKING:
    from blis_tui.spec.study.study_records import Study


@pytest.fixture(scope="module")
def study() -> Study:
    document, base = open_study_or_experiment("quickstart")
    study_of_arguments(document, axes=["cluster.instances=1..3", "workload.requests=5"], seeds="")
    return read_study(document, base=base)


def test_what_was_under_way_is_run_when_the_sweep_goes_on(study: Study) -> None:
    sweep = Sweep(study)
    with closing(sweep.run(InProcessRunner())) as going:
        assert next(going).done == 1
    assert [now.done for now in sweep.run(InProcessRunner())] == [2, 3]
    assert sweep.result().complete


def test_looking_up_can_be_broken_off(study: Study) -> None:
    sweep = Sweep(study)
    next(sweep.run(InProcessRunner()))
    looking = sweep.look_up()
    assert list(looking) == []  # nothing else is known
    assert len(list(sweep.run(InProcessRunner()))) == 2


def test_processes_are_stopped_in_the_middle_of_a_run() -> None:
    short, endless = (load("quickstart", overrides=[f"workload.requests={count}"]) for count in (2, 5_000_000))
    outcomes = []
    with ProcessRunner(1) as runner, pytest.raises(CancelledError):  # noqa: PT012  (its generator raises)
        for _, outcome in runner.run([task_of(short), task_of(endless)]):
            outcomes.append(outcome.status)
            Timer(0.2, runner.stop).start()  # from another thread, while this one waits
    assert outcomes == ["done"]
    assert multiprocessing.active_children() == []
