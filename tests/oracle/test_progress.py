"""Random overloads end under every rule and victim choice, and preemptions stay within the documented bound."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

from hypothesis import given

from blis_tui.runs.simulation import Simulation

from .draws import drawn
from .runs import Source, books_of, check_many, event, examples
from .strategies import draw_overload

if TYPE_CHECKING:
    from .strategies import Scenario


def most_preemptions(scenario: Scenario, number: int) -> int:
    """The bound of docs/lab/schedulers.md for one request."""
    others = [asked for at, asked in enumerate(scenario.asked) if at != number]
    tokens = sum(asked.input_tokens + asked.output_tokens for asked in others)
    tail = scenario.experiment.policy.preemption_victim == "tail"
    return tokens if tail else len(others) * (tokens + len(others))


def _check(scenario: Scenario) -> None:
    with patch("blis_tui.runs.simulation.create_source", return_value=Source(scenario.requests())):
        simulation = Simulation(scenario.experiment, check="all")
    engine = scenario.experiment.pools[0].engine
    steps = (scenario.tokens + len(scenario.asked)) * (engine.kv_blocks * engine.block_size_tokens + 1)
    simulation.run(max_events=steps + 6 * len(scenario.asked))
    assert simulation.done, "it makes no progress"
    found = books_of(simulation)
    assert all(row.preemptions <= most_preemptions(scenario, row.number) for row in found)
    policy = scenario.experiment.policy
    if any(row.preemptions for row in found):
        event(f"preempts: {policy.batching.kind}, {policy.preemption_victim}")


@examples(20)
@given(drawn(draw_overload))
def test_overloads_end(scenario: Scenario) -> None:
    _check(scenario)


def test_many_overloads_end() -> None:
    check_many(84, draw_overload, lambda scenario, _: _check(scenario))
