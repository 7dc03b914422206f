"""The shares of a latency add up to it, to the microsecond, for every request."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import pytest

import blis_tui
from blis_tui.base.units import span_text
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.breakdown import (
    DECODES,
    Breakdown,
    decode_lines,
    e2e_breakdown,
    prefill_of_others,
    so_far_breakdown,
    ttft_breakdown,
)
from blis_tui.debugger.why.explain import explain_event, explain_request
from blis_tui.debugger.why.lifespans import RequestLife, read_life
from blis_tui.engine.records import StepFinished
from tests.debugger.pressed_runs import RUNS, finished
from tests.nightly import every


def stalled_in(debugger: Debugger, event: int) -> tuple[str, ...]:
    return next(record.stalled for record in debugger.records_of(event) if isinstance(record, StepFinished))


def lives(debugger: Debugger, until: int) -> list[RequestLife]:
    request_lives = [read_life(debugger.tape, name, until) for name in debugger.tape.names()]
    return [life for life in request_lives if life is not None]


def check(breakdown: Breakdown) -> None:
    assert sum(share.us for share in breakdown.shares) == breakdown.total_us
    for share in breakdown.shares:
        assert share.us > 0
        if share.inner:
            assert sum(inner.us for inner in share.inner) == share.us
            assert all(inner.us > 0 for inner in share.inner)


@pytest.mark.parametrize("name", every(2, RUNS))
def test_shares_add_up_to_what_the_client_measures(name: str) -> None:
    debugger = finished(name)
    seen = 0
    for life in lives(debugger, debugger.frontier):
        first = ttft_breakdown(life, debugger.tape)
        whole = e2e_breakdown(life, debugger.tape)
        last = life.first_token
        assert (first is None) == (last is None)
        if first is not None and last is not None:
            check(first)
            assert first.total_us == last.second
        end = life.end
        assert end is not None
        assert (whole is None) == (end.what != "completed")
        if whole is not None:
            check(whole)
            assert whole.total_us == end.second
            seen += 1
        else:
            check(so_far_breakdown(life, debugger.tape))
    assert seen > 10


ALONE = [
    {
        "id": "chat",
        "input_tokens": {"kind": "constant", "value": 400},
        "output_tokens": {"kind": "constant", "value": 3},
    }
]
OVERLAPPING: dict[str, dict[str, object]] = {
    "a step begins while the last tokens of all who ran are computed": {
        "workload.clients": ALONE,
        "workload.rate_per_s": 60,
    },
    "batches planned when the first stage is free": {
        "policy.batching": "llm-serving-sim",
        "engine.pipeline_parallel": 2,
        "engine.max_num_seqs": 6,
        "workload.requests": 40,
    },
    "a queue of batches": {"policy.batching": "vllm-v1", "engine.pipeline_parallel": 4, "workload.requests": 40},
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_shares_add_up_where_steps_overlap(name: str) -> None:
    """No time counts twice: a step is no part of a decode because it is under way meanwhile."""
    debugger = Debugger(blis_tui.load("kv-pressure", set=OVERLAPPING[name]))
    run_to_stop(debugger.run())
    tape = debugger.tape
    rows = [tape.row(event) for event in range(1, len(tape) + 1) if tape.is_step(event)]
    ends = [row.time_us + tape.step(row.step).duration_us for row in rows]
    assert any(later.time_us < end for later, end in zip(rows[1:], ends, strict=False))
    for life in lives(debugger, debugger.frontier):
        whole, first = e2e_breakdown(life, tape), ttft_breakdown(life, tape)
        assert whole is not None
        assert first is not None
        check(whole)
        check(first)
        if tape.profiles[0].traits.pipelined:
            assert whole.us("pipeline") == whole.us("decode")
            assert not decode_lines(tape, life)
            assert not prefill_of_others(life, tape)


@pytest.mark.parametrize(
    "name", ["kv-pressure", "time-outs in vllm", "three instances", "gateway", "split", "split early", "put off"]
)
def test_spans_lie_end_to_end_wherever_one_looks(name: str) -> None:
    debugger = finished(name)
    for until in range(1, debugger.frontier, 997):
        for life in lives(debugger, until):
            if not life.spans:
                continue
            assert life.spans[0].start_us == life.arrival_us
            for span, next_ in pairwise(life.spans):
                assert span.end_us == next_.start_us
            assert not any(span.open for span in life.spans[:-1])
            check(so_far_breakdown(life, debugger.tape))


@pytest.mark.parametrize("name", ["kv-pressure", "vllm-preemption", "small budget", "time-outs", "time-outs in vllm"])
def test_spans_are_the_phases_of_the_engine(name: str) -> None:
    """What a life says a request does is what a snapshot of the engine says at that moment."""
    debugger = finished(name)
    compared = 0
    for event in range(20, debugger.frontier, 173):
        run_to_stop(debugger.seek(event))
        for instance in debugger.simulation.snapshot().instances:
            for live in (*instance.waiting, *instance.running):
                life = read_life(debugger.tape, live.request_id, event)
                assert life is not None
                last = life.spans[-1] if life.spans else None
                if last is None or not last.open:
                    continue  # its present stretch begins where the step at hand ends
                expected = {"waiting": ("wait",), "prefill": ("planned", "prefill")}.get(live.phase, ("decode",))
                assert last.what in expected, (event, live)
                assert last.attempt == live.preemptions
                compared += 1
    assert compared > 100


def test_what_preemption_costs() -> None:
    """With recompute the output is generated again; where output is kept, only the cache is computed again."""
    for name, kinds, others in (
        ("kv-pressure", {"lost", "again"}, {"recompute"}),
        ("vllm-preemption", {"again", "recompute"}, {"lost"}),
    ):
        debugger = finished(name)
        preempted = [life for life in lives(debugger, debugger.frontier) if life.preemptions]
        assert preempted
        for life in preempted:
            whole = e2e_breakdown(life, debugger.tape)
            assert whole is not None
            found = {share.kind for share in whole.shares}
            assert "again" in found
            assert not found & others
            # A request that is preempted before its first step ends has lost nothing yet.
            assert found & kinds


def test_decode_steps_are_the_tokens() -> None:
    """In a run without preemptions a decode has as many steps with a token as tokens after the first."""
    debugger = finished("small batch")
    checked = 0
    for life in lives(debugger, debugger.frontier):
        whole = e2e_breakdown(life, debugger.tape)
        end = life.end
        if whole is None or end is None or life.preemptions or end.first < 2:
            continue
        decode = next(share for share in whole.shares if share.kind == "decode")
        steps = end.first - 1
        assert decode.note == f"{steps:,} step{'' if steps == 1 else 's'}, one token each"
        checked += 1
    assert checked > 10


def test_stalls_are_told_apart() -> None:
    """The time in which a decode got no token is the time of the steps that say so."""
    debugger = finished("priority victims")
    tape = debugger.tape
    steps = [event for event in range(1, debugger.frontier + 1) if tape.is_step(event)]
    busy = {event: stalled_in(debugger, event) for event in steps if tape.step(tape.row(event).step).stalled}
    assert busy
    told = expected = 0
    for life in lives(debugger, debugger.frontier):
        whole = e2e_breakdown(life, debugger.tape)
        assert whole is not None
        told += sum(one.us for share in whole.shares for one in share.inner if one.kind == "stalled")
        decode = life.spans[-1]
        assert decode.what == "decode"
        expected += sum(
            tape.step(tape.row(event).step).duration_us
            for event, names in busy.items()
            if life.name in names and decode.start_us <= tape.time_us(event) < decode.end_us
        )
    assert told == expected > 0


@pytest.mark.parametrize("name", ["priority victims", "small batch", "three instances"])
def test_decode_is_told_apart_by_what_else_its_steps_computed(name: str) -> None:
    """By the records of the steps alone: who decodes in them, and what prompts they compute besides."""
    debugger = finished(name)
    steps: list[StepFinished] = []
    simulation = blis_tui.Simulation(debugger.experiment)
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    times = [step.time_us for step in steps]
    checked = 0
    for life in lives(debugger, debugger.frontier):
        span = life.spans[-1]
        sums = {"decode-only": [0, 0], "beside-prefill": [0, 0], "stalled": [0, 0]}
        others: dict[str, int] = {}
        for step in steps[bisect_left(times, span.start_us) : bisect_left(times, span.end_us)]:
            if step.instance != life.instance:
                continue
            tokens = sum(chunk.new_tokens for chunk in step.chunks)
            kind = "stalled" if life.name in step.stalled else "beside-prefill" if tokens else "decode-only"
            sums[kind][0] += step.duration_us
            sums[kind][1] += tokens
            for chunk in step.chunks:
                others[chunk.request_id] = others.get(chunk.request_id, 0) + chunk.new_tokens
        whole = e2e_breakdown(life, debugger.tape)
        if whole is None or [one.what for one in life.spans].count("decode") != 1 or span.what != "decode":
            continue
        found = {kind: whole.us(kind) for kind in DECODES}
        assert found == {kind: us for kind, (us, _) in sums.items()}
        assert whole.tokens("beside-prefill") == sums["beside-prefill"][1]
        assert sum(found.values()) == whole.us("decode")
        assert dict(prefill_of_others(life, debugger.tape)) == others
        checked += 1
    assert checked > 10


def test_what_held_decoding_up_is_told_where_it_is_much() -> None:
    debugger = finished("small batch")
    told = 0
    for life in lives(debugger, debugger.frontier):
        whole = e2e_breakdown(life, debugger.tape)
        decodes = [span for span in life.spans if span.what == "decode"]
        lines = decode_lines(debugger.tape, life)
        if whole is None or len(decodes) != 1:
            continue
        much = whole.us("beside-prefill") * 10 >= decodes[0].duration_us
        assert set(lines) == ({decodes[0].first} if much or whole.us("stalled") else set())
        if much:
            assert lines[decodes[0].first].startswith(f"{span_text(whole.us('beside-prefill'))} in steps with prefill")
            told += 1
    assert told


def test_a_decode_with_drafts_gets_at_least_a_token_in_each_step() -> None:
    drafts = {"engine.speculative": {"draft_tokens": 3, "acceptance": 0.5, "method": "eagle"}, "workload.requests": 20}
    debugger = Debugger(blis_tui.load("quickstart", set={"policy": "vllm-v1", **drafts}))
    run_to_stop(debugger.run())
    life = read_life(debugger.tape, "request_3", debugger.event)
    assert life is not None
    whole = e2e_breakdown(life, debugger.tape)
    assert whole is not None
    (decode,) = [share for share in whole.shares if share.kind == "decode"]
    assert decode.note.endswith(", at least one token each")
    assert int(decode.note.split()[0]) < debugger.report().rows[3].output_tokens - 1


def test_drafted_tokens_are_told_beside_those_of_a_step() -> None:
    drafts = {"engine.speculative": {"draft_tokens": 3, "acceptance": 0.5, "method": "eagle"}, "workload.requests": 20}
    debugger = Debugger(blis_tui.load("quickstart", set={"policy": "vllm-v1", **drafts}))
    run_to_stop(debugger.run())
    event = debugger.frontier // 2
    while not debugger.tape.is_step(event) or debugger.tape.step(debugger.tape.row(event).step).prefill_tokens:
        event += 1
    served = debugger.tape.step(debugger.tape.row(event).step).decode_requests
    head = explain_event(debugger, event).headline
    assert f"computed {served} tokens and {3 * served} drafted ones for {served} requests" in head


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine.speculative": {"draft_tokens": 3, "acceptance": 0.5, "method": "eagle"}}, "each step adds one to 4."),
        ({"engine.pipeline_parallel": 2}, "each of its passes through the pipeline adds one."),
        ({}, "each step adds one."),
    ],
)
def test_what_a_step_adds_to_a_decode_is_told_for_its_kind_of_steps(changes: dict[str, object], said: str) -> None:
    debugger = Debugger(blis_tui.load("quickstart", set={"policy": "vllm-v1", "workload.requests": 20, **changes}))
    run_to_stop(debugger.run(until_us=3_000_000))
    texts = [explain_request(debugger, f"request_{number}").to_text() for number in range(6)]
    assert any(said in text for text in texts), texts
