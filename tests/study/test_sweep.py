"""Sweeps: each run once, known ones not at all, and the same result whatever was interrupted or known."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

import blis_tui
from blis_tui.base.errors import InputError
from blis_tui.study.store import FolderStore, MemoryStore
from blis_tui.study.study_rows import rows_jsonl
from blis_tui.study.sweep import Sweep
from blis_tui.study.task import Outcome, execute, task_of
from tests.study.studies import SMALL, TIGHT, NoRunner, statuses, study_of, study_with

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.model import Expectation
    from blis_tui.study.study_rows import StudyResult

AXIS: dict[str, object] = {"engine.max_num_seqs": [64, 128, 256]}


def ran(sweep: Sweep, runner: NoRunner | None = None) -> StudyResult:
    for _ in sweep.run(runner):
        pass
    return sweep.result()


def text(result: StudyResult) -> str:
    return "".join(rows_jsonl(result))


@pytest.fixture(scope="module")
def done() -> Outcome:
    """Some result of a run."""
    return execute(task_of(blis_tui.load("quickstart", set=SMALL)))


def test_equal_points_run_once() -> None:
    orders = ["fcfs", "sjf", {"kind": "fcfs"}]
    study = study_of({"policy.scheduling": orders, "workload.requests": [20, 30]}, set={}, seeds=[5, 6])
    runner = NoRunner(execute)
    progress = list(Sweep(study).run(runner))
    assert len(runner.tasks) == len({task.key for task in runner.tasks}) == 8
    assert (progress[-1].done, progress[-1].known, progress[-1].total) == (12, 4, 12)
    assert sorted(now.done for now in progress) == [now.done for now in progress] == list(range(1, 13))


def test_results_are_kept_and_not_made_again(tmp_path: Path) -> None:
    study = study_of(AXIS)
    first = ran(Sweep(study, store=FolderStore(tmp_path)))
    runner = NoRunner()
    again = Sweep(study, store=FolderStore(tmp_path))
    assert [now.known for now in again.run(runner)] == [1, 2, 3]
    assert runner.tasks == []
    assert text(again.result()) == text(first)
    looked = Sweep(study_of({"engine.max_num_seqs": [512, 256]}), store=FolderStore(tmp_path))
    assert [now.latest.coordinates for now in looked.look_up()] == [{"engine.max_num_seqs": 256}]
    assert not looked.result().complete


def test_a_sweep_that_is_broken_off_has_what_was_done_and_goes_on(done: Outcome) -> None:
    sweep = Sweep(study_of(AXIS))
    going = sweep.run(NoRunner(done))
    assert next(going).done == 1
    going.close()
    assert len(sweep.result()) == 1
    runner = NoRunner(done)
    assert len(ran(sweep, runner)) == 3
    assert len(runner.tasks) == 2


def test_two_sweeps_share_a_store_at_the_same_time(tmp_path: Path) -> None:
    sweep, two = (Sweep(study_of(AXIS), store=FolderStore(tmp_path)) for _ in range(2))
    for _ in zip_longest(sweep.run(), two.run()):
        pass
    assert text(sweep.result()) == text(two.result()) == text(ran(Sweep(study_of(AXIS), store=FolderStore(tmp_path))))


def test_a_failed_run_is_a_row_and_tried_again_by_the_next_sweep(tmp_path: Path) -> None:
    study = study_with("nothing", "error", "out of memory", "exit", "nothing")
    result = ran(Sweep(study, store=FolderStore(tmp_path)))
    assert statuses(result) == ["done", "failed", "failed", "failed", "done"]
    assert "ZeroDivisionError" in result[1].why
    assert "by nothing" in result[1].why
    runner = NoRunner()
    ran(Sweep(study, store=FolderStore(tmp_path)), runner)
    assert len(runner.tasks) == 3


@pytest.mark.parametrize("key", ["requests", "rate_per_s"])
def test_a_document_that_is_no_experiment_is_the_reason(key: str) -> None:
    experiment = blis_tui.load("quickstart", set=SMALL)
    document = {**experiment.document, "workload": {**experiment.document["workload"], key: "many"}}  # type: ignore[dict-item]
    task = task_of(experiment)
    outcome = execute(type(task)(key="", document=document, trace_path=None))
    assert (outcome.status, outcome.report) == ("failed", "")
    assert outcome.why.startswith(f"not a resolved experiment: `workload.{key}` is not a")


def test_what_went_wrong_in_the_simulation_is_the_reason() -> None:
    task = task_of(blis_tui.load("quickstart", set=SMALL))
    with patch.object(blis_tui.Simulation, "report", side_effect=ZeroDivisionError("half of nothing")):
        outcome = execute(task)
    assert outcome == Outcome(status="failed", why="ZeroDivisionError: half of nothing")


class FullStore(MemoryStore):
    """Takes one result, and no more."""

    def keep(self, key: str, stop_at: Sequence[Expectation], outcome: Outcome) -> None:
        if self._known:
            raise InputError("cannot keep results: No space left on device")
        super().keep(key, stop_at, outcome)


def test_a_store_that_is_full_is_told_once_and_costs_no_result(done: Outcome) -> None:
    warnings: list[str] = []
    sweep = Sweep(study_of(AXIS), store=FullStore(), warn=warnings.append)
    assert statuses(ran(sweep, NoRunner(done))) == ["done"] * 3
    assert warnings == ["cannot keep results: No space left on device"]
    assert sweep.unsaved == 2


def test_the_result_of_an_early_stop_does_not_depend_on_what_is_known() -> None:
    """A run that another study has made to its end is one that is not stopped, or it is made once more."""
    study = study_of({"cluster.instances": [1, 2]}, constraints=[TIGHT])
    outcome = execute(task_of(blis_tui.load("quickstart", set={**SMALL, "cluster.instances": 1})))
    stopped = Outcome(status="stopped", report=outcome.report, why="too late")
    store = MemoryStore()
    full = ran(Sweep(study, store=store))
    assert [row.ok for row in full] == [False, True]

    runner = NoRunner(stopped)
    mixed = ran(Sweep(study, store=store, early_stop=True), runner)
    assert statuses(mixed) == ["stopped", "done"]
    assert (mixed[0].ok, mixed[0].why) == (False, "too late")
    assert [task.stop_at for task in runner.tasks] == [study.constraints]

    known = NoRunner(stopped)
    assert text(ran(Sweep(study, store=store, early_stop=True), known)) == text(mixed)
    assert text(ran(Sweep(study, store=store), known)) == text(full)
    assert known.tasks == []
    other = study_of({"cluster.instances": [1]}, constraints=[{**TIGHT, "max": 20}])
    ran(Sweep(other, store=store, early_stop=True), known)
    assert len(known.tasks) == 1


def test_statuses_add_up(result: StudyResult) -> None:
    assert Counter(statuses(result)) == {"done": 4, "invalid": 4}
