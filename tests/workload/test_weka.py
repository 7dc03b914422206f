"""Conversations of agents in the form of Weka's traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from blis_tui.base.errors import TraceError
from blis_tui.live.traffic.opening import format_of
from blis_tui.model import Trace
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import read_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.engine.request import Request

S: Final = 1_000_000


def call(at_s: float, prompt: int, blocks: Sequence[int], **more: object) -> dict[str, Any]:
    return {"t": at_s, "type": "n", "model": "m", "in": prompt, "out": 20, "hash_ids": list(blocks), "stop": "", **more}


def agent(at_s: float, calls: Sequence[object]) -> dict[str, Any]:
    return {
        "t": at_s, "type": "subagent", "agent_id": "agent_001", "subagent_type": "Explore", "status": "completed",
        "requests": list(calls), "models": ["m"],
    }  # fmt: skip


def conversation(name: str, *requests: object, **more: object) -> dict[str, Any]:
    keys = {"id": name, "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": list(requests)}
    return {**keys, **more}


WORK: Final = conversation(
    "a",
    call(0.0, 130, [1, 2], api_time=1.5),
    agent(2.0, [call(0.5, 70, [1], api_time=1.0), call(4.0, 140, [1, 9], type="s", ttft=0.2, api_time=0.5)]),
    call(6.0, 200, [1, 2, 3], api_time=2.0),
)


def read(folder: Path, *conversations: dict[str, Any], **settings: object) -> list[Request]:
    path = folder / "trace"
    path.write_text("".join(json.dumps(one) + "\n" for one in conversations), encoding="utf-8")
    table = read_trace(Trace(path=str(path), format="weka", sha256="", **settings), builtin())  # type: ignore[arg-type]
    return [table.request(row) for row in range(len(table))]


def test_calls_of_subagents_come_at_their_time(tmp_path: Path) -> None:
    """One call has a time from the subagent's beginning, one from that of the conversation."""
    requests = read(tmp_path, WORK)
    assert format_of(tmp_path / "trace", builtin()) == "weka"
    assert [(request.arrival_us, request.input_tokens, request.output_tokens) for request in requests] == [
        (0, 130, 20),
        (2_500_000, 70, 20),
        (4 * S, 140, 20),
        (6 * S, 200, 20),
    ]
    assert [request.session_id for request in requests] == ["a"] * 4
    assert [request.segments for request in requests] == [
        (("0", 64), ("1", 64)),
        (("0", 64),),
        (("0", 64),),
        (("0", 64), ("1", 64)),
    ]


@pytest.mark.parametrize(("scope", "shared"), [("local", False), ("global", True)])
def test_ids_mean_the_same_within_their_scope(scope: str, shared: bool, tmp_path: Path) -> None:
    conversations = [
        conversation(name, call(0.0, 130, [1, 2]), call(3.0, 130, [1, 2]), hash_id_scope=scope) for name in ("a", "b")
    ]
    requests = read(tmp_path, *conversations, rate_per_s=0.5)
    assert [(request.session_id, request.arrival_us) for request in requests] == [
        ("a", 0),
        ("b", 2 * S),
        ("a", 3 * S),
        ("b", 5 * S),
    ]
    assert requests[0].segments == requests[2].segments
    assert (requests[0].segments == requests[1].segments) == shared


@pytest.mark.parametrize("at_s", [0.0, 2.0])
def test_a_subagent_has_no_subagents(at_s: float, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, conversation("a", agent(at_s, [agent(at_s, [call(at_s, 70, [1])])])))
    assert [problem.column for problem in caught.value.problems] == ["requests[0].requests[0].type"]


def test_conversations_with_the_same_id_are_two_sessions(tmp_path: Path) -> None:
    requests = read(tmp_path, *[conversation("a", call(0.0, 130, [1, 2]))] * 2, rate_per_s=0.5)
    assert [(request.session_id, request.arrival_us) for request in requests] == [("a", 0), ("a-1", 2 * S)]


def test_conversations_need_a_rate(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not say when requests arrive"):
        read(tmp_path, conversation("a", call(0.0, 5, [])), conversation("b", call(0.0, 5, [])))


def test_a_closed_loop_waits_for_the_answers_that_were_waited_for(tmp_path: Path) -> None:
    read(tmp_path, WORK)
    (tmp_path / "one.blis.yaml").write_text(
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: one}\nmodel: llama-3.1-8b-instruct\nhardware: h100\n"
        "latency: roofline\nworkload: {trace: {file: trace, format: weka, pacing: answers}}\n"
    )
    simulation = Simulation(load(str(tmp_path / "one.blis.yaml")))
    simulation.run()
    rows = sorted(simulation.report().rows, key=lambda row: row.arrival_us)
    ends = [row.arrival_us + (row.e2e_us or 0) for row in rows]
    assert [row.input_tokens for row in rows] == [130, 70, 140, 200]
    # Recorded gaps from answer to call: 1.0, 0.5 and 1.5 s.
    assert [row.arrival_us - end for row, end in zip(rows[1:], ends, strict=False)] == [1 * S, S // 2, 3 * S // 2]
    assert [row.cached_tokens for row in rows] == [0, 64, 64, 128]
