"""What is told of requests whose instance went: every figure is one of the records, and the shares still add up."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

import blis_tui
from blis_tui.base.units import bytes_text, span_text
from blis_tui.cluster.records import Lost, Retried, TransferBrokenOff, TransferStarted
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.breakdown import e2e_breakdown, ttft_breakdown
from blis_tui.debugger.why.explain import explain_event, explain_request
from blis_tui.debugger.why.explanation import sentence_text
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.engine.records import Dropped, FirstToken, Preempted, Record, Rejected, Routed, TimedOut
from blis_tui.tui.drawing.life_line import life_intervals
from tests.results.clusters import document, simulated

SLOW_LINK = {"bandwidth_gb_per_s": 4, "contention": "fair-share"}
DOCUMENTS = {
    "split": document(
        {
            "disaggregation": {
                "prefill_instances": 2,
                "decode_instances": 2,
                "decider": "always",
                "order": "decode-first",
                "transfer": SLOW_LINK,
            },
            "failures": [
                {"instance": 0, "at_us": 300_000, "repair_us": 200_000},
                {"instance": 2, "at_us": 1_200_000, "requests": "lose"},
            ],
        },
        {},
        workload={
            "requests": 40,
            "rate_per_s": 20,
            "clients": [{"id": "all", "input_tokens": 2000, "output_tokens": 20}],
        },
    ),
    "whole": document({"failures": [{"mean_time_between_us": 2_000_000, "repair_us": 300_000}]}, {}),
    "vllm": document(
        {"failures": [{"mean_time_between_us": 2_000_000, "repair_us": 300_000}]}, {"batching": "vllm-v1"}
    ),
}


@cache
def records(name: str) -> tuple[Record, ...]:
    return simulated(blis_tui.load(DOCUMENTS[name]))[1]


@cache
def run(name: str) -> Debugger:
    debugger = Debugger(blis_tui.load(DOCUMENTS[name]))
    run_to_stop(debugger.run())
    return debugger


def test_every_transfer_that_breaks_off_is_told() -> None:
    """In whatever event: how much was on its way, since when, whose fault it is, and what becomes of the request."""
    stream = records("split")
    fates = {(record.event, record.request_id): record for record in stream if isinstance(record, Retried | Lost)}
    told = set()
    for at, record in enumerate(stream):
        if not isinstance(record, TransferBrokenOff):
            continue
        text = explain_event(run("split"), record.event).to_text()
        line = next(line for line in text.splitlines() if f" {record.request_id} w" in line)
        way = [each for each in stream[:at] if getattr(each, "request_id", "") == record.request_id]
        began = next((each for each in reversed(way) if isinstance(each, TransferStarted | Routed)), None)
        if isinstance(began, TransferStarted):
            assert line.startswith(f"  {bytes_text(began.bytes)} of {record.request_id} were on their way")
            assert (
                f"from instance {began.instance} to instance {began.decode_instance}, since event {began.event:,}"
                in line
            )
            assert f"({span_text(record.time_us - began.time_us)})" in line
            assert ("it came from" in line, "it went to" in line) == (record.instance == 0, record.instance == 2)
        else:
            assert f"computed in the last step of instance {record.instance}" in line
        fate = fates[record.event, record.request_id]
        end = "starts again, prefill included." if isinstance(fate, Retried) else f"is lost: {fate.reason}."
        assert line.endswith(f"The request {end}")
        told.add((began is None or isinstance(began, Routed), type(fate)))
    assert told == {(False, Retried), (True, Retried), (False, Lost)}


def test_a_transfer_that_never_began_has_an_event_of_its_own() -> None:
    own = [record for record in records("split") if run("split").tape.row(record.event).kind == "transfer-broken-off"]
    transfer = next(each for each in own if isinstance(each, TransferBrokenOff))
    text = explain_event(run("split"), transfer.event).to_text()
    assert f"The KV blocks of {transfer.request_id} do not arrive: its prefill instance has gone." in text


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_shares_of_who_started_again_add_up(name: str) -> None:
    debugger = run(name)
    tape = debugger.tape
    again = dict.fromkeys(record.request_id for record in records(name) if isinstance(record, Retried))
    seen = 0
    for request in again:
        life = read_life(tape, request, debugger.event)
        assert life is not None
        restarts = [record for record in records(name) if isinstance(record, Retried) and record.request_id == request]
        assert [restart.event for restart in life.restarts] == [restart.event for restart in restarts]
        for breakdown in (ttft_breakdown(life, tape), e2e_breakdown(life, tape)):
            if breakdown is None:
                continue
            seen += 1
            assert sum(share.us for share in breakdown.shares) == breakdown.total_us
            gone = breakdown.us("gone")
            assert gone == sum(span.duration_us for span in life.spans if span.gone)
            assert gone <= restarts[-1].time_us - life.arrival_us
            own = [share for share in breakdown.shares if share.kind == "prefill"]
            assert all(str(f"{life.input_tokens:,} token") in share.note for share in own)
        assert all(
            interval.lost
            for interval in life_intervals(life, tape)
            if interval.end_us <= restarts[0].time_us and interval.what != "routing"
        )
    assert seen > 5


def test_why_it_started_again() -> None:
    one = next(each for each in records("split") if isinstance(each, Retried))
    text = explain_request(run("split"), one.request_id).to_text()
    assert "It had a first token before, which was lost with its instance; the last one counts." in text
    assert "failed attempts" in text
    assert f"Why it started again after {span_text(one.time_us - _arrival_us(one.request_id))}" in text
    assert f"At event {one.event:,} it had to leave instance {one.instance}." in text
    assert f"That instance had failed, as planned, at event {one.event:,}." in text
    assert "prompts of request_0" not in text


def test_how_a_lost_request_ended_tells_of_nobody_else() -> None:
    lost = next(each for each in records("split") if isinstance(each, Lost))
    others = [each.request_id for each in records("split") if isinstance(each, Lost) and each is not lost]
    text = explain_request(run("split"), lost.request_id).to_text()
    assert others
    assert not any(f"{other} " in text for other in others)
    part = next(each for each in explain_request(run("split"), lost.request_id).parts if each.heading == "How it ended")
    begins = [sentence_text(sentence) for sentence in part.sentences]
    assert all(each[0].isupper() or each.startswith(lost.request_id) for each in begins), begins


def test_before_its_second_first_token_it_has_none() -> None:
    one = next(each for each in records("split") if isinstance(each, Retried))
    debugger = Debugger(blis_tui.load(DOCUMENTS["split"]))
    run_to_stop(debugger.seek(one.event + 1))
    text = explain_request(debugger, one.request_id).to_text()
    assert f"It has no first token now: it was lost with its instance at event {one.event:,}." in text
    assert "started again once" in text


@pytest.mark.parametrize("name", ["split", "whole"])
def test_first_tokens_that_are_lost_with_an_instance_do_not_count(name: str) -> None:
    """The latest first tokens, of which percentiles are shown, are those that requests have at that moment."""
    debugger = run(name)
    known: dict[str, int] = {}
    lost = 0
    stream = records(name)
    for record, after in pairwise((*stream, None)):
        if isinstance(record, FirstToken):
            known[record.request_id] = record.ttft_us
        elif isinstance(record, Retried):
            lost += known.pop(record.request_id, None) is not None
        elif isinstance(record, Preempted) and not debugger.tape.keeps_output:
            known.pop(record.request_id, None)
        if record is not None and (after is None or after.event > record.event):
            assert sorted(debugger.tape.latencies.ttfts_us(record.event, len(stream))) == sorted(known.values())
    assert lost


def test_requests_that_are_lost_with_an_instance_are_losses_of_that_time() -> None:
    tape = run("split").tape
    lost = {
        record.event: None for record in records("split") if isinstance(record, Lost | TimedOut | Rejected | Dropped)
    }
    assert any(tape.kind(event) == "instance-stopped" for event in lost)
    for event in range(1, len(tape) + 1):
        assert bool(tape.between(event, event).losses) == (event in lost)


def _arrival_us(request: str) -> int:
    return next(record.time_us for record in records("split") if getattr(record, "request_id", "") == request)
