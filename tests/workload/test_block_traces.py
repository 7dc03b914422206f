"""Traces that name blocks of their prompts: Mooncake's with sizes and sessions, and Bailian's."""

from __future__ import annotations

import json
import tracemalloc
from array import array
from itertools import combinations, takewhile
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import TraceError
from blis_tui.engine.records import Completed
from blis_tui.model import Trace
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import read_trace
from blis_tui.workload.traces.trace_blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from blis_tui.engine.request import Request, Segments
    from blis_tui.workload.traces.trace_table import TraceTable

MS: Final = 1000
S: Final = 1_000_000
SPEC: Final = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: replay}
model: llama-3.1-8b-instruct
hardware: h100
latency: roofline
workload: {trace: {file: trace, %s}}
"""


def table(folder: Path, form: str, rows: Iterable[dict[str, object]], **settings: object) -> TraceTable:
    path = folder / "trace"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    trace = Trace(path=str(path), format=form, sha256="", **settings)  # type: ignore[arg-type]
    return read_trace(trace, builtin())


def requests(*args: object, **settings: object) -> list[Request]:
    found = table(*args, **settings)  # type: ignore[arg-type]
    return [found.request(row) for row in range(len(found))]


def row(**cells: object) -> dict[str, object]:
    return {"input_length": 100, "output_length": 10, **cells}


def shared(request: Request, other: Request) -> int:
    """Tokens of the common beginning of two prompts."""
    return common(request.segments, other.segments)


def common(segments: Segments, other: Segments) -> int:
    """Tokens of the common beginning of two lists of segments."""
    count = 0
    for (name, tokens), (other_name, others) in zip(segments, other, strict=False):
        if name != other_name:
            break
        count += min(tokens, others)
        if tokens != others:
            break
    return count


@pytest.mark.parametrize("where", ["header", "rows", "workload"])
def test_blocks_have_the_size_that_is_said(where: str, tmp_path: Path) -> None:
    head = [{"block_size": 64}] if where == "header" else []
    size = {"block_size": 64} if where == "rows" else {}
    rows = [
        row(timestamp=at, input_length=200, hash_ids=ids, **size) for at, ids in enumerate(([0, 1, 2, 3], [0, 1, 4, 5]))
    ]
    settings = {"block_size_tokens": 64} if where == "workload" else {}
    first, second = requests(tmp_path, "mooncake", [*head, *rows], **settings)
    assert (first.input_tokens, shared(first, second)) == (200, 128)
    assert [first.arrival_us, second.arrival_us] == [0, MS]


CONVERSATIONS: Final = [
    row(session_id="a", timestamp=500, input_length=600, hash_ids=[1, 2]),
    row(session_id="b", timestamp=700, input_length=700, hash_ids=[1, 5]),
    row(session_id="a", delay=2000, input_length=1100, hash_ids=[1, 2, 3]),
]


def test_a_delay_counts_from_the_answer_before_it(tmp_path: Path) -> None:
    """By the clock an answer takes no time, which is said; in a closed loop the simulated one is waited for."""
    by_clock = table(tmp_path, "mooncake", CONVERSATIONS)
    assert [by_clock.arrival_us(at) for at in range(3)] == [500 * MS, 700 * MS, 2500 * MS]
    assert [(by_clock.session(at), by_clock.round(at)) for at in range(3)] == [("a", 0), ("b", 0), ("a", 1)]
    assert [one.count for one in by_clock.left_out] == [1]
    (tmp_path / "one.blis.yaml").write_text(SPEC % "format: mooncake, pacing: answers")
    simulation = Simulation(load(str(tmp_path / "one.blis.yaml")))
    simulation.run()
    assert simulation.left_out == ()
    rows = {(request.session_id, request.input_tokens): request for request in simulation.report().rows}
    first, second = rows["a", 600], rows["a", 1100]
    assert first.e2e_us is not None
    assert second.arrival_us == first.arrival_us + first.e2e_us + 2000 * MS
    assert (second.cached_tokens, rows["b", 700].cached_tokens) == (600 // 16 * 16, 512)


def test_sessions_without_times_begin_at_a_rate(tmp_path: Path) -> None:
    rows = [
        row(session_id=7, input_length=300, output_length=40),
        row(session_id=8, input_length=50),
        row(session_id=7, delay=30, input_length=150, output_length=20),
    ]
    found = requests(tmp_path, "mooncake", rows, rate_per_s=10.0)
    assert [(request.session_id, request.arrival_us) for request in found] == [
        ("7", 0),
        ("7", 30 * MS),
        ("8", 100 * MS),
    ]
    # Without ids of blocks, a length is that of new text: everything said before comes first.
    assert [request.input_tokens for request in found] == [300, 300 + 40 + 150, 50]
    whole = [one | {"context_mode": "message_array_with_responses"} for one in rows]
    assert [request.input_tokens for request in requests(tmp_path, "mooncake", whole, rate_per_s=10.0)] == [
        300,
        150,
        50,
    ]


def test_arrivals_at_a_rate_may_be_poisson(tmp_path: Path) -> None:
    rows = [row(session_id=number) for number in range(4000)]
    even = [request.arrival_us for request in requests(tmp_path, "mooncake", rows, rate_per_s=50.0)]
    assert even == [number * S // 50 for number in range(4000)]
    trace = Trace(path=str(tmp_path / "trace"), format="mooncake", sha256="", rate_per_s=50.0, arrivals="poisson")
    tables = [read_trace(trace, builtin(), seed) for seed in (1, 1, 2)]
    times = [[trace_table.arrival_us(at) for at in range(4000)] for trace_table in tables]
    assert times[0] == times[1] != times[2]
    gaps = [later - one for one, later in zip(times[0], times[0][1:], strict=False)]
    mean = times[0][-1] / 4000
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert (abs(mean - 20 * MS) < 1 * MS, abs(deviation / mean - 1) < 0.06) == (True, True)
    with pytest.raises(TraceError, match="`arrivals` does not apply"):
        table(tmp_path, "mooncake", CONVERSATIONS, arrivals="poisson")


def chat(number: int, parent: int, at_s: float, blocks: list[int], **more: object) -> dict[str, object]:
    ids = {"chat_id": number, "parent_chat_id": parent, "timestamp": at_s, "type": "text", "turn": 1 + (parent >= 0)}
    return {**ids, **row(input_length=16 * len(blocks) or 5, hash_ids=blocks), **more}


def test_bailian_counts_seconds_and_blocks_of_sixteen(tmp_path: Path) -> None:
    rows = [chat(1, -1, 10.0, [4, 5]), chat(2, 1, 13.25, [4, 5, 6]), chat(9, -1, 14.0, [4, 7], input_length=30)]
    found = requests(tmp_path, "bailian", rows)
    assert [(request.arrival_us, request.input_tokens) for request in found] == [
        (10 * S, 32),
        (13_250_000, 48),
        (14 * S, 30),
    ]
    assert [shared(found[0], request) for request in found[1:]] == [32, 16]
    assert [request.session_id for request in found] == ["chat-1", "chat-1", "chat-9"]


def test_a_conversation_of_bailian_is_what_leads_to_its_first_request(tmp_path: Path) -> None:
    """Parents may be missing, in any order, or in a circle."""
    links = [(5, 4), (4, 3), (3, -1), (6, 3), (8, 100), (9, 8), (20, 21), (21, 20)]
    found = requests(tmp_path, "bailian", [chat(one, parent, 1.0, []) for one, parent in links])
    sessions = dict(zip([one for one, _ in links], [request.session_id for request in found], strict=True))
    assert {sessions[one] for one in (3, 4, 5, 6)} == {"chat-3"}
    assert {sessions[one] for one in (8, 9)} == {"chat-8"}
    assert sessions[20] == sessions[21]


def test_bailian_says_how_many_prompts_name_no_blocks(tmp_path: Path) -> None:
    rows = [chat(1, -1, 1.0, []), chat(2, -1, 2.0, [3]), {**chat(3, -1, 3.0, []), "hash_ids": None}]
    found = table(tmp_path, "bailian", rows)
    (left,) = found.left_out
    assert (left.count, found.has_column("segments")) == (2, True)
    assert not table(tmp_path, "bailian", rows[:1]).has_column("segments")


def test_a_closed_loop_of_bailian_sends_what_was_recorded(tmp_path: Path) -> None:
    blocks = list(range(40))
    rows = [chat(number, number - 1 or -1, float(number), blocks[: 10 * number]) for number in (1, 2, 3)]
    table(tmp_path, "bailian", rows)
    (tmp_path / "one.blis.yaml").write_text(SPEC % "format: bailian, pacing: answers")
    simulation = Simulation(load(str(tmp_path / "one.blis.yaml")))
    ends: dict[str, int] = {}
    simulation.subscribe(Completed, lambda record: ends.update({record.request_id: record.time_us}))
    simulation.run()
    found = sorted(simulation.report().rows, key=lambda request: request.arrival_us)
    assert [request.input_tokens for request in found] == [160, 320, 480]
    assert [request.cached_tokens for request in found] == [0, 160, 320]
    assert found[1].arrival_us == ends[found[0].request_id] + S


@pytest.mark.parametrize(
    ("form", "settings", "problem"),
    [
        ("azure", {"block_size_tokens": 16}, "`block_size_tokens` does not apply"),
        ("mooncake", {"bytes_per_token": 3.0}, "`bytes_per_token` does not apply"),
    ],
)
def test_settings_of_other_formats_are_errors(
    form: str, settings: dict[str, object], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=problem):
        table(tmp_path, form, CONVERSATIONS, **settings)


def test_few_of_many_ids_take_little_memory() -> None:
    """One prompt in thousands of a trace: each id is a little beyond those before it."""
    tracemalloc.start()
    blocks = Blocks(16)
    for row in range(200):
        blocks.add([row * 60_000, row * 60_000 + 1])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8_000_000
    assert [*blocks.segments(array("q", [32] * 200))] == [()] * 200


@given(
    st.lists(
        st.lists(st.sampled_from([0, 1, 2, 65_535, 66_000, 70_000, 2**50, 2**53]), max_size=6), min_size=2, max_size=8
    )
)
def test_ids_of_any_size_share_what_is_equal(prompts: list[list[int]]) -> None:
    """The reference compares every two prompts block by block."""
    blocks = Blocks(16)
    for ids in prompts:
        blocks.add(ids)
    found = [*blocks.segments(array("q", (16 * len(ids) for ids in prompts)))]
    for one, other in combinations(range(len(prompts)), 2):
        equal = [*takewhile(lambda pair: pair[0] == pair[1], zip(prompts[one], prompts[other], strict=False))]
        assert common(found[one], found[other]) == 16 * len(equal)
