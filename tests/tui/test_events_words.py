"""Events in words, and the words that choose among them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.lifespans import AGAIN
from blis_tui.engine.records import Preempted, Scheduled, StepFinished
from blis_tui.results.conditions.breakpoints import Watch, parse_breakpoint
from blis_tui.tui.drawing.event_filter import FilterError, parse_filter
from blis_tui.tui.panes.events import PLANNED, columns, event_line, event_runs, full_text, stops_at, tail
from tests.tui.driven_pane import knowing, view_with
from tests.tui.pane_harness import view_at

if TYPE_CHECKING:
    from blis_tui.engine.records import Record

DONE = knowing(at=0)
TAPE = DONE.tape


def events(text: str) -> list[int]:
    matches = parse_filter(text, TAPE)
    assert matches is not None
    return [event for event in range(1, len(TAPE) + 1) if matches(TAPE.row(event))]


def words(event: int, width: int = 140) -> str:
    runs = event_runs(event_line(TAPE, event), event, TAPE.time_us(event), columns(TAPE, width))
    return " ".join("".join(run.text for run in runs).split())


def test_each_kind_of_event_says_what_it_did() -> None:
    assert [words(event).split(" s ", 1)[1] for event in range(1, 6)] == [
        "+ request_0 arrived: 400 prompt tokens, up to 636 output tokens",
        "» request_0 admitted",
        "→ request_0 routed to instance 0 (turn 0)",
        "≡ request_0 queued at instance 0, 1st in the queue",
        "■ i0 step 1 400 prefill tokens in 9.26 ms, 1 scheduled, 1 first token",
    ]


def test_a_step_that_preempts_says_so_before_all_else_it_changed() -> None:
    event = events("step preempted")[0]
    step = DONE.tape.step(TAPE.row(event).step)
    assert step.preempted
    assert [part.text for part in event_line(TAPE, event).parts][1] == f"{step.preempted} preempted"
    assert [part.colour for part in event_line(TAPE, event).parts][1] == "error"


@pytest.mark.parametrize("width", [34, 60, 76, 96, 138])
def test_no_line_is_wider_than_the_room_and_what_is_left_out_leaves_an_ellipsis(width: int) -> None:
    for event in range(1, len(TAPE) + 1):
        line = event_line(TAPE, event)
        runs = event_runs(line, event, TAPE.time_us(event), columns(TAPE, width))
        text = "".join(run.text for run in runs)
        assert len(text) <= width - 3
        parts = [part.text for part in line.parts]
        if width >= 76 and not all(part in text for part in parts):
            assert "…" in text or all(part.text in text for part in line.short)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("arrived", "400 tok"), ("admitted", ""), ("routed", "i0"), ("queued", "1st"), ("step", "+1 400 tok")],
)
def test_in_hardly_any_room_the_kind_is_a_glyph_and_the_rest_a_few_characters(kind: str, text: str) -> None:
    event = next(event for event in range(1, 6) if TAPE.kind(event) == kind)
    line = event_line(TAPE, event)
    shown = words(event, 50)
    assert kind not in shown.replace("i0 step", "")
    assert shown.endswith(f"{line.look.sign} {line.subject}" + (f" · {text}" if text else ""))


def test_in_hardly_any_room_a_preemption_is_what_stays() -> None:
    event = events("step preempted")[0]
    count = TAPE.step(TAPE.row(event).step).preempted
    assert f"{AGAIN.sign}{count}" in words(event, 36)


def test_the_full_text_of_an_event_has_its_number_and_all_parts() -> None:
    text = full_text(TAPE, 5)
    assert text.startswith("event 5 at ")
    assert "400 prefill tokens in 9.26 ms, 1 scheduled, 1 first token" in text


# ---- what follows the last known event ----


def test_below_the_frontier_stands_how_to_go_on() -> None:
    at = knowing(10, at=10)
    assert tail(at.moment(), 80, playing=False).text == "… not simulated yet: n next event, c run"
    assert tail(at.moment(), 34, playing=False).text == "… n next event, c run"


def test_going_back_hides_the_key_that_would_not_lead_behind_the_frontier() -> None:
    at = knowing(10, at=5)
    assert tail(at.moment(), 80, playing=False).text == "… not simulated yet: c run"


def test_below_a_complete_run_stands_its_end_wherever_the_reader_is() -> None:
    at = knowing(at=5)
    assert tail(at.moment(), 80, playing=False).text == f"■ end of the run after {at.frontier:,} events"


# ---- filters ----


def test_a_kind_matches_its_events_and_the_steps_that_did_it() -> None:
    completed = events("completed")
    kinds = {TAPE.kind(event) for event in completed}
    assert kinds == {"completed", "step"}
    assert all(TAPE.step(TAPE.row(event).step).completed for event in completed if TAPE.is_step(event))
    assert len([event for event in completed if not TAPE.is_step(event)]) == 60
    assert {TAPE.kind(event) for event in events("arrived")} == {"arrived"}


@pytest.mark.parametrize(
    ("word", "field"),
    [
        ("preempted", "preempted"),
        ("first-token", "first_tokens"),
        ("stalled", "stalled"),
        ("scheduled", "admitted"),
        ("prefill", "prefill_tokens"),
    ],
)
def test_a_change_matches_exactly_the_steps_with_it(word: str, field: str) -> None:
    wanted = [
        event
        for event in range(1, len(TAPE) + 1)
        if TAPE.is_step(event) and getattr(TAPE.step(TAPE.row(event).step), field)
    ]
    assert events(word) == wanted


def test_a_whole_name_is_one_request_and_includes_the_steps_for_it() -> None:
    assert events("request_1") == sorted({entry.event for entry in TAPE.life("request_1")})
    assert any(TAPE.is_step(event) for event in events("request_1"))


def test_a_part_of_a_name_matches_all_requests_that_have_it() -> None:
    names = {TAPE.name(TAPE.row(event).request) for event in events("UEST_5 arrived")}
    assert names == {"request_5", *(f"request_5{digit}" for digit in range(10))}


def test_all_words_must_match_and_a_minus_turns_one_around() -> None:
    assert events("-step") == [event for event in range(1, len(TAPE) + 1) if not TAPE.is_step(event)]
    assert set(events("step -decode")) == set(events("step")) - set(events("decode"))


def test_an_instance_can_be_written_in_two_ways() -> None:
    assert events("i0") == events("instance 0") == events("Instance 0")
    assert {TAPE.row(event).instance for event in events("i0")} == {0}
    assert {TAPE.kind(event) for event in events("-i0")} == {"arrived", "admitted"}


def test_an_empty_filter_is_none() -> None:
    assert parse_filter("  ", TAPE) is None


@pytest.mark.parametrize(
    ("text", "message", "help_text"),
    [
        ("premted", "`premted` is neither a kind of event nor part of a request's name", "did you mean `preempted`?"),
        ("-arived", "`arived` is neither a kind of event nor part of a request's name", "did you mean `arrived`?"),
        ("i7", "there is no instance 7", "so far, this run has only instance 0"),
    ],
)
def test_a_word_that_is_nothing_is_refused_with_the_nearest(text: str, message: str, help_text: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text, TAPE)
    assert caught.value.message == message
    assert caught.value.help == help_text


def test_a_request_that_has_not_arrived_yet_may_be_asked_for() -> None:
    at = knowing(20, at=20)
    matches = parse_filter("request_30", at.tape)
    assert matches is not None
    assert not any(matches(at.tape.row(event)) for event in range(1, 21))
    run_to_stop(at.seek(2000))
    assert matches(at.tape.row(at.tape.first_event_of("request_30")))


# ---- breakpoints ----


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("event 7", [7]),
        ("preempted", events("preempted")),
        ("completed", [event for event in range(1, len(TAPE) + 1) if TAPE.kind(event) == "completed"]),
    ],
)
def test_events_at_which_a_breakpoint_stops_are_marked(text: str, wanted: list[int]) -> None:
    stops = stops_at(view_with(knowing(at=0), text))
    assert [event for event in range(1, len(TAPE) + 1) if stops(TAPE.row(event))] == wanted


def test_a_breakpoint_at_a_time_marks_the_first_event_not_before_it() -> None:
    stops = stops_at(view_with(knowing(at=0), "time 1s"))
    (event,) = [event for event in range(1, len(TAPE) + 1) if stops(TAPE.row(event))]
    assert TAPE.time_us(event - 1) < 1_000_000 <= TAPE.time_us(event)


@cache
def finished(name: str) -> Debugger:
    """A run of few requests, at its end or wherever a test has left it."""
    made = Debugger(
        blis_tui.load(name, set={"workload.sessions": 4} if name == "conversations" else {"workload.requests": 40})
    )
    run_to_stop(made.run())
    return made


@pytest.mark.parametrize("name", ["kv-pressure", "kv-overload", "conversations"])
@pytest.mark.parametrize("text", ["first scheduled", "first preemption", "first first-token", "first completion"])
def test_marked_events_are_those_at_which_runs_stop(name: str, text: str) -> None:
    """Where steps are planned ahead, too: who is scheduled or preempted is known an event before the step."""
    made = finished(name)
    for one in (text, *(["session chat-0"] if name == "conversations" and text == "first scheduled" else [])):
        breaks = parse_breakpoint(one, made.experiment)
        watch, stops = Watch((breaks,)), list[int]()
        run_to_stop(made.seek(0))
        while run_to_stop(made.run(watch)).reason == "breakpoint":
            stops.append(made.event)
        marked = stops_at(replace(view_at(made, made.frontier), breakpoints=(breaks,)))
        assert [event for event in range(1, made.frontier + 1) if marked(made.tape.row(event))] == stops
        assert stops or "preemption" in text


@pytest.mark.parametrize("name", ["kv-overload", "vllm-preemption", "schedulers", "conversations"])
def test_the_event_that_plans_ahead_says_whom_it_schedules_and_preempts(name: str) -> None:
    """A breakpoint stops there: the step that does it is on the next line."""
    size = {"workload.sessions": 4} if name == "conversations" else {"workload.requests": 90}
    made = Debugger(blis_tui.load(name, set=size))
    records: list[Record] = []
    made.simulation.subscribe("all", records.append)
    run_to_stop(made.run())
    assert made.tape.plans_ahead
    by_event: dict[int, list[Record]] = {}
    for record in records:
        by_event.setdefault(record.event, []).append(record)
    found = 0
    for event, own in by_event.items():
        step = next((at for at, record in enumerate(own) if isinstance(record, StepFinished)), None)
        ahead = own[len(own) if step is None else step + 1 :]
        for kind, word, sign in ((Preempted, "preempts", AGAIN.sign), (Scheduled, "schedules", "+")):
            names = [one.request_id for one in ahead if isinstance(one, kind)]
            line = event_line(made.tape, event)
            said = " ".join(part.text for part in line.parts)
            if not names:
                assert word not in said
                continue
            found += 1
            number = made.tape.step(made.tape.row(event).step).number + 1
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            assert f"plans step {number}: " in said
            assert f"{word} {names[0]}{more}" in said
            assert f"{sign}{len(names) if more else names[0]}" in next(r.text for r in line.short if "plans" in r.text)
            assert f"{sign}{len(names)}" in next(run.text for run in line.brief if run.text.startswith(PLANNED))
    assert found > 2


def test_a_plan_is_not_told_before_its_step_has_results() -> None:
    made = Debugger(blis_tui.load("kv-overload", set={"workload.requests": 40}))
    run_to_stop(made.run())
    event = next(event for event in range(1, made.frontier + 1) if made.tape.plan(event))
    assert "plans" in full_text(made.tape, event)
    for phase in range(4):
        parts = event_line(made.tape, event, phase).parts
        assert any("plans" in part.text for part in parts) == (phase >= 2)
