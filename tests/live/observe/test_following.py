"""A recording read while it grows, against one that is read as a whole."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import InputError
from blis_tui.base.units import filled
from blis_tui.engine.records import Arrived, Completed
from blis_tui.live.observe.following import Following, FollowingRecords, follow, merged, names_of
from blis_tui.live.observe.recording import (
    METRICS,
    REQUESTS,
    Folder,
    Observed,
    Scrape,
    Server,
    read_recording,
    request_line,
    scrape_line,
)
from blis_tui.live.observe.recording_summary import summarize
from blis_tui.results.record_lines import record_dict, record_line

if TYPE_CHECKING:
    from blis_tui.engine.records import Record

SERVER = Server()


def row(number: int, outcome: str = "completed") -> Observed:
    sent_us = 40_000 * number
    return Observed(
        request_id=f"request_{number}",
        index=number,
        due_us=sent_us,
        sent_us=sent_us,
        done_us=sent_us + 900_000,
        outcome=outcome,
        input_tokens=100,
        output_tokens=5,
        chunks=tuple((sent_us + 100_000 + 50_000 * place, 1) for place in range(5)),
    )


def begun(path: Path) -> Folder:
    folder = Folder(path)
    folder.begin({"url": "http://127.0.0.1:8000", "complete": False}, SERVER)
    return folder


@given(cuts=st.lists(st.integers(0, 9000), max_size=8))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_however_it_is_written_all_of_it_is_read_once(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A write may end anywhere, also within a line."""
    folder = begun(tmp_path_factory.mktemp("recordings") / "r")
    following = Following(folder.path)
    assert following.look().sent == 0
    outcomes = ["completed", "completed", "refused", "broken"]
    lines = "".join(request_line(row(number, outcomes[number % 4])) for number in range(40)).encode()
    places = sorted({0, *(cut for cut in cuts if cut < len(lines)), len(lines)})
    for start, end in pairwise(places):
        with (folder.path / REQUESTS).open("ab") as file:
            file.write(lines[start:end])
        status = following.look()
        whole = lines[:end].count(b"\n")
        assert status.outcomes == Counter(outcomes[number % 4] for number in range(whole))
        assert not following.over
    folder.say({"complete": True, "counters": {}}, SERVER)
    folder.close()
    status = following.look()
    assert following.over
    recording = read_recording(folder.path)
    assert status.outcomes == Counter(request.outcome for request in recording.requests)
    assert status.tokens == sum(request.tokens for request in recording.requests)
    assert status.failed == summarize(recording.requests).failed
    assert status.time_us == max(request.done_us for request in recording.requests)


def test_what_is_in_flight_is_what_the_server_says(tmp_path: Path) -> None:
    folder = begun(tmp_path / "r")
    folder.request(row(0))
    values = {"vllm:num_requests_running": 4.0, "vllm:num_requests_waiting": 2.0, "vllm:kv_cache_usage_perc": 0.5}
    folder.scrape(Scrape(time_us=2_000_000, values=values))
    following = Following(folder.path)
    status = following.look()
    assert (status.sent, status.running, status.time_us, status.server) == (7, 6, 2_000_000, values)
    folder.say({"complete": False, "counters": {}}, SERVER)  # stopped
    assert (following.look().running, following.over) == (0, True)
    folder.close()


@pytest.mark.parametrize(
    ("name", "good", "line"),
    [(REQUESTS, request_line(row(0)), 2), (METRICS, scrape_line(Scrape(time_us=1, values={})), 2)],
)
def test_a_damaged_line_is_named(name: str, good: str, line: int, tmp_path: Path) -> None:
    folder = begun(tmp_path / "r")
    following = Following(folder.path)
    (folder.path / name).write_text(good + '{"half": \n')
    with pytest.raises(InputError, match=rf"{name}.*2"):
        following.look()
    folder.close()


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a recording: it has no"):
        Following(tmp_path)


def recorded(path: Path, name: str, **changed: object) -> list[Record]:
    """Write a run's records to a file; return them."""
    records: list[Record] = []
    simulation = blis_tui.Simulation(blis_tui.load(name, set={"expect": [], **changed}))
    simulation.subscribe("all", records.append)
    simulation.run()
    path.write_text("".join(map(record_line, records)), encoding="utf-8")
    return records


def test_records_are_counted_as_they_are_written(tmp_path: Path) -> None:
    """A file that grows by pieces, which may end within a line; against the records themselves."""
    whole, growing = tmp_path / "whole.jsonl", tmp_path / "a.jsonl"
    records = recorded(whole, "admission-control", **{"workload.requests": 300, "workload.rate_per_s": 200})
    content = whole.read_bytes()
    growing.write_bytes(b"")
    run = FollowingRecords(growing)
    for end in range(0, len(content), 20_011):
        with growing.open("ab") as file:
            file.write(content[end : end + 20_011])
        known = records[: content[: end + 20_011].count(b"\n")]
        status = run.look()
        arrived = sum(isinstance(one, Arrived) for one in known)
        done = [one for one in known if isinstance(one, Completed)]
        lost = Counter(one.kind for one in known if one.shown.ends == "lost")
        assert status.sent == arrived
        assert status.running == arrived - len(done) - lost.total()
        assert status.outcomes == {**({"completed": len(done)} if done else {}), **lost}
        assert status.tokens == sum(one.output_tokens for one in done)
        assert status.time_us == max((one.time_us for one in known), default=0)
        late = [one for one in done if one.time_us >= status.time_us - 5_000_000]
        if late:
            assert status.ttft_us is not None
    assert status.sent == 300
    assert status.failed == lost.total() > 0
    assert not run.over


def test_several_runs_have_one_timeline(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    expected = []
    for path, instances in zip(paths, (1, 2), strict=True):
        changes = {"workload.requests": 40, "cluster.instances": instances}
        for record in recorded(path, "quickstart", **changes):
            if hasattr(record, "request_id"):
                instance = getattr(record, "instance", None)
                where = path.stem if instance is None else f"{path.stem}/instance_{instance}"
                expected.append((record.time_us, where, filled(record.shown.sentence, record_dict(record))))
    runs = [follow(path, name) for path, name in zip(paths, names_of(paths), strict=True)]
    for run in runs:
        run.look()
    events = merged(runs, 1000)
    assert [(event.time_us, event.where, event.text) for event in events] == sorted(expected, key=lambda one: one[0])
    assert merged(runs, 7) == events[-7:]
    assert {event.where for event in events} == {"a", "b", "a/instance_0", "b/instance_0", "b/instance_1"}


def test_a_recording_has_events_too(tmp_path: Path) -> None:
    folder = begun(tmp_path / "r")
    for number in range(3):
        folder.request(row(number, "completed" if number else "refused"))
    run = follow(folder.path)
    run.look()
    folder.close()
    assert [(event.time_us, event.where, event.text) for event in merged([run], 99)][:2] == [
        (0, "r", "request_0 was sent"),
        (40_000, "r", "request_1 was sent"),
    ]
    texts = [event.text for event in run.events]
    assert "request_1 got its first token after 100 ms" in texts
    assert "request_0: refused after 900 ms" in texts
    assert len(texts) == 9


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "line 1: "),
        ("[]", "it is no record"),
        ('{"kind": "completed", "event": 1, "time_us": 3}', "`request_id` is missing: a text is needed"),
        ('{"kind": "arrived", "event": 1, "time_us": 3, "request_id": ["a"]}', "`request_id` is ['a']: a text is"),
        ('{"kind": "of-a-plug-in", "event": 1}', "`time_us` is missing: a whole number is needed"),
        ('{"kind": "of-a-plug-in", "event": 1, "time_us": 3, "instance": "x"}', "`instance` is 'x': a whole number"),
        ('{"kind": "arrived", "event": true, "time_us": 3, "request_id": "a"}', "`event` is True: a whole number"),
        ('{"kind":"step","event":1}', "`time_us` is missing"),
        ('{"kind":"step","event":"x","time_us":1}', "`event` is 'x'"),
    ],
)
def test_what_is_no_record_is_refused(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(InputError, match=re.escape(said)):
        FollowingRecords(path).look()
    with pytest.raises(InputError, match="is no file of records"):
        FollowingRecords(tmp_path / "none.jsonl")


def test_runs_are_told_apart_by_their_paths() -> None:
    assert names_of([Path("x/a.jsonl"), Path("x/b.jsonl")]) == ["a", "b"]
    assert names_of([Path("x/r.jsonl"), Path("y/r.jsonl")]) == ["x/r", "y/r"]
    assert names_of([Path("r"), Path("r")]) == ["r-1", "r-2"]
