"""Random clusters: engine and oracle agree on every record, invariants hold, checkpoints resume identically."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import StalledError
from blis_tui.engine.records import TiersLoaded
from blis_tui.runs.simulation import Simulation

from .draws import drawn
from .fleets import (
    draw_fleet,
    draw_fleet_with_adapters,
    draw_living_fleet,
    draw_mortal_fleet,
    draw_mortal_fleet_with_adapters,
)
from .mortal import MortalOracle
from .oracle import Oracle, OracleHangError, OracleStalledError
from .other_rules import OTHERS
from .runs import books_of, check_many, event, examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from blis_tui.engine.records import Record

    from .draws import Draw
    from .strategies import Scenario

_MANY: Final = 1_000_000


def _simulation(scenario: Scenario, *, check: str) -> Simulation:
    with patch("blis_tui.runs.simulation.create_source", return_value=scenario.source()):
        return Simulation(scenario.experiment, check=check)


def _watched(scenario: Scenario, *, check: str = "off") -> tuple[Simulation, list[Record]]:
    simulation = _simulation(scenario, check=check)
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    return simulation, records


def _by_event(records: list[Record]) -> list[Record]:
    """Sort records within an event by kind, each kind in its order; of tiers only the counters are compared."""
    compared = [record for record in records if not isinstance(record, TiersLoaded)]
    return sorted(compared, key=lambda record: (record.event, record.kind))


def _most_steps(scenario: Scenario) -> int:
    """Where prompts may go before the head of the batch, it gets a token only when the blocks run out."""
    if scenario.experiment.policy.batching.kind in OTHERS:
        engine = scenario.experiment.pools[0].engine
        return scenario.tokens * (engine.kv_blocks * engine.block_size_tokens + len(scenario.asked))
    return 4 * scenario.tokens


def _check(
    scenario: Scenario, share: float | None, kind: type[Oracle] = Oracle, retries: int = 0, *, check: str = "all"
) -> None:
    oracle = kind.of(scenario, (1 + retries) * _most_steps(scenario))
    hangs = stalls = False
    try:
        oracle.run()
    except OracleHangError:
        hangs = True
        event("it hangs")
    except OracleStalledError:
        hangs = stalls = True
        event("it stalls")
    simulation, records = _watched(scenario, check=check)
    with pytest.raises(StalledError) if stalls else nullcontext():
        simulation.run(max_events=oracle.events + 1)
    observed = _by_event(records)
    for theirs, ours in zip(observed, _by_event(oracle.records), strict=False):
        assert theirs == ours
    if not hangs:
        assert len(observed) == len(oracle.records)
        assert (simulation.now_us, simulation.events) == (oracle.now, oracle.events)
        assert simulation.done
        assert books_of(simulation) == oracle.books()
        for instance, naive in zip(simulation._cluster.instances, oracle.instances, strict=True):
            assert (instance.routed, instance.seen.in_flight) == (naive.routed, oracle.board.in_flight(naive.number))
            assert instance.tallies.itl_us == naive.itl_us
            assert (instance.pool.hits, instance.pool.misses) == (naive.pool.hits, naive.pool.misses)
            tiers, shelves = instance.pool.tiers, naive.pool.tiers
            assert (None if tiers is None else tiers.books()) == (None if shelves is None else shelves.books())
            adapters, shelf = instance.batch.adapters, naive.shelf
            assert (adapters and adapters.books()) == (shelf and shelf.books())
        if share is not None:
            _check_checkpoint(scenario, simulation, records, int(share * oracle.events))


def _check_checkpoint(scenario: Scenario, whole: Simulation, records: list[Record], at: int) -> None:
    """Resume another simulation from a saved one."""
    saved = _simulation(scenario, check="off")
    saved.run(max_events=at)
    checkpoint = saved.checkpoint()
    fresh, rest = _watched(scenario)
    fresh.restore(checkpoint)
    assert fresh.digest() == saved.digest()
    fresh.run()
    assert rest == [record for record in records if record.event > at]
    assert fresh.digest() == whole.digest()


def _check_some(scenario: Scenario, random: Random, kind: type[Oracle] = Oracle, retries: int = 0) -> None:
    """Check invariants, which cost as much as the rest, in one of four runs, and checkpoints in another."""
    part, share = random.randrange(4), random.random()
    _check(scenario, share if part == 1 else None, kind, retries, check="off" if part else "all")


check, check_some = _check, _check_some
"""For sessions, too."""


@examples(20)
@given(drawn(draw_fleet), st.floats(0, 1))
def test_clusters_agree_with_the_oracle(scenario: Scenario, share: float) -> None:
    _check(scenario, share)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_many_clusters_agree_with_the_oracle(part: int) -> None:
    check_many(67, draw_fleet, _check_some, part=part)


@examples(12)
@given(drawn(draw_living_fleet), st.floats(0, 1))
def test_clusters_whose_instances_come_and_go_agree_with_the_oracle(scenario: Scenario, share: float) -> None:
    _check(scenario, share, MortalOracle, 3)


@pytest.mark.parametrize(("draw", "count"), [(draw_mortal_fleet, 27), (draw_living_fleet, 57)])
def test_many_clusters_whose_instances_come_and_go_agree_with_the_oracle(
    draw: Callable[[Draw], Scenario], count: int
) -> None:
    check_many(count, draw, partial(_check_some, kind=MortalOracle, retries=3))


@examples(10)
@given(drawn(draw_fleet_with_adapters), st.floats(0, 1))
def test_clusters_with_adapters_agree_with_the_oracle(scenario: Scenario, share: float) -> None:
    _check(scenario, share)


@examples(8)
@given(drawn(draw_mortal_fleet_with_adapters), st.floats(0, 1))
def test_mortal_clusters_with_adapters_agree_with_the_oracle(scenario: Scenario, share: float) -> None:
    _check(scenario, share, MortalOracle, 3)
