"""Recordings: what is written is read again, replays, and is understood by others."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import InputError
from blis_tui.live.calibration.measured import read_recording as measured
from blis_tui.live.observe.recording import (
    OUTCOMES,
    Folder,
    Observed,
    Scrape,
    Server,
    Step,
    read_recording,
    read_request,
    read_scrape,
    read_step,
    request_line,
    scrape_line,
    step_line,
    write_tables,
)
from blis_tui.live.observe.recording_summary import summarize, warnings
from blis_tui.model import Trace
from blis_tui.spec.load import load
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import read_trace
from tests.output.test_perfetto import read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.live.observe.recording import Recording

_COUNT = st.integers(0, 10**6)
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)


@st.composite
def rows(draw: st.DrawFn) -> Observed:
    sent_us = draw(_COUNT)
    gaps = draw(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 4)), max_size=5))
    chunks, at_us = [], sent_us
    for gap_us, tokens in gaps:
        at_us += gap_us
        chunks.append((at_us, tokens))
    segments = draw(st.lists(st.tuples(_TEXT.filter(bool), st.integers(1, 99)), max_size=3))
    return Observed(
        request_id=draw(_TEXT),
        index=draw(_COUNT),
        due_us=sent_us - draw(st.integers(0, 99)),
        sent_us=sent_us,
        done_us=at_us + draw(st.integers(0, 99)),
        outcome=draw(st.sampled_from(sorted(OUTCOMES))),
        input_tokens=draw(_COUNT),
        output_tokens=draw(_COUNT),
        chunks=tuple(chunks),
        prompt_tokens=draw(st.none() | _COUNT),
        completion_tokens=draw(st.none() | _COUNT),
        cached_tokens=draw(st.none() | _COUNT),
        has_token_ids=draw(st.booleans()),
        whole=draw(st.booleans()),
        merged=draw(_COUNT),
        status=draw(st.sampled_from([0, 200, 503])),
        finish_reason=draw(_TEXT),
        error=draw(_TEXT),
        segments=tuple(segments),
        slo_class=draw(_TEXT.filter(bool)),
        tenant=draw(_TEXT),
        model=draw(_TEXT),
        adapter=draw(_TEXT),
        session_id=draw(_TEXT),
        round_index=draw(_COUNT),
        deadline_us=draw(_COUNT),
    )


@given(rows())
def test_a_request_is_read_as_it_was_written(row: Observed) -> None:
    line = request_line(row)
    assert line.count("\n") == 1
    assert read_request(line) == row


@given(st.integers(-1000, 10**9), st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0, 1e9)))
def test_so_is_a_scrape(time_us: int, values: dict[str, float]) -> None:
    scrape = Scrape(time_us=time_us, values=values)
    assert read_scrape(scrape_line(scrape)) == scrape


@given(st.none() | _COUNT, st.lists(_COUNT, min_size=6, max_size=6), st.none() | st.integers(0, 10_000))
def test_and_a_step(end_us: int | None, numbers: list[int], share: int | None) -> None:
    names = ("number", "duration_us", "prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
    values = dict(zip(names, numbers, strict=True))
    step = Step(end_us=end_us, kv_share=None if share is None else share / 1e4, **values)
    assert read_step(step_line(step, 199)) == step


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("", "Expecting value"),
        ("[]", "not a JSON object"),
        ("{}", "`outcome` is None"),
        ('{"outcome": "completed", "chunks": [[1]]}', "`chunks`"),
        ('{"outcome": "completed", "chunks": [], "request_id": 3}', "`request_id` is 3"),
    ],
)
def test_lines_that_are_none_are_refused_with_their_place(change: str, says: str, tmp_path: Path) -> None:
    recording = made(tmp_path / "r", [ROW])
    path = recording.folder / "requests.jsonl"
    path.write_text(request_line(ROW) + change + "\n")
    with pytest.raises(InputError, match="requests.jsonl, line 2: .*" + says.replace("[", r"\[")):
        read_recording(recording.folder)
    path.write_text(request_line(ROW) + change)  # a last line that was not written whole, as the recording was aborted
    manifest = recording.folder / "recording.json"
    manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false'))
    assert read_recording(recording.folder).requests == (ROW,)


ROW = Observed(
    request_id="request_0",
    index=0,
    due_us=1000,
    sent_us=1200,
    done_us=51_500,
    outcome="completed",
    input_tokens=100,
    output_tokens=4,
    chunks=((21_200, 1), (31_200, 2), (51_200, 1)),
    prompt_tokens=101,
    completion_tokens=4,
    has_token_ids=True,
    status=200,
)
STEP = Step(
    number=9,
    end_us=20_000,
    duration_us=15_000,
    prefill_requests=1,
    prefill_tokens=101,
    decode_requests=0,
    decode_tokens=0,
    kv_share=0.25,
)
SERVER = Server(version="0.32.0", model="m", max_model_len=1024, block_size_tokens=32, kv_blocks=199)


def made(path: Path, requests: Sequence[Observed], steps: Sequence[Step] = ()) -> Recording:
    folder = Folder(path)
    folder.begin({"workload": "w", "workload_seed": 3, "complete": True}, SERVER)
    for row in requests:
        folder.request(row)
    for step in steps:
        folder.step(step)
    folder.scrape(Scrape(time_us=5000, values={"vllm:num_requests_running": 1.0, "vllm:kv_cache_usage_perc": 0.25}))
    folder.close()
    recording = read_recording(path)
    write_tables(recording)
    return recording


def trace_of(path: Path, form: str) -> Trace:
    return Trace(path=str(path), format=form, sha256=sha256(path.read_bytes()).hexdigest())


def many() -> list[Observed]:
    rows = [
        replace(
            ROW,
            request_id=f"request_{n}",
            index=n,
            **{name: getattr(ROW, name) + 10_000 * n for name in ("due_us", "sent_us", "done_us")},
            chunks=tuple((time_us + 10_000 * n, tokens) for time_us, tokens in ROW.chunks),
        )
        for n in range(30)
    ]
    rows[3] = replace(rows[3], outcome="refused", chunks=(), error='no, "really"', prompt_tokens=None)
    rows[4] = replace(rows[4], segments=(("system", 64),), session_id="s", round_index=2)
    return rows


def test_the_table_replays_as_it_was_sent(tmp_path: Path) -> None:
    recording = made(tmp_path / "r", many())
    table = read_trace(trace_of(recording.folder / "requests.csv", "requests"), builtin())
    assert len(table) == 29  # whom the server refused did not load it
    first, shared = table.request(0), table.request(3)
    assert (first.arrival_us, first.input_tokens, first.output_tokens) == (1200, 101, 4)
    assert (shared.segments, shared.session_id, shared.round_index) == ((("system", 64),), "s", 2)


def test_so_does_the_trace_of_blis(tmp_path: Path) -> None:
    recording = made(tmp_path / "r", many())
    table = read_trace(trace_of(recording.folder / "trace.csv", "tracev2"), builtin())
    first, shared = table.request(0), table.request(4)
    assert (first.request_id, first.arrival_us, first.input_tokens, first.output_tokens) == ("request_0", 1200, 101, 4)
    assert shared.segments == (("system", 64),)
    with (recording.folder / "trace.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [row["status"] for row in found].count("error") == 1
    assert found[0]["last_chunk_time_us"] == "51200"


def test_calibrate_reads_requests_and_steps(tmp_path: Path) -> None:
    recording = made(tmp_path / "r", many(), [replace(STEP, number=n) for n in range(30)])
    pool = load("quickstart").pools[0]
    for name in ("requests.csv", "trace.csv"):
        found = measured(recording.folder / name, pool)
        assert len(found.requests) == 29  # type: ignore[union-attr]
        assert found.requests[0].ttft_us == 20_000  # type: ignore[union-attr]
        assert found.requests[0].e2e_us == 50_000  # type: ignore[union-attr]
    with pytest.raises(InputError, match="is the folder of a recording, not a file of it"):
        measured(recording.folder, pool)
    with pytest.raises(InputError, match="is not valid JSON") as caught:
        measured(recording.folder / "requests.jsonl", pool)
    assert caught.value.help == f"of a recording, name {recording.folder / 'requests.csv'}, or steps.csv there"
    steps = measured(recording.folder / "steps.csv", pool)
    assert [step.duration_us for step in steps.steps] == [15_000] * 30  # type: ignore[union-attr]


def test_perfetto_shows_requests_steps_and_metrics(tmp_path: Path) -> None:
    recording = made(tmp_path / "r", [ROW], [STEP, replace(STEP, number=10, end_us=30_000)])
    trace = read((recording.folder / "timeline.perfetto-trace").read_bytes())
    slices = {one.name: (one.begin_us, one.end_us) for one in trace.slices}
    assert slices["request_0"] == (1200, 51_500)
    assert slices["to first token"] == (1200, 21_200)
    assert slices["decode"] == (21_200, 51_200)
    assert slices["step 9"] == (5000, 20_000)
    assert slices["step 10"] == (20_000, 30_000)  # its line came late: steps do not overlap
    assert trace.counters["server m", "running"] == [(5000, 1)]
    assert trace.counters["server m", "KV cache used"] == [(5000, 250)]


def test_a_folder_that_holds_something_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("precious")
    with pytest.raises(InputError, match="not empty"):
        Folder(tmp_path)
    with pytest.raises(InputError, match="not a recording"):
        read_recording(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /dev/full")
def test_a_full_disk_is_told_of_the_file_that_is_not_written(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "r")
    (tmp_path / "r" / "requests.jsonl").symlink_to("/dev/full")
    folder.begin({}, Server())
    message = r"^cannot write .*requests\.jsonl: No space left on device$"
    with pytest.raises(InputError, match=message):
        folder.request(many()[0])
    with pytest.raises(InputError, match=message):  # what is left of it is written when it is closed
        folder.close()


def test_of_an_answer_in_one_piece_nobody_knows_the_first_token(tmp_path: Path) -> None:
    rows = [replace(row, whole=True) for row in many()]
    recording = made(tmp_path / "r", rows)
    assert {row.ttft_us for row in recording.requests} == {None}
    assert any(row.e2e_us for row in recording.requests)
    summary = summarize(recording.requests)
    assert summary.ttft is None
    assert summary.e2e is not None
    with (recording.folder / "requests.csv").open() as file:
        assert {row["ttft_us"] for row in csv.DictReader(file)} == {""}
    pool = load("quickstart").pools[0]
    for name in ("requests.csv", "trace.csv"):
        with pytest.raises(InputError, match="holds 0 completed requests, too few"):
            measured(recording.folder / name, pool)


@pytest.mark.parametrize(
    ("about", "steps", "missing"),
    [
        ({"log": True}, (), "the log has no steps"),
        ({"log": True}, (STEP,), ""),
        ({"log": False}, (), ""),
        ({"kv_events": True}, (), "no KV cache events arrived"),
        ({"kv_events": False}, (), ""),
        ({"lost_scrapes": 1}, (), "the server's metrics could not be read 1 time:"),
        ({"lost_scrapes": 2}, (), "the server's metrics could not be read 2 times"),
        ({"lost_scrapes": 0}, (), ""),
        ({}, (), ""),
    ],
)
def test_what_was_asked_for_and_did_not_come_is_told(
    about: dict[str, object], steps: tuple[Step, ...], missing: str, tmp_path: Path
) -> None:
    recording = made(tmp_path / "r", [ROW], steps)
    recording = replace(recording, about={**recording.about, **about})
    found = warnings(summarize(recording.requests), recording)
    assert [one.startswith(missing) for one in found] == [True] * bool(missing)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(("has_token_ids", "counted"), [(True, 9), (True, None), (False, 9), (False, None)])
def test_what_the_server_counts_stands_for_whole_answers_without_ids_alone(
    outcome: str, has_token_ids: bool, counted: int | None
) -> None:
    """Of an answer that broke off, what came is what there is."""
    came = ((1000, 2), (2000, 3))
    row = replace(ROW, outcome=outcome, has_token_ids=has_token_ids, completion_tokens=counted, chunks=came)
    believed = counted is not None and not has_token_ids and outcome == "completed"
    assert row.tokens == (counted if believed else 5)
