"""Same bytes within one process: run twice, watched or not, as a whole or in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.engine.records import Completed, StepFinished
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from tests.nightly import every

from .cases import CASES
from .elsewhere import assert_same
from .runner import finish, simulate

if TYPE_CHECKING:
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment

    from .runner import Outcome


@pytest.mark.slow
def test_again_in_another_order_without_observers(loaded: dict[str, Experiment], baseline: dict[str, Outcome]) -> None:
    """What one simulation leaves behind in the process must reach neither the next one nor its own second run."""
    backwards = {name: simulate(loaded[name], observe=False) for name in reversed(CASES)}
    assert_same({name: baseline[name].unwatched() for name in CASES}, {name: backwards[name] for name in CASES})


def test_side_by_side(loaded: dict[str, Experiment], baseline: dict[str, Outcome]) -> None:
    """Simulations that take turns do not touch each other."""
    pairs = {name: (Simulation(loaded[name]), Simulation(loaded[name])) for name in CASES}
    for until_us in range(0, 3_000_000, 250_000):
        for pair in pairs.values():
            for simulation in pair:
                simulation.run(until_us)
    expected = {name: outcome.unwatched() for name, outcome in baseline.items()}
    for number in range(2):
        assert_same(expected, {name: finish(pair[number], observe=False) for name, pair in pairs.items()})


@pytest.mark.parametrize("name", every(2, CASES))
def test_with_observers_that_come_and_go(
    name: str, loaded: dict[str, Experiment], baseline: dict[str, Outcome]
) -> None:
    simulation = Simulation(loaded[name])
    heard: list[Record] = []
    leave = simulation.subscribe(StepFinished, heard.append)
    for _ in range(baseline[name].events // 3):
        simulation.step()
    leave()
    for _ in range(baseline[name].events // 3):
        simulation.step()
    simulation.subscribe(Completed, heard.append)
    assert_same({name: baseline[name].unwatched()}, {name: finish(simulation, observe=False)})
    assert {type(record) for record in heard} == {StepFinished, Completed}


@pytest.mark.parametrize("name", every(2, CASES, start=1))
def test_steps_and_looks_change_nothing(name: str, loaded: dict[str, Experiment], baseline: dict[str, Outcome]) -> None:
    simulation = Simulation(loaded[name])
    pause = max(1, baseline[name].events // 5)
    steps = 0
    while simulation.step() is not None:
        steps += 1
        if simulation.events % pause == 0:
            before = simulation.digest()
            simulation.snapshot()
            simulation.peek()
            simulation.report(complete=False)
            simulation.verify()
            simulation.checkpoint()
            assert simulation.digest() == before
    assert steps == simulation.events == baseline[name].events
    assert_same({name: baseline[name].unwatched()}, {name: finish(simulation, observe=False)})


def test_a_report_does_not_depend_on_who_looked() -> None:
    """A horizon after the last request, and timeouts even later: the run ends by itself, looked at or not."""
    overrides = {
        "workload.requests": 20,
        "workload.clients.0.timeout_us": 100_000_000,
        "horizon_us": 60_000_000,
        "expect": [],
    }
    experiment = load("quickstart", overrides=overrides)
    alone, watched = Simulation(experiment), Simulation(experiment)
    alone.run()
    while watched.step() is not None:
        pass
    first = alone.report().to_json()
    assert alone.report().to_json() == first
    assert watched.report().to_json() == first
