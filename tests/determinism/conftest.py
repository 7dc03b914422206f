"""The cases, resolved once, and what comes out when this process runs them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from blis_tui.spec.build import build_experiment
from blis_tui.spec.load import resolve_source

from .cases import CASES, VARIANTS
from .runner import Outcome, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.spec.model import Experiment

Jobs = dict[str, dict[str, object]]


@pytest.fixture(scope="session")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """Every case as a job for the runner: its resolved document, and where its trace lies."""
    jobs: Jobs = {}
    with pytest.MonkeyPatch.context() as patch:
        # Where no `specs/` of the working directory hides the shipped one.
        patch.chdir(tmp_path_factory.mktemp("empty"))
        for name in CASES:
            source, overrides = VARIANTS.get(name, (name, {}))
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
