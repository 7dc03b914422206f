"""KV caches in reports: against the records of a run, by hand, and what a report leaves out."""

from __future__ import annotations

import pytest

import blis_tui
from blis_tui.engine.records import Preempted, Scheduled, StepFinished
from blis_tui.engine.stopped import ANSWERS, BLOCKS, ROOM, WATERMARK, SchedulingStopped
from blis_tui.results.sections.instances import kv_counts
from blis_tui.runs.comparison import rows
from blis_tui.runs.simulation import Simulation
from tests.builders import Outcome, experiment, request

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
    preempting = {(victim.instance, victim.time_us) for victim in victims}
    # A step that spent all its tokens leaves requests waiting for these, whatever else they lack.
    used = {
        (step.instance, step.step): sum(each.new_tokens for each in step.chunks) + step.decode_requests
        for step in steps
    }
    waiting = {(step.instance, step.step): step.waiting for step in steps}
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
    for instance in report.instances:
        total += instance.kv.allocation_failures
    assert total == report.kv.allocation_failures


@pytest.mark.parametrize(
    ("batching", "queries", "hits"),
    [
        # 1 has computed 12 tokens and knows 13 when its fourth block is missing. It comes back when 0 has ended: of its
        # own, the first block is left.
        ("vllm-v1", [13], [4]),
        # It forgets its answer, comes back at once (two blocks are left), goes again when 0 needs its block, and so on.
        ("blis", [10, 10], [8, 4]),
    ],
)
def test_what_preempted_requests_find_is_counted_apart(batching: str, queries: list[int], hits: list[int]) -> None:
    outcome = Outcome(experiment(batching=batching, blocks=6), [request(0, 0, 8, 12), request(1, 0, 10, 12)])
    again = [record for record in outcome.records if isinstance(record, Scheduled) and record.time_us]
    assert [one.cached_tokens for one in again] == hits
    kv = kv_counts(outcome.cluster.instances)
    assert (kv.preempted_lookups, kv.preempted_queries, kv.preempted_hits) == (len(hits), sum(queries), sum(hits))
    without = Outcome(
        experiment(batching=batching, blocks=6, caching=False), [request(0, 0, 8, 12), request(1, 0, 9, 12)]
    )
    kv = kv_counts(without.cluster.instances)
    assert (kv.preempted_lookups, kv.preempted_queries, kv.preempted_hits) == (0, 0, 0)
    assert kv.preemptions


@pytest.mark.parametrize("policy", ["vllm-v1", "nano", "sglang"])
def test_hits_of_preempted_requests_are_those_of_their_records(policy: str) -> None:
    simulation = Simulation(blis_tui.load("schedulers", set={"policy": policy}))
    gone: set[str] = set()
    again: list[int] = []
    simulation.subscribe(Preempted, lambda one: gone.add(one.request_id))
    simulation.subscribe(Scheduled, lambda one: again.append(one.cached_tokens) if one.request_id in gone else None)
    simulation.run()
    kv = simulation.report().kv
    assert (kv.preempted_lookups, kv.preempted_hits) == (len(again), sum(again))
    assert (kv.preempted_hits > 0) == (policy != "sglang")  # its only victim finds nothing of its own


def test_what_is_left_out_is_nought_for_those_who_ask() -> None:
    without, pressed = (
        blis_tui.run(blis_tui.load(name, set={"expect": EXPECT})) for name in ("chunked-prefill", "kv-pressure")
    )
    kv = without.to_dict()["kv"]
    assert isinstance(kv, dict)
    assert "allocation_failures" not in kv
    assert (without.kv.allocation_failures, without.ok, without.expectations[0].value) == (0, True, 0)
    assert not pressed.ok
    (row,) = [
        compared_figure
        for compared_figure in rows(without.to_dict(), pressed.to_dict())
        if compared_figure.metric == "kv.allocation_failures"
    ]
    assert (row.a, row.b) == (0, pressed.kv.allocation_failures)
    assert not [
        compared_figure
        for compared_figure in rows(without.to_dict(), without.to_dict())
        if "allocation" in compared_figure.metric
    ]


def test_studies_read_nought_too() -> None:
    result = blis_tui.sweep(
        "quickstart",
        axes={"engine.kv_blocks": [300, 20_000]},
        objectives=["kv.allocation_failures"],
        set={"workload.requests": 60, "latency": "roofline"},
    )
    few, many = (row.figures["kv.allocation_failures"] for row in result.rows)
    assert isinstance(few, int)
    assert few > 0
    assert many == 0
