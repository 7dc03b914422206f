"""Runs that several tests look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.study.store import MemoryStore
from blis_tui.study.sweep import Sweep
from tests.study.studies import TIGHT, study_of

if TYPE_CHECKING:
    from blis_tui.study.study_rows import StudyResult


@pytest.fixture(scope="session")
def store() -> MemoryStore:
    """What any test has run."""
    return MemoryStore()


@pytest.fixture(scope="session")
def result(store: MemoryStore) -> StudyResult:
    """Four points with two seeds each, two points of them no experiments, and a bound that some keep to."""
    study = study_of(
        {"cluster.instances": [1, 2], "model": ["qwen3-14b", "llama-3.1-70b-instruct"]},
        seeds=[3, 4],
        constraints=[TIGHT],
        objectives=[{"metric": "cost.gpus"}, {"metric": "throughput.output_tokens_per_s", "goal": "max"}],
    )
    runs = Sweep(study, store=store)
    for _ in runs.run():
        pass
    return runs.result()
