"""A request that has ended beside the median one."""

from __future__ import annotations

import pytest

from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.breakdown import e2e_breakdown
from blis_tui.debugger.why.explain import compare
from blis_tui.debugger.why.lifespans import read_life
from tests.debugger.pressed_runs import finished


@pytest.mark.parametrize("name", ["kv-pressure", "vllm-preemption"])
def test_the_difference_to_the_median_is_told_by_its_largest_part_first(name: str) -> None:
    debugger = finished(name)
    run_to_stop(debugger.seek(debugger.frontier))  # other tests move it
    tape, rows = debugger.tape, debugger.report().rows
    took = sorted(row.e2e_us for row in rows if row.e2e_us is not None)
    signs = dict.fromkeys((True, False), 0)
    for row in rows:
        life = read_life(tape, row.request_id, debugger.frontier)
        own = None if life is None else e2e_breakdown(life, tape)
        if life is None or own is None or row.e2e_us is None:
            continue
        comparison = compare(life, own, tape)
        assert comparison is not None
        assert comparison.faster == len([one for one in took if one < row.e2e_us])
        assert comparison.others == len(took) - 1
        assert comparison.excess_us == row.e2e_us - comparison.median.value
        parts = [us for _, us in comparison.by_group]
        assert sum(parts) == comparison.excess_us
        assert parts == sorted(parts, reverse=comparison.excess_us >= 0)
        signs[comparison.excess_us > 0] += len(dict.fromkeys(parts)) > 1
    assert min(signs.values()) > 3
