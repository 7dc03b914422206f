"""What a run writes about its requests replays as it is: the same came of each of them, byte for byte."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import TraceError
from blis_tui.cli.main import cli
from blis_tui.model import Experiment
from blis_tui.output import tables
from blis_tui.output.tables import requests_csv
from blis_tui.results.report import Report

ODD = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: odd}
model: qwen3-14b
hardware: h100
latency: blackbox
engine: {kv_blocks: 60, max_model_len: 700}
warm_up_us: 200000
workload:
  requests: 60
  rate_per_s: 40
  clients:
    - id: with a deadline, and a strange name
      slo_class: critical
      tenant: ' a "tenant", really'
      timeout_us: 1500000
      input_tokens: {kind: gaussian, mean: 400, std_dev: 200, min: 1, max: 900}
      output_tokens: {kind: gaussian, mean: 60, std_dev: 50, min: 1, max: 700}
      prefix: {group: 'system: prompt', tokens: 33}
    - id: repeats
      repeated_prompts: 3
      input_tokens: 70
      output_tokens: {kind: gaussian, mean: 60, std_dev: 50, min: 1, max: 700}
policy: default
"""
"""Requests that time out, are dropped, preempted, found in the cache, named strangely."""

SHIPPED = (
    *("disaggregation", "instance-dies", "mixed-fleet", "prefix-routing", "service-classes", "trace-replay"),
    "vllm-preemption",
)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "odd.blis.yaml"
    path.write_text(ODD)
    return path


def table(report: Report) -> str:
    return "".join(requests_csv(report.rows, report.rows.columns))


def replay(experiment: Experiment, trace: Path) -> Report:
    document = json.loads(json.dumps(experiment.document))
    document["workload"] = {"trace": {"file": str(trace)}}
    return blis_tui.run(blis_tui.load(document))


@pytest.mark.parametrize("name", [*SHIPPED, "odd"])
def test_a_run_can_be_replayed_from_either_file(name: str, odd: Path, tmp_path: Path) -> None:
    overrides = {} if name in ("odd", "trace-replay") else {"workload.requests": 60}
    experiment = blis_tui.load(odd if name == "odd" else name, set=overrides)
    report = blis_tui.run(experiment)
    written = table(report)
    (tmp_path / "requests.csv").write_text(written)
    assert table(replay(experiment, tmp_path / "requests.csv")) == written

    # Requests have numbers in TraceV2; all else is the same.
    (tmp_path / "trace.csv").write_text("".join(tables.rows_csv(report.rows)))
    again = list(csv.reader(table(replay(experiment, tmp_path / "trace.csv")).splitlines()))
    before = list(csv.reader(written.splitlines()))
    assert [row[0] for row in again[1:]] == [str(number) for number in range(len(report.rows))]
    assert [row[1:] for row in again] == [row[1:] for row in before]


def test_prompts_that_share_several_parts_replay_too(tmp_path: Path) -> None:
    """TraceV2 has no room for the second part."""
    parts = ODD.replace("repeated_prompts: 3", "repeated_prompts: 3\n      prefix: {group: 'a, b', tokens: 32}")
    (tmp_path / "parts.blis.yaml").write_text(parts)
    experiment = blis_tui.load(tmp_path / "parts.blis.yaml")
    report = blis_tui.run(experiment)
    written = table(report)
    assert '"[[""a, b"",32],[""repeats/prompt-1"",70]]"\n' in written
    (tmp_path / "requests.csv").write_text(written)
    assert table(replay(experiment, tmp_path / "requests.csv")) == written


def test_images_replay_one_by_one(tmp_path: Path) -> None:
    """As one image, the photos of a prompt would be too large for the encoder, and none would be found in its cache."""
    experiment = blis_tui.load("photos", set={"workload.requests": 60, "expect": []})
    report = blis_tui.run(experiment)
    assert report.encoder is not None
    assert report.encoder.cached_tokens > 0
    written = table(report)
    first = next(csv.DictReader(written.splitlines()))
    items = json.loads(first["media_items"])
    assert items[0][0] == int(first["prefix_tokens"])
    assert sum(tokens for _, tokens, _ in items) == int(first["image_tokens"])
    (tmp_path / "requests.csv").write_text(written)
    again = replay(experiment, tmp_path / "requests.csv")
    assert table(again) == written
    assert again.encoder == report.encoder

    # `workload convert` and a file without names of items: one item of each kind.
    converted = tmp_path / "converted.csv"
    source = ["workload", "convert", str(tmp_path / "requests.csv"), "-o", str(converted)]
    assert CliRunner().invoke(cli, source).exit_code == 0
    assert [row["media_items"] for row in csv.DictReader(converted.read_text().splitlines())] == [
        row["media_items"] for row in csv.DictReader(written.splitlines())
    ]
    unnamed = [{**row, "media_items": ""} for row in csv.DictReader(written.splitlines())]
    with (tmp_path / "unnamed.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(unnamed[0]))
        writer.writeheader()
        writer.writerows(unnamed)
    assert "dropped-unservable" in {row.state for row in replay(experiment, tmp_path / "unnamed.csv").rows}


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("photo", "not a list of items"),
        ('[["photo",0,8]]', "not a list of items"),
        ('[[0,9,""]]', "not a list of items"),
        ('[[0,8,"a"],[7,1,"b"]]', "an item begins after 7 tokens, where another one has not ended"),
        ('[[8,9,"a"]]', "a prompt of 16 tokens cannot have an item that ends after 17"),
        ('[[0,8,"a"]]', "the items have 8 tokens, and the prompt 9 of images, audio and video"),
    ],
)
def test_wrong_items_are_told_with_their_place(cell: str, message: str, tmp_path: Path) -> None:
    trace = tmp_path / "requests.csv"
    quoted = cell.replace('"', '""')
    header = "arrival_us,input_tokens,requested_output_tokens,image_tokens,audio_tokens,media_items"
    trace.write_text(f'{header}\n0,16,1,4,5,\n0,16,1,4,5,"{quoted}"\n')
    with pytest.raises(TraceError, match=message) as caught:
        replay(blis_tui.load("trace-replay"), trace)
    assert "requests.csv:3:1  (media_items)" in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("system", "not a list of names and tokens"),
        ('[[""system"",0]]', "not a list of names and tokens"),
        ('[[""a"",8],[""b"",9]]', "a prompt of 16 tokens cannot have 17 shared ones"),
    ],
)
def test_wrong_parts_are_told_with_their_place(cell: str, message: str, tmp_path: Path) -> None:
    trace = tmp_path / "requests.csv"
    trace.write_text(f'arrival_us,input_tokens,requested_output_tokens,prefix_segments\n0,16,1,\n0,16,1,"{cell}"\n')
    with pytest.raises(TraceError, match=message) as caught:
        replay(blis_tui.load("trace-replay"), trace)
    assert "requests.csv:3:1  (prefix_segments)" in str(caught.value)


def test_trace_v2_says_what_came_of_each_request(odd: Path) -> None:
    experiment = blis_tui.load(odd)
    report = blis_tui.run(experiment)
    rows = list(csv.DictReader("".join(tables.rows_csv(report.rows)).splitlines()))
    assert len(tables.COLUMNS) == 27
    post_us = 0  # of this step-time model
    statuses = {"completed": "ok", "timed-out": "timeout", "dropped-unservable": "error"}
    for number, (cells, row) in enumerate(zip(rows, report.rows, strict=True)):
        assert cells["status"] == statuses[row.state]
        assert (int(cells["request_id"]), int(cells["arrival_time_us"])) == (number, row.arrival_us)
        assert int(cells["prefix_length"]) + int(cells["input_tokens"]) == row.input_tokens
        assert int(cells["deadline_us"]) == (row.deadline_us or 0)
        first, last = int(cells["first_chunk_time_us"]), int(cells["last_chunk_time_us"])
        assert first == (0 if row.ttft_us is None else row.arrival_us + row.ttft_us)
        assert last == (0 if row.e2e_us is None else row.arrival_us + row.e2e_us - post_us)
    found = {(cells["status"], cells["error_message"], cells["finish_reason"]) for cells in rows}
    assert found == {
        ("ok", "", "stop"),
        ("timeout", "", "abort"),
        ("error", "dropped-unservable", ""),
    }
    assert tables.header(experiment, report.rows) == (
        "trace_version: 2\n"
        'time_unit: "microseconds"\n'
        'mode: "generated"\n'
        f"warm_up_requests: {len([row for row in report.rows if row.arrival_us < 200_000])}\n"
        "workload_seed: 42\n"
        'workload_spec: "inline"\n'
        "server:\n"
        '  type: "blis-tui"\n'
        '  model: "qwen3-14b"\n'
        "  tensor_parallel: 1\n"
        "  max_num_seqs: 1024\n"
        "  block_size: 16\n"
        "  max_model_len: 700\n"
    )


def test_the_last_chunk_comes_before_what_follows_decoding() -> None:
    report = blis_tui.run(blis_tui.load("steady-chat", set={"workload.requests": 5, "latency": "trained-physics"}))
    (post_us,) = report.rows.post_decode_us
    assert post_us > 0
    rows = list(csv.DictReader("".join(tables.rows_csv(report.rows)).splitlines()))
    for cells, row in zip(rows, report.rows, strict=True):
        assert int(cells["last_chunk_time_us"]) == row.arrival_us + (row.e2e_us or 0) - post_us
