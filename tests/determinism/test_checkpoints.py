"""Same bytes after going back: in the same simulation, in a fresh one, in another process."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.runs.simulation import _SEAL_BYTES, Simulation
from tests.nightly import every

from .cases import CASES
from .elsewhere import assert_same
from .runner import finish

if TYPE_CHECKING:
    from blis_tui.model import Experiment

    from .conftest import Halfway
    from .runner import Outcome

TABLES: Final = {"blis_tui.engine.latency.operator_steps", "blis_tui.engine.latency.operator_tables"}
LOOKS = 11
"""Digests compared on the way from one checkpoint to the next."""


def step_to(simulation: Simulation, events: int) -> None:
    """Go on to event number ``events``."""
    while simulation.events < events:
        simulation.step()


def advance(simulation: Simulation, events: int) -> list[str]:
    """The same, and the digests seen on the way, the last event's included."""
    pause = max(1, (events - simulation.events) // LOOKS)
    digests = []
    while simulation.events < events:
        simulation.step()
        if simulation.events % pause == 0 or simulation.events == events:
            digests.append(simulation.digest())
    return digests


@pytest.mark.parametrize("name", every(2, CASES))
def test_back_and_forth(name: str, loaded: dict[str, Experiment], baseline: dict[str, Outcome]) -> None:
    total = baseline[name].events
    simulation = Simulation(loaded[name])
    start, start_digest = simulation.checkpoint(), simulation.digest()
    step_to(simulation, total // 3)
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


@pytest.mark.parametrize("name", every(2, CASES, start=1))
def test_a_fresh_simulation_goes_on_where_others_were_saved(
    name: str, loaded: dict[str, Experiment], baseline: dict[str, Outcome]
) -> None:
    """Saving, restoring and saving again, several times over, loses nothing."""
    whole, simulation = Simulation(loaded[name]), Simulation(loaded[name])
    for part in range(1, 4):
        step_to(simulation, baseline[name].events * part // 6)
        saved, digest = simulation.checkpoint(), simulation.digest()
        simulation = Simulation(loaded[name])
        simulation.restore(saved)
        assert simulation.digest() == digest
    step_to(whole, simulation.events)
    # Records from here on included: watch both, the one that never stopped and the one that was restored.
    outcome = finish(simulation)
    assert_same({name: finish(whole)}, {name: outcome})
    assert_same({name: baseline[name].unwatched()}, {name: outcome.unwatched()})


@pytest.mark.parametrize("name", ["quickstart", "wide-experts"])
def test_tables_that_no_event_changes_are_in_none(name: str, loaded: dict[str, Experiment]) -> None:
    """They would be ten times as long as the state; who restores it has its own, and a twin those of its original."""
    simulation, other = Simulation(loaded[name]), Simulation(loaded[name])
    step_to(simulation, 200)
    mark, saved = simulation.mark(), simulation.checkpoint()
    for content in (mark.content, saved[_SEAL_BYTES:]):
        state = zlib.decompress(content)
        assert b"Request" in state
        assert b"operator_tables" not in state
    tables = {type(part) for part in simulation.parts_from(TABLES)}
    assert tables, "the simulation has them"

    own = _step_times(other)
    other.restore(saved)
    assert [id(step_time) for step_time in _step_times(other)] == [id(one) for one in own]
    twin = simulation.twin(mark)
    assert [id(step_time) for step_time in _step_times(twin)] == [
        id(step_time) for step_time in _step_times(simulation)
    ]
    assert twin.digest() == other.digest() == simulation.digest()


def _step_times(simulation: Simulation) -> list[object]:
    """What says how long steps take, without what instances put around it."""
    found: list[object] = []
    for instance in simulation._cluster.instances:
        latency = instance.latency
        while (inner := getattr(latency, "model", None)) is not None:
            latency = inner
        found.append(latency)
    return found


def test_resumed_runs_end_as_those_in_one_piece(halfway: Halfway, baseline: dict[str, Outcome]) -> None:
    """What other processes make of these checkpoints is compared in ``test_other_processes``."""
    for name, outcome in baseline.items():
        assert halfway.expected[f"{name}, resumed"].report == outcome.report
