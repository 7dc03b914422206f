"""Why the control plane did what it did: every figure of a sentence is one of the records."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

import pytest

import blis_tui
from blis_tui.base.units import bytes_text, span_text, time_text
from blis_tui.cluster.records import Held, Resumed, RoutingDecision, TransferStarted
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.control import record_of
from blis_tui.debugger.why.explain import explain_event, explain_request
from blis_tui.debugger.why.explanation import Subject
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.engine.records import Rejected, Routed
from tests.debugger.pressed_runs import finished, refs


@cache
def run(name: str) -> Debugger:
    return finished(name)


def events_of(debugger: Debugger, kind: str) -> list[int]:
    """The events that a request's lives name with a kind of record."""
    found = {
        event.event: None for name in debugger.tape.names() for event in debugger.tape.life(name) if event.what == kind
    }
    return sorted(found)


def told(debugger: Debugger, event: int) -> str:
    return explain_event(debugger, event).to_text()


def test_who_expired_in_the_gateway_is_told_so_and_how_long_it_waited() -> None:
    debugger = run("gateway")
    seen = 0
    for event in events_of(debugger, "rejected"):
        record = record_of(debugger, event, Rejected)
        assert record is not None
        text = told(debugger, event)
        reason = re.sub(r"(\d+) us", lambda match: span_text(int(match[1])), record.reason)
        assert f"The gateway rejected {record.request_id}: {reason}." in text
        life = debugger.tape.life(record.request_id)
        held = [one for one in life if one.what == "held"]
        if held:
            seen += 1
            waited = span_text(life[-1].time_us - held[0].time_us)
            assert f"It had waited there for {waited}, since event {held[0].event:,}." in text
            expired = record.reason.startswith("expired")
            assert expired == ("A request may wait for 3.00 s." in text)
            assert expired != ("The gateway holds 40 requests; when it is full: shed-least-urgent." in text)
            assert record.request_id in {ref.value for ref in refs(explain_event(debugger, event))}
            assert f"The gateway rejected {record.request_id}" in explain_request(debugger, record.request_id).to_text()
    assert seen


def test_a_budget_is_told_in_places() -> None:
    made = blis_tui.load("tenant-budgets", set={"policy.tenant_budgets": {"fractions": {"bulk": 0.5}}})
    debugger = Debugger(made)
    run_to_stop(debugger.run())
    event = next(one for one in events_of(debugger, "rejected") if "budget" in debugger.tape.reason(one))
    text = told(debugger, event)
    assert "The budget of its tenant rejected it: " in text
    assert "places in the batches of instances that receive requests." in text


def test_a_budget_is_a_share_of_the_places_that_there_were() -> None:
    """Instances come and go, and their places with them."""
    more = {
        "cluster.autoscaler": {"interval_us": 100_000, "max_instances": 4, "avg_input_tokens": 10**6},
        "policy.tenant_budgets": {"fractions": {"bulk": 0.1}, "shed_below_priority": 101},
    }
    debugger = Debugger(blis_tui.load("tenant-budgets", set={**more, "expect": []}))
    run_to_stop(debugger.run())
    seen = set()
    for event in events_of(debugger, "rejected"):
        record = record_of(debugger, event, Rejected)
        assert record is not None
        if record.policy == "tenant-budget":
            limit = float(record.reason.rpartition(" ")[2])
            seen.add(limit)
            assert f"bulk may have 10 % of the {10 * limit:,.0f} places" in told(debugger, event)
    assert len(seen) > 1


def test_a_full_band_is_not_a_full_queue() -> None:
    gateway = {"saturation": {"kind": "concurrency", "max_concurrency": 1}, "bands": True, "per_band_capacity": 2}
    debugger = Debugger(blis_tui.load("quickstart", set={"policy.gateway": gateway, "workload.requests": 20}))
    run_to_stop(debugger.run())
    event = events_of(debugger, "rejected")[0]
    text = told(debugger, event)
    assert re.search(r"The gateway rejected request_\d+: the band of priority 3 is full\.", text)
    assert "Each band holds 2 requests; when it is full, it takes no others." in text
    assert "any number of requests" not in text


def test_who_waits_in_the_gateway_while_no_instance_is_up_is_told_so() -> None:
    more = {"policy.gateway": {"saturation": {"kind": "concurrency", "max_concurrency": 1}}}
    dead = {"cluster.failures": [{"at_us": 200_000}], "workload.requests": 20}
    debugger = Debugger(blis_tui.load("quickstart", set={**more, **dead}))
    run_to_stop(debugger.run())
    waiting = debugger.simulation.snapshot().gateway
    assert waiting is not None
    text = explain_request(debugger, waiting.upcoming).to_text()
    assert "No instance is receiving requests, so none is dispatched." in text
    assert "saturation is" not in text


def test_who_came_back_to_an_idle_cluster_is_told_apart_from_the_gateway() -> None:
    debugger = run("put off")
    event = next(
        event
        for event in range(1, debugger.frontier + 1)
        if any(isinstance(record, Resumed) for record in debugger.records_of(event))
    )
    back = [record.request_id for record in debugger.records_of(event) if isinstance(record, Resumed)]
    explanation = explain_event(debugger, event)
    [part] = [one for one in explanation.parts if one.heading == "Deferred requests"]
    assert [piece.value for piece in part.sentences[0] if isinstance(piece, Subject)] == back[:8]
    assert "The gateway" not in {one.heading for one in explanation.parts}


@pytest.mark.parametrize("name", ["split", "split early"])
def test_a_choice_has_the_scores_of_its_record(name: str) -> None:
    debugger = run(name)
    for event in events_of(debugger, "routed")[:40]:
        record, routed = record_of(debugger, event, RoutingDecision), record_of(debugger, event, Routed)
        assert record is not None
        assert routed is not None
        explanation = explain_event(debugger, event)
        assert (
            explanation.headline == f"The router ({routed.policy}) chose instance {routed.instance}: {routed.reason}."
        )
        part = next(one for one in explanation.parts if one.heading == "The choice, by score")
        assert [(row.label, row.figure) for row in part.rows] == [
            (f"instance {each.instance}", f"{each.score_ppm / 1e6:.3f}") for each in record.top
        ]
        assert [row.label for row in part.rows if row.share] == [f"instance {record.instance}"]


def test_each_choice_has_the_rule_of_its_own_router() -> None:
    split = {
        "prefill_instances": 2,
        "decode_instances": 2,
        "prefill_routing": "least-loaded",
        "decode_routing": {"kind": "power-of-two", "choices": 1},
    }
    made = {"cluster.instances": 4, "cluster.disaggregation": split, "workload.requests": 5}
    debugger = Debugger(blis_tui.load("quickstart", set=made))
    run_to_stop(debugger.run())
    rules = {"least-loaded": "Least-loaded takes", "power-of-two": "Draws one instance."}
    for event in events_of(debugger, "routed"):
        routed = record_of(debugger, event, Routed)
        assert routed is not None
        text = told(debugger, event)
        assert [name for name, rule in rules.items() if rule in text] == [routed.policy]
        assert "Round-robin" not in text


def test_a_hold_says_who_waits() -> None:
    debugger = run("gateway")
    event = next(one for one in events_of(debugger, "held"))
    held = record_of(debugger, event, Held)
    assert held is not None
    assert f"into its queue (priority {held.priority})" in told(debugger, event)


def test_who_waits_in_the_gateway_is_told_how_full_the_instances_are() -> None:
    debugger = run("gateway")
    gateway = debugger.experiment.policy.gateway
    assert gateway is not None
    most = gateway.saturation.settings["max_concurrency"]
    assert isinstance(most, int)
    for event in (124, 165, 206, 247, 288):
        run_to_stop(debugger.seek(event))
        state = debugger.simulation.snapshot()
        assert state.gateway is not None
        there = sum(len(instance.running) + len(instance.waiting) for instance in state.instances)
        level = there / (most * len(state.instances))
        assert level > gateway.usage_limit
        text = " ".join(explain_request(debugger, state.gateway.upcoming).to_text().split())
        limit = f"saturation is {level:.2f}, the limit is {gateway.usage_limit:.2f}"
        assert f"By the latest signals {limit}: no request is dispatched until it falls below the limit." in text


def test_a_transfer_has_its_bytes_and_its_end_its_start() -> None:
    debugger = run("split")
    for start, end in zip(
        events_of(debugger, "transfer-started")[:20], events_of(debugger, "transfer-finished")[:20], strict=True
    ):
        record = record_of(debugger, start, TransferStarted)
        assert record is not None
        assert f"{bytes_text(record.bytes)} leave instance {record.instance}" in told(debugger, start)
        assert "They left at event " in told(debugger, end)
    event = events_of(debugger, "split")[0]
    assert "Disaggregation" in told(debugger, event)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("gateway", "held", "It waits in the gateway's queue"),
        ("put off", "deferred", "It is deferred until the cluster is idle"),
        ("split", "transfer-started", "Its KV blocks are on their way to another instance"),
    ],
)
def test_who_is_held_up_is_told_where(name: str, kind: str, words: str) -> None:
    debugger = run(name)
    tape = debugger.tape
    lives = ((one, tape.life(one)) for one in tape.names())
    # Held for longer than the event in which it came.
    request, at = next(
        (one, entry.event)
        for one, life in lives
        for entry, after in pairwise(life)
        if entry.what == kind and after.event > entry.event
    )
    run_to_stop(debugger.seek(at))
    explanation = explain_request(debugger, request)
    run_to_stop(debugger.seek(debugger.frontier))
    assert explanation.headline.startswith(words)
    assert f"event {at:,}" in explanation.to_text()


def test_the_whole_way_between_two_instances_is_told_as_it_is() -> None:
    """From the step that computes the prompt's end until the queue of the other instance."""
    debugger = run("split")
    told = set()
    for request in debugger.tape.names()[:20]:
        life = debugger.tape.life(request)
        begins = next((one.event for one in life if one.what == "transfer-started"), 0)
        step = next((one for one in life if one.what == "last-token"), None)
        if not begins or step is None:
            continue
        for event in range(step.event, begins + 40):
            run_to_stop(debugger.seek(event))
            live = debugger.request(request)
            if live is None or live.phase != "in-transit":
                break
            text = explain_request(debugger, request).to_text()
            assert "It has arrived but is not in a queue yet" not in text
            assert "is being tokenized" not in text
            told |= {line.strip().split(",")[0] for line in text.splitlines() if "the instance that decodes" in line}
            if event < begins and "The end of its prompt is being computed on" in text:
                assert f", until {time_text(step.first)}; its KV blocks leave then." in text
                told.add("computed")
    run_to_stop(debugger.seek(debugger.frontier))
    assert len(told) > 1


@pytest.mark.parametrize("name", ["split", "split early"])
def test_the_step_that_takes_a_prompt_from_elsewhere_computes_a_token_for_it(name: str) -> None:
    debugger = run(name)
    seen = 0
    for request in debugger.tape.names()[:30]:
        life = read_life(debugger.tape, request, debugger.frontier)
        assert life is not None
        handed = next((span for span in life.spans if span.handed and span.what == "decode"), None)
        if handed is None or life.preemptions:
            continue
        for event in range(handed.first, handed.first + 3):
            run_to_stop(debugger.seek(event))
            live = debugger.request(request)
            if live is not None and live.phase == "decode":
                assert "nothing to compute" not in explain_request(debugger, request).to_text()
                seen += live.generated_tokens > 1
    run_to_stop(debugger.seek(debugger.frontier))
    assert seen


@pytest.mark.parametrize("name", ["split", "split early"])
def test_a_split_life_has_a_transfer_and_two_instances(name: str) -> None:
    debugger = run(name)
    tape = debugger.tape
    handed = 0
    for request in tape.names():
        life = read_life(tape, request, debugger.frontier)
        assert life is not None
        started, arrived = life.last("transfer-started"), life.last("transfer-finished")
        if started is None or arrived is None or life.preemptions:
            continue
        handed += 1
        spans = {span.what: span for span in life.spans}
        assert spans["prefill"].instance != spans["decode"].instance
        assert spans["decode"].handed
        prefilled = max(spans["prefill"].end_us, started.time_us)
        if arrived.time_us > prefilled:
            assert (spans["transfer"].start_us, spans["transfer"].end_us) == (prefilled, arrived.time_us)
    assert handed > 20


def test_time_in_the_gateway_is_that_of_its_records() -> None:
    debugger = run("gateway")
    dispatched = 0
    for request in debugger.tape.names():
        life = read_life(debugger.tape, request, debugger.frontier)
        assert life is not None
        sent = life.last("dispatched")
        if sent is not None:
            dispatched += 1
            waited = sum(span.duration_us for span in life.spans if span.what == "gateway")
            assert waited == sent.first
    assert dispatched > 20


def test_a_prompt_that_waits_for_room_where_its_answer_is_generated_is_told_so() -> None:
    sglang = {"kind": "sglang", "num_reserved_decode_tokens": 64}
    pools = [{"name": "p", "role": "prefill", "instances": 1}, {"name": "d", "role": "decode", "instances": 1}]
    cluster = {
        "disaggregation": {"order": "decode-first"},
        "pools": [pools[0], {**pools[1], "engine": {"kv_blocks": 20_000, "max_num_seqs": 4}}],
    }
    more = {"policy.batching": sglang, "cluster": cluster, "workload.requests": 60, "expect": []}
    debugger = Debugger(blis_tui.load("disaggregation", set=more))
    run_to_stop(debugger.run())
    run_to_stop(debugger.seek(700))
    waiting = debugger.simulation.snapshot().in_transit[-1].request_id
    text = explain_request(debugger, waiting).to_text()
    assert "There is no room yet for its prompt on instance 1, which will generate its answer, since" in text
    assert re.search(r"Free there: [\d,]+ KV blocks", text)
