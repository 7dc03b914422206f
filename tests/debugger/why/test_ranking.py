"""Rankings are those of the records."""

from __future__ import annotations

from itertools import pairwise

import pytest

import blis_tui
from blis_tui.debugger.why.ranking import ORDERS, Position, ranking
from tests.debugger.pressed_runs import finished
from tests.debugger.record_reader import Reader, Standing


def figures(reader: Reader) -> dict[str, dict[str, int]]:
    """Every figure of every request, from what the records say."""
    found: dict[str, dict[str, int]] = {order: {} for order in ORDERS}
    found["e2e"] = reader.completed
    found["ttft"] = dict(reader.first_tokens)
    everybody: dict[str, Standing] = {**reader.ended, **reader.live}
    for name, standing in everybody.items():
        gaps = [later - earlier for earlier, later in pairwise(standing.token_times_us)]
        if gaps:
            found["gap"][name] = max(gaps)
            if name in reader.completed:
                us = reader.completed[name] - found["ttft"][name]
                found["tpot"][name] = int(us / len(gaps) + 0.5)
        found["queue"][name] = standing.queued_us
        if standing.preemptions:
            found["preemptions"][name] = standing.preemptions
    return found


@pytest.mark.parametrize("name", ["kv-pressure", "vllm-preemption", "priority victims", "small budget"])
def test_every_request_has_its_place(name: str) -> None:
    debugger = finished(name)
    end = Position(debugger.frontier, debugger.frontier)
    keeps_output = debugger.experiment.policy.batching.kind == "vllm-v1"
    reader = Reader(keeps_output, plans_ahead=debugger.tape.plans_ahead)
    simulation = blis_tui.Simulation(debugger.experiment)
    simulation.subscribe("all", lambda record: reader.read([record]))
    simulation.run()
    expected = figures(reader)
    for order in ORDERS:
        found = ranking(debugger.tape, order, end)
        values = [one.value for one in found]
        assert values == sorted(values, reverse=True)
        assert {one.name: one.value for one in found} == expected[order], order
        assert ranking(debugger.tape, order, end, 3) == found[:3]


def test_ttft_counts_the_token_that_was_not_lost() -> None:
    debugger = finished("kv-pressure")
    end = Position(debugger.frontier, debugger.frontier)
    rows = {row.request_id: row.ttft_us for row in blis_tui.run(debugger.experiment).rows if row.ttft_us is not None}
    found = ranking(debugger.tape, "ttft", end)
    assert {one.name: one.value for one in found} == rows
