"""Same bytes after going back: in the same simulation, in a fresh one, in another process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from blis_tui.simulation import Simulation

from .cases import CASES
from .elsewhere import assert_same, run_elsewhere
from .runner import finish, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.spec.model import Experiment

    from .conftest import Jobs
    from .runner import Outcome

LOOKS = 23
"""Digests compared on the way from one checkpoint to the next."""


def advance(simulation: Simulation, events: int) -> list[str]:
    """Go on to event number ``events``; the digests seen on the way, the last event's included."""
    pause = max(1, (events - simulation.events) // LOOKS)
    digests = []
    while simulation.events < events:
        simulation.step()
        if simulation.events % pause == 0 or simulation.events == events:
            digests.append(simulation.digest())
    return digests


@pytest.mark.parametrize("name", CASES)
def test_back_and_forth(name: str, loaded: dict[str, Experiment], baseline: dict[str, Outcome]) -> None:
    total = baseline[name].events
    simulation = Simulation(loaded[name])
    start, start_digest = simulation.checkpoint(), simulation.digest()
    advance(simulation, total // 3)
    early, early_digest = simulation.checkpoint(), simulation.digest()
    digests = advance(simulation, total * 2 // 3)
    late, late_digest = simulation.checkpoint(), simulation.digest()
    expected = {name: baseline[name].unwatched()}

    assert_same(expected, {name: finish(simulation, observe=False)})
    simulation.restore(late)
    assert simulation.digest() == late_digest
    simulation.restore(early)
    assert (simulation.digest(), simulation.events) == (early_digest, total // 3)
    assert advance(simulation, total * 2 // 3) == digests
    assert simulation.digest() == late_digest
    simulation.restore(start)
    assert (simulation.digest(), simulation.events) == (start_digest, 0)
    assert_same(expected, {name: finish(simulation, observe=False)})
    simulation.restore(late)
    assert_same(expected, {name: finish(simulation, observe=False)})


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_fresh_simulation_goes_on_where_another_was_saved(
    name: str, loaded: dict[str, Experiment], baseline: dict[str, Outcome]
) -> None:
    simulation = Simulation(loaded[name])
    advance(simulation, baseline[name].events // 2)
    saved, digest = simulation.checkpoint(), simulation.digest()

    fresh = Simulation(loaded[name])
    fresh.restore(saved)
    assert fresh.digest() == digest
    # Records from here on included: watch both, the one that never stopped and the one that was restored.
    assert_same({name: finish(simulation)}, {name: finish(fresh)})
    assert fresh.report().to_json() == baseline[name].report


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_of_a_restored_simulation(
    name: str, loaded: dict[str, Experiment], baseline: dict[str, Outcome]
) -> None:
    """Saving, restoring and saving again, many times over, loses nothing."""
    simulation = Simulation(loaded[name])
    for part in range(1, 8):
        advance(simulation, baseline[name].events * part // 8)
        saved, digest = simulation.checkpoint(), simulation.digest()
        simulation = Simulation(loaded[name])
        simulation.restore(saved)
        assert simulation.digest() == digest
    assert_same({name: baseline[name].unwatched()}, {name: finish(simulation, observe=False)})


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_checkpoint_in_another_process(
    hash_seed: str, resolved: Jobs, loaded: dict[str, Experiment], baseline: dict[str, Outcome], tmp_path: Path
) -> None:
    expected = {}
    jobs: Jobs = {}
    for name, experiment in loaded.items():
        simulation = Simulation(experiment)
        advance(simulation, baseline[name].events // 2)
        path = tmp_path / f"{len(jobs)}.checkpoint"
        path.write_bytes(simulation.checkpoint())
        jobs[name] = {**resolved[name], "checkpoint": str(path)}
        expected[name] = simulate(experiment, checkpoint=path.read_bytes())
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(jobs), encoding="utf-8")
    assert_same(expected, run_elsewhere(file, environment={"PYTHONHASHSEED": hash_seed}).outcomes)
    assert {name: outcome.report for name, outcome in expected.items()} == {
        name: outcome.report for name, outcome in baseline.items()
    }
