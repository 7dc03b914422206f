"""What is told of LoRA adapters: every figure is one of the run's records."""

from __future__ import annotations

import pytest

import blis_tui
from blis_tui.base.units import plural, span_text
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.breakdown import wait_causes
from blis_tui.debugger.why.explain import explain_request
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.engine.records import AdapterHeld, AdapterLoad, Preempted, Record, Scheduled
from blis_tui.engine.stopped import BLOCKS, SchedulingStopped

WAYS: dict[str, dict[str, object]] = {
    "blis": {"workload.rate_per_s": 50, "policy.batching": "blis"},
    "vllm-v1": {"workload.rate_per_s": 100, "engine.lora.max_loras": 2},
}


def runs(name: str) -> tuple[Debugger, list[Record]]:
    made = blis_tui.load("lora-adapters", set={"workload.requests": 60, **WAYS[name]})
    simulation, records = blis_tui.Simulation(made), list[Record]()
    for kind in (AdapterHeld, AdapterLoad, Scheduled, Preempted):
        simulation.subscribe(kind, records.append)
    simulation.run()
    debugger = Debugger(made)
    run_to_stop(debugger.run())
    return debugger, records


@pytest.mark.parametrize("name", WAYS)
def test_each_wait_and_each_load_is_told_once_and_as_it_was(name: str) -> None:
    debugger, records = runs(name)
    loads = holds = 0
    for request in debugger.tape.names():
        own = [record for record in records if getattr(record, "request_id", "") == request]
        told: list[str] = []
        for at, record in enumerate(own):
            if isinstance(record, AdapterLoad):
                took = f"loaded for it from {record.source} in {span_text(record.load_us)}"
                told.append(f"{record.adapter} was {took} (event {record.event:,}).")
                loads += 1
            elif isinstance(record, AdapterHeld):
                end = next(later for later in own[at:] if isinstance(later, Scheduled))
                waited = f"it waited {span_text(end.time_us - record.time_us)}."
                others = f"the batch had {plural(len(record.in_use), 'other')}, {', '.join(record.in_use)} (max_loras)"
                slots = f"Its adapter {record.adapter} had no slot (event {record.event:,}): {others}; {waited}"
                load = f"Its adapter {record.adapter} had to be loaded (event {record.event:,}); {waited}"
                told.append(slots if record.reason == "slots" else load)
                holds += 1
        explanation = explain_request(debugger, request)
        parts = [part for part in explanation.parts if part.heading == "LoRA adapter"]
        text = " ".join(explanation.to_text().split())
        assert bool(parts) == bool(told)
        assert all(text.count(one) == 1 for one in told), (told, text)
        assert sum(len(part.sentences) for part in parts) == len(told)
    assert loads > 3
    assert holds > 3


def test_who_was_passed_over_for_its_adapter_does_not_wait_for_what_another_one_lacked() -> None:
    """Steps in which KV blocks were short for somebody behind it count as waiting for the adapter."""
    changes = {**WAYS["vllm-v1"], "engine.kv_blocks": 160, "engine.max_model_len": 2048, "expect": []}
    made = blis_tui.load("lora-adapters", set={"workload.requests": 60, **changes})
    simulation, waits, stops = blis_tui.Simulation(made), list[AdapterHeld](), list[SchedulingStopped]()
    simulation.subscribe(AdapterHeld, waits.append)
    simulation.subscribe(SchedulingStopped, stops.append)
    simulation.run()
    debugger = Debugger(made)
    run_to_stop(debugger.run())
    held = {one.request_id: one.event for one in reversed(waits)}
    short = [stop for stop in stops if stop.cause == BLOCKS]
    seen = 0
    for name in held.keys() - {one.request_id for one in short}:
        life = read_life(debugger.tape, name, debugger.frontier)
        assert life is not None
        (span,) = (one for one in life.spans if one.what == "wait")
        end = debugger.tape.at_time(span.end_us)
        before = [one for one in short if span.first <= one.event < held[name]]
        seen += any(held[name] < one.event < end for one in short)
        assert wait_causes(debugger.tape, span, span.instance, life).steps.get(BLOCKS, 0) <= len(before)
    assert seen > 3
