"""The list of sessions and the course of one, driven by keys; what they say is tested where it is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.units import count_text, percent_text, span_text, time_text
from blis_tui.debugger.why.session_course import read_session
from blis_tui.tui.panes.sessions import course_lines, listed_sessions, session_lines, state_text
from tests.debugger.why.test_session_course import whole
from tests.tui.debugging import debugging
from tests.tui.pane_harness import text_of, view_at
from tests.tui.screens import screen_text

if TYPE_CHECKING:
    from blis_tui.debugger.why.session_course import SessionCourse
    from blis_tui.tui.view import View


def course_of(view: View, name: str) -> SessionCourse:
    place = view.tape.sessions.place(name)
    assert place is not None
    moment = view.moment
    return read_session(view.tape, view.experiment, place, moment.event, moment.settled, over=moment.at_end)


def test_the_list_has_those_under_way_first_and_then_the_latest_ends() -> None:
    view = view_at(whole(), 1400)
    lines = session_lines(view, 150)
    names = [line.subject.value for line in lines if line.subject]
    sessions = [course_of(view, name) for name in names]
    live = [session for session in sessions if not session.ended]
    assert sessions[: len(live)] == live
    assert [session.began_us for session in live] == sorted(session.began_us for session in live)
    text = text_of(lines)
    assert f"sessions {len(names)}  in progress {len(live)}" in text
    assert f"calls in flight {sum(session.in_flight for session in sessions)}" in text
    for session in sessions:
        row = next(line for line in text.splitlines() if line.startswith(f"{session.name} "))
        said, cached = session.history
        assert state_text(session)[0] in row
        assert f"{session.turn} of {session.turns}  " in row
        assert f"{len(session.calls)} of {session.length}" in row
        assert row.endswith(time_text(session.began_us))
        assert re.search(rf"\b{count_text(session.context_tokens)}\b", row)
        assert (percent_text(cached, said) if said else "-") in row


def test_a_course_has_a_line_for_each_call_also_those_to_come() -> None:
    end = view_at(whole(), whole().frontier)
    order, _, _ = listed_sessions(end)
    name = next(
        end.tape.sessions.name(one)
        for one in order
        if end.tape.sessions.name(one).startswith("agent")
        and len(course_of(end, end.tape.sessions.name(one)).calls) > 5
    )
    calls = course_of(end, name).calls
    view = view_at(whole(), calls[3].sent.event)
    text = text_of(course_lines(view, name, 200))
    assert "dimmed: later, already simulated" in text
    for call in calls:
        (row,) = (line for line in text.splitlines() if f" {call.name} " in line)
        assert time_text(call.time_us) in row
        assert row.startswith(f"{call.call // 4 + 1} {('plan', 'search', 'search', 'answer')[call.call % 4]}")
        what = "think" if call.call % 4 == 0 else "tool"
        assert (f"{span_text(call.sent.waited_us)} {what}" if call.call else "begins") in row
    assert "begins later, at" in text_of(course_lines(view_at(whole(), calls[0].sent.event - 1), name, 80))


@pytest.mark.parametrize("width", [55, 78, 130, 200])
def test_no_line_is_wider_than_the_pane(width: int) -> None:
    for event in (0, 1, 1400, whole().frontier):
        view = view_at(whole(), event)
        lines = session_lines(view, width)
        for session in range(0, view.tape.sessions.begun(event), 5):
            lines += course_lines(view, view.tape.sessions.name(session), width)
        assert all(line.draw().cell_length <= width for line in lines)


def test_longer_names_of_calls_to_come_keep_the_columns_straight() -> None:
    seen = 0
    for session in range(whole().tape.sessions.begun(whole().frontier)):
        first = whole().tape.sessions.calls(session)[0]
        view = view_at(whole(), first.event)
        lines = course_lines(view, view.tape.sessions.name(session), 130)
        title, *rows = [line.draw().plain for line in lines][-1 - len([line for line in lines if line.subject]) :]
        seen += len({len(line.subject.value) for line in lines if line.subject}) > 1
        assert {len(row) for row in rows} == {len(title)}
    assert seen


async def test_from_the_list_to_a_call_a_breakpoint_and_back() -> None:
    async with debugging("conversations", requests=30, at_once=True) as here:

        def opened() -> str | None:
            return here.session.selection.session

        await here.press("end", "g")
        await here.type("900")
        await here.press("S", "down", "down")
        assert opened() is None
        await here.press("b")
        (one,) = here.session.breakpoints
        assert one.text.startswith("session chat-")
        name = one.text.removeprefix("session ")
        await here.press("enter")
        assert opened() == name
        assert f"{name}  " in screen_text(here.app)
        await here.press("question_mark")
        assert "request_1: " in screen_text(here.app), "the latest call, where the cursor is at none"
        await here.press("escape")
        await here.press("down", "down")
        request = here.session.selection.request
        log = here.debugger.tape.sessions
        place = log.place(name)
        assert place is not None
        calls = log.calls(place)
        assert request == here.debugger.tape.name(calls[1].request)
        await here.press("question_mark")
        assert f"─ {request} ─" in screen_text(here.app)
        assert "It has not arrived yet." in screen_text(here.app)
        await here.press("escape")
        await here.press("enter")
        assert here.event == calls[1].event
        await here.press("home", "r")
        assert here.event == calls[0].event
        await here.press("r")
        assert here.event == calls[1].event
        await here.press("escape")
        assert opened() is None
        assert "sessions " in screen_text(here.app)
