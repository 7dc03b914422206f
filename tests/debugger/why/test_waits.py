"""What kept a request waiting is what the engine's own state says it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.debugger.recorder import Recorder
from blis_tui.debugger.tape import Tape
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.debugger.why.waits import CAUSES, cause_sentence, cause_text, planned_cause, step_cause, wait_lines
from tests.builders import profiles
from tests.debugger.pressed_runs import RUNS, experiment, finished

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.rows import EventRow, StepRow
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.batching.rule import BatchRule
    from blis_tui.engine.plan import Plan
    from blis_tui.spec.model import Engine


class Spy:
    """A batching rule that notes, right after it has planned a step, what stopped the admissions."""

    def __init__(self, rule: BatchRule) -> None:
        self.rule = rule
        self.traits = rule.traits
        self.holding: set[str] = set()

    def plan(self, batch: Batch) -> Plan:
        plan = self.rule.plan(batch)
        self.holding = set()
        decodes = batch.load.decode_requests if plan.decodes else 0
        spent = decodes + sum(chunk.new for chunk in plan.chunks)
        there = len(batch.running) + len(batch.ending)
        if self.traits.limits_each_step:
            there = decodes + len(plan.chunks)
        if self.traits.prefills_apart and decodes:
            there = spent = 0  # it decodes because no prompt fits
        if plan.preempted:
            self.holding.add("preempted")
        if there == batch.limits.max_num_seqs:
            self.holding.add("seqs")
        if spent == batch.limits.max_num_batched_tokens:
            self.holding.add("tokens")
        if batch.waiting.items:
            head = batch.waiting.head()
            refused = batch.refused
            whose = refused[0] if refused is not None and self.traits.overtakes else head.index
            if refused is not None and refused[:2] == (whose, batch.pool.epoch):
                self.holding.add("blocks")
            left = batch.limits.max_num_batched_tokens - spent
            if not self.holding and head.target_tokens > left:
                self.holding.add("whole")
        return plan

    def max_running(self, engine: Engine) -> int:
        return self.rule.max_running(engine)

    def prefill_threshold(self, engine: Engine) -> int:
        return self.rule.prefill_threshold(engine)

    def state(self) -> tuple[object, ...]:
        return self.rule.state()


def classify(made: blis_tui.Experiment) -> dict[str, int]:
    """Run an experiment, and compare each step's cause with the engine's state; returns how often each occurred."""
    simulation = blis_tui.Simulation(made)
    instances = simulation._cluster.instances
    spies = []
    for instance in instances:
        spy = Spy(instance.steps.rule)
        instance.steps.rule = spy
        spies.append(spy)
    tape = Tape([instance.profile for instance in instances])
    Recorder(tape).listen(simulation)
    profile = instances[0].profile
    found: dict[str, int] = {}
    started: dict[int, tuple[EventRow, StepRow, set[str]]] = {}
    while True:
        for spy in spies:
            spy.holding = {"seqs"}  # a plain decode is not planned: nobody could have been let in
        if simulation.step() is None:
            return found
        row = tape.row(len(tape))
        if row.step < 0:
            continue
        step, holding = tape.step(row.step), spies[row.instance].holding
        if tape.plans_ahead:
            # The plan made when a step starts is known when the next one does.
            before = started.pop(row.instance, None)
            if instances[row.instance].batch.waiting.items:
                started[row.instance] = (row, step, holding)
            if before is None:
                continue
            row, earlier, holding = before
            cause = planned_cause(row.event, earlier, step, profile)
        elif step.waiting:
            cause = step_cause(step, profile)
        else:
            continue
        found[cause] = found.get(cause, 0) + 1
        if cause == "room":
            assert holding & {"blocks", "whole"}, (row, holding)
        else:
            assert cause in holding, (row, cause, holding)
        first = next(name for name in ("preempted", "seqs", "tokens", "blocks", "whole") if name in holding)
        assert first == cause or (cause == "room" and first in ("blocks", "whole"))


@pytest.mark.parametrize("name", RUNS)
def test_causes_are_the_engines(name: str) -> None:
    classify(experiment(name))


def test_every_cause_occurs() -> None:
    found: set[str] = set()
    for name in ("kv-pressure", "small budget", "small batch", "whole prompts"):
        found |= set(classify(experiment(name)))
    assert found == set(CAUSES) - {"step", "planned", "adapter"}


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    seqs=st.integers(2, 40),
    budget=st.integers(8, 600),
    blocks=st.integers(110, 400),
    threshold=st.sampled_from([0, 50]),
    vllm=st.booleans(),
    rate=st.sampled_from([8, 30, 100]),
)
def test_causes_are_the_engines_for_any_limits(
    seqs: int, budget: int, blocks: int, threshold: int, vllm: bool, rate: int
) -> None:
    made = blis_tui.load(
        "kv-pressure",
        set={
            "workload.requests": 25,
            "workload.rate_per_s": rate,
            "engine.max_num_seqs": seqs,
            "engine.max_num_batched_tokens": budget,
            "engine.kv_blocks": blocks,
            "engine.long_prefill_token_threshold": threshold,
            "policy.batching": {"kind": "vllm-v1" if vllm else "blis"},
        },
    )
    classify(made)


def test_texts_have_the_limits() -> None:
    profile = profiles(experiment("small batch"))[0]
    assert cause_text("seqs", profile) == "batch full (6)"
    assert "(max_num_batched_tokens)" in cause_sentence("tokens", profile)
    for cause in CAUSES:
        assert cause_text(cause, profile)
        assert cause_sentence(cause, profile).endswith(".")


def told(debugger: Debugger, name: str, until: int) -> Mapping[int, str]:
    life = read_life(debugger.tape, name, until)
    assert life is not None
    return wait_lines(debugger.tape, life)


def test_wait_lines() -> None:
    debugger = finished("small batch")
    tape = debugger.tape
    name = tape.name(40)
    life = tape.life(name)
    queued = next(one.event for one in life if one.what == "queued")
    scheduled = next(one.event for one in life if one.what == "scheduled")
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
        preempted = [one.event for one in life if one.what == "preempted"]
        lines = told(debugger, name, debugger.frontier)
        assert set(preempted) <= set(lines)
