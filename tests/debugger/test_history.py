"""Checkpoints must be worth what they cost, however much there is to keep."""

from __future__ import annotations

from itertools import pairwise

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import RUN_UP, SPACING, run_to_stop

FLOOD = {"workload.requests": 10_000, "workload.rate_per_s": 1e6, "latency": "roofline", "policy": "blis"}


def test_a_checkpoint_of_a_long_queue_is_left_only_after_as_much_work() -> None:
    debugger = Debugger(blis_tui.load("quickstart", set=FLOOD))
    run_to_stop(debugger.seek(41_500))
    assert debugger.simulation.arrived - debugger.simulation.ended > 9_000
    gaps = [after - before for before, after in pairwise(debugger.history.events)]
    assert min(gaps) >= SPACING
    assert gaps[-1] > 8 * SPACING
    # Going back leaves none on the way, either: each would take longer than the way.
    known = list(debugger.history.events)
    run_to_stop(debugger.seek(41_000))
    assert list(debugger.history.events) == known


def test_with_few_requests_going_back_leaves_a_checkpoint_before_the_place() -> None:
    debugger = Debugger(blis_tui.load("quickstart", set={"workload.requests": 100}))
    run_to_stop(debugger.seek(3900))
    run_to_stop(debugger.seek(3000))
    assert 3000 - RUN_UP in debugger.history.events


def test_a_huge_state_is_not_compared_at_every_look() -> None:
    debugger = Debugger(blis_tui.load("quickstart", set={**FLOOD, "workload.requests": 12_000}))
    run_to_stop(debugger.seek(50_000))
    assert debugger.simulation.arrived - debugger.simulation.ended > 10_000
    calls: list[int] = []
    digest = debugger.history.look
    debugger.history.look = lambda simulation: calls.append(1) or digest(simulation)  # type: ignore[method-assign,func-returns-value]
    assert debugger.moment().records
    assert not calls
