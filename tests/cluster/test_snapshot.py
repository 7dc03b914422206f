"""What a snapshot shows is there, under its name, in one place, and adds up with what the records have told."""

from __future__ import annotations

from collections import Counter

import pytest

from blis_tui.engine.records import Arrived
from blis_tui.runs.simulation import Simulation
from tests.cluster.fleets import fleet


@pytest.mark.parametrize("name", ["SPLIT", "GATEWAY", "GROWING", "IDLE"])
def test_everybody_alive_is_found_by_name_where_the_snapshot_has_it(name: str) -> None:
    simulation = Simulation(fleet(name))
    arrived: list[str] = []
    simulation.subscribe(Arrived, lambda one: arrived.append(one.request_id))
    seen = Counter[str]()
    while not simulation.done:
        simulation.run(max_events=97)
        shown = simulation.snapshot()
        alive = [*shown.in_transit, *(one for each in shown.instances for one in (*each.running, *each.waiting))]
        by_name = {one.request_id: one for one in alive}
        assert len(by_name) == len(alive)
        seen.update(one.phase for one in alive)
        assert (shown.event, shown.time_us, shown.arrived) == (simulation.events, simulation.now_us, len(arrived))
        assert shown.arrived == shown.ended + len(alive)
        for request in arrived:
            assert simulation.request(request) == by_name.get(request)
        part = simulation.snapshot(2)
        assert part.in_transit == shown.in_transit[:2]
        for short, whole in zip(part.instances, shown.instances, strict=True):
            assert (short.running, short.waiting) == (whole.running[:2], whole.waiting[:2])
            assert (short.running_count, short.waiting_count) == (len(whole.running), len(whole.waiting))
        for instance in shown.instances:
            ends = [end for each in shown.transfers for end in (each.instance, each.decode_instance)]
            assert instance.transfers == ends.count(instance.index)
    assert simulation.request("nobody") is None
    assert len(seen) > 1
