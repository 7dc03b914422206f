"""Going forwards and backwards must never change what the simulation does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import blis_tui
from blis_tui.base.errors import DivergenceError, SimulationError
from blis_tui.cluster.invariants import INVARIANTS, Auditable, Invariant
from blis_tui.cluster.records import WarmUpEnded
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import Move, run_to_stop
from blis_tui.debugger.state import LAST_PHASE
from blis_tui.engine.records import StepFinished
from blis_tui.results.conditions.breakpoints import Watch, parse_breakpoint
from blis_tui.results.conditions.vocabulary import subject_of

if TYPE_CHECKING:
    from blis_tui.engine.records import Record

ANSWERS: dict[str, object] = {"workload.clients.0.output_tokens": {"kind": "uniform", "min": 10, "max": 90}}
SHORT: dict[str, dict[str, object]] = {
    "quickstart": {"workload.requests": 12, **ANSWERS},
    "kv-pressure": {"workload.requests": 24, "engine.kv_blocks": 80, **ANSWERS},
    "vllm-preemption": {"workload.requests": 16, "engine.kv_blocks": 90, **ANSWERS},
    "admission-control": {"workload.requests": 16, **ANSWERS},
    "shared-prefixes": {"workload.requests": 8, **ANSWERS},
}
"""As they ship, but every event of them can be looked at; in two of them, requests are preempted."""


@cache
def experiment(name: str) -> blis_tui.Experiment:
    return blis_tui.load(name, set=SHORT[name])


@cache
def straight(name: str) -> tuple[tuple[str, ...], tuple[int, ...], str]:
    """The digest and time after each event of a plain run, and its report."""
    simulation = blis_tui.Simulation(experiment(name))
    digests, times = [simulation.digest()], [0]
    while simulation.step():
        digests.append(simulation.digest())
        times.append(simulation.now_us)
    return tuple(digests), tuple(times), simulation.report().to_json()


def at(debugger: Debugger, event: int) -> None:
    """The debugger must stand at an event, in the state of a plain run there."""
    assert debugger.event == event
    digests, times, _ = straight(debugger.experiment.name)
    assert debugger.digest() == digests[event]
    assert debugger.time_us == times[event]
    moment = debugger.moment()
    assert moment.event == event
    assert moment.after.event == event
    if event:
        assert moment.before is not None
        assert moment.before.event == event - 1
        assert {record.event for record in moment.records} == {event}


@pytest.mark.parametrize("name", SHORT)
def test_by_hand_to_the_end_and_back_and_again(name: str) -> None:
    digests, _, report = straight(name)
    debugger = Debugger(experiment(name))
    for event in range(1, len(digests)):
        assert debugger.step()
        assert debugger.digest() == digests[event]
    assert debugger.at_end
    assert not debugger.step()
    assert debugger.report().to_json() == report
    last = len(digests) - 1
    for event in (*range(last - 1, last - 50, -1), *range(last - 50, 0, -17), 0):
        run_to_stop(debugger.seek(event))
        assert debugger.digest() == digests[event]
    assert debugger.event == 0
    while debugger.step():
        pass
    assert debugger.report().to_json() == report


def test_reports_on_the_way_are_those_of_a_plain_run_stopped_there() -> None:
    debugger = Debugger(experiment("kv-pressure"))
    run_to_stop(debugger.run())
    for event in (debugger.frontier // 3, 10, debugger.frontier // 2):
        run_to_stop(debugger.seek(event))
        plain = blis_tui.Simulation(experiment("kv-pressure"))
        plain.run(max_events=event)
        assert debugger.report().to_json() == plain.report().to_json()


def test_phases_divide_steps_only() -> None:
    debugger = Debugger(experiment("quickstart"))
    seen: list[tuple[int, int | None]] = []
    while len(seen) < 60:
        assert debugger.step_phase()
        seen.append((debugger.event, debugger.phase))
    steps = {event for event, phase in seen if phase is not None}
    for event in steps - {seen[-1][0]}:
        assert [phase for number, phase in seen if number == event] == [0, 1, 2, 3]
    assert any(phase is None for _, phase in seen)
    back = []
    while debugger.event > 0:
        back.append((debugger.event, debugger.phase))
        run_to_stop(debugger.back_phase())
    assert back[::-1] == seen


def test_batches() -> None:
    debugger = Debugger(experiment("quickstart"))
    run_to_stop(debugger.finish_batch())
    first = debugger.event
    assert debugger.tape.is_step(first)
    assert debugger.phase == LAST_PHASE
    run_to_stop(debugger.finish_batch())
    second = debugger.event
    assert debugger.tape.is_step(second)
    assert not any(debugger.tape.is_step(event) for event in range(first + 1, second))
    run_to_stop(debugger.back_batch())
    assert debugger.event == first


@pytest.mark.parametrize("known", [False, True])
def test_seek_time_stops_at_the_last_event_in_time(known: bool) -> None:
    _, times, _ = straight("quickstart")
    debugger = Debugger(experiment("quickstart"))
    if known:
        run_to_stop(debugger.run())
    for time_us in (times[-1] // 2, times[7], 0, times[-1] + 1, times[12] - 1):
        run_to_stop(debugger.seek_time(time_us))
        at(debugger, len([time for time in times[1:] if time <= time_us]))


def test_seek_request() -> None:
    debugger = Debugger(experiment("quickstart"))
    assert run_to_stop(debugger.seek_request("request_11")).reason == "there"
    assert debugger.moment().records[0].kind == "arrived"
    assert debugger.tape.life("request_11", debugger.event)[-1].what == "arrived"
    here = debugger.event
    assert run_to_stop(debugger.seek_request("nobody")).reason == "unknown"
    at(debugger, here)


def test_a_journey_given_up_leaves_the_debugger_sound() -> None:
    debugger = Debugger(experiment("kv-pressure"))
    move = debugger.run()
    for _ in range(3):
        next(move)
    move.close()
    at(debugger, debugger.event)
    middle = debugger.event
    run_to_stop(debugger.run())
    move = debugger.seek(middle + 70)
    next(move)
    move.close()
    at(debugger, debugger.event)


def test_breakpoints_forwards_and_backwards_find_the_same_places() -> None:
    name = "kv-pressure"
    watch = Watch((parse_breakpoint("preempted", experiment(name)),))
    debugger = Debugger(experiment(name))
    places = []
    while run_to_stop(debugger.run(watch)).reason == "breakpoint":
        assert any(record.kind == "preempted" for record in debugger.moment().records)
        places.append(debugger.event)
    assert places
    plain = blis_tui.Simulation(experiment(name))
    true = []
    plain.subscribe("preempted", lambda record: true.append(record.event))
    plain.run()
    assert places == sorted(set(true))
    back = []
    while run_to_stop(debugger.run_back(watch)).reason == "breakpoint":
        back.append(debugger.event)
    assert back == places[::-1]
    assert debugger.event == 0


def test_a_failing_simulation_stops_at_the_last_whole_event(monkeypatch: pytest.MonkeyPatch) -> None:
    times = straight("quickstart")[1]
    last = len([time for time in times[1:] if time <= times[100]])
    breaks: Invariant[Auditable] = Invariant("INV-3", lambda state: "it is late" if state.now > times[100] else "")
    monkeypatch.setattr("blis_tui.runs.simulation.INVARIANTS", (*INVARIANTS, breaks))
    debugger = Debugger(experiment("quickstart"), check="all")
    assert run_to_stop(debugger.run()).reason == "failed"
    assert "INV-3 does not hold" in str(debugger.failure)
    assert "clock monotonicity: it is late" in str(debugger.failure)
    at(debugger, last)
    assert debugger.frontier == last
    assert debugger.at_end
    run_to_stop(debugger.seek(50))
    at(debugger, 50)
    assert run_to_stop(debugger.run()).reason == "failed"
    at(debugger, last)


def test_a_replay_that_goes_another_way_is_reported() -> None:
    debugger = Debugger(experiment("quickstart"))
    run_to_stop(debugger.run())
    run_to_stop(debugger.seek(60))
    debugger.moment()
    run_to_stop(debugger.seek(30))
    run_to_stop(debugger.seek(60))
    debugger.moment()
    debugger._simulation._cluster.instances[0].tallies.busy_us += 1
    debugger._moment = None
    with pytest.raises(DivergenceError, match="event 60"):
        debugger.moment()


def test_records_that_a_replay_has_at_another_time_are_reported() -> None:
    debugger = Debugger(experiment("quickstart"))
    run_to_stop(debugger.run())
    run_to_stop(debugger.seek(59))
    assert debugger.records_of(59) == debugger.moment().records
    debugger.tape._times[59] += 1
    with pytest.raises(DivergenceError, match="event 60"):
        debugger.records_of(60)


def test_checkpoints_thin_out_and_still_lead_back() -> None:
    name = "kv-pressure"
    debugger = Debugger(blis_tui.load(name), cap_bytes=40_000)
    run_to_stop(debugger.run())
    plain = blis_tui.Simulation(blis_tui.load(name))
    plain.run()
    assert debugger.report().to_json() == plain.report().to_json()
    assert debugger.history.events[0] == 0
    for event in (5000, 100, 3000):
        run_to_stop(debugger.seek(event))
        assert debugger.history._bytes <= 40_000
        again = blis_tui.Simulation(blis_tui.load(name))
        again.run(max_events=event)
        assert debugger.digest() == again.digest()


def test_lives_tell_everything_that_records_say_of_a_request() -> None:
    name = "vllm-preemption"
    debugger = Debugger(experiment(name))
    run_to_stop(debugger.run())
    told: dict[str, list[tuple[int, str]]] = {}
    plain = blis_tui.Simulation(experiment(name))

    def listen(record: Record) -> None:
        if isinstance(record, StepFinished):
            for chunk in record.chunks:
                told.setdefault(chunk.request_id, []).append((record.event, "chunk"))
            for admitted in record.admitted:
                told.setdefault(admitted, []).append((record.event, "started"))
            for done in record.completed:
                told.setdefault(done, []).append((record.event, "last-token"))
        else:
            told.setdefault(subject_of(record), []).append((record.event, record.kind))

    plain.subscribe("all", listen)
    plain.run()
    for request, entries in told.items():
        life = [(event.event, event.what) for event in debugger.tape.life(request)]
        # Stalls are told where they begin and end, not step by step.
        life = [pair for pair in life if pair[1] not in ("stalled", "resumed")]
        assert sorted(life) == sorted(entries)
    assert len(told) == debugger.tape.requests


class Travels(RuleBasedStateMachine):
    """Random moves; wherever they lead, the state must be that of a plain run."""

    name = "kv-pressure"

    def __init__(self) -> None:
        super().__init__()
        self.debugger = Debugger(experiment(self.name), cap_bytes=60_000)
        self.last = len(straight(self.name)[0]) - 1
        self.expected = 0

    @initialize(text=st.sampled_from(["preempted", "kv.utilization > 0.9", "completed", "waiting >= 3"]))
    def start(self, text: str) -> None:
        self.watch = Watch((parse_breakpoint(text, experiment(self.name)),))

    def go(self, move: Move) -> str:
        return run_to_stop(move).reason

    @rule(count=st.integers(1, 5))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.debugger.step()
        self.expected = min(self.expected + count, self.last)

    @rule()
    def phase(self) -> None:
        whole = self.debugger.phase in (None, LAST_PHASE)
        self.debugger.step_phase()
        self.expected = min(self.expected + whole, self.last)

    @rule()
    def phase_back(self) -> None:
        inside = bool(self.debugger.phase)
        self.go(self.debugger.back_phase())
        self.expected = max(self.expected - (not inside), 0)

    @rule()
    def back(self) -> None:
        self.go(self.debugger.seek(self.debugger.event - 1))
        self.expected = max(self.expected - 1, 0)

    @rule(part=st.floats(0, 1.1))
    def seek(self, part: float) -> None:
        event = int(part * self.last)
        self.go(self.debugger.seek(event))
        self.expected = min(event, self.last)

    @rule(part=st.floats(0, 1.1))
    def seek_time(self, part: float) -> None:
        times = straight(self.name)[1]
        time_us = int(part * times[-1])
        self.go(self.debugger.seek_time(time_us))
        self.expected = len([time for time in times[1:] if time <= time_us])

    @rule(count=st.integers(1, 400))
    def give_up(self, count: int) -> None:
        move = self.debugger.run()
        for _ in range(count // 100):
            next(move, None)
        move.close()
        self.expected = self.debugger.event

    @rule()
    def run_to_breakpoint(self) -> None:
        self.go(self.debugger.run(self.watch))
        assert self.debugger.event > self.expected or self.expected == self.last
        self.expected = self.debugger.event

    @precondition(lambda self: self.expected > 0)
    @rule()
    def back_to_breakpoint(self) -> None:
        self.go(self.debugger.run_back(self.watch))
        assert self.debugger.event < self.expected
        self.expected = self.debugger.event

    @invariant()
    def same_as_a_plain_run(self) -> None:
        at(self.debugger, self.expected)

    def teardown(self) -> None:
        self.debugger.step()
        run_to_stop(self.debugger.run())
        assert self.debugger.report().to_json() == straight(self.name)[2]


TestTravels = Travels.TestCase
TestTravels.settings = settings(max_examples=30, stateful_step_count=25, suppress_health_check=list(HealthCheck))


def test_errors_name_the_event() -> None:
    error = DivergenceError("it is another", event=7)
    assert isinstance(error, SimulationError)
    assert "event 7" in str(error)
    assert error.event == 7


def test_a_journey_given_up_leaves_a_whole_position() -> None:
    debugger = Debugger(experiment("quickstart"))
    stepped = 0
    for _ in range(4):
        move = debugger.seek(10_000)
        next(move)
        move.close()
        is_step = debugger.tape.is_step(debugger.event)
        stepped += is_step
        assert debugger.phase == (LAST_PHASE if is_step else None)
        assert debugger.moment().phase == debugger.phase
    assert stepped


def test_the_end_of_the_warm_up_is_an_event_like_any_other() -> None:
    """It used to have no record: rows stood beside the wrong events from then on, or the debugger stopped there."""
    made = blis_tui.load("quickstart", set={"warm_up_us": 500_000, "workload.requests": 40})
    debugger = Debugger(made)
    run_to_stop(debugger.run())
    (event,) = [at for at in range(1, debugger.frontier + 1) if debugger.tape.row(at).kind == "warm-up-ended"]
    assert debugger.tape.time_us(event) == 500_000
    run_to_stop(debugger.seek(event))
    (record,) = debugger.records_of(event)
    assert isinstance(record, WarmUpEnded)
    rows = debugger.report().rows
    assert record.requests == len([row for row in rows if row.completed_us is None or row.completed_us > 500_000])
