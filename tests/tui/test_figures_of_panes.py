"""Fleet, router and sessions at random positions: every figure on the screen can be read from the records up to there.

The records are those of a run by itself, without a debugger.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.cluster.records import RoutingDecision, SessionBegun, SessionContinued
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.ranking import Position, ranking
from blis_tui.engine.records import (
    Completed,
    Dropped,
    Prefilled,
    Queued,
    Rejected,
    Routed,
    Scheduled,
    TimedOut,
)
from blis_tui.runs.simulation import Simulation
from blis_tui.tui.panes.fleet import MEASURES, fleet_lines, value_text
from blis_tui.tui.panes.router import router_lines
from blis_tui.tui.panes.sessions import session_lines
from tests.cluster.fleets import fleet
from tests.tui.pane_harness import text_of, view_at

if TYPE_CHECKING:
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment

POSITIONS = 10
FLEETS = ("WEIGHTED", "GATEWAY", "SPLIT")
TALKS = {"workload.sessions": 12, "latency": "roofline", "policy": "blis"}


@cache
def told(name: str) -> tuple[Record, ...]:
    records: list[Record] = []
    simulation = Simulation(made(name))
    simulation.subscribe("all", records.append)
    simulation.subscribe(RoutingDecision, records.append)
    simulation.run(max_events=3000)
    return tuple(records)


def made(name: str) -> Experiment:
    return blis_tui.load("conversations", set=TALKS) if name == "TALKS" else fleet(name)


@cache
def debugger(name: str) -> Debugger:
    found = Debugger(made(name))
    run_to_stop(found.seek(told(name)[-1].event))
    return found


def places(name: str) -> list[int]:
    drawn = random.Random(name)  # noqa: S311
    return sorted(drawn.sample(range(50, told(name)[-1].event), POSITIONS))


def past(name: str, event: int) -> list[Record]:
    return [record for record in told(name) if record.event <= event]


@pytest.mark.parametrize("name", FLEETS)
def test_the_fleet(name: str) -> None:
    seen = 0
    for event in places(name):
        run_to_stop(debugger(name).seek(event))
        view = view_at(debugger(name), event)
        queued, in_flight = Counter[int](), Counter[int]()
        for record in past(name, event):
            if isinstance(record, Routed):
                in_flight[record.instance] += 1
            elif isinstance(record, Queued):
                queued[record.instance] += 1
            elif isinstance(record, Scheduled):
                queued[record.instance] -= 1
            elif isinstance(record, Completed | Prefilled | Dropped):
                in_flight[record.instance] -= 1
            elif isinstance(record, TimedOut):
                in_flight[record.instance] -= 1
                queued[record.instance] -= not record.was_running
        text = text_of(fleet_lines(view, 150, 40))
        for instance in view.moment.state.instances:
            index = instance.index
            assert (MEASURES["load"].read(instance), MEASURES["queue"].read(instance)) == (
                in_flight[index],
                queued[index],
            ), event
            assert re.search(rf"(?<!\d){index:>2} .*{value_text(instance, MEASURES['load'])}", text)
            seen += in_flight[index]
    assert seen


@pytest.mark.parametrize("name", FLEETS)
def test_the_router(name: str) -> None:
    for event in places(name):
        run_to_stop(debugger(name).seek(event))
        text = text_of(router_lines(view_at(debugger(name), event), 150))
        latest = [record for record in past(name, event) if isinstance(record, RoutingDecision)][-1]
        head = text.splitlines()[0]
        assert f"{latest.request_id} → instance {latest.instance}" in head
        assert f"event {latest.event:,}" in head
        if latest.regret_ppm is None or latest.true_regret_ppm is None:
            assert "regret none" in text
        else:
            assert f"{latest.regret_ppm / 1e6:.3f} by what it saw" in text
            assert f"{latest.true_regret_ppm / 1e6:.3f} by the true state" in text
        in_flight = Counter[int]()
        for record in [each for each in past(name, latest.event) if each.event < latest.event]:
            if isinstance(record, Routed):
                in_flight[record.instance] += 1
            elif isinstance(record, Completed | Prefilled | Dropped | TimedOut):
                in_flight[record.instance] -= 1
        for each in latest.top:
            assert each.in_flight == in_flight[each.instance]


def test_sessions() -> None:
    for event in places("TALKS"):
        run_to_stop(debugger("TALKS").seek(event))
        text = text_of(session_lines(view_at(debugger("TALKS"), event), 150))
        lengths: dict[str, int] = {}
        sent: dict[str, list[str]] = {}
        ended = {record.request_id: None for record in past("TALKS", event) if isinstance(record, Completed | Rejected)}
        for record in past("TALKS", event):
            if isinstance(record, SessionBegun):
                lengths[record.session_id] = record.calls
            if isinstance(record, SessionBegun | SessionContinued):
                sent.setdefault(record.session_id, []).append(record.request_id)
        flying = len([call for calls in sent.values() for call in calls if call not in ended])
        done = [
            name for name, calls in sent.items() if len(calls) == lengths[name] and all(call in ended for call in calls)
        ]
        assert f"sessions {len(lengths)} " in text
        assert re.search(rf"(in progress|unfinished) {len(lengths) - len(done)}\b", text)
        assert re.search(rf"completed {len(done)}\b", text)
        assert f"calls in flight {flying}" in text
        for name, calls in sent.items():
            row = next(each for each in text.splitlines() if each.startswith(f"{name} "))
            assert re.search(rf"\b{len(calls)} of {lengths[name]}\b", row), row


AT_THE_END = (
    "admission-control",
    "burst",
    "chunked-prefill",
    "conversations",
    "disaggregation",
    "fcfs",
    "kv-overload",
    "kv-pressure",
    "pipeline-bubble",
    "retraction",
    "shared-prefixes",
    "skipping",
    "steady-chat",
    "thinking",
    "vllm-preemption",
)


@pytest.mark.parametrize("name", AT_THE_END)
def test_at_the_end_figures_are_those_of_the_report_under_the_same_name(name: str) -> None:
    few = {"workload.sessions": 6} if name == "conversations" else {"workload.requests": 60}
    warmed = {"warm_up_us": 500_000} if name == "burst" else {}
    experiment = blis_tui.load(name, set={**few, **warmed})
    run = Debugger(experiment)
    run_to_stop(run.run())
    report = blis_tui.run(experiment)
    assert run.latencies() == report.latency
    here = Position(run.event, run.settled)
    if name != "burst":  # rankings have the requests of the warm-up, too
        for by, distribution in (
            ("e2e", report.latency.e2e_ms),
            ("ttft", report.latency.ttft_ms),
            ("tpot", report.latency.tpot_ms),
        ):
            largest = next(iter(ranking(run.tape, by, here)), None)
            shown = None if largest is None else largest.value / 1000
            assert shown == (None if distribution.max is None else pytest.approx(distribution.max, abs=0.000_51, rel=0))
    preempted = sum(one.value for one in ranking(run.tape, "preemptions", here))
    instances = run.moment().state.instances
    assert preempted == sum(instance.preemptions for instance in instances) == report.kv.preemptions
    asked = sum(instance.kv.queried_tokens for instance in instances)
    assert (sum(instance.kv.found_tokens for instance in instances) / asked if asked else 0.0) == report.kv.hit_rate
    buckets, counts = run.tape.overview.buckets, report.requests
    lost = counts.rejected + counts.dropped_unservable + counts.timed_out + (counts.lost or 0)
    assert sum(bucket.arrivals for bucket in buckets) == counts.total
    assert sum(bucket.completions for bucket in buckets) == counts.completed
    assert sum(bucket.losses for bucket in buckets) == lost
