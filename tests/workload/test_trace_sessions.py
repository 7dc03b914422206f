"""Sessions of a trace as a closed loop: the next prompt waits for the answer, as long as somebody thought then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import blis_tui
from blis_tui.base.errors import TraceError
from blis_tui.output.tables import requests_csv, rows_csv

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.results.report import Report

CHAT: dict[str, Any] = {
    "id": "chat",
    "prefix": {"group": "system", "tokens": 64},
    "input_tokens": {"kind": "uniform", "min": 20, "max": 200},
    "output_tokens": {"kind": "uniform", "min": 10, "max": 80},
    "session": {
        "turns": {"kind": "uniform", "min": 1, "max": 4},
        "think_time_ms": {"kind": "exponential", "mean": 400},
    },
}
AGENT: dict[str, Any] = {
    "id": "agent",
    "input_tokens": 150,
    "output_tokens": {"kind": "uniform", "min": 10, "max": 60},
    "reasoning": {"ratio": 0.5},
    "session": {
        "turns": 2,
        "calls": [
            {"id": "plan"},
            {"id": "search", "after": ["plan"], "parallel": 2, "wait_ms": {"kind": "exponential", "mean": 200}},
            {"id": "read", "after": ["plan"], "history": False, "input_tokens": 300},
            {"id": "answer", "after": ["search", "read"]},
        ],
    },
}
LONE: dict[str, Any] = {"id": "lone", "input_tokens": 60, "output_tokens": 20, "share": 0.3}


def run(workload: Mapping[str, object], **changes: object) -> Report:
    return blis_tui.run(blis_tui.load("quickstart", set={"workload": workload, "expect": [], **changes}))


@pytest.fixture(scope="module")
def sessions() -> Report:
    return run({"rate_per_s": 12, "sessions": 24, "clients": [CHAT, AGENT]})


def replay(file: Path, form: str = "requests", **changes: object) -> Report:
    return run({"trace": {"file": str(file), "format": form, "pacing": "answers"}}, **changes)


def test_a_run_of_sessions_replays_byte_for_byte(sessions: Report, tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text(written := "".join(requests_csv(sessions.rows, sessions.rows.columns)))
    again = replay(file)
    assert "".join(requests_csv(again.rows, again.rows.columns)) == written
    assert again.sessions == sessions.sessions
    assert again.kv == sessions.kv


@pytest.mark.parametrize(
    ("agent", "changes", "state"),
    [
        ({"timeout_us": 400_000}, {}, "timed-out"),
        ({"timeout_us": 900_000}, {"engine.kv_blocks": 60}, "timed-out"),
        ({}, {"engine.max_model_len": 600}, "dropped-unservable"),
        (
            {},
            {"policy.admission": {"kind": "token-bucket", "capacity_tokens": 900, "refill_tokens_per_s": 900}},
            "rejected",
        ),
        (
            {},
            {"cluster.instances": 2, "cluster.failures": [{"instance": 0, "at_us": 900_000, "requests": "lose"}]},
            "lost",
        ),
    ],
    ids=["timed out", "timed out under preemption", "dropped", "rejected", "lost"],
)
def test_so_does_one_in_which_calls_get_no_answer(
    agent: dict[str, Any], changes: dict[str, object], state: str, tmp_path: Path
) -> None:
    """Calls that ran beside one without an answer did not wait for it."""
    before = run({"rate_per_s": 12, "sessions": 40, "clients": [AGENT | agent]}, **changes)
    assert state in {row.state for row in before.rows}
    assert before.sessions is not None
    assert before.sessions.cancelled > 0
    file = tmp_path / "requests.csv"
    file.write_text(written := "".join(requests_csv(before.rows, before.rows.columns)))
    again = run({"trace": {"file": str(file), "pacing": "answers"}}, **changes)
    assert "".join(requests_csv(again.rows, again.rows.columns)) == written


def test_sessions_and_lone_requests_go_together(tmp_path: Path) -> None:
    before = run({"rate_per_s": 12, "requests": 60, "clients": [CHAT, LONE]})
    file = tmp_path / "requests.csv"
    file.write_text(written := "".join(requests_csv(before.rows, before.rows.columns)))
    again = replay(file)
    assert "".join(requests_csv(again.rows, again.rows.columns)) == written


def test_the_load_follows_the_cluster(sessions: Report, tmp_path: Path) -> None:
    """On a slower cluster, prompts come as long after the answers as before."""
    file = tmp_path / "requests.csv"
    file.write_text("".join(requests_csv(sessions.rows, sessions.rows.columns)))
    slow = replay(file, latency={"kind": "roofline", "alpha": [0.0, 0.0, 30_000.0]})
    chats = {(row.session_id, row.round_index): row for row in sessions.rows if row.session_id.startswith("chat")}
    slower = {(row.session_id, row.round_index): row for row in slow.rows if row.session_id.startswith("chat")}
    assert chats.keys() == slower.keys()
    later = 0
    for (session, number), row in slower.items():
        if number:
            thought = [
                rows[session, number].arrival_us - rows[session, number - 1].arrival_us - e2e_of(rows, session, number)
                for rows in (chats, slower)
            ]
            assert thought[0] == thought[1]
            later += row.arrival_us > chats[session, number].arrival_us
    assert later > 5


def e2e_of(rows: Mapping[Any, Any], session: str, number: int) -> int:
    took: int = rows[session, number - 1].e2e_us
    return took


def test_tracev2_tells_when_answers_were_there(tmp_path: Path) -> None:
    before = run({"rate_per_s": 12, "sessions": 10, "clients": [CHAT]})
    file = tmp_path / "trace.csv"
    file.write_text("".join(rows_csv(before.rows)))
    again = replay(file, "tracev2")
    # Prompts that are long enough begin with what was said, so as much is cached.
    columns = ("request_id", "arrival_us", "e2e_us", "input_tokens", "cached_tokens", "session_id", "round_index")
    assert [[getattr(row, name) for name in columns] for row in again.rows] == [
        [getattr(row, name) for name in columns] for row in before.rows
    ]


def test_conversations_of_sharegpt_have_all_their_turns(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    messages = [{"from": who, "value": "x" * (4 * tokens)} for who, tokens in (("human", 50), ("gpt", 20)) * 3]
    file.write_text(json.dumps([{"id": "a", "conversations": messages}, {"id": "b", "conversations": messages[:3]}]))
    report = run({"trace": {"file": str(file), "format": "sharegpt", "rate_per_s": 2, "pacing": "answers"}})
    found = [(row.session_id, row.round_index, row.input_tokens, row.output_tokens) for row in report.rows]
    assert sorted(found) == [
        ("conversation-0", 0, 50, 20),
        ("conversation-0", 1, 120, 20),
        ("conversation-0", 2, 190, 20),
        ("conversation-1", 0, 50, 20),
    ]
    first, second = (row for row in report.rows if row.session_id == "conversation-0" and (row.round_index or 0) < 2)
    assert second.arrival_us == first.e2e_us
    assert [row.arrival_us for row in report.rows if row.session_id == "conversation-1"] == [500_000]


def test_spans_tell_when_calls_ended(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    spans = []
    for start_ms, end_ms, tokens in ((0, 900, 100), (1_400, 2_000, 160)):
        usage = {"gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": 20, "gen_ai.conversation.id": "c"}
        spans.append({"start_time": start_ms * 10**6, "end_time": end_ms * 10**6, "attributes": usage})
    file.write_text("\n".join(map(json.dumps, spans)))
    first, second = replay(file, "otel", **{"cluster.instances": 1}).rows
    assert first.e2e_us is not None
    assert second.arrival_us == first.e2e_us + 500_000
    assert second.cached_tokens == 112  # seven blocks of the 100 tokens that were asked, and the 20 of their answer


def test_prompts_that_join_answers_are_as_long_as_recorded(tmp_path: Path) -> None:
    """What was said in parallel is in the prompt that waited for all of it, wherever that is."""
    columns = "arrival_time_us,input_tokens,output_tokens,session_id,e2e_us\n"
    rows = "0,100,10,a,500000\n1500000,200,20,a,900000\n1600000,300,30,a,400000\n2500000,350,10,a,100000\n"
    (tmp_path / "agent.csv").write_text(columns + rows)
    report = replay(tmp_path / "agent.csv")
    assert [row.input_tokens for row in report.rows] == [100, 200, 300, 350]


def test_without_sessions_nobody_waits(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text("arrival_time_us,input_tokens,output_tokens\n0,10,5\n")
    with pytest.raises(TraceError, match="the file names none"):
        replay(file)
