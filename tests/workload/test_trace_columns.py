"""Columns and clocks of foreign traces: what is known, what is asked for, and that nothing is guessed."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.errors import TraceError
from blis_tui.model import Trace
from blis_tui.output.tables import requests_csv
from blis_tui.spec.library import schema_path
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.columns import FIELDS, KNOWN_NAMES
from blis_tui.workload.traces.read import read_trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.engine.request import Request

NAMES = "timestamp,prompt_tokens,completion_tokens"


def read(
    text: str, folder: Path, columns: Mapping[str, str] | None = None, unit: str = "", form: str = "requests"
) -> list[Request]:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    table = read_trace(Trace(path=str(path), format=form, sha256="", columns=columns or {}, time_unit=unit), builtin())
    return [table.request(number) for number in range(len(table))]


def message_and_help(
    text: str, folder: Path, columns: Mapping[str, str] | None = None, unit: str = ""
) -> tuple[str, str | None]:
    """The one diagnostic that a file gives."""
    with pytest.raises(TraceError) as caught:
        read(text, folder, columns, unit)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic.message, diagnostic.help


def figures(requests: list[Request]) -> list[tuple[int, int, int]]:
    return [(request.arrival_us, request.input_tokens, request.output_tokens) for request in requests]


@pytest.mark.parametrize(
    "text",
    [
        ",arrived_at,num_prefill_tokens,num_decode_tokens,pd_ratio\n0,5,472,18,26.2\n1,45.5,1087,230,4.7\n",
        (
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "5,ChatGPT,472,18,490,API log\n45.5,GPT-4,1087,230,1317,API log\n"
        ),
        (
            "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
            "0,2,0,5.0,1,472,18\n1,2,0,45.5,1,1087,230\n"
        ),
        "arrival_time_ms,prompt_len,output_len\n5000,472,18\n45500.0,1087.0,230.0\n",
        "Arrival Time (s),ISL,OSL\n5,472,18\n4.55e1,1087,230\n",
        "timestamp_ns,input_length,output_length\n5000000000,472,18\n45500000000,1087,230\n",
        "arrival_us,input_tokens,output_tokens\n5000000.0,472,18\n45500000,1087,230\n",
        (
            "arrival_time_us,client_id,input_tokens,output_tokens,status,num_chunks\n"
            "5000000,a,472,18,ok,0\n45500000,a,1087,230,ok,0\n"
        ),
    ],
)
def test_files_of_the_field_are_read_as_they_are(tmp_path: Path, text: str) -> None:
    assert figures(read(text, tmp_path)) == [(5_000_000, 472, 18), (45_500_000, 1087, 230)]


@pytest.mark.parametrize(
    ("unit", "cells", "arrivals"),
    [
        ("s", ("12.5", "13"), [12_500_000, 13_000_000]),
        ("ms", ("12.5", "13"), [12_500, 13_000]),
        ("us", ("12.0", "13"), [12, 13]),
        ("ns", ("12500", "13499"), [13, 13]),
        ("s", ("0.30000000000000004", "12.499999999999998"), [300_000, 12_500_000]),
        ("s", ("1700000000.25", "1700000000.000001"), [0, 249_999]),
        ("ms", ("1700000000123", "1700000001000"), [0, 877_000]),
        ("us", ("1700000000123456", "1700000000123457"), [0, 1]),
        ("ns", ("1700000000123456789", "1700000000123458999"), [0, 2]),
        ("", ("2024-05-10T00:00:01Z", "2024-05-10 02:00:01.5 +0200"), [0, 500_000]),
    ],
)
def test_times_are_read_in_their_unit(tmp_path: Path, unit: str, cells: tuple[str, str], arrivals: list[int]) -> None:
    text = f"{NAMES}\n{cells[0]},1,1\n{cells[1]},1,1\n"
    assert [request.arrival_us for request in read(text, tmp_path, unit=unit)] == arrivals


@pytest.mark.parametrize(
    ("first", "unit"),
    [("12.5", "s"), ("0", "s"), ("1700000000.5", "s"), ("1700000000123", "ms"), ("1700000000123456", "us")],
)
def test_a_unit_that_nothing_tells_is_asked_for(tmp_path: Path, first: str, unit: str) -> None:
    message, advice = message_and_help(f"{NAMES}\n{first},1,1\n", tmp_path)
    assert message == f"it is not known whether '{first}' is in seconds, milliseconds or another unit"
    others = [one for one in ("s", "ms", "us", "ns") if one != unit]
    assert advice == f"add under `trace:` `time_unit: {unit}` (or {', '.join(others)})"
    assert read(f"{NAMES}\n{first},1,1\n", tmp_path, unit=unit)


@pytest.mark.parametrize(
    ("text", "unit", "message", "advice"),
    [
        ("1700000000123,1,1", "s", "'1700000000123' is too large to be seconds", "is it `time_unit: ms`?"),
        (
            "5000000000,1,1",
            "s",
            "in seconds, the first request would arrive after the year 2100",
            "is it `time_unit: ms`?",
        ),
        ("1.5,1,1", "us", "'1.5' is not a whole number", "write a whole number"),
        ("-1.5,1,1", "s", "'-1.5' is negative", "write a number of seconds from 0 on"),
        ("soon,1,1", "s", "'soon' is not a number of seconds", "write a number of seconds from 0 on"),
        ("nan,1,1", "s", "'nan' is not a number of seconds", "write a number of seconds from 0 on"),
        ("1e999,1,1", "s", "'1e999' is too large to be seconds", "correct it, or remove the line"),
        ("1_0,1,1", "s", "'1_0' is not a number of seconds", "write a number of seconds from 0 on"),
        ("soon,1,1", "", "'soon' is not a timestamp", "write it like 2023-11-16 18:17:03.9799600"),
    ],
)
def test_times_that_cannot_be_meant_are_refused(
    tmp_path: Path, text: str, unit: str, message: str, advice: str | None
) -> None:
    assert message_and_help(f"{NAMES}\n{text}\n", tmp_path, unit=unit) == (message, advice)


def test_a_unit_in_the_name_and_another_in_the_specification(tmp_path: Path) -> None:
    message, advice = message_and_help("timestamp_ms,prompt_tokens,output_len\n1,1,1\n", tmp_path, unit="s")
    assert message == "the column's name says ms, but `time_unit` is s"
    assert advice == "remove `time_unit`, or rename the column"


def test_columns_can_be_named(tmp_path: Path) -> None:
    text = "when,who,in,out,prompt_tokens\n2.5,a,34000.0,44,9\n1000,b,374,44,9\n"
    columns = {"arrival": "when", "input_tokens": "in", "output_tokens": "out", "tenant_id": "who"}
    requests = read(text, tmp_path, columns, "ms")
    assert figures(requests) == [(2500, 34000, 44), (1_000_000, 374, 44)]
    assert [request.tenant for request in requests] == ["a", "b"]


@pytest.mark.parametrize(
    ("header", "row", "message", "advice"),
    [
        (
            "ts,user,prompt,completion,colour",
            "0.5,a,1,1,x",
            (
                "no column is known to hold `arrival` or `input_tokens` or `output_tokens`; unknown columns: "
                "'ts', 'user', 'prompt', 'completion', 'colour'"
            ),
            "`columns: {arrival: ts, input_tokens: prompt, output_tokens: completion}` and `time_unit: s`",
        ),
        (
            "timestamp_ms,prompt_tokens,completion_tokens,status code",
            "0.5,1,1,200",
            "an unknown column: 'status code'",
            "`columns: {arrival: timestamp_ms, input_tokens: prompt_tokens, output_tokens: completion_tokens}`",
        ),
        (
            "arrival_time_us,input_token,output_tokens",
            "0,1,1",
            "no column is known to hold `input_tokens`; an unknown column: 'input_token'",
            "`columns: {arrival: arrival_time_us, input_tokens: input_token, output_tokens: output_tokens}`",
        ),
        (
            "start_time,timestamp,input_len,output_len",
            "2024-05-10 00:00:00,1,1,1",
            "'start_time', 'timestamp' both mean `arrival`",
            "`columns: {arrival: start_time, input_tokens: input_len, output_tokens: output_len}`",
        ),
        (
            "time (ms),Input: tokens,#out,true",
            "1,1,1,1",
            "no column is known to hold `arrival` or `output_tokens`; unknown columns: 'time (ms)', '#out', 'true'",
            '`columns: {arrival: "time (ms)", input_tokens: "Input: tokens", output_tokens: "#out"}`',
        ),
    ],
)
def test_what_is_unknown_is_told_with_the_lines_that_would_do(
    tmp_path: Path, header: str, row: str, message: str, advice: str
) -> None:
    found, lines = message_and_help(f"{header}\n{row}\n", tmp_path)
    assert (found, lines) == (message, f"add under `trace:` {advice}; other columns are then ignored")


def test_the_lines_of_advice_do(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text('"ts (local)",prompt,true\n12.5,100,10\n', encoding="utf-8")
    head = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: mine}\nmodel: qwen3-14b\nhardware: h100\n"
    spec = head + "workload: {trace: {file: log.csv, %s}}\n"
    path = tmp_path / "mine.blis.yaml"
    path.write_text(spec % "format: requests", encoding="utf-8")
    with pytest.raises(TraceError) as caught:
        blis_tui.run(blis_tui.load(path))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.help is not None
    lines = diagnostic.help.split("`")
    assert lines[3::2] == [
        'columns: {arrival: "ts (local)", input_tokens: prompt, output_tokens: NAME}',
        "time_unit: s",
    ]
    path.write_text(spec % ", ".join(lines[3::2]).replace("NAME", '"true"'), encoding="utf-8")
    report = blis_tui.run(blis_tui.load(path))
    assert (report.requests.completed, report.rows[0].arrival_us) == (1, 12_500_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_time_us,input_tokens,input_tokens,output_tokens\n", "two columns have this name"),
        ("0,10,20\n1,10,20\n", "the first line names no columns"),
        ("arrival_time_us;input_tokens;output_tokens\n0;1;1\n", "the columns are separated by ';'"),
        (
            "arrival_us,input_tokens,output_tokens,prefix_length,prefix_tokens\n0,1,1,1,1\n",
            "both `prefix_length` and `prefix_tokens` are given, but a file can have only one of them",
        ),
        (
            "arrival_us,input_tokens,output_tokens,prefix_group,prefix_tokens\n0,8,1,g,9\n",
            "a prompt of 8 tokens cannot have 9 shared ones",
        ),
    ],
)
def test_headers_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    assert message_and_help(text, tmp_path)[0] == message


@pytest.mark.parametrize(("what", "input_tokens"), [("prefix_length", 14), ("prefix_tokens", 10)])
def test_of_two_columns_about_the_prefix_the_named_one_counts(tmp_path: Path, what: str, input_tokens: int) -> None:
    text = "arrival_us,input_tokens,output_tokens,prefix_group,prefix_length,prefix_tokens\n0,10,1,g,4,4\n"
    assert "prefix_length: prefix_length}` (or `prefix_tokens: prefix_tokens`, if" in str(
        message_and_help(text, tmp_path)[1]
    )
    (tmp_path / "both.csv").write_text(text)
    trace = Trace(path=str(tmp_path / "both.csv"), format="requests", sha256="", columns={what: what})
    assert read_trace(trace, builtin()).request(0).input_tokens == input_tokens


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    message, advice = message_and_help(f"{NAMES}\n1,1,1\n", tmp_path, {"arrival": "times"})
    assert message == "there is no column 'times' for `arrival`"
    assert advice == "the columns are 'timestamp', 'prompt_tokens', 'completion_tokens'"


def test_a_file_gives_one_error_with_the_first_places(tmp_path: Path) -> None:
    rows = "1.5,x,3\nx,y,3\n5,z,-3\n6,,4\n7,3\n" + "9,q,3\n" * 9
    with pytest.raises(TraceError) as caught:
        read(f"arrival_time_us,input_tokens,output_tokens\n{rows}", tmp_path)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.line, diagnostic.path, diagnostic.message) == (
        2,
        "arrival_time_us",
        "'1.5' is not a whole number",
    )
    assert diagnostic.notes == (
        "also in line 3",
        "line 2 (input_tokens): 'x' is not a whole number (write a whole number); also in lines 3, 4, 7 and 8 more",
        "line 4 (output_tokens): '-3' is negative (write a whole number)",
        "line 5 (input_tokens): the cell is empty (write a whole number)",
        "line 6: the line has 2 fields, the header 3 (leave cells without a value empty, but keep their commas)",
    )
    with pytest.raises(TraceError) as caught:
        read("arrival_time_us,input_tokens,output_tokens\n" + "0,x,1\n" * 100, tmp_path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.notes == ("also in lines 3, 4, 5 and 46 more", "the file was read up to the 50th problem")


def test_numbers_may_end_as_those_of_data_frames(tmp_path: Path) -> None:
    text = "arrival_time_us,input_tokens,output_tokens\n34000.0,8.0,1.\n 35000.00 ,8,1\n"
    assert figures(read(text, tmp_path)) == [(34000, 8, 1), (35000, 8, 1)]


def test_every_known_name_is_in_the_schema() -> None:
    schema = json.loads(schema_path("workload").read_text(encoding="utf-8"))
    columns = schema["$defs"]["document"]["properties"]["trace"]["properties"]["columns"]["properties"]
    assert tuple(columns) == FIELDS
    for what, names in KNOWN_NAMES.items():
        listed = columns[what]["description"].partition("Known names: ")[2].partition(" (")[0]
        assert listed == (", ".join(f"`{name}`" for name in names) if len(names) > 1 else "")


def test_a_replay_asks_for_what_was_asked_for(tmp_path: Path) -> None:
    """Requests that timed out, were cut short or never ran come again in full, also from a run that was interrupted."""
    overrides = {"workload.requests": 60, "workload.clients.0.timeout_us": 900_000, "engine.max_model_len": 300}
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=overrides))
    simulation.run(until_us=5_000_000)
    rows = simulation.report(complete=False).rows
    assert len({row.state for row in rows}) >= 3
    path = tmp_path / "requests.csv"
    path.write_text("".join(requests_csv(rows)), encoding="utf-8", newline="")
    with path.open(encoding="utf-8", newline="") as file:
        wanted = [(int(row["requested_output_tokens"]), int(row["deadline_us"])) for row in csv.DictReader(file)]
    assert any(asked > row.output_tokens for (asked, _), row in zip(wanted, rows, strict=True))
    again = blis_tui.Simulation(
        blis_tui.load("quickstart", set={"workload": {"trace": {"file": str(path)}}, "engine.max_model_len": 300})
    )
    again.run(until_us=5_000_000)
    assert list(again.report(complete=False).rows) == list(rows)


@pytest.mark.parametrize(
    ("header", "columns", "shown"),
    [
        ("ISL,foo,bar", {}, True),  # one known name
        ("when,foo,bar", {"arrival": "when", "input_tokens": "where"}, True),  # one that the user says
        ("foo,bar,baz", {"arrival": "when"}, False),
    ],
)
def test_names_of_columns_are_quoted_where_any_of_them_belongs_to_a_trace(
    tmp_path: Path, header: str, columns: dict[str, str], shown: bool
) -> None:
    message, advice = message_and_help(f"{header}\n1,2,3\n", tmp_path, columns)
    assert ("'bar'" in f"{message} {advice}") == shown
