"""Rounds of agents as TraceLab records them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from blis_tui.live.traffic.opening import format_of
from blis_tui.model import Trace
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import read_trace

if TYPE_CHECKING:
    from pathlib import Path


def event(kind: str, second: float) -> dict[str, str]:
    return {"event_type": kind, "timestamp": f"2026-02-03T04:05:{second:06.3f}Z"}


def round_(session: str, prompt: int, prefix: int, output: int, *events: object, **more: object) -> dict[str, Any]:
    keys = {"session_id": session, "provider": "claude", "round_index": 0, "model": "m", "timing_events": list(events)}
    split = {"prefix_tokens": prefix, "newly_append_tokens": prompt - prefix, "input_tokens_total": prompt}
    return {**keys, **split, "output_tokens": output, **more}


ROUNDS = [
    round_("a", 320, 0, 64, event("user_message", 1.0), event("text", 2.5)),
    # Sent when the later of two results was there; its prompt begins with the first one's and its answer.
    round_("a", 480, 384, 32, event("tool_result", 3.0), event("tool_result", 4.0), event("tool_call", 5.0)),
    # Compacted: only the first 100 tokens are as before.
    round_("a", 200, 100, 10, event("user_message", 9.0), event("text", 9.5), reasoning_output_tokens=6),
    round_("b", 160, 160, 10, event("user_message", 0.5)),
    round_("c", 160, 160, 10),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace"
    path.write_text("".join(json.dumps(one) + "\n" for one in reversed(ROUNDS)))
    return path


def test_rounds_begin_with_what_the_engine_reported(trace: Path) -> None:
    assert format_of(trace, builtin()) == "tracelab"
    table = read_trace(Trace(path=str(trace), format="tracelab", sha256=""), builtin())
    requests = [table.request(row) for row in range(len(table))]
    assert [
        (request.session_id, request.arrival_us, request.input_tokens, request.output_tokens) for request in requests
    ] == [
        ("b", 0, 160, 10),
        ("a", 500_000, 320, 64),
        ("a", 3_500_000, 480, 32),
        ("a", 8_500_000, 200, 16),
    ]
    assert [table.took_us(row) for row in range(4)] == [-1, 1_500_000, 1_000_000, 500_000]
    first, second, third = (request.segments for request in requests[1:])
    assert second[: len(first)] == first
    assert [tokens for _, tokens in second] == [320, 64, 96]
    assert third == ((first[0][0], 100), (third[1][0], 100))
    assert [str(one) for one in table.left_out] == ["1 round without the times of `timing_events`"]


def test_a_closed_loop_finds_answers_in_the_cache(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "one.blis.yaml").write_text(
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: one}\nmodel: llama-3.1-8b-instruct\nhardware: h100\n"
        "latency: roofline\nworkload: {trace: {file: trace, format: tracelab, pacing: answers}}\n"
    )
    simulation = Simulation(load(str(tmp_path / "one.blis.yaml")))
    simulation.run()
    rows = sorted((row for row in simulation.report().rows if row.session_id == "a"), key=lambda row: row.arrival_us)
    assert [row.input_tokens for row in rows] == [320, 480, 200]
    # Whole blocks of 16 of 383 tokens (the answer's last one is not computed) and of 100.
    assert [row.cached_tokens for row in rows] == [0, 368, 96]
    gaps = [later.arrival_us - row.arrival_us - (row.e2e_us or 0) for row, later in pairwise(rows)]
    assert gaps == [1_500_000, 4_000_000]
