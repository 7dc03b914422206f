"""What kept a request waiting is what the batching rule said, and that is what kept it waiting."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import SimulationError
from blis_tui.base.units import plural
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.event_store import StepRow, StopRow
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.state import LAST_PHASE
from blis_tui.debugger.why.breakdown import (
    CAUSES,
    cause_sentence,
    cause_text,
    e2e_breakdown,
    so_far_breakdown,
    wait_causes,
    wait_lines,
)
from blis_tui.debugger.why.explain import explain_event, explain_request
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.engine import stopped
from blis_tui.engine.records import Preempted, Queued, Scheduled, StepFinished
from blis_tui.engine.rules.tensorrt_llm import TensorRtLlmBatching
from blis_tui.engine.rules.vllm import VllmWithCadence
from blis_tui.engine.sglang.rule import SglangBatching
from blis_tui.engine.stopped import SchedulingStopped
from blis_tui.spec.authoring.explain import look_up
from tests.builders import profiles
from tests.cluster.fleets import SPLIT
from tests.debugger.pressed_runs import RUNS, experiment, finished

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.plan import Plan

SHORT: dict[str, object] = {"engine.max_model_len": 2048, "workload.requests": 60}
MORE: dict[str, tuple[str, dict[str, object]]] = {
    "photos": ("photos", {"workload.requests": 60, "expect": []}),
    "sglang": ("kv-pressure", {"policy.batching": "sglang", "engine.max_num_seqs": 40}),
    "sglang, few places": (
        "kv-pressure",
        {"policy.batching": {"kind": "sglang", "chunked_prefill_size": 64}, "engine.max_num_seqs": 6},
    ),
    "sglang, whole prompts": (
        "kv-pressure",
        {
            "policy.batching": {"kind": "sglang", "chunked_prefill_size": "none", "max_prefill_tokens": 256},
            "workload.rate_per_s": 200,
        },
    ),
    "sglang, late looks": (
        "kv-pressure",
        {"policy.batching": {"kind": "sglang", "overlap_schedule": False, "scheduler_recv_interval": 4}},
    ),
    "sglang, by priority": (
        "kv-pressure",
        {
            "policy.batching": {
                "kind": "sglang",
                "enable_priority_scheduling": True,
                "priority_scheduling_preemption_threshold": 0,
            },
            "policy.priority": "inverted-slo",
            "engine.max_num_seqs": 12,
        },
    ),
    "whole answers": ("kv-pressure", {"policy.batching": "tensorrt-llm"}),
    "prompts gather": (
        "kv-pressure",
        {
            "policy.batching": {
                "kind": "tensorrt-llm",
                "disable_overlap_scheduler": True,
                "batch_wait_timeout_iters": 5,
                "batch_wait_max_tokens_ratio": 0.9,
            },
            "engine.kv_blocks": 4000,
        },
    ),
    "prompts pause": (
        "kv-pressure",
        {
            "policy.batching": {"kind": "vllm-v1", "version": "0.33", "prefill_schedule_interval": 9},
            "engine.kv_blocks": 4000,
        },
    ),
    "one at a time": ("kv-pressure", {"policy.batching": {"kind": "vllm-v1", "async_scheduling": False}}),
    "watermark": ("kv-pressure", {"policy.batching": {"kind": "vllm-v1", "async_scheduling": False, "watermark": 0.1}}),
    "pipeline": ("kv-pressure", {"policy.batching": "vllm-v1", "engine.pipeline_parallel": 4, "engine.kv_blocks": 300}),
    "pipeline in one pass": (
        "kv-pressure",
        {"policy.batching": "llm-serving-sim", "engine.pipeline_parallel": 2, "engine.max_num_seqs": 6},
    ),
    "adapters": ("lora-adapters", {"workload.requests": 60, "workload.rate_per_s": 50, "policy.batching": "blis"}),
    "adapters in steps": (
        "lora-adapters",
        {"workload.requests": 60, "workload.rate_per_s": 100, "engine.lora.max_loras": 2},
    ),
    "split, prompts first": ("quickstart", {**SPLIT, "policy.batching": "nano", **SHORT}),
}
AMOUNTS = (stopped.BLOCKS, stopped.WATERMARK, stopped.ANSWERS, stopped.CADENCE)
PLENTY = 10**6
INEXACT = ("one pass", "first chunk only")
"""With more blocks, who runs takes some of them; or more is still cached, and the first chunk lies behind that."""
LONG = ("admission", "trace", "put off", "shortest first", "classes", "gateway")


def made(name: str) -> blis_tui.Experiment:
    if name in RUNS:
        return experiment(name)
    shipped, changed = MORE[name]
    return blis_tui.load(shipped, set={**(SHORT if shipped == "kv-pressure" else {}), **changed})


def stops(run: blis_tui.Experiment) -> list[SchedulingStopped]:
    """All that its rules say; no plan leaves anybody waiting without a word."""
    simulation = blis_tui.Simulation(run)
    for instance in simulation._cluster.instances:
        listen(instance)
    told: list[SchedulingStopped] = []
    simulation.subscribe(SchedulingStopped, told.append)
    simulation.run()
    return told


def listen(instance: Instance) -> None:
    """Look at every plan of an instance."""
    rule = instance.steps.rule
    form = rule.plan

    def plan(batch: Batch) -> Plan:
        formed = form(batch)
        assert formed.stopped is not None or not batch.waiting.items
        return formed

    rule.plan = plan  # type: ignore[method-assign]


@cache
def stops_of(name: str) -> list[SchedulingStopped]:
    """Those of a run."""
    return stops(made(name))


# ---- the cause that is stated is the cause ----


def raise_limit(instance: Instance, cause: str, by: int, now: int) -> None:
    """Give an instance more of just what its rule says was short."""
    batch, rule = instance.batch, instance.steps.rule
    batch.refused = None  # what did not fit before is tried again
    if isinstance(rule, SglangBatching):
        rule.full = False
    if cause in (stopped.MAX_NUM_SEQS, stopped.OUTRANKED):
        batch.limits = replace(batch.limits, max_num_seqs=batch.limits.max_num_seqs + by)
        batch.max_running += by
    elif isinstance(rule, VllmWithCadence) and cause == stopped.CADENCE:
        rule._since += by
    elif cause in (*AMOUNTS, stopped.ROOM, stopped.PREEMPTED):
        batch.pool.free += by
        if hasattr(batch.pool, "blank"):
            batch.pool.blank += by
    elif isinstance(rule, SglangBatching):
        key = "chunked_prefill_size" if cause == stopped.TOKENS else "max_prefill_tokens"
        rule._settings = replace(rule._settings, **{key: PLENTY})  # type: ignore[arg-type]
        rule._received_us = now
    elif cause == stopped.TOKENS:
        batch.limits = replace(batch.limits, max_num_batched_tokens=batch.limits.max_num_batched_tokens + PLENTY)
    elif isinstance(rule, TensorRtLlmBatching):
        rule._waited = rule._longest_wait


def played(at: bytes, run: blis_tui.Experiment, stop: SchedulingStopped, by: int) -> tuple[set[str], list[str]]:
    """Who is scheduled in a stop's event if so much more is there of what was short, and the causes stated then."""
    simulation = blis_tui.Simulation(run)
    simulation.restore(at)
    scheduled: list[Scheduled] = []
    told: list[SchedulingStopped] = []
    simulation.subscribe(Scheduled, scheduled.append)
    simulation.subscribe(SchedulingStopped, told.append)
    instance = simulation._cluster.instances[stop.instance]
    if by:
        raise_limit(instance, stop.cause, by, stop.time_us)
    simulation.step()
    return {one.request_id for one in scheduled}, [one.cause for one in told if one.step == stop.step]


def sample(told: list[SchedulingStopped], most: int) -> dict[int, SchedulingStopped]:
    """Some stops of every cause, by their event."""
    by_cause: dict[str, list[SchedulingStopped]] = {}
    for one in told:
        by_cause.setdefault(one.cause, []).append(one)
    return {one.event: one for found in by_cause.values() for one in found[:: max(1, len(found) // most)]}


@pytest.mark.parametrize(
    "name",
    [
        *("kv-pressure", "vllm-preemption", "small budget", "small batch", "whole prompts", "first chunk only"),
        *("prompts first", "one pass"),
        *(name for name in MORE if not name.startswith(("adapters", "photos", "pipeline", "split"))),
    ],
)
def test_with_more_of_what_was_short_somebody_gets_in(name: str) -> None:
    """In a replay with just that limit raised, the rule schedules somebody more there, or is stopped by another one."""
    run = made(name)
    found = sample(stops_of(name), 4)
    simulation = blis_tui.Simulation(run)
    got_in: Counter[str] = Counter()
    for event, stop in sorted(found.items()):
        while simulation.events < event - 1:
            simulation.step()
        at = simulation.checkpoint()
        before, causes = played(at, run, stop, 0)
        assert stop.cause in causes
        fresh = stop.tried_us == stop.time_us
        lacks = stop.need - stop.had
        if stop.need:
            assert lacks > 0
        exact = fresh and stop.cause in AMOUNTS and name not in INEXACT
        after, causes = played(at, run, stop, lacks if exact else 1 if stop.cause == stopped.MAX_NUM_SEQS else PLENTY)
        got_in[stop.cause] += bool(after - before)
        if exact:
            assert stop.request_id in after - before
            less, causes = played(at, run, stop, lacks - 1)
            assert stop.request_id not in less
            assert set(causes) & set(AMOUNTS)
        else:
            assert after - before or stop.cause not in causes, stop
    assert set(got_in) == {one.cause for one in found.values()}
    del got_in[stopped.PREEMPTED], got_in[stopped.OUTRANKED]  # there may have been nobody but the victims
    assert all(got_in.values()), got_in


@pytest.mark.parametrize("name", [*(name for name in RUNS if name not in LONG), *MORE])
def test_shipped_rules_always_say_why(name: str) -> None:
    told = stops_of(name)
    assert all(one.cause in stopped.CAUSES and one.tried_us <= one.time_us for one in told)


def test_every_cause_occurs() -> None:
    names: tuple[str, ...] = (
        "kv-pressure",
        "small budget",
        "small batch",
        "watermark",
        "adapters",
        "pipeline",
        "split, prompts first",
    )
    names += ("photos", "prompts gather", "prompts pause", "whole answers")
    names += tuple(name for name in MORE if name.startswith("sglang"))
    found = {stop.cause for name in names for stop in stops_of(name)}
    assert found == set(stopped.CAUSES)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    seqs=st.integers(2, 40),
    budget=st.integers(8, 600),
    blocks=st.integers(110, 400),
    threshold=st.sampled_from([0, 50]),
    rule=st.sampled_from(["blis", "vllm-v1", "sglang", "nano", "llm-serving-sim", "tensorrt-llm"]),
    rate=st.sampled_from([8, 30, 100]),
)
def test_shipped_rules_always_say_why_whatever_the_limits(
    seqs: int, budget: int, blocks: int, threshold: int, rule: str, rate: int
) -> None:
    whole = rule in ("nano", "tensorrt-llm")
    run = blis_tui.load(
        "kv-pressure",
        set={
            "workload.requests": 25,
            "workload.rate_per_s": rate,
            "engine.max_num_seqs": seqs,
            "engine.max_num_batched_tokens": budget + 1000 * whole,
            "engine.max_model_len": 1000,
            "engine.kv_blocks": blocks,
            "engine.long_prefill_token_threshold": 0 if whole or rule == "sglang" else threshold,
            "policy.batching": {"kind": rule},
        },
    )
    for stop in stops(run):
        assert stop.cause in stopped.CAUSES
        assert not stop.need or stop.had < stop.need
        assert stop.cause not in AMOUNTS or stop.need


# ---- a rule of somebody else's ----


PLUGIN = """from blis_tui.plugins import BATCHING, RunningFirst, Stopped

@BATCHING.plugin("two-at-a-time", "For tests.")
class TwoAtATime(RunningFirst):
    def __init__(self, settings):
        pass

    def admit_waiting(self, batch, plan, budget):
        while batch.waiting.items and len(batch.running) < 2:
            request = batch.waiting.head()
            tokens = min(request.target_tokens, budget)
            batch.admit(plan, request, 0, tokens)
            budget -= tokens
        if batch.waiting.items:
            plan.stopped = {}
"""


@pytest.mark.parametrize("says", ["", "the quota of its tenant", "seqs"])
def test_a_rule_that_comes_from_outside_is_quoted_or_said_not_to_say(tmp_path: Path, says: str) -> None:
    """Two run, tens of thousands of KV blocks are free, and only the rule knows why nobody else is let in."""
    file = tmp_path / "rule.py"
    file.write_text(PLUGIN.format(f'Stopped("{says}", 3, 2, batch.waiting.head())' if says else None))
    changes = {"workload.requests": 30, "workload.rate_per_s": 200, "policy.batching": "two-at-a-time"}
    debugger = Debugger(blis_tui.load("quickstart", set=changes, plugins=[file]))
    run_to_stop(debugger.run())
    tape = debugger.tape
    causes = Counter[str]()
    for name in tape.names():
        life = read_life(tape, name, debugger.frontier)
        assert life is not None
        for span in life.spans:
            if span.what == "wait":
                causes.update(wait_causes(tape, span, span.instance, life).us)
    assert set(causes) == {"step", says or "unsaid"}
    event = next(event for event in range(100, len(tape)) if tape.is_step(event))
    run_to_stop(debugger.seek(event))
    head = debugger.simulation.snapshot().instances[0].waiting[0].request_id
    text = " ".join(explain_request(debugger, head).to_text().split())
    assert "KV blocks of" not in text
    assert "max_num_seqs" not in text, "the limit is the rule's own"
    behind = debugger.simulation.snapshot().instances[0].waiting[1].request_id
    order = " ".join(explain_request(debugger, behind).to_text().split())
    assert "The order of the queue: first come, first served; the batching rule does not say" in order
    assert "before the queue head" not in order
    if says == "seqs":
        assert "the batching rule says that it had no room for another request (3 needed, 2 left)." in text
    elif says:
        assert "the batching rule says: the quota of its tenant (3 needed, 2 left)." in text
    else:
        assert "requests stayed in the queue; the batching rule does not say why." in text


def test_a_rule_that_says_something_else_is_told_what_it_said(tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    file.write_text(PLUGIN.format("'no more'"))
    changes = {"workload.requests": 30, "workload.rate_per_s": 200, "policy.batching": "two-at-a-time"}
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=changes, plugins=[file]))
    simulation.subscribe(stopped.SchedulingStopped, lambda _: None)
    with pytest.raises(SimulationError, match=r"plan\.stopped is 'no more', and not a Stopped") as caught:
        simulation.run()
    assert "two-at-a-time" in str(caught.value)


# ---- how it is told ----


def test_texts_have_the_limits() -> None:
    profile = profiles(experiment("small batch"))[0]
    full = StepRow(*[6] * len(StepRow._fields))
    assert cause_text("seqs", profile) == "batch full (6)"
    assert "(max_num_batched_tokens)" in cause_sentence(StopRow("tokens", -1, 1, 0, 0, 0), profile, full)
    for cause in CAUSES:
        assert cause_text(cause, profile) != cause
    told = [cause_sentence(StopRow(cause, -1, 7, 3, 2, 0), profile, full) for cause in stopped.CAUSES]
    told.append(cause_sentence(None, profile, full))
    assert all(one.endswith(".") and "  " not in one for one in told)
    assert len(set(told)) == len(told)
    assert not any(re.search("rule says", one) for one in told)


def test_a_cause_follows_from_a_key_that_there_is() -> None:
    keys = [cause.key for cause in stopped.CAUSES.values() if cause.key]
    assert [".".join(look_up(key)[1][0].path) for key in keys] == keys
    assert all(cause.advice for cause in stopped.CAUSES.values() if cause.key)


def told(debugger: Debugger, name: str, until: int) -> Mapping[int, str]:
    life = read_life(debugger.tape, name, until)
    assert life is not None
    return wait_lines(debugger.tape, life)


@pytest.mark.parametrize(
    ("batching", "name"),
    [
        ({"kind": "sglang", "chunked_prefill_size": 64}, "chunked_prefill_size"),
        ({"kind": "sglang", "chunked_prefill_size": "none"}, "max_prefill_tokens"),
        ({"kind": "vllm-v1"}, "max_num_batched_tokens"),
    ],
)
def test_a_budget_is_called_as_the_rule_calls_it(batching: dict[str, object], name: str) -> None:
    profile = profiles(blis_tui.load("kv-pressure", set={"policy.batching": batching}))[0]
    row = StepRow(*[0] * len(StepRow._fields))
    sentence = cause_sentence(StopRow(stopped.TOKENS, -1, 1, 0, 0, 0), profile, row)
    assert sentence == f"The step spent the token budget of {profile.limits.max_num_batched_tokens:,} ({name})."


def test_wait_lines() -> None:
    debugger = finished("small batch")
    tape = debugger.tape
    name = tape.name(40)
    life = tape.life(name)
    queued = next(event.event for event in life if event.what == "queued")
    scheduled = next(event.event for event in life if event.what == "scheduled")
    lines = told(debugger, name, debugger.frontier)
    assert list(lines) == [queued]
    assert lines[queued].startswith("waited ")
    assert "batch full (6)" in lines[queued]
    # Before it was let in it still waits; before it was queued it does not.
    assert told(debugger, name, scheduled - 1)[queued].startswith("waits ")
    assert told(debugger, name, queued - 1) == {}


def test_wait_lines_begin_again_with_a_preemption() -> None:
    debugger = finished("kv-pressure")
    for name in debugger.tape.names():
        life = debugger.tape.life(name)
        preempted = [event.event for event in life if event.what == "preempted"]
        lines = told(debugger, name, debugger.frontier)
        assert set(preempted) <= set(lines)


def spent_on(run: blis_tui.Experiment) -> dict[str, tuple[int, Counter[str]]]:
    """For each request, from the records alone: decodes and prompt tokens of steps whose budget was spent without it.

    Only waits in the queue count that ended with the request being scheduled.
    """
    simulation = blis_tui.Simulation(run)
    waits: dict[str, list[tuple[int, int, int]]] = {}
    begun: dict[str, int] = {}
    full: list[SchedulingStopped] = []
    steps: dict[tuple[int, int], StepFinished] = {}

    def ended(one: Scheduled) -> None:
        waits.setdefault(one.request_id, []).append((begun[one.request_id], one.event, one.instance))

    simulation.subscribe(Queued, lambda one: begun.update({one.request_id: one.event}))
    simulation.subscribe(Preempted, lambda one: begun.update({one.request_id: one.event}))
    simulation.subscribe(Scheduled, ended)
    simulation.subscribe(SchedulingStopped, full.append)
    simulation.subscribe(StepFinished, lambda one: steps.update({(one.instance, one.step): one}))
    simulation.run()
    found: dict[str, tuple[int, Counter[str]]] = {}
    for name, spans in waits.items():
        decodes, prompts = 0, Counter[str]()
        for stop in full:
            for since, until, instance in spans:
                if stop.cause == stopped.TOKENS and stop.instance == instance and since <= stop.event < until:
                    step = steps[instance, stop.step]
                    decodes += step.decode_requests
                    prompts.update({chunk.request_id: chunk.new_tokens for chunk in step.chunks})
        found[name] = decodes, prompts
    return found


@pytest.mark.parametrize("name", ["small budget", "first chunk only", "one pass", "classes", "put off"])
def test_a_spent_budget_is_said_to_have_gone_to_what_the_steps_computed(name: str) -> None:
    debugger = finished(name)
    run_to_stop(debugger.seek(debugger.frontier))
    tape, kept_out = debugger.tape, 0
    for request, (decodes, prompts) in spent_on(experiment(name)).items():
        life = read_life(tape, request, debugger.frontier)
        assert life is not None
        whole = e2e_breakdown(life, tape)
        if whole is None:
            continue
        shares = [share for share in whole.all if share.kind == stopped.TOKENS]
        assert sum(share.decodes for share in shares) == decodes, request
        told = Counter[str]()
        for share in shares:
            assert [tokens for _, tokens in share.prompts] == sorted(
                (prompt[1] for prompt in share.prompts), reverse=True
            )
            told.update(dict(share.prompts))
        assert told == prompts, request
        kept_out += bool(prompts)
        for share in shares[:1]:
            for who, tokens in share.prompts[:1]:
                assert f"prompts of {who} ({plural(tokens, 'token')})" in explain_request(debugger, request).to_text()
    assert kept_out


def test_a_spent_budget_is_not_said_to_have_gone_to_what_is_still_to_come() -> None:
    """At every moment of a wait, only what steps have computed by then counts."""
    debugger = finished("small budget")
    tape = debugger.tape
    name, (_, prompts) = max(spent_on(experiment("small budget")).items(), key=lambda one: one[1][1].total())
    seen = []
    for until in range(tape.life(name)[0].event, debugger.frontier, 7):
        life = read_life(tape, name, until)
        assert life is not None
        so_far = [share for share in so_far_breakdown(life, tape).all if share.kind == stopped.TOKENS]
        steps = [event for event in range(1, until + 1) if tape.is_step(event)]
        computed = sum(tape.step(tape.row(event).step).prefill_tokens for event in steps)
        seen.append(sum(tokens for share in so_far for _, tokens in share.prompts))
        assert seen[-1] <= computed
        if not life.settled or seen[-1] == prompts.total():
            break
    assert seen == sorted(seen)
    assert len([one for one in seen if one < prompts.total()]) > 0
    assert seen[-1] == prompts.total()


@pytest.mark.parametrize("phase", [0, LAST_PHASE])
def test_a_full_batch_is_said_to_be_full_whenever_its_plan_was_made(phase: int) -> None:
    """The plan of a step is made before those have left that end in the one before, and counts its own requests."""
    debugger = Debugger(blis_tui.load("fcfs", set={"workload.requests": 60, "engine.max_num_seqs": 8}))
    run_to_stop(debugger.run())
    full = 0
    for event in range(100, debugger.frontier, 5):
        if not debugger.tape.is_step(event):
            continue
        run_to_stop(debugger.seek(event))
        debugger._show_phase(phase)
        waiting = debugger.moment().state.instances[0].waiting
        if waiting:
            text = explain_request(debugger, waiting[0].request_id).to_text()
            assert "says that it had no room" not in text
            full += "8 requests were running, which is the limit (max_num_seqs 8)" in text
        assert "says that it had no room" not in explain_event(debugger, event).to_text()
    assert full > 20
