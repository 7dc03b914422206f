"""A run in buckets of time: what each instance had most of, however often neighbours have merged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop

if TYPE_CHECKING:
    from blis_tui.engine.records import StepFinished


@pytest.mark.parametrize("requests", [20, 200])
def test_the_instances_maxima_are_those_of_their_steps(requests: int) -> None:
    experiment = blis_tui.load("quickstart", set={"workload.requests": requests})
    debugger = Debugger(experiment)
    run_to_stop(debugger.run())
    overview = debugger.tape.overview
    steps: list[StepFinished] = []
    simulation = blis_tui.Simulation(experiment)
    simulation.subscribe("step", steps.append)
    simulation.run()
    for instance in range(2):
        load = [0] * len(overview.buckets)
        blocks = [0] * len(overview.buckets)
        before = (0, 0)
        own = iter([record for record in steps if record.instance == instance])
        record = next(own, None)
        for place in range(len(load)):
            load[place], blocks[place] = before
            while record is not None and record.time_us < (place + 1) * overview.width_us:
                before = (record.waiting + record.running, record.kv_used_blocks)
                load[place], blocks[place] = max(load[place], before[0]), max(blocks[place], before[1])
                record = next(own, None)
        assert list(overview.load_of(instance)) == load
        assert list(overview.kv_of(instance)) == blocks
