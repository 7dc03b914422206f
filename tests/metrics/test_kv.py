"""KV allocation failures: against the records of a run, and where a report leaves them out."""

from __future__ import annotations

import pytest

import blis_tui
from blis_tui.compare.comparison import rows
from blis_tui.engine.records import Preempted, StepFinished
from blis_tui.engine.stopped import ANSWERS, BLOCKS, ROOM, WATERMARK, SchedulingStopped
from blis_tui.simulation import Simulation

EXPECT = [{"metric": "kv.allocation_failures", "max": 0}]


@pytest.mark.parametrize(
    ("name", "case", "some"),
    [
        ("kv-pressure", {}, True),
        ("kv-overload", {}, True),
        ("schedulers", {"policy": "nano"}, True),
        ("schedulers", {"policy": "tensorrt-llm"}, True),
        ("chunked-prefill", {}, False),
    ],
)
def test_failures_are_victims_and_steps_that_left_requests_waiting_for_blocks(
    name: str, case: dict[str, object], *, some: bool
) -> None:
    """Steps are planned one at a time here, so that a plan and what is left of it are one event."""
    batching = {} if case else {"policy.batching": {"kind": "vllm-v1", "async_scheduling": False}}
    simulation = Simulation(blis_tui.load(name, set={**case, **batching}))
    victims: list[Preempted] = []
    stopped: list[SchedulingStopped] = []
    steps: list[StepFinished] = []
    simulation.subscribe(Preempted, victims.append)
    simulation.subscribe(SchedulingStopped, stopped.append)
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    full = simulation.experiment.pools[0].engine.max_num_batched_tokens
    preempting = {(one.instance, one.time_us) for one in victims}
    # A step that spent all its tokens leaves requests waiting for these, whatever else they lack.
    used = {
        (one.instance, one.step): sum(each.new_tokens for each in one.chunks) + one.decode_requests for one in steps
    }
    waiting = {(one.instance, one.step): one.waiting for one in steps}
    refused = [
        one
        for one in stopped
        if one.cause in (ANSWERS, BLOCKS, ROOM, WATERMARK)
        and (one.instance, one.time_us) not in preempting
        and used[one.instance, one.step] < full
        and waiting[one.instance, one.step]
    ]
    report = simulation.report()
    assert report.kv.allocation_failures == len(victims) + len(refused)
    assert (report.kv.allocation_failures > 0) == some
    total = 0
    for one in report.instances:
        total += one.kv.allocation_failures
    assert total == report.kv.allocation_failures


def test_what_is_left_out_is_nought_for_those_who_ask() -> None:
    without, pressed = (
        blis_tui.run(blis_tui.load(name, set={"expect": EXPECT})) for name in ("chunked-prefill", "kv-pressure")
    )
    kv = without.to_dict()["kv"]
    assert isinstance(kv, dict)
    assert "allocation_failures" not in kv
    assert (without.kv.allocation_failures, without.ok, without.expectations[0].value) == (0, True, 0)
    assert not pressed.ok
    (row,) = [one for one in rows(without.to_dict(), pressed.to_dict()) if one.metric == "kv.allocation_failures"]
    assert (row.a, row.b) == (0, pressed.kv.allocation_failures)
    assert not [one for one in rows(without.to_dict(), without.to_dict()) if "allocation" in one.metric]


def test_studies_read_nought_too() -> None:
    found = blis_tui.sweep(
        "quickstart",
        axes={"engine.kv_blocks": [300, 20_000]},
        objectives=["kv.allocation_failures"],
        set={"workload.requests": 60, "latency": "roofline"},
    )
    few, many = (row.figures["kv.allocation_failures"] for row in found.rows)
    assert isinstance(few, int)
    assert few > 0
    assert many == 0
