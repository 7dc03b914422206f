"""What the tape remembers, against records kept beside it."""

from __future__ import annotations

from functools import cache

import blis_tui
from blis_tui.cluster.records import Split
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.event_store import EventStore
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.recorder import Recorder
from blis_tui.engine.records import AdapterHeld, Completed, Preempted, Record, Routed, Scheduled, StepFinished, TimedOut
from tests.builders import profiles
from tests.cluster.fleets import fleet

ALL = 10**9


@cache
def short() -> blis_tui.Experiment:
    return blis_tui.load("kv-pressure", set={"workload.requests": 40})


def recorded(
    until: int | None = None, experiment: blis_tui.Experiment | None = None
) -> tuple[EventStore, list[Record]]:
    """The tape of a run up to an event, and the records it was made from."""
    experiment = experiment or short()
    simulation = blis_tui.Simulation(experiment)
    tape, records = EventStore(profiles(experiment)), list[Record]()
    Recorder(tape).listen(simulation)
    simulation.subscribe("all", records.append)
    simulation.run(max_events=until)
    return tape, records


def told(tape: EventStore) -> list[object]:
    """Everything a tape says."""
    events = range(1, len(tape) + 1)
    return [
        [(tape.row(event)._replace(step=-1), tape.reason(event), tape.work(event)) for event in events],
        [tape.step(tape.row(event).step) for event in events if tape.is_step(event)],
        tape.names(),
        [(tape.number(name), tape.life(name)) for name in tape.names()],
        tape.latencies.ttfts_us(ALL, ALL),
        tape.slowest(ALL, ALL),
    ]


def test_what_is_cut_off_was_never_there() -> None:
    whole, records = recorded()
    first_tokens = [record.event for record in records if record.kind == "first-token"]
    for event in (len(whole), first_tokens[-1] - 1, first_tokens[20], first_tokens[20] - 1, first_tokens[0] - 1, 1, 0):
        whole.cut(event)
        assert told(whole) == told(recorded(event)[0])


def test_each_record_of_an_event_keeps_its_own_reason() -> None:
    """The choice of the decode instance comes before the decision to split, in one event."""
    tape, records = recorded(experiment=fleet("EARLY", 20))
    told = {
        (record.event, record.kind, record.request_id): record.reason
        for record in records
        if isinstance(record, Routed | Split)
    }
    assert len({event for event, *_ in told}) < len(told)
    for (event, kind, name), reason in told.items():
        number = tape.number(name)
        assert number is not None
        assert tape.reason(event, kind, number) == reason
        found = next(one for one in tape.life(name) if (one.event, one.what) == (event, kind))
        assert tape.values_of(name, found)["reason"] == reason
    assert {tape.reason(event) for event, kind, _ in told if kind == "routed"} == {
        reason for (_, kind, _), reason in told.items() if kind == "routed"
    }


def test_the_slowest_at_an_event_are_those_that_have_completed_by_then() -> None:
    tape, records = recorded()
    done = [record for record in records if isinstance(record, Completed)]
    assert max(done, key=lambda record: record.e2e_us) is not done[0]
    for event in range(len(tape) + 1):
        past = sorted((record for record in done if record.event <= event), key=lambda record: -record.e2e_us)
        assert tape.slowest(event, 5) == [(record.request_id, record.e2e_us) for record in past[:5]]


def test_steps_may_be_as_long_and_as_large_as_in_a_plain_run() -> None:
    """Longer than 2**31 us, with more than 2**31 blocks in use."""
    made = blis_tui.load(
        "quickstart",
        set={
            "cluster.instances": 1,
            "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [3e9, 0, 0]},
            "workload": {"requests": 3, "rate_per_s": 1e6},
            "workload.clients": [{"id": "long", "output_tokens": {"kind": "constant", "value": 4}}],
            "workload.clients.0.input_tokens": {"kind": "constant", "value": 10**9},
            "engine": {"kv_blocks": 10**13, "block_size_tokens": 1, "max_num_batched_tokens": 10**9},
            "engine.max_model_len": "none",
            "expect": [],
        },
    )
    debugger = Debugger(made)
    assert run_to_stop(debugger.run()).reason == "end"
    assert debugger.report().to_json() == blis_tui.run(made).to_json()
    tape = debugger.tape
    steps = [tape.step(tape.row(event).step) for event in range(1, len(tape) + 1) if tape.is_step(event)]
    assert min(step.duration_us for step in steps) > 2**31
    assert max(step.kv_used_blocks for step in steps) > 2**31


def test_the_figures_between_two_events_are_those_of_the_records() -> None:
    tape, records = recorded()
    instances = len(profiles(short()))
    for first in range(1, len(tape), 97):
        last = min(first + 60, len(tape))
        waiting, running, used = [0] * instances, [0] * instances, [0] * instances
        most = [0, 0, 0]
        for record in records:
            if not isinstance(record, StepFinished) or record.event > last:
                continue
            waiting[record.instance], running[record.instance] = record.waiting, record.running
            used[record.instance] = record.kv_used_blocks
            now = [sum(waiting), sum(running), sum(used)]
            most = now if record.event < first else [max(*pair) for pair in zip(most, now, strict=True)]
        bucket = tape.between(first, last)
        assert [bucket.waiting_max, bucket.running_max, bucket.kv_used_max] == most


def test_every_row_is_about_whom_its_record_is_about() -> None:
    """Requests, instances, both, or (the autoscaler's decisions) neither."""
    made = blis_tui.load("autoscaling", set={"workload.requests": 200})
    simulation = blis_tui.Simulation(made)
    tape, records = EventStore(profiles(made)), dict[tuple[int, str], Record]()
    Recorder(tape).listen(simulation)

    def keep(record: Record) -> None:
        records.setdefault((record.event, record.kind), record)

    simulation.subscribe("all", keep)
    simulation.run()
    names, seen = list(tape.names()), dict[tuple[bool, bool], None]()
    for row in map(tape.row, range(1, len(tape) + 1)):
        if row.step < 0:
            record = records[row.event, row.kind]
            name = getattr(record, "request_id", "")
            assert row.request == (names.index(name) if name else -1)
            assert row.instance == getattr(record, "instance", -1)
            assert tape.time_us(row.event) == row.time_us == record.time_us
            assert tape.kind(row.event) == row.kind
            seen[row.request >= 0, row.instance >= 0] = None
    assert len(seen) == 4
    assert tape.time_us(0) == 0


def test_what_is_planned_ahead_is_past_when_its_step_has_started() -> None:
    """In the middle of an event that starts no step of theirs, no request is shown as scheduled or preempted by it."""
    batching = {"kind": "vllm-v1", "async_scheduling": True}
    settings = {"workload.requests": 30, "workload.rate_per_s": 4, "engine.kv_blocks": 150, "policy.batching": batching}
    tape, records = recorded(experiment=blis_tui.load("kv-pressure", set=settings))
    assert tape.plans_ahead
    started = {
        (record.event, name) for record in records if isinstance(record, StepFinished) for name in record.admitted
    }
    planned = [(record.event, record.request_id) for record in records if isinstance(record, Scheduled)]
    assert 0 < len([place for place in planned if place in started]) < len(planned)
    for event, name in planned:
        shown = any((one.event, one.what) == (event, "scheduled") for one in tape.life(name, event, event - 1))
        assert shown == ((event, name) in started)
    preempted = [(record.event, record.request_id) for record in records if isinstance(record, Preempted)]
    assert preempted
    for event, name in preempted:
        assert all(one.event < event or one.what != "preempted" for one in tape.life(name, event, event - 1))
        assert (event, "preempted") in [(one.event, one.what) for one in tape.life(name, event)]


def test_a_life_ends_with_its_deadline_even_if_the_engine_goes_on() -> None:
    changed: dict[str, object] = {
        "policy.batching": {"kind": "sglang", "scheduler_recv_interval": 9000, "chunked_prefill_size": 64},
        "workload.requests": 40,
        "workload.rate_per_s": 200,
        "workload.clients.0.timeout_us": 1_100_000,
        "workload.clients.1.timeout_us": 900_000,
        "engine.kv_blocks": 3000,
        "seed": 24,
        "expect": [],
    }
    tape, records = recorded(experiment=blis_tui.load("retraction", set=changed))
    ends = {record.request_id: record.event for record in records if isinstance(record, TimedOut)}
    late = [
        chunk.request_id
        for record in records
        if isinstance(record, StepFinished)
        for chunk in record.chunks
        if record.event > ends.get(chunk.request_id, ALL)
    ]
    assert len(late) > 5
    assert {tape.life(name, len(tape))[-1].what for name in ends} == {"timed-out"}


def test_what_is_said_of_a_request_after_its_deadline_is_no_part_of_its_life() -> None:
    changed: dict[str, object] = {"workload.requests": 20, "workload.clients.0.timeout_us": 100_000, "expect": []}
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=changed))
    tape = EventStore(profiles(simulation.experiment))
    Recorder(tape).listen(simulation)
    simulation.run()
    name = next(name for name in tape.names() if tape.life(name, len(tape))[-1].what == "timed-out")
    observers = simulation.cluster.pipeline.observers
    observers.emit(AdapterHeld(observers.event, simulation.now_us, name, 0, "a", "slots", ()))
    assert tape.life(name, len(tape) + 1)[-1].what == "timed-out"
