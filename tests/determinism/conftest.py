"""The cases, resolved once, and what comes out when this process runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from blis_tui.runs.simulation import Simulation
from blis_tui.spec.build import build_experiment
from blis_tui.spec.load import resolve_source

from .cases import CASES, case
from .runner import Outcome, simulate

if TYPE_CHECKING:
    from blis_tui.model import Experiment

Jobs = dict[str, dict[str, object]]

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist asks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In one process: what they all compare with takes long to make."""
    for item in items:
        shares = "baseline" in getattr(item, "fixturenames", ())
        if item.path.parent == FOLDER and shares and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("determinism"))


@pytest.fixture(scope="session")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """Every case as a job for the runner: its resolved document, and where its trace lies."""
    jobs: Jobs = {}
    with pytest.MonkeyPatch.context() as patch:
        # Where no `specs/` of the working directory hides the shipped one.
        patch.chdir(tmp_path_factory.mktemp("empty"))
        for name in CASES:
            source, overrides = case(name)
            found = resolve_source(source, overrides=overrides)
            jobs[name] = {
                "document": found.document.data,
                "trace": None if found.trace_path is None else str(found.trace_path),
            }
    return jobs


@pytest.fixture(scope="session")
def loaded(resolved: Jobs) -> dict[str, Experiment]:
    """Every case, ready to run."""
    experiments = {}
    for name, job in resolved.items():
        document, trace = job["document"], job["trace"]
        assert isinstance(document, dict)
        experiments[name] = build_experiment(document, trace_path=None if trace is None else str(trace))
    return experiments


@pytest.fixture(scope="session")
def baseline(loaded: dict[str, Experiment]) -> dict[str, Outcome]:
    """What comes out here, which every other way of running has to give as well."""
    return {name: simulate(experiment) for name, experiment in loaded.items()}


@pytest.fixture(scope="session")
def jobs(resolved: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all cases, for the runner."""
    path = tmp_path_factory.mktemp("jobs") / "jobs.json"
    path.write_text(json.dumps(resolved), encoding="utf-8")
    return path


class Halfway(NamedTuple):
    """Every case from its middle on."""

    jobs: Path
    """For the runner: all cases from their beginnings, and all of them from checkpoints."""
    expected: dict[str, Outcome]
    """What comes out from the checkpoints here."""


@pytest.fixture(scope="session")
def halfway(
    resolved: Jobs,
    loaded: dict[str, Experiment],
    baseline: dict[str, Outcome],
    tmp_path_factory: pytest.TempPathFactory,
) -> Halfway:
    """Every case saved in its middle."""
    folder = tmp_path_factory.mktemp("halfway")
    jobs, expected = dict(resolved), {}
    for number, (name, experiment) in enumerate(loaded.items()):
        simulation = Simulation(experiment)
        simulation.run(max_events=baseline[name].events // 2)
        path = folder / f"{number}.checkpoint"
        path.write_bytes(simulation.checkpoint())
        jobs[f"{name}, resumed"] = {**resolved[name], "checkpoint": str(path)}
        expected[f"{name}, resumed"] = simulate(experiment, checkpoint=path.read_bytes())
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    return Halfway(folder / "jobs.json", expected)
