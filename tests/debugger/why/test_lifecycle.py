"""Why instances come and go: every figure of a sentence is one of the records, or counted from others."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

import pytest

import blis_tui
from blis_tui.base.units import span_text
from blis_tui.cluster.records import InstanceChanged, InstanceStopped, Retried, Scaled, ScalingDecided
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explain import explain_event, explain_request
from tests.cluster.fleets import fleet
from tests.debugger.pressed_runs import refs

if TYPE_CHECKING:
    from blis_tui.engine.records import Record

R = TypeVar("R")


@cache
def run() -> Debugger:
    debugger = Debugger(fleet("GROWING"))
    run_to_stop(debugger.run())
    return debugger


@cache
def records() -> tuple[Record, ...]:
    """Those of a run by itself."""
    simulation = blis_tui.Simulation(fleet("GROWING"))
    found: list[Record] = []
    simulation.subscribe("all", found.append)
    simulation.run()
    return tuple(found)


def of_kind(kind: type[R]) -> list[R]:
    return [record for record in records() if isinstance(record, kind)]


def told(event: int) -> str:
    return explain_event(run(), event).to_text()


def test_every_verdict_is_told_with_its_figures() -> None:
    first: dict[str, str] = {}
    for scaling in of_kind(ScalingDecided):
        if scaling.verdict in first:
            continue
        text = first[scaling.verdict] = told(scaling.event)
        assert scaling.reason in text
        for name, value in (
            ("demand", scaling.demand_tokens),
            ("supply", scaling.supply_tokens),
            ("pending", scaling.pending_tokens),
            ("missing", scaling.required_tokens),
            ("spare", scaling.spare_tokens),
        ):
            line = next(line for line in text.splitlines() if line.startswith(f"  {name:<7}  "))
            assert f" {value:,} " in line
        assert "It evaluates every 200 ms" in text
    assert first.keys() == {"scale-up", "scale-down", "wait", "hold"}
    assert "The autoscaler adds 1 instance to default" in first["scale-up"]
    assert "Pool default has at least 1 and at most 6 instances." in first["scale-up"]
    assert "The autoscaler removes 3 instances from default" in first["scale-down"]
    assert "The autoscaler waits before changing default" in first["wait"]
    assert "It acts once it has seen for 400 ms (stabilization window) that fewer would be enough." in first["wait"]
    assert "The autoscaler changes nothing" in first["hold"]


def test_a_rule_is_told_instead_of_thresholds() -> None:
    rule = {"kind": "hpa", "target": 2, "source": "Pods"}
    debugger = Debugger(blis_tui.load("autoscaling", set={"cluster.autoscaler.rule": rule, "expect": []}))
    run_to_stop(debugger.run())
    event = debugger.tape.latest_of("scaling-decided", debugger.frontier)
    text = explain_event(debugger, event).to_text()
    assert "Each instance should have 2 of num_requests_waiting (Pods, tolerance 10 %)." in text
    assert "num_requests_waiting is " in text
    assert "In tokens of KV cache" not in text
    assert "The rule `hpa` says how many instances there should be." in text
    assert "what is waiting; supply is what" not in " ".join(text.split())
    assert "what is waiting; supply is what" in " ".join(told(of_kind(ScalingDecided)[0].event).split())
    assert "In tokens of KV cache" in told(of_kind(ScalingDecided)[0].event)


def test_the_beginning_of_a_window_is_the_first_of_the_waits_in_a_row() -> None:
    looks, begun, seen = of_kind(ScalingDecided), None, 0
    for scaling in looks:
        if scaling.verdict != "wait":
            begun = None
            continue
        if begun is None:
            begun = scaling
            assert "It sees this for the first time." in told(scaling.event)
        else:
            seen += 1
            held = span_text(scaling.time_us - begun.time_us)
            assert f"It has seen this for {held} now, since event {begun.event:,}." in told(scaling.event)
    assert seen


def test_what_takes_effect_names_the_look_that_decided_it() -> None:
    for one in of_kind(Scaled):
        decided = [look for look in of_kind(ScalingDecided) if look.event < one.event and look.verdict[:5] == "scale"][
            -1
        ]
        assert f"That was decided at event {decided.event:,}: {decided.reason}." in told(one.event)
        verb = "added to" if one.change > 0 else "removed from"
        assert f"{verb} pool default." in told(one.event)


def test_each_change_of_an_instance_says_what_it_means() -> None:
    meanings = {
        "loading": "It loads its weights for 600 ms",
        "warming-up": "until 6 requests have left, its steps take 1.5 times as long",
        "active": "It receives requests.",
        "draining": "Its requests are served to completion.",
        "failed": "It receives no requests",
        "terminated": "It is gone for good.",
    }
    seen = set()
    for change in of_kind(InstanceChanged):
        if change.state in meanings and change.state not in seen:
            seen.add(change.state)
            line = next(line for line in told(change.event).splitlines() if change.reason in line and "of pool" in line)
            assert line.startswith(f"  instance {change.instance} of pool default: {change.reason}.")
            assert meanings[change.state] in line
    assert seen == meanings.keys()


def test_whose_instance_died_is_told() -> None:
    for one in of_kind(InstanceStopped):
        hit = [each.request_id for each in of_kind(Retried) if each.event == one.event]
        text = told(one.event)
        assert f"Instance {one.instance} stopped with {one.requests} request" in text
        assert one.requests == len(hit)
        assert {ref.value for ref in refs(explain_event(run(), one.event)) if ref.kind == "request"} == set(hit[:8])


def test_a_step_of_an_instance_that_came_later_can_be_explained() -> None:
    for instance in range(2, 6):
        event = next(
            event
            for event in range(1, run().frontier)
            if run().tape.row(event).instance == instance and run().tape.is_step(event)
        )
        assert f"Instance {instance} computed" in told(event)
    assert [profile.limits.max_num_seqs for profile in run().tape.profiles] == [8] * 6


def test_a_request_that_finds_no_instance_is_told_so() -> None:
    alone = {"cluster.instances": 1, "cluster.failures": [{"instance": 0, "at_us": 500_000, "repair_us": 500_000}]}
    debugger = Debugger(blis_tui.load("quickstart", set={**alone, "workload.requests": 20}))
    run_to_stop(debugger.run())
    event = debugger.tape.latest_of("stranded", debugger.frontier)
    text = explain_event(debugger, event).to_text()
    assert "It found no instance that it could be sent to." in text
    assert "waits for one to come up." in text


def test_nothing_is_said_of_another_instance_where_there_is_only_one() -> None:
    alone = {"cluster.instances": 1, "cluster.failures": [{"instance": 0, "at_us": 500_000, "repair_us": 500_000}]}
    debugger = Debugger(blis_tui.load("quickstart", set={**alone, "workload.requests": 20}))
    run_to_stop(debugger.run())
    text = explain_event(debugger, debugger.tape.latest_of("instance-stopped", debugger.frontier)).to_text()
    assert "They start again: request_0" in text
    assert "elsewhere" not in text


def test_what_took_the_time_to_the_queue_is_named() -> None:
    """A gateway's queue, and an attempt on an instance that failed, are not admission, routing and tokenization."""
    for name, cause in (("gateway-queue", "waiting in the gateway"), ("instance-dies", "failed attempts")):
        debugger = Debugger(blis_tui.load(name))
        run_to_stop(debugger.run())
        tape = debugger.tape
        events = [event for event in range(1, debugger.frontier + 1) if tape.row(event).kind == "queued"]
        arrived = {event: tape.time_us(tape.first_event_of(tape.name(tape.row(event).request))) for event in events}
        slowest = max(events, key=lambda event: tape.time_us(event) - arrived[event])
        text = explain_event(debugger, slowest).to_text()
        assert f"after it arrived: {cause}, tokenization and enqueue." in text


@cache
def apart() -> Debugger:
    """Prefill and decode on instances of their own, each scaled by itself."""
    debugger = Debugger(
        blis_tui.load(
            "quickstart",
            set={
                "workload.rate_per_s": 60,
                "engine.kv_blocks": 200,
                "cluster": {
                    "disaggregation": {},
                    "pools": [
                        {"name": "first", "role": "prefill", "instances": 1},
                        {"name": "second", "role": "decode", "instances": 1},
                    ],
                    "autoscaler": {
                        "interval_us": 20_000,
                        "max_instances": 9,
                        "avg_input_tokens": 200,
                        "scale_down_stabilization_window_us": 2_000_000,
                        "scrape_delay_us": {"mean": 150_000},
                    },
                },
            },
        )
    )
    run_to_stop(debugger.run())
    return debugger


@cache
def looks(debugger: Debugger) -> list[tuple[ScalingDecided, ...]]:
    """The evaluations of each event that has any, from a run by itself."""
    simulation = blis_tui.Simulation(debugger.experiment)
    found: dict[int, list[ScalingDecided]] = {}
    simulation.subscribe(ScalingDecided, lambda one: found.setdefault(one.event, []).append(one))
    simulation.run()
    return [tuple(scalings) for scalings in found.values()]


def test_each_role_is_told_of_with_its_own_window() -> None:
    debugger = apart()
    begun: list[ScalingDecided | None] = [None, None]
    longest = 0
    for scalings in looks(debugger):
        text = explain_event(debugger, scalings[0].event).to_text()
        assert len(scalings) == 2
        for place, scaling in enumerate(scalings):
            assert f": {scaling.reason}." in text
            assert f"{scaling.supply_tokens:,} " in text
            before = begun[place]
            if scaling.verdict != "wait":
                begun[place] = None
            elif before is None:
                begun[place] = scaling
                assert "It sees this for the first time." in text
            else:
                seen_us = scaling.time_us - before.time_us
                longest = max(longest, seen_us // 20_000)
                exact = f"It has seen this for {span_text(seen_us)} now, since event {before.event:,}."
                assert exact in text or "It has seen this for more than 1.20 s, since before event" in text
                assert (exact in text) == (seen_us // 20_000 < 60)
    assert longest > 60


def test_what_takes_effect_late_has_the_reason_of_its_own_decision() -> None:
    debugger = apart()
    decided = [scaling for scalings in looks(debugger) for scaling in scalings if scaling.verdict[:5] == "scale"]
    events = [event for event in range(1, debugger.frontier + 1) if debugger.tape.kind(event) == "scaled"]
    late = 0
    for event in events:
        [one] = [each for each in debugger.records_of(event) if isinstance(each, Scaled)]
        [look] = [each for each in decided if (each.pool, each.time_us) == (one.pool, one.time_us - 150_000)]
        assert look.reason == one.reason
        late += any(look.event < other.event < event and other.pool == one.pool for other in decided)
        text = explain_event(debugger, event).to_text()
        assert f"That was decided at event {look.event:,}: {one.reason}." in text
    report = debugger.ask(lambda simulation: simulation.report())
    assert report.lifecycle is not None
    assert [one.reason for one in report.lifecycle.scaling] == [
        each.reason for event in events for each in debugger.records_of(event) if isinstance(each, Scaled)
    ]
    assert late


@pytest.mark.parametrize(
    ("changes", "but"),
    [
        ({"scrape_delay_us": {"mean": 5_000_000}}, "a removal is pending"),
        ({"min_instances": 3}, "every pool is at its minimum"),
    ],
)
def test_instances_that_are_too_many_and_stay_are_told_why(changes: dict[str, object], but: str) -> None:
    settings = {"interval_us": 100_000, "max_instances": 3, "scale_down_stabilization_window_us": 0, **changes}
    made = {"cluster.instances": 3, "cluster.autoscaler": settings, "workload.requests": 20}
    debugger = Debugger(blis_tui.load("quickstart", set=made))
    run_to_stop(debugger.run())
    scalings = [scaling for (scaling,) in looks(debugger) if scaling.verdict == "hold" and scaling.spare_tokens]
    told = [scaling for scaling in scalings if scaling.reason.endswith(f"), but {but}")]
    assert told
    for scaling in told:
        assert scaling.reason.startswith(f"{scaling.spare_tokens:,} tokens to spare (demand ")
        assert "larger than what the largest of them" not in explain_event(debugger, scaling.event).to_text()


def test_a_second_failure_changes_nothing_and_is_no_cause() -> None:
    twice = [{"instance": 0, "at_us": 500_000}, {"instance": 0, "at_us": 500_001}]
    debugger = Debugger(blis_tui.load("quickstart", set={"cluster.failures": twice, "workload.requests": 40}))
    run_to_stop(debugger.run())
    [first, second] = [
        record
        for event in range(1, debugger.frontier + 1)
        for record in debugger.records_of(event)
        if isinstance(record, InstanceChanged)
    ]
    assert (first.reason, second.reason) == ("failed, as planned", "cannot fail as planned: it is failed")
    text = explain_event(debugger, second.event).to_text()
    assert "instance 0 of pool default: cannot fail as planned: it is failed." in text.splitlines()[-1]
    [name, *_] = [
        record.request_id
        for event in range(1, debugger.frontier + 1)
        for record in debugger.records_of(event)
        if isinstance(record, Retried)
    ]
    because = f"That instance had failed, as planned, at event {first.event}."
    assert because in explain_request(debugger, name).to_text()
