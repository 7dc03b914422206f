"""The formats of recorded workloads: what each says, on small files and on the published ones."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import InputError, SpecError, TraceError, install_command
from blis_tui.model import Trace
from blis_tui.spec.shipped import builtin
from blis_tui.spec.validate import validate
from blis_tui.workload.traces import trace_text
from blis_tui.workload.traces.read import TRACES, check_trace, read_trace
from blis_tui.workload.traces.trace_table import TraceTable
from blis_tui.workload.traces.trace_text import Problems, TraceText
from tests.zstandard import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.request import Request

PUBLISHED: Final = Path(__file__).parents[2].parent / "shared/data/traces"
HEADER: Final = "arrival_time_us,input_tokens,output_tokens"
JSON_FORMATS: Final = ("mooncake", "bailian", "weka", "tracelab", "sharegpt", "vllm-bench", "otel")
needs_shared = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published traces are not here")


def read(path: Path, form: str, **settings: object) -> list[Request]:
    table = read_trace(Trace(path=str(path), format=form, sha256="", **settings), builtin())  # type: ignore[arg-type]
    return [table.request(row) for row in range(len(table))]


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def figures(requests: list[Request]) -> list[tuple[int, int, int]]:
    return [(request.arrival_us, request.input_tokens, request.output_tokens) for request in requests]


def test_azure_of_2024_has_times_of_any_length(tmp_path: Path) -> None:
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
        f"2024-05-10 00:00:{second},{tokens},5\n"
        for second, tokens in (("00.009930+00:00", 2162), ("01+00:00", 7), ("01.5+00:00", 8))
    )
    path = written(tmp_path, rows)
    assert figures(read(path, "azure")) == [(0, 2162, 5), (990_070, 7, 5), (1_490_070, 8, 5)]
    assert figures(read(path, "requests")) == figures(read(path, "azure"))


BURST: Final = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,a,43,GPT-4,906,446,1352,Conversation log\n"
    "19440161.5,,2,ChatGPT,36,0,36,API log\n"
    "19440192.25,c,2,ChatGPT,36,29,65,API log\n"
)


def test_burstgpt_counts_from_its_first_request_and_leaves_out_failed_ones(tmp_path: Path) -> None:
    path = written(tmp_path, BURST)
    requests = read(path, "burstgpt")
    assert figures(requests) == [(0, 906, 446), (82_250_000, 36, 29)]
    assert [request.model for request in requests] == ["", ""]
    quoted = written(tmp_path, BURST.replace("API log", '"API\nlog"'), "unusual.csv")
    assert figures(read(quoted, "burstgpt")) == figures(requests)


V2_COLUMNS: Final = (
    *(
        "request_id",
        "client_id",
        "tenant_id",
        "slo_class",
        "session_id",
        "round_index",
        "prefix_group",
        "prefix_length",
    ),
    *("streaming", "input_tokens", "output_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens"),
    *("reason_ratio", "model", "deadline_us", "server_input_tokens", "arrival_time_us", "send_time_us"),
    *("first_chunk_time_us", "last_chunk_time_us", "num_chunks", "status", "error_message", "finish_reason"),
)


def v2(**cells: object) -> str:
    usual = {"request_id": 0, "slo_class": "batch", "tenant_id": "t", "round_index": 0, "prefix_length": 0}
    return ",".join(
        str({**usual, **cells}.get(name, "" if name in {"model", "session_id"} else 0)) for name in V2_COLUMNS
    )


def test_tracev2_is_replayed_as_blis_does(tmp_path: Path) -> None:
    rows = [
        v2(request_id=7, prefix_group="g", prefix_length=64, input_tokens=10, server_input_tokens=80, deadline_us=900),
        v2(request_id=8, prefix_group="", input_tokens=10, server_input_tokens=30, arrival_time_us=5, send_time_us=25),
        v2(request_id=9, prefix_group="", input_tokens=10, output_tokens=3, arrival_time_us=20, model="m"),
    ]
    assert len(V2_COLUMNS) == 27
    requests = read(written(tmp_path, "\n".join([",".join(V2_COLUMNS), *rows])), "tracev2")
    assert figures(requests) == [(0, 74, 0), (20, 10, 3), (25, 30, 0)]
    assert [request.request_id for request in requests] == ["request_7", "request_9", "request_8"]
    assert (requests[0].segments, requests[0].deadline_us, requests[0].tenant) == ((("g", 64),), 900, "t")
    assert requests[1].model == "m"


def mooncake(*rows: tuple[int, int, list[int]]) -> str:
    return "".join(
        json.dumps({"timestamp": time, "input_length": tokens, "output_length": 9, "hash_ids": ids}) + "\n"
        for time, tokens, ids in rows
    )


def test_mooncake_shares_what_its_ids_share(tmp_path: Path) -> None:
    text = mooncake((0, 1500, [1, 2, 3]), (27, 1600, [1, 2, 4, 5]), (27, 1600, [1, 2, 4, 6]), (28, 600, [7, 8]))
    requests = read(written(tmp_path, text), "mooncake")
    assert figures(requests) == [(0, 1500, 9), (27_000, 1600, 9), (27_000, 1600, 9), (28_000, 600, 9)]
    # 1 and 2 never go without each other, nobody shares 3, 5 and 6.
    assert [request.segments for request in requests] == [
        (("1", 1024),),
        (("1", 1024), ("4", 512)),
        (("1", 1024), ("4", 512)),
        (),
    ]
    assert requests[1].segments is requests[2].segments


def test_the_last_block_of_mooncake_may_be_short_and_shared(tmp_path: Path) -> None:
    requests = read(written(tmp_path, mooncake((0, 600, [1, 2]), (0, 600, [1, 2]))), "mooncake")
    assert [request.segments for request in requests] == [(("1", 600),)] * 2


def test_ids_that_are_no_chain_are_not_joined(tmp_path: Path) -> None:
    text = mooncake((0, 1024, [1, 2]), (0, 1024, [2, 1]), (0, 1024, [3, 3]), (0, 1024, [3, 3]))
    found = [request.segments for request in read(written(tmp_path, text), "mooncake")]
    assert found[:2] == [(("1", 512), ("2", 512)), (("2", 512), ("1", 512))]
    assert found[2] == (("3", 512), ("3", 512))


CONVERSATIONS: Final[list[dict[str, object]]] = [
    {"id": "a", "conversations": [{"from": "human", "value": "x" * 41}, {"from": "gpt", "value": "y" * 8}, {}]},
    {"id": "b", "conversations": [{"from": "human", "value": "unanswered"}]},
    {"id": "c", "messages": [{"role": "user", "content": "你好吗"}, {"role": "assistant", "content": "[好],{\n}"}]},
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CONVERSATIONS),
        json.dumps(CONVERSATIONS, indent=2, ensure_ascii=False),
        "\n".join(map(json.dumps, CONVERSATIONS)),
        "\ufeff" + json.dumps(CONVERSATIONS, ensure_ascii=False),
    ],
)
@pytest.mark.parametrize("chunk", [1, 50, 1 << 20])
def test_sharegpt_needs_a_rate(text: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blis_tui.base.input_files.CHUNK", chunk)
    path = written(tmp_path, text, "talk.json")
    assert figures(read(path, "sharegpt", rate_per_s=4.0)) == [(0, 11, 2), (250_000, 3, 3)]
    with pytest.raises(TraceError, match="does not say when requests arrive"):
        read(path, "sharegpt")


def test_results_of_vllm_bench(tmp_path: Path) -> None:
    result = {
        "backend": "vllm",
        "start_times": [1000.5, 1000.25, 1001.0, 1002.0],
        "input_lens": [10, 20, 30, 40],
        "output_lens": [1, 2, 0, 4],
        "ttfts": [0.1, 0.1, 0.0, 0.1],
        "errors": ["", "", "timeout", ""],
    }
    path = written(tmp_path, json.dumps(result), "result.json")
    assert figures(read(path, "vllm-bench")) == [(0, 20, 2), (250_000, 10, 1), (1_750_000, 40, 4)]


def span(start: int, prompt: int, output: int, **more: str) -> dict[str, object]:
    values: dict[str, dict[str, object]] = {
        "gen_ai.usage.input_tokens": {"intValue": str(prompt)},
        "gen_ai.usage.output_tokens": {"intValue": output},
        **{f"gen_ai.{name.replace('_', '.')}": {"stringValue": value} for name, value in more.items()},
    }
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    return {"name": "chat m", "startTimeUnixNano": str(start), "attributes": attributes}


def export(*spans: dict[str, object]) -> dict[str, object]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


EPOCH: Final = 1_760_000_000_000_000_000


def test_spans_of_opentelemetry(tmp_path: Path) -> None:
    calls = [
        export(
            span(EPOCH + 2_000_000, 100, 10, conversation_id="one"),
            span(EPOCH, 200, 20, operation_name="chat"),
            span(EPOCH, 300, 30, operation_name="invoke_agent"),
            {"name": "GET /", "startTimeUnixNano": "7"},
        ),
        export(span(EPOCH + 3_000_999, 50, 5)),
    ]
    expected = [(0, 200, 20), (2000, 100, 10), (3000, 50, 5)]
    lines = "\n".join(map(json.dumps, calls))
    for text in (lines, json.dumps(calls), "\n".join(json.dumps(call, indent=1) for call in calls)):
        requests = read(written(tmp_path, text, "spans.json"), "otel")
        assert figures(requests) == expected
        assert [request.session_id for request in requests] == ["", "one", ""]


@pytest.mark.parametrize(("budget", "declared"), [("19", 20), ("20", 20), ("21", 21), ("", 20), ("many", 20)])
def test_the_budget_of_a_span_is_one_that_its_answer_keeps(budget: str, declared: int, tmp_path: Path) -> None:
    """Without one, it is the length of the answer."""
    attributes = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 20, "gen_ai.request.max_tokens": budget}
    call = {"name": "x", "start_time": "2025-10-09T08:53:20.5Z", "attributes": attributes}
    (request,) = read(written(tmp_path, json.dumps(call), "spans.jsonl"), "otel")
    assert (request.output_tokens, request.declared_tokens) == (20, declared)


def test_a_span_that_is_exported_twice_is_one_request_and_told(tmp_path: Path) -> None:
    one = {"traceId": "a", "spanId": "1"}
    calls = [
        span(EPOCH, 200, 20) | one,
        span(EPOCH, 200, 20) | one,
        span(EPOCH, 100, 10) | one | {"traceId": "b"},
        span(EPOCH, 50, 5),  # without ids each is its own
        span(EPOCH, 50, 5),
    ]
    path = written(tmp_path, json.dumps(export(*calls)), "spans.json")
    table = read_trace(Trace(path=str(path), format="otel", sha256=""), builtin())
    assert [table.request(place).input_tokens for place in range(len(table))] == [200, 100, 50, 50]
    assert [str(part) for part in table.left_out] == ["1 span with the ids of an earlier one"]


def test_spans_alone_with_old_names(tmp_path: Path) -> None:
    one = {"name": "x", "start_time": "2025-10-09T08:53:20.5Z", "attributes": {"gen_ai.usage.prompt_tokens": 7}}
    one["attributes"]["gen_ai.usage.completion_tokens"] = 3  # type: ignore[index]
    assert figures(read(written(tmp_path, json.dumps(one), "spans.jsonl"), "otel")) == [(0, 7, 3)]


_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from([10**30, -1, 2**60, 600])
)
_keys = st.sampled_from(
    [
        *("timestamp", "input_length", "output_length", "hash_ids", "conversations", "messages", "value", "content"),
        *("start_times", "input_lens", "output_lens", "errors", "resourceSpans", "scopeSpans", "spans", "attributes"),
        *("start_time", "startTimeUnixNano", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "key"),
    ]
)
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=6), max_leaves=12
)


@settings(max_examples=60)
@given(st.lists(_values | st.text(max_size=20), max_size=3), st.booleans(), st.sampled_from(JSON_FORMATS))
def test_no_content_escapes_as_another_error(values: list[object], in_list: bool, form: str) -> None:
    text = (
        json.dumps(values)
        if in_list
        else "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values)
    )
    trace = Trace(path="x", format=form, sha256="", rate_per_s=1.0 if form == "sharegpt" else None)
    problems = Problems("x")
    source = TraceText([text.encode("utf-8", "replace")], problems)
    try:
        table = TraceTable(builtin().create(TRACES, form, {}, source, trace, problems))
    except TraceError:
        return
    assert all(table.request(row).input_tokens > 0 for row in range(len(table)))


# ---- what is replayed of a trace ----

FIVE: Final = f"{HEADER},deadline_us\n0,1,1,0\n3000000,2,1,5000000\n1000000,3,1,0\n4000000,4,1,0\n2000000,5,1,9000000\n"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"scale_rate": 2.0}, [(0, 1, 0), (500, 3, 0), (1000, 5, 8000), (1500, 2, 3500), (2000, 4, 0)]),
        ({"slice": (1.0, 3.0)}, [(0, 3, 0), (1000, 5, 8000)]),
        ({"slice": (3.0, None)}, [(0, 2, 2000), (1000, 4, 0)]),
        ({"limit": 3}, [(0, 1, 0), (1000, 3, 0), (3000, 2, 5000)]),
        ({"limit": 4, "slice": (1.0, 4.0), "scale_rate": 0.5}, [(0, 3, 0), (4000, 2, 6000)]),
    ],
)
def test_a_part_of_a_trace_at_another_rate(
    settings: dict[str, object], expected: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    """Arrivals, prompts and deadlines, times in milliseconds."""
    requests = read(written(tmp_path, FIVE), "requests", **settings)
    assert [
        (request.arrival_us / 1000, request.input_tokens, request.deadline_us / 1000) for request in requests
    ] == expected


def test_behind_the_limit_nothing_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEADER}\n0,1,1\n1,1,1\nx,y,z\n")
    assert len(read(path, "requests", limit=2)) == 2
    check_trace(Trace(path=str(path), format="requests", sha256="", limit=2), builtin())
    lines = written(tmp_path, mooncake((0, 5, [1])) + "no JSON\n", "lines.jsonl")
    assert len(read(lines, "mooncake", limit=1)) == 1


def test_blocks_of_a_file_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a block ends: in quoted cells, between carriage return and line feed, before what is unusual."""
    rows = "".join(
        f'{time},{time % 7 + 1},1,"a, ""b""\r\nc",{time}\r\n\r\n{time}.0, 5 ,2,d,x{time}\r\n' for time in range(40)
    )
    path = written(tmp_path, f"\ufeff{HEADER},tenant,request_id\r\n{rows}")
    whole = [(request.request_id, request.tenant, *figures([request])) for request in read(path, "requests")]
    assert len(whole) == 80
    for size in (60, 101, 1000):
        monkeypatch.setattr("blis_tui.base.input_files.CHUNK", size)
        monkeypatch.setattr(trace_text, "_BLOCK", size)
        assert [
            (request.request_id, request.tenant, *figures([request])) for request in read(path, "requests")
        ] == whole


def test_lines_are_counted_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blis_tui.base.input_files.CHUNK", 100)
    monkeypatch.setattr(trace_text, "_BLOCK", 100)
    rows = [f"{time},1,1,n{time % 30}" for time in range(60)]
    rows[44] = "44,x,1,n14"
    path = written(tmp_path, "\n".join([f"{HEADER},request_id", *rows]))
    with pytest.raises(TraceError) as caught:
        read(path, "requests")
    found = [(problem.line, problem.message) for problem in caught.value.problems]
    assert (46, "'x' is not a whole number") in found
    assert (32, "'n0' is also the id on line 2") in found
    assert (61, "'n29' is also the id on line 31") in found


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
def test_compressed_files_are_read_as_they_are(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(compress(FIVE.encode()))
    assert figures(read(path, "requests")) == figures(read(written(tmp_path, FIVE), "requests"))


def test_without_a_reader_of_zstandard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.csv.zst"
    path.write_bytes(zstd.compress(FIVE.encode()))
    for name in ("compression", "compression.zstd", "backports.zstd", "backports"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="needs the extra `zstd`") as caught:
        read(path, "requests")
    assert caught.value.help == f"{install_command('zstd')}, or expand the file"


def test_a_document_says_what_is_replayed(tmp_path: Path) -> None:
    written(tmp_path, FIVE)
    document = (
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: one}\nmodel: qwen3-14b\nhardware: h100\n"
        "latency: roofline\n"
        "workload: {trace: {file: trace.csv, scale_rate: 2, limit: 4, slice: {from_s: 1, to_s: %s}}}\n"
    )
    path = written(tmp_path, document % 3.5, "one.blis.yaml")
    report = blis_tui.run(blis_tui.load(path))
    assert [(row.arrival_us, row.input_tokens) for row in report.rows] == [(0, 3), (1_000_000, 2)]
    assert validate(path).name == "one"
    with pytest.raises(SpecError, match=r"the slice ends at 0\.5 s"):
        blis_tui.load(written(tmp_path, document % 0.5, "two.blis.yaml"))


PLUGIN: Final = """
from blis_tui.plugins import TRACES, TraceColumns

@TRACES.plugin("pairs", "Prompt and answer, a line each.")
def pairs(settings, text, trace, problems):
    rows = [tuple(map(int, line.split())) for _, line in text.lines()]
    return TraceColumns(arrival_us=None, input_tokens=[a for a, _ in rows], output_tokens=[b for _, b in rows])
"""


def test_a_format_of_a_plugin_is_replayed_in_part_and_at_a_rate(tmp_path: Path) -> None:
    written(tmp_path, PLUGIN, "pairs.py")
    written(tmp_path, "7 1\n8 1\n9 1\n", "pairs.txt")
    trace = "{file: pairs.txt, format: pairs, rate_per_s: 2, limit: 2, slice: {from_s: 0.5}}"
    head = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: one}\nmodel: qwen3-14b\nhardware: h100\n"
    path = written(tmp_path, f"{head}latency: roofline\nworkload: {{trace: {trace}}}\n", "one.blis.yaml")
    report = blis_tui.run(blis_tui.load(path, plugins=[str(tmp_path / "pairs.py")]))
    assert [(row.arrival_us, row.input_tokens) for row in report.rows] == [(0, 8)]


# ---- published traces ----


@needs_shared
@pytest.mark.parametrize(
    ("name", "form", "rows", "prompt", "answer"),
    [
        ("AzureLLMInferenceTrace_code.csv", "azure", 8_819, 2047.85, 27.88),
        ("AzureLLMInferenceTrace_conv.csv", "azure", 19_366, 1154.69, 211.13),
        ("mooncake_conversation.jsonl.gz", "mooncake", 12_031, 12_035.06, 342.62),
    ],
)
def test_published_traces(name: str, form: str, rows: int, prompt: float, answer: float) -> None:
    table = read_trace(Trace(path=str(PUBLISHED / name), format=form, sha256=""), builtin())
    requests = [table.request(row) for row in range(len(table))]
    assert len(requests) == rows
    assert sum(request.input_tokens for request in requests) / rows == pytest.approx(prompt, abs=0.01)
    assert sum(request.output_tokens for request in requests) / rows == pytest.approx(answer, abs=0.01)
    if form == "mooncake":
        assert cached_share(table) == pytest.approx(independent_share(PUBLISHED / name), abs=1e-9)


@needs_shared
def test_calls_of_agents_with_columns_of_their_own() -> None:
    columns = {"arrival": "completed_at", "input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    path = PUBLISHED / "agentic_calls.csv"
    requests = read(path, "requests", columns=columns)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(requests) == len(rows)
    assert sum(request.input_tokens for request in requests) == sum(int(row["prompt_tokens"]) for row in rows)
    assert requests[0].arrival_us == 0


@needs_shared
def test_prefixes_of_mooncake_are_found_again(tmp_path: Path) -> None:
    """With room for all, eight instances that are chosen by prefix find what the ids of the blocks promise."""
    trace = f"{{file: {PUBLISHED / 'mooncake_conversation.jsonl.gz'}, format: mooncake, limit: 1000, scale_rate: 0.2}}"
    text = (
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: one}\nmodel: llama-3.1-8b-instruct\nhardware: h100\n"
        "latency: roofline\nengine: {max_model_len: 131072, kv_blocks: 400000}\ncluster: {instances: 8}\n"
        f"policy: {{routing: weighted}}\nworkload: {{trace: {trace}}}\n"
    )
    rows = blis_tui.run(blis_tui.load(written(tmp_path, text, "one.blis.yaml"))).rows
    found = sum(row.cached_tokens for row in rows) / sum(row.input_tokens for row in rows)
    promised = independent_share(PUBLISHED / "mooncake_conversation.jsonl.gz", 1000)
    assert promised > 0.1
    assert found == pytest.approx(promised, abs=0.01)


def cached_share(table: TraceTable) -> float:
    """Of all prompt tokens, those in blocks of 512 that an earlier prompt had, by the segments."""
    seen: set[object] = set()
    hits = total = 0
    for row in range(len(table)):
        request = table.request(row)
        total += request.input_tokens
        chain: tuple[object, ...] = ()
        for segment in request.segments:
            chain = (*chain, segment)
            hits += segment[1] if chain in seen else 0
            seen.add(chain)
    return hits / total


def independent_share(path: Path, rows: int | None = None) -> float:
    """The same by the ids of the file."""
    seen: set[int] = set()
    hits = total = 0
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in islice(lines, rows):
            row = json.loads(line)
            total += row["input_length"]
            for number, block in enumerate(row["hash_ids"]):
                hits += min(512, row["input_length"] - 512 * number) if block in seen else 0
                seen.add(block)
    return hits / total
