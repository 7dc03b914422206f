"""Where sessions stand, against what the records say and the simulation counts, also after going back."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.session_course import (
    CANCELLED,
    COMPLETED,
    RUNNING,
    THINKING,
    TOOL,
    UNFINISHED,
    read_session,
)
from blis_tui.results.conditions.breakpoints import Watch, about_session, parse_breakpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.debugger.why.session_course import SessionCourse
    from blis_tui.engine.records import Record

LENGTHS = {
    "input_tokens": {"kind": "gaussian", "mean": 200, "std_dev": 100, "min": 10, "max": 500},
    "output_tokens": {"kind": "gaussian", "mean": 20, "std_dev": 10, "min": 1, "max": 50},
}
WAIT = {"kind": "exponential", "mean": 400}
CHAT = {"id": "chat", **LENGTHS, "session": {"turns": {"kind": "uniform", "min": 1, "max": 5}, "think_time_ms": WAIT}}
AGENT = {
    "id": "agent-a",
    **LENGTHS,
    "timeout_us": 250_000,
    "prefix": {"group": "tools", "tokens": 100},
    "session": {
        "turns": 2,
        "think_time_ms": WAIT,
        "calls": [
            {"id": "plan"},
            {"id": "search", "after": ["plan"], "wait_ms": WAIT, "parallel": 2},
            {"id": "answer", "after": ["search"], "wait_ms": WAIT},
        ],
    },
}
BY_CLOCK = {
    **CHAT,
    "id": "clock",
    "timeout_us": 120_000,
    "session": {"turns": 3, "think_time_ms": 300, "pacing": "clock"},
}
NODES = {"chat": 1, "agent-a": 4, "clock": 1}


@cache
def experiment() -> blis_tui.Experiment:
    workload = {"sessions": 24, "rate_per_s": 6.0, "clients": [CHAT, AGENT, BY_CLOCK]}
    engine = {"max_num_seqs": 3}
    changes = {"workload": workload, "engine": engine, "cluster": {"instances": 2}, "expect": []}
    return blis_tui.load("quickstart", set={**changes, "latency": "roofline", "policy": "blis"})


@cache
def whole() -> Debugger:
    """A run known to its end: looking at it from anywhere is going back."""
    made = Debugger(experiment())
    run_to_stop(made.seek(10**9))
    return made


@cache
def records() -> Sequence[Record]:
    found: list[Record] = []
    simulation = blis_tui.Simulation(experiment())
    simulation.subscribe("all", found.append)
    simulation.run()
    return found


def courses(made: Debugger, event: int) -> list[SessionCourse]:
    run_to_stop(made.seek(event))
    count = made.tape.sessions.begun(event)
    return [
        read_session(made.tape, made.experiment, one, event, made.settled, over=made.at_end) for one in range(count)
    ]


def figures(course: SessionCourse) -> Mapping[str, object]:
    return {
        "turn": (course.turn, course.turns),
        "in_flight": course.in_flight,
        "context": course.context_tokens,
        "history": course.history,
        "calls": [(call.name, call.time_us) for call in course.calls],
        "ended": course.state if course.state in (COMPLETED, CANCELLED) else "",
    }


def told(event: int) -> dict[str, Mapping[str, object]]:
    """The same from the records alone, counted another way."""
    sessions: dict[str, Mapping[str, object]] = {}
    of: dict[str, str] = {}
    said: dict[str, int] = {}
    tokens: dict[str, int] = {}
    output: dict[str, int] = {}
    cached: dict[str, int] = {}
    arrived: dict[str, int] = {}
    fate: dict[str, bool] = {}
    length: dict[str, int] = {}
    calls: dict[str, list[str]] = defaultdict(list)
    cancelled: list[str] = []
    for record in records():
        if record.event > event:
            break
        name = getattr(record, "request_id", "")
        if record.kind == "arrived":
            tokens[name], arrived[name] = record.input_tokens, record.time_us  # type: ignore[attr-defined]
        elif record.kind in ("session-begun", "session-continued"):
            of[name] = record.session_id  # type: ignore[attr-defined]
            said[name] = getattr(record, "history_tokens", 0)
            length.setdefault(of[name], getattr(record, "calls", 0))
            calls[of[name]].append(name)
        elif record.kind == "scheduled":
            cached.setdefault(name, record.cached_tokens)  # type: ignore[attr-defined]
        elif record.kind == "completed":
            fate[name], output[name] = True, record.output_tokens  # type: ignore[attr-defined]
        elif record.shown.ends:
            fate[name] = False
            cancelled.append(of[name])
    for session, names in calls.items():
        client = session.rpartition("-")[0]
        over = len([name for name in names if name in fate]) == length[session]
        failed = session in cancelled
        ended = (CANCELLED if failed else COMPLETED) if over or (failed and client != "clock") else ""
        known = [name for name in names if name in cached and said[name]]
        sessions[session] = {
            "turn": (-(-len(names) // NODES[client]), length[session] // NODES[client]),
            "in_flight": len([name for name in names if name not in fate]),
            "context": max(tokens[name] + output.get(name, 0) for name in names),
            "history": (sum(said[name] for name in known), sum(cached[name] for name in known)),
            "calls": [(name, arrived[name]) for name in names],
            "ended": ended,
        }
    return sessions


def test_every_figure_is_what_the_records_up_to_there_say() -> None:
    made = whole()
    states = set()
    for parts in (9000, 100, 5000, 7000, 1, 2500, 10_000, 3700, 4400, 1800, 8200, 600):
        event = parts * made.frontier // 10_000
        found = {course.name: course for course in courses(made, event)}
        assert {name: figures(session) for name, session in found.items()} == told(event)
        states |= {session.state for session in found.values()}
        counts = made.simulation.cluster.sessions
        assert counts is not None
        by_state = [
            [session.name for session in found.values() if session.state == state] for state in (COMPLETED, CANCELLED)
        ]
        ended = [name for names in by_state for name in names]
        assert counts.started == len(found)
        assert set(counts.unfinished) >= set(found) - set(ended)
        assert made.tape.sessions.in_flight(event) == sum(session.in_flight for session in found.values())
    assert states == {RUNNING, THINKING, TOOL, COMPLETED, CANCELLED}


def test_in_the_end_the_report_counts_the_same() -> None:
    made = whole()
    sessions = courses(made, made.frontier)
    report = made.report().sessions
    assert report is not None
    states = [session.state for session in sessions]
    assert (report.completed, report.cancelled) == (states.count(COMPLETED), states.count(CANCELLED))
    assert report.completed > 5 < report.cancelled
    assert report.calls == sum(len(session.calls) for session in sessions)
    spans = [session.since_us - session.began_us for session in sessions if session.state == COMPLETED]
    assert report.duration_ms.max == max(spans) / 1000


def test_what_a_session_waits_for_is_what_its_next_call_says_it_waited_for() -> None:
    """A wait is known only afterwards: the next call tells how long it was, and it began where the state began."""
    made, seen = whole(), set()
    for course in courses(made, made.frontier):
        client = course.name.rpartition("-")[0]
        for call in course.calls[1:]:
            if made.tape.time_us(call.sent.event - 1) == call.time_us:
                continue
            run_to_stop(made.seek(call.sent.event - 1))
            place = made.tape.sessions.place(course.name)
            assert place is not None
            before = read_session(made.tape, made.experiment, place, made.event, made.settled)
            if before.in_flight:
                assert before.state == RUNNING
                continue
            assert before.state == (THINKING if client != "agent-a" or call.call % 4 == 0 else TOOL)
            assert call.time_us - before.since_us == call.sent.waited_us
            seen.add((client, before.state))
            if len(seen) == 4:
                return
    assert {("chat", THINKING), ("agent-a", TOOL), ("agent-a", THINKING)} <= seen


def test_a_session_that_the_horizon_cuts_off_is_unfinished() -> None:
    made = Debugger(blis_tui.load("conversations", set={"workload.sessions": 3, "horizon_us": 5_000_000}))
    run_to_stop(made.seek(10**9))
    states = [course.state for course in courses(made, made.frontier)]
    assert UNFINISHED in states
    assert states.count(UNFINISHED) == made.report().sessions.unfinished  # type: ignore[union-attr]


@pytest.mark.parametrize("event", [1, 700, 1500])
def test_what_is_cut_off_was_never_there(event: int) -> None:
    cut, short = Debugger(experiment()), Debugger(experiment())
    run_to_stop(cut.seek(2000))
    run_to_stop(short.seek(event))
    cut.tape.cut(event)
    for tape in (cut.tape, short.tape):
        assert tape.sessions.begun(10**9) == len(tape.sessions)
    assert [told_by_log(cut)] == [told_by_log(short)]


def told_by_log(made: Debugger) -> object:
    log, arrivals = made.tape.sessions, made.tape.arrivals
    names = arrivals.names("client")
    return (
        [(log.name(one), log.length(one), log.calls(one), log.end(one, 10**9)) for one in range(len(log))],
        [log.of_request(number) for number in range(made.tape.requests)],
        log.in_flight(10**9),
        [(name, arrivals.until("client", name, 10**9)) for name in names],
    )


def test_a_breakpoint_stops_at_each_call_of_a_session() -> None:
    name = next(course.name for course in courses(whole(), whole().frontier) if len(course.calls) > 3)
    expected = [record.event for record in records() if getattr(record, "session_id", "") == name]
    made = Debugger(experiment())
    watch = Watch([parse_breakpoint(about_session(name), experiment())])
    found = []
    for _ in expected:
        stop = run_to_stop(made.run(watch))
        found.append(made.event)
        assert name in stop.hits[0].sentence
    assert found == expected


def test_a_first_token_that_a_preemption_discarded_is_none_of_the_call() -> None:
    chat = {**CHAT, "output_tokens": {"kind": "constant", "value": 150}}
    small = {"workload.sessions": 12, "workload.clients": [chat], "engine.kv_blocks": 80, "expect": []}
    made = Debugger(experiment_with(small))
    run_to_stop(made.run())
    seen = 0
    for name in made.tape.names():
        life = made.tape.life(name)
        for at, entry in enumerate(life):
            if entry.what == "preempted" and any(event.what == "first-token" for event in life[:at]):
                calls = [call for course in courses(made, entry.event) for call in course.calls]
                assert next(call for call in calls if call.name == name).first_token_us < 0
                seen += 1
        if seen > 5:
            break
    assert seen


def experiment_with(changes: Mapping[str, object]) -> blis_tui.Experiment:
    shown = {"workload": {"sessions": 24, "rate_per_s": 6.0, "clients": [CHAT]}}
    return blis_tui.load("quickstart", set={**shown, "latency": "roofline", "policy": "blis", **changes})
