"""Runs on a Dask cluster: the same bytes as here, whatever happens to its workers."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError, SimulationError, install_command
from blis_tui.cli.sweep import runner_of
from blis_tui.study import dask_runner
from blis_tui.study.dask_runner import DaskRunner, execute_as
from blis_tui.study.study_rows import rows_jsonl
from blis_tui.study.sweep import Sweep
from tests.study.mishaps import ONCE
from tests.study.studies import statuses, study_of, study_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.runners import Runner

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dask")]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dask") / "once"


@pytest.fixture(scope="module")
def address(once: Path) -> Iterator[str]:
    """Two processes; one death of theirs may be a task's fault, two are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ONCE, str(once))
        with (
            dask.config.set({"distributed.scheduler.allowed-failures": 1}),
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
            ) as cluster,
        ):
            yield cluster.scheduler_address


def rows(study: Study, runner: Runner | None = None) -> str:
    sweep = Sweep(study)
    for _ in sweep.run(runner):
        pass
    return "".join(rows_jsonl(sweep.result()))


def test_the_bytes_are_those_of_runs_here(address: str) -> None:
    study = study_of({"cluster.instances": [1, 2], "policy.scheduling": ["fcfs", {"kind": "fcfs"}]}, set={"expect": []})
    with runner_of(None, address, study.runs) as runner:
        assert rows(study, runner) == rows(study)
        assert address in runner.name


def test_a_worker_that_dies_costs_no_byte(address: str, once: Path) -> None:
    study = study_with("nothing", "killed once", *["nothing"] * 4)
    once.touch()
    with DaskRunner(address) as runner:
        found = rows(study, runner)
    assert not once.exists()
    assert found == rows(study)


def test_a_run_that_kills_its_workers_has_failed(address: str) -> None:
    # Apart: Dask also suspects whatever waits on a worker that dies.
    killer, beside = Sweep(study_with("killed")), Sweep(study_with("nothing", "error"))
    with DaskRunner(address) as runner:
        for sweep in (killer, beside):
            for _ in sweep.run(runner):
                pass
    assert statuses(killer.result()) == ["failed"]
    assert killer.result()[0].why == "its workers died 2 times: was there too little memory?"
    assert statuses(beside.result()) == ["done", "failed"]
    assert "by nothing" in beside.result()[1].why


def test_breaking_off_leaves_the_cluster_as_it_was(address: str) -> None:
    study = study_of({"cluster.instances": [1, 2, 3, 4]})
    with DaskRunner(address) as runner:
        going = Sweep(study).run(runner)
        next(going)
        going.close()
        assert not runner.busy
        assert rows(study, runner) == rows(study)


def test_workers_of_another_version_are_an_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_runner, "__version__", "99.0")
    with pytest.raises(InputError, match=r"the Dask worker at .* has blis-tui .*, and this is 99\.0"):
        DaskRunner(address)


def test_workers_that_come_later_with_another_engine_are_an_error(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_runner, "ENGINE", "older")
    with DaskRunner(address) as runner, pytest.raises(SimulationError, match=r"has engine .*, and results of older"):
        rows(study_of({"cluster.instances": [1]}), runner)
    with pytest.raises(SimulationError):
        execute_as(None, "another")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["nonsense", "carrier-pigeon://there:1", "", "tcp://127.0.0.1:{free}"])
def test_where_no_scheduler_answers_it_is_told_soon(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_runner, "_ANSWER_S", 0.3)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = given.replace("{free}", str(free.getsockname()[1]))
    with pytest.raises(InputError, match=f"no Dask scheduler answers at `{where}`: ."):
        DaskRunner(where)


def test_a_cluster_without_workers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_runner, "_WORKERS_S", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        pytest.raises(InputError, match="has no workers"),
    ):
        DaskRunner(cluster.scheduler_address)


def test_a_cluster_that_goes_away_ends_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0", silence_logs="CRITICAL")
    with DaskRunner(cluster.scheduler_address) as runner:
        sweep = Sweep(study_of({"workload.requests": list(range(20, 60))}, set={"expect": []}))
        going = sweep.run(runner)
        next(going)
        cluster.close()
        with pytest.raises(SimulationError, match="makes no runs any more"):
            list(going)
        assert 0 < len(sweep.result()) < 40
    monkeypatch.setattr(dask_runner, "_ANSWER_S", 0.3)
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        DaskRunner(cluster.scheduler_address)


def test_without_the_extra_it_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match="needs an extra package") as caught:
        DaskRunner("tcp://127.0.0.1:1")
    assert caught.value.help == f"{install_command('distributed')}, or use --jobs"
