"""Random replicas whose ranks step together: engine and oracle agree on every record, checkpoints resume alike."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.engine.latency.creation import create_latency
from blis_tui.runs.simulation import Simulation

from .draws import at_random, drawn
from .oracle import OracleStalledError
from .runs import check_many, examples
from .test_clusters import check, check_some
from .wide import WideOracle, draw_wide, meeting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .strategies import Scenario


@pytest.fixture(autouse=True, scope="module")
def _other_ranks_matter() -> Iterator[None]:
    with patch("blis_tui.cluster.factory.create_latency", meeting(create_latency)):
        yield


@examples(20)
@given(drawn(draw_wide), st.floats(0, 1))
def test_ranks_agree_with_the_oracle(scenario: Scenario, share: float) -> None:
    check(scenario, share, WideOracle)


def _check(scenario: Scenario, random: Random) -> None:
    check_some(scenario, random, WideOracle)


@pytest.mark.slow
def test_many_ranks_agree_with_the_oracle() -> None:
    check_many(60, draw_wide, _check)


def test_the_report_counts_dummy_batches_and_waiting_as_the_oracle_does() -> None:
    seen = [0, 0]
    for seed in range(40):
        scenario = draw_wide(at_random(Random(seed)))  # noqa: S311  (no secret)
        oracle = WideOracle.of(scenario, 10**6)
        try:
            oracle.run()
        except OracleStalledError:
            continue
        with patch("blis_tui.runs.simulation.create_source", return_value=scenario.source()):
            simulation = Simulation(scenario.experiment)
        simulation.run()
        ranks = simulation.report().ranks
        assert ranks is not None
        groups, instances = oracle.groups, oracle.instances
        batches = sum(group.taken * len(group.members) for group in groups)
        busy = sum(instance.busy_us for instance in instances)
        dummies, waited = sum(group.dummies for group in groups), sum(group.waited_us for group in groups)
        assert (ranks.replicas, ranks.ranks) == (len(groups), len(instances))
        assert ranks.steps == sum(group.taken for group in groups)
        assert (ranks.dummy_batches, ranks.waiting_us) == (dummies, waited)
        assert ranks.dummy_share == (dummies / batches if batches else 0.0)
        assert ranks.waiting_share == pytest.approx(waited / busy if busy else 0.0)
        seen = [seen[0] + dummies, seen[1] + waited]
    assert min(seen) > 100
