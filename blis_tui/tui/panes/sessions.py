"""Sessions: those in progress and what each is doing; and one session call by call."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.units import count_text, percent_text, plural, span_text, time_text
from blis_tui.debugger.why.explanation import Subject
from blis_tui.debugger.why.session_course import (
    CANCELLED,
    COMPLETED,
    RUNNING,
    THINKING,
    TOOL,
    UNFINISHED,
    client_of,
    read_session,
)
from blis_tui.engine.records import described
from blis_tui.tui.drawing.life_line import GlyphStyle
from blis_tui.tui.drawing.lines import BLANK, Column, Line, cells, fact, fit, flow, line, remark, shorten, titles
from blis_tui.tui.panes.pane import Pane, session_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.debugger.why.session_course import CallCourse, SessionCourse
    from blis_tui.tui.drawing.lines import Part
    from blis_tui.tui.view import View


STATE_STYLES: Final[Mapping[str, GlyphStyle]] = MappingProxyType(
    {
        RUNNING: GlyphStyle("●", "running", "$primary"),
        THINKING: GlyphStyle("○", "think time", "$text-muted"),
        TOOL: GlyphStyle("◇", "tool wait", "$secondary"),
        COMPLETED: GlyphStyle("✓", "completed", "$success"),
        CANCELLED: GlyphStyle("✗", "cancelled", "$error"),
        UNFINISHED: GlyphStyle("–", "unfinished", "$warning"),  # noqa: RUF001  (a dash)
    }
)
_LATER: Final = "$text-muted dim"
_WAITS, _TO_FIRST_TOKEN, _GENERATES = "·░█"
_NONE: Final = "No session has begun yet."


# ---- list ----


def listed_sessions(view: View) -> tuple[list[int], int, int]:
    """Return the sessions in list order: those in progress, then the ended ones, the latest end first.

    Returns:
        Their indices in the log, how many are in progress, and how many of the others completed.
    """
    log, event = view.tape.sessions, view.moment.event
    live: list[int] = []
    ended: list[tuple[int, int]] = []
    completed = 0
    for session in range(log.begun(event)):
        end = log.end(session, event)
        if end is None:
            live.append(session)
        else:
            ended.append((-end[0], session))
            completed += end[1]
    return [*live, *(session for _, session in sorted(ended))], len(live), completed


def session_lines(view: View, width: int) -> list[Line]:
    """Return a line for each session that has started."""
    order, live, completed = listed_sessions(view)
    if not order:
        return [line((_NONE, "$text-muted"))]
    cancelled = len(order) - live - completed
    facts = [
        fact("sessions", count_text(len(order))),
        fact("unfinished" if view.moment.at_end else "in progress", count_text(live)),
        fact("completed", count_text(completed)),
        fact("cancelled", count_text(cancelled), "$error" if cancelled else ""),
        fact("calls in flight", count_text(view.tape.sessions.in_flight(view.moment.event))),
    ]
    names = max(len(view.tape.sessions.name(session)) for session in order)
    several = any(client.session is not None and client.session.calls for client in view.experiment.workload.clients)
    columns = fit([column for column in _columns(names) if several or column.title != "calls"], width)
    rows = [
        Line(partial(_row, view, columns, session), Subject("session", view.tape.sessions.name(session)))
        for session in order
    ]
    return [*map(line, flow(facts, width)), titles(columns), *rows]


def _row(view: View, columns: Sequence[Column[SessionCourse]], session: int) -> Content:
    moment = view.moment
    course = read_session(
        view.tape, view.experiment, session, moment.event, moment.settled, over=moment.at_end and moment.complete
    )
    return cells(columns, course)


def _columns(names: int) -> Iterator[Column[SessionCourse]]:
    yield Column("session", min(max(names, 7), 24), lambda course, room: shorten(course.name, room))
    yield Column("state", 22, lambda course, _: state_text(course))
    yield Column("turn", 8, lambda course, _: f"{course.turn} of {course.turns}", right=True)
    yield Column("calls", 10, lambda course, _: f"{len(course.calls)} of {course.length}", right=True, rank=4)
    yield Column(
        "in flight", 9, lambda course, _: count_text(course.in_flight) if course.in_flight else "-", right=True, rank=2
    )
    yield Column("context", 9, lambda course, _: count_text(course.context_tokens), right=True, rank=1)
    yield Column(
        "history", 9, lambda course, _: count_text(course.history[0]) if course.history[0] else "-", right=True, rank=3
    )
    yield Column("cached", 6, lambda course, _: cached_text(*course.history), right=True)
    yield Column("began", 14, lambda course, _: time_text(course.began_us), right=True, rank=5)


def state_text(course: SessionCourse) -> tuple[str, str]:
    """Return what a session is doing, and for how long; its duration if it has ended."""
    look = STATE_STYLES[course.state]
    if course.state == UNFINISHED:
        return look.label, look.style
    if course.ended:
        return f"{look.label} in {span_text(course.since_us - course.began_us)}", look.style
    return f"{look.label}, {span_text(max(course.now_us - course.since_us, 0))}", look.style


def cached_text(sent: int, cached: int) -> str:
    """Return the share of the history found in the prefix cache; a dash without history."""
    return percent_text(cached, sent) if sent else "-"


# ---- one session ----


def course_lines(view: View, name: str, width: int) -> list[Line]:
    """Return a session call by call: what each waited for, its prompt's history, and its outcome."""
    log, moment = view.tape.sessions, view.moment
    session = log.place(name)
    if session is None or session >= log.begun(moment.event):
        when = f"{name} has not begun yet."
        if session is not None:
            when = f"{name} begins later, at {time_text(view.tape.time_us(log.began(session)))}."
        return remark(when, width)
    course = read_session(
        *(view.tape, view.experiment, session, moment.event, moment.settled),
        over=moment.at_end and moment.complete,
        ahead=True,
    )
    columns = fit(list(_call_columns(course)), width)
    rows = [
        Line(partial(cells, columns, call), Subject("call", call.name), "enter: go to when it was sent")
        for call in (*course.calls, *course.later)
    ]
    return [*map(line, flow(_facts(view, course), width)), BLANK, titles(columns), *rows]


def _facts(view: View, course: SessionCourse) -> Iterator[Content]:
    yield Content.styled(course.name, "bold")
    yield Content.styled(*state_text(course))
    client = client_of(view.experiment.workload.clients, course.name)
    if client is not None:
        yield fact("client", client.id)
    yield fact("turn", f"{course.turn} of {course.turns}")
    if course.length != course.turns:
        yield fact("calls sent", f"{len(course.calls)} of {course.length}")
    yield fact("in flight", count_text(course.in_flight))
    yield fact("began", time_text(course.began_us))
    yield fact("context", plural(course.context_tokens, "token"))
    sent, cached = course.history
    if sent:
        yield fact("history sent", f"{plural(sent, 'token')}, {percent_text(cached, sent)} cached")
    if course.later:
        yield Content.styled("dimmed: later, already simulated", "$text-muted")


def _call_columns(course: SessionCourse) -> Iterator[Column[CallCourse]]:
    size = len(course.plan.calls)
    names = max(len(call.name) for call in (*course.calls, *course.later))
    labels = max(len(call.name) for call in course.plan.calls)
    later = {call.sent.request for call in course.later}

    def part(text: str, style: str, call: CallCourse) -> Part:
        return text, _LATER if call.sent.request in later else style

    def turn(call: CallCourse, _: int) -> Part:
        return part(f"{call.call // size + 1} {course.plan.calls[call.call % size].name}".rstrip(), "", call)

    def after(call: CallCourse, _: int) -> Part:
        if call.sent.last < 0:
            return part("begins", "$text-muted", call)
        what = "think" if call.call % size in course.plan.starts else "tool"
        return part(f"{span_text(call.sent.waited_us)} {what}", STATE_STYLES[THINKING].style, call)

    def prompt(call: CallCourse, _: int) -> Part:
        return part(count_text(call.input_tokens), "", call)

    def history(call: CallCourse, _: int) -> Part:
        return part(count_text(call.sent.history_tokens) if call.sent.history_tokens else "-", "", call)

    def cached(call: CallCourse, _: int) -> Part:
        known = call.cached_tokens >= 0
        return part(
            cached_text(call.sent.history_tokens, min(call.cached_tokens, call.sent.history_tokens)) if known else "",
            "",
            call,
        )

    def ttft(call: CallCourse, _: int) -> Part:
        return part("" if call.first_token_us < 0 else span_text(call.first_token_us - call.time_us), "", call)

    def answer(call: CallCourse, _: int) -> Part:
        if call.end is None:
            return part("in flight", STATE_STYLES[RUNNING].style, call)
        shown = described(call.end.what)
        if not call.answered:
            return part(f"{shown.sign} {shown.label}", f"${shown.colour}", call)
        return part(f"{count_text(call.output_tokens)} in {span_text(call.end_us - call.time_us)}", "", call)

    yield Column("turn", min(max(4, 3 + labels), 14), turn)
    yield Column("request", max(names, 7), lambda call, _: part(call.name, "", call))
    yield Column("sent", 14, lambda call, _: part(time_text(call.time_us), "", call), right=True, rank=5)
    yield Column("waited", 13, after, right=True)
    yield Column("prompt", 7, prompt, right=True, rank=4)
    yield Column("history", 8, history, right=True, rank=3)
    yield Column("cached", 6, cached, right=True, rank=1)
    yield Column("TTFT", 7, ttft, right=True, rank=2)
    yield Column("answer", 15, answer, right=True)
    yield Column("course", 16, partial(_bar, course), rank=6, grows=True, most=80)


def _bar(course: SessionCourse, call: CallCourse, width: int) -> Part:
    """Return a bar of when the call waited, was computed and generated, over the session's known duration."""
    known = (*course.calls, *course.later)
    last_us = max(course.now_us if not course.ended else 0, *(max(each.end_us, each.time_us) for each in known))
    whole_us = max(last_us - course.began_us, 1)

    def cell(time_us: int) -> int:
        return min((time_us - course.began_us) * width // whole_us, width - 1)

    end_us = call.end_us if call.end is not None else course.now_us
    first = cell(call.time_us)
    decodes = cell(call.first_token_us) if call.first_token_us >= 0 else cell(end_us) + 1
    row = [" "] * width
    for at in range(cell(call.time_us - call.sent.waited_us), cell(end_us) + 1):
        row[at] = _WAITS if at < first else (_TO_FIRST_TOKEN if at < decodes else _GENERATES)
    return "".join(row), _LATER if call in course.later else "$primary"


# ---- the pane ----


def _lines(view: View, width: int) -> list[Line]:
    opened = view.selection.session
    return session_lines(view, width) if opened is None else course_lines(view, opened, width)


def _hint(view: View) -> str:
    if view.selection.session is None:
        return "enter its calls · b stop at each"
    return "enter go to the call · b stop at each · escape all sessions"


def _cursor(view: View, left: Subject | None) -> Subject | None:
    """Return the call of the selected request; in the list the last session, or that of the request."""
    request, opened = view.selection.request, view.selection.session
    if opened is None and left is not None and left.kind == "session":
        return left
    session = None if request is None else session_of(view, request)
    if request is None or session is None:
        return None
    if opened is None:
        return Subject("session", session)
    return Subject("call", request) if session == opened else None


def _points(view: View, cursor: Subject | None) -> Subject | None:
    """Return the call or the session of the line; else the session that is open."""
    opened = view.selection.session
    return cursor if cursor is not None or opened is None else Subject("session", opened)


PANE: Final = Pane(
    lines=lambda view, room: _lines(view, room.width),
    hint=_hint,
    lacks=lambda experiment: "" if any(client.session is not None for client in experiment.workload.clients) else ".",
    cursor=_cursor,
    points=_points,
)
