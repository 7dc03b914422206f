"""A recording read while it grows, against one that is read as a whole."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blis_tui.base.errors import InputError
from blis_tui.live.observe.following import Following
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

if TYPE_CHECKING:
    from pathlib import Path

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
