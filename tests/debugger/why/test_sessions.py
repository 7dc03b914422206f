"""Why a request of a session came when it came: the figures are those of the requests before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import blis_tui
from blis_tui.base.units import span_text
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explain import explain_request
from blis_tui.debugger.why.explanation import sentence_text

if TYPE_CHECKING:
    from blis_tui.results.request_log import RequestRow

CHAT = {"turns": 3, "think_time_ms": {"kind": "exponential", "mean": 700}}
AGENT = {
    "turns": 1,
    "calls": [{"id": "plan"}, {"id": "tool", "after": ["plan"], "parallel": 2}, {"id": "sum", "after": ["tool"]}],
}


def sessions(session: dict[str, object]) -> tuple[Debugger, dict[str, list[RequestRow]]]:
    sets = {"workload.clients.0.session": session, "workload.sessions": 5, "workload.requests": None, "expect": []}
    debugger = Debugger(blis_tui.load("quickstart", set=sets))
    run_to_stop(debugger.run())
    found: dict[str, list[RequestRow]] = {}
    for row in debugger.simulation.report().rows:
        found.setdefault(row.session_id, []).append(row)
    assert len(found) == 5
    return debugger, found


def told(debugger: Debugger, row: RequestRow) -> list[str]:
    """What the explanation says of its session."""
    parts = explain_request(debugger, row.request_id).parts
    [part] = [part for part in parts if part.heading == "Session"]
    return [sentence_text(sentence) for sentence in part.sentences]


def end_of(row: RequestRow) -> int:
    assert row.e2e_us is not None
    return row.arrival_us + row.e2e_us


def test_a_conversation() -> None:
    debugger, found = sessions(CHAT)
    for name, (first, second, third) in found.items():
        assert told(debugger, first) == [f"It begins {name}, a session of 3 calls."]
        for call, (before, after) in enumerate([(first, second), (second, third)], start=2):
            waited = span_text(after.arrival_us - end_of(before))
            before_it = before.input_tokens + before.output_tokens
            assert told(debugger, after) == [
                f"It is call {call} of {name}, sent {waited} after {before.request_id}.",
                f"{before_it:,} of the {after.input_tokens:,} tokens of its prompt are the conversation so far.",
            ]


def test_the_calls_of_an_agent() -> None:
    debugger, found = sessions(AGENT)
    for name, (_, request, other, last) in found.items():
        slower = max(request, other, key=end_of)
        before_it = request.input_tokens + request.output_tokens + other.output_tokens
        assert told(debugger, last) == [
            f"It is call 4 of {name}, sent 0 us after {slower.request_id}, the last of 2 calls that it waited for.",
            f"{before_it:,} of the {last.input_tokens:,} tokens of its prompt are the conversation so far.",
        ]
