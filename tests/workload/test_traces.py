"""Trace files: what they mean, every way in which they can be wrong, and how that is said."""

import csv
import io
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import InputError, PolicyError, TraceError
from blis_tui.engine.request import Request
from blis_tui.model import SLO_CLASSES, Trace
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces import trace_requests
from blis_tui.workload.traces.read import read_trace
from blis_tui.workload.traces.trace_table import TraceColumns, TraceTable
from blis_tui.workload.traces.trace_text import Problems, TraceText

HEADER = "arrival_time_us,input_tokens,output_tokens"
WHOLE = "write a whole number"
FULL = (
    "request_id,arrival_time_us,input_tokens,output_tokens,prefix_group,prefix_length,slo_class,tenant_id,"
    "deadline_us,session_id,round_index"
)
SECONDS = "timestamp,prompt_tokens,completion_tokens"
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2225669,879,55
"""


def read(data: str | bytes, directory: Path, form: str = "requests") -> list[Request]:
    path = directory / "trace.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    table = read_trace(Trace(path=str(path), format=form, sha256=""), builtin())
    return [table.request(number) for number in range(len(table))]


def problems_of(data: str | bytes, directory: Path, form: str = "requests") -> list[tuple[int, str, str, str | None]]:
    with pytest.raises(TraceError) as caught:
        read(data, directory, form)
    assert all(problem.file.endswith("trace.csv") for problem in caught.value.problems)
    return [(problem.line, problem.column, problem.message, problem.help) for problem in caught.value.problems]


def test_three_columns_are_enough(tmp_path: Path) -> None:
    requests = read(f"{HEADER}\n0,10,5\n1000,20,0\n", tmp_path)
    assert [
        (request.request_id, request.arrival_us, request.input_tokens, request.output_tokens) for request in requests
    ] == [
        ("request_0", 0, 10, 5),
        ("request_1", 1000, 20, 0),
    ]
    first = requests[0]
    assert (first.slo_class, first.tenant, first.deadline_us, first.session_id) == ("standard", "", 0, "")
    assert first.segments == ()


def test_all_columns_reach_the_request(tmp_path: Path) -> None:
    (request,) = read(f"{FULL}\nr-1,7,100,20,sys,512,batch,acme,9000,s1,3\n", tmp_path)
    assert request.request_id == "r-1"
    assert request.input_tokens == 612
    assert request.segments == (("sys", 512),)
    assert (request.slo_class, request.tenant, request.deadline_us) == ("batch", "acme", 9000)
    assert (request.session_id, request.round_index, request.max_output_tokens) == ("s1", 3, 20)


def test_with_ignore_eos_a_request_generates_its_whole_budget(tmp_path: Path) -> None:
    header = "arrival_time_us,input_tokens,output_tokens"
    declared, free = read(f"{header},max_output_tokens,ignore_eos\n0,9,5,8,1\n0,9,5,8,0\n", tmp_path)
    assert (declared.output_tokens, declared.max_output_tokens, declared.ignore_eos) == (8, 8, True)
    assert (free.output_tokens, free.max_output_tokens, free.ignore_eos) == (5, 8, False)
    (alone,) = read(f"{header},ignore_eos\n0,9,5,1\n", tmp_path)  # no request declares more than it generates
    assert (alone.output_tokens, alone.max_output_tokens, alone.ignore_eos) == (5, 5, True)


def test_columns_come_in_any_order_and_cells_may_be_empty(tmp_path: Path) -> None:
    header = "output_tokens,slo_class,input_tokens,deadline_us,arrival_time_us,prefix_length"
    text = f"{header}\n1,,2,,3,\n4,batch,5,9,6,\n"
    first, second = read(text, tmp_path)
    assert (first.output_tokens, first.slo_class, first.input_tokens, first.deadline_us) == (
        1,
        "standard",
        2,
        0,
    )
    assert (second.slo_class, second.deadline_us, second.arrival_us) == ("batch", 9, 6)


def test_a_prompt_may_consist_of_its_prefix(tmp_path: Path) -> None:
    text = f"{HEADER},prefix_group,prefix_length\n0,0,5,g,32\n1,0,5,g,32\n"
    first, second = read(text, tmp_path)
    assert first.input_tokens == 32
    assert first.segments is second.segments


def test_rows_are_sorted_stably(tmp_path: Path) -> None:
    requests = read(f"{HEADER},tenant_id\n5,1,1,a\n3,1,1,b\n5,1,1,c\n3,1,1,d\n", tmp_path)
    assert [request.tenant for request in requests] == ["b", "d", "a", "c"]
    assert [request.request_id for request in requests] == [f"request_{number}" for number in range(4)]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_line_ending_a_byte_order_mark_and_blank_lines(tmp_path: Path, newline: str) -> None:
    text = newline.join(["\ufeff" + HEADER, "1,2,3", "", " 4 , 5,6", "", ""])
    assert [request.arrival_us for request in read(text, tmp_path)] == [1, 4]


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = f"""{FULL}
a,0,10,5,,0,,,0,,0
a,1.5,-3,x,,0,,,0,,0
b,100,0,5,,0,critcal,,50,,0
c,1,2
,1,2,3,,64,urgent,,,,
d,99999999999999999999,1,,,,,,,,
"""
    assert problems_of(text, tmp_path) == [
        (3, "arrival_time_us", "'1.5' is not a whole number", WHOLE),
        (3, "input_tokens", "'-3' is negative", WHOLE),
        (3, "output_tokens", "'x' is not a whole number", WHOLE),
        (3, "request_id", "'a' is also the id on line 2", "give every request an id of its own, or drop the column"),
        (4, "input_tokens", "the prompt has no tokens", "a prompt has at least 1"),
        (4, "slo_class", "there is no SLO class 'critcal'", "did you mean 'critical'?"),
        (4, "deadline_us", "the deadline 50 is before the arrival 100", "deadlines are absolute; 0 = none"),
        (
            5,
            "",
            "the line has 3 fields, the header 11",
            "leave cells without a value empty, but keep their commas",
        ),
        (6, "prefix_group", "prefix_length is 64 but there is no group", "name a prefix_group"),
        (
            6,
            "slo_class",
            "there is no SLO class 'urgent'",
            "the SLO classes are critical, standard, sheddable, batch, background",
        ),
        (6, "request_id", "the cell is empty", "give every request an id or drop the column"),
        (7, "arrival_time_us", "'99999999999999999999' is larger than 9007199254740992", WHOLE),
        (7, "output_tokens", "the cell is empty", "write a whole number"),
    ]


@pytest.mark.parametrize("cell", ["1_000", "+5", "0x10", "1e3", "٣", "²", "nan", "1 2"])
def test_only_digits_are_numbers(tmp_path: Path, cell: str) -> None:
    assert problems_of(f"{HEADER}\n1,{cell},3\n", tmp_path) == [
        (2, "input_tokens", f"{cell!r} is not a whole number", WHOLE)
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", (1, "", "the file is empty", "is it the right one?")),
        (b" \n\n", (1, "", "the file is empty", "is it the right one?")),
        (HEADER.encode(), (1, "", "there are no requests below the header", "each line below it is one request")),
        (
            HEADER.encode() + b"\n1,2,3\n1,\xff,3\n",
            (3, "", "byte 0xff is not UTF-8", "save the file as UTF-8"),
        ),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            (0, "", "the file is not text", "is it the right one? traces are CSV or JSON, in UTF-8"),
        ),
        (
            HEADER.encode() + b"\n1,2,3\n4,\0,6\n",
            (3, "", "there is a NUL character in the line", "is it a text file, and complete?"),
        ),
    ],
)
def test_files_that_hold_no_table(tmp_path: Path, data: bytes, expected: tuple[object, ...]) -> None:
    assert problems_of(data, tmp_path) == [expected]


def test_a_file_that_is_not_text_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "picture.csv"
    path.write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF")
    with pytest.raises(TraceError) as caught:
        blis_tui.run("quickstart", set={"workload": {"trace": {"file": str(path)}}})
    assert str(caught.value).splitlines()[:2] == ["error[BLIS2100]: the file is not text", f" --> {path}"]
    assert caught.value.message == f"{path}: the file is not text"


def test_broken_quotes_are_located(tmp_path: Path) -> None:
    ((line, column, message, _),) = problems_of(f'{HEADER},tenant_id\n1,2,3,a\n1,2,3,"b"c\n', tmp_path)
    assert (line, column) == (3, "")
    assert message.startswith("the line cannot be read: ")


def test_lines_are_counted_across_quoted_line_breaks(tmp_path: Path) -> None:
    text = f'{HEADER},tenant_id\n1,2,3,"two\nlines"\n1,x,3,a\n'
    assert [problem[0] for problem in problems_of(text, tmp_path)] == [4]


def test_fifty_problems_are_enough(tmp_path: Path) -> None:
    found = problems_of(f"{HEADER}\n" + "x,y,z\n" * 100, tmp_path)
    assert len(found) == 50
    assert found == sorted(found, key=lambda problem: problem[0])


def test_the_error_reads_well(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read(f"{HEADER}\n1,2,x\n1,2,y\n", tmp_path)
    path = tmp_path / "trace.csv"
    assert caught.value.message == f"{path}:2 (output_tokens): 'x' is not a whole number (and 1 more)"


def test_a_missing_file_and_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the trace .*nowhere\.csv: No such file or directory"):
        read_trace(Trace(path=str(tmp_path / "nowhere.csv"), format="requests", sha256=""), builtin())
    with pytest.raises(PolicyError, match="no trace format `har`") as caught:
        read_trace(Trace(path="x", format="har", sha256=""), builtin())
    assert caught.value.help == (
        "known: azure, bailian, burstgpt, mooncake, otel, requests, sharegpt, tracelab, tracev2, vllm-bench,"
        " weka; `--plugins` adds others"
    )


numbers = st.integers(0, 2**53)
requests_rows = st.lists(
    st.tuples(
        numbers,
        st.integers(1, 10**6),
        st.integers(0, 10**6),
        st.sampled_from(["", "a", "b,c", 'quo"te', "line\nbreak", "ü"]),
        st.sampled_from(["", *SLO_CLASSES]),
        st.integers(0, 512),
    ),
    min_size=1,
    max_size=20,
)


@given(requests_rows)
def test_what_is_written_is_read(rows: list[tuple[int, int, int, str, str, int]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*HEADER.split(","), "tenant_id", "slo_class", "prefix_group", "prefix_length"])
    for arrival, prompt, output, tenant, slo_class, prefix in rows:
        writer.writerow([arrival, prompt, output, tenant, slo_class, "g", prefix])
    table = TraceTable(trace_requests.read(TraceText([out.getvalue().encode()], Problems("x")), {}))
    expected = sorted(rows, key=lambda row: row[0])
    for number, (arrival, prompt, output, tenant, slo_class, prefix) in enumerate(expected):
        request = table.request(number)
        assert request.arrival_us == arrival
        assert request.input_tokens == prompt + prefix
        assert request.output_tokens == output
        assert request.tenant == tenant
        assert request.slo_class == (slo_class or "standard")
        assert request.segments == ((("g", prefix),) if prefix else ())


@given(st.text(alphabet='0123456789,.-"\n ax', max_size=60))
def test_no_content_escapes_as_another_error(content: str) -> None:
    for header, unit in ((HEADER, ""), (AZURE.split("\n", maxsplit=1)[0], ""), (SECONDS, "s")):
        try:
            columns = trace_requests.read(TraceText([f"{header}\n{content}".encode()], Problems("x")), {}, unit)
        except TraceError:
            continue
        assert all(tokens > 0 for tokens in columns.input_tokens)
        assert all(0 <= arrival <= 2**53 for arrival in columns.arrival_us or ())


def test_a_table_survives_pickling() -> None:
    table = TraceTable(TraceColumns(arrival_us=[2, 1], input_tokens=[1, 2], output_tokens=[0, 0], tenant=["a", "b"]))
    copy = pickle.loads(pickle.dumps(table))  # noqa: S301
    assert len(copy) == 2
    assert copy.request(0).tenant == "b"


def test_azure_times_count_from_the_first_row(tmp_path: Path) -> None:
    requests = read(AZURE, tmp_path, "azure")
    assert [(request.arrival_us, request.input_tokens, request.output_tokens) for request in requests] == [
        (0, 374, 44),
        (4_314_579, 396, 109),
        (4_541_976, 879, 55),
    ]


def test_azure_times_cross_midnight_and_leap_days(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-02-28 23:59:59.9999999,1,1\n"
        "2024-02-29 00:00:00.0000009,1,1\n"
        "2024-03-01 00:00:00.0000000,1,1\n"
        "2025-01-01 00:00:00.0000000,1,1\n"
    )
    day = 86_400 * 10**6
    assert [request.arrival_us for request in read(text, tmp_path, "azure")] == [0, 1, day, day * 307]


def test_unusual_azure_timestamps(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:01,1,1\n"
        "2024-05-10T00:00:01.5Z,2,1\n"
        "2024-05-10 02:00:00.009930+02:00,3,1\n"
        "2024-05-09 22:30:02.000000001-01:30,4,1\n"
    )
    requests = read(text, tmp_path, "azure")
    assert [(request.arrival_us, request.input_tokens) for request in requests] == [
        (0, 3),
        (990_070, 1),
        (1_490_070, 2),
        (1_990_070, 4),
    ]


def test_wrong_azure_rows_are_named(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-02-29 00:00:00.0000000,1,1\n"
        "2023-11-16 18:15:60.0000000,0,1\n"
        "2023-11-16 18:15:59.0000000,1,-1\n"
        "2023-11-16 24:00:00.0000000,1,1\n"
        "soon,1,1,1\n"
    )
    advice = "write it like 2023-11-16 18:17:03.9799600"
    assert problems_of(text, tmp_path, "azure") == [
        (2, "TIMESTAMP", "'2023-02-29 00:00:00.0000000' is not a timestamp", advice),
        (3, "TIMESTAMP", "'2023-11-16 18:15:60.0000000' is not a timestamp", advice),
        (3, "ContextTokens", "the prompt has no tokens", "a prompt has at least 1"),
        (4, "GeneratedTokens", "'-1' is negative", WHOLE),
        (5, "TIMESTAMP", "'2023-11-16 24:00:00.0000000' is not a timestamp", advice),
        (6, "", "the line has 4 fields, the header 3", "put cells that contain commas in double quotes"),
    ]
    header_only = problems_of("TIMESTAMP,ContextTokens,GeneratedTokens\n", tmp_path, "azure")
    assert header_only == [(1, "", "there are no requests below the header", "each line below it is one request")]
