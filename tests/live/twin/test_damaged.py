"""Recordings that are damaged: one error with the file and the line, or a comparison of what is there."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.canonical import to_json
from blis_tui.base.errors import InputError
from blis_tui.live.observe.recording import read_recording
from blis_tui.live.twin.course import of_recording as course_of
from blis_tui.live.twin.fitting import pace_of
from blis_tui.live.twin.twin import STEPS, compare_recordings, compare_with_simulation
from blis_tui.live.twin.twin_text import pairs_csv, twin_document, twin_text
from tests.live.twin.servers import BASE, experiment, recorded
from tests.nightly import every

if TYPE_CHECKING:
    from pathlib import Path

HUGE = "9" * 400
WORKLOAD = {**BASE["workload"], "requests": 8}  # type: ignore[dict-item]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(experiment(workload=WORKLOAD), tmp_path_factory.mktemp("made") / "r").folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "r")
    return tmp_path / "r"


def compare(folder: Path, steps: str = "model") -> None:
    """Make everything that is made of a recording."""
    recording = read_recording(folder)
    course_of(recording, pace_of(recording))
    for twin in (
        compare_with_simulation(recording, experiment(), "server", steps),
        compare_recordings(recording, recording),
    ):
        assert twin_text(twin).encode()
        assert to_json(twin_document(twin)).encode()
        assert "".join(pairs_csv(twin)).encode()


def with_key(line: str, key: str, value: str) -> str:
    """A line of JSON in which a key has another value, written as it is here."""
    document = json.loads(line)
    document[key] = "@"
    return json.dumps(document).replace('"@"', value)


REQUESTS = {
    "outcome": ("[]", "{}", "null", '"lost"', "NaN"),
    "request_id": (r'"\ud800"', "7", "null"),
    "error": (r'"\udfff"', "[]"),
    "model": (r'"\ud800x"', "1e999"),
    "index": ("-1", "1.0", HUGE, "true"),
    "sent_us": (HUGE, "NaN", "9007199254740993", '"1"'),
    "done_us": ("-" + HUGE, "Infinity"),
    "input_tokens": (HUGE, "-5", "4294967297"),
    "completion_tokens": (HUGE, "1e30", "-1"),
    "status": ("NaN", HUGE),
    "deadline_us": ("null", HUGE),
    "segments": (r'"[[\"\\ud800\", 5]]"', '"' + "[" * 5000 + '"', '"[[1, 2]]"', "[]"),
    "chunks": ("[[1]]", f"[[{HUGE}, 1]]", "[[1, -1]]", "[[NaN, 1]]", "[[1, 1.5]]", "[" * 200 + "]" * 200, "{}"),
}
SCRAPES = {
    "time_us": (HUGE, "NaN", "0.5", "null"),
    "vllm:num_requests_running": (HUGE, "NaN", "-Infinity", "1e999", "1e308", "1e30", "true", '"3"', "null", "[]"),
}


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        *(("requests.jsonl", key, value) for key, values in REQUESTS.items() for value in values),
        *(("metrics.jsonl", key, value) for key, values in SCRAPES.items() for value in values),
    ],
    ids=lambda value: value if len(value) < 30 else "long",
)
def test_a_value_that_nothing_wrote_is_told_with_its_line(file: str, key: str, value: str, folder: Path) -> None:
    lines = (folder / file).read_text().splitlines()
    lines[2] = with_key(lines[2], key, value)
    (folder / file).write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError) as caught:
        read_recording(folder)
    assert caught.value.message.startswith(f"{folder / file}, line 3: ")
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("cell", ["", "x", "-1", "1.5", "nan", "9" * 5000, "9" * 17, "1_0", "\u0661"], ids=range(9))
@pytest.mark.parametrize("column", [0, 2, 3, 4, 5, 6])
def test_a_cell_that_nothing_wrote_is_told_with_its_line(column: int, cell: str, folder: Path) -> None:
    path = folder / "steps.csv"
    lines = path.read_text().splitlines()
    cells = lines[3].split(",")
    lines[3] = ",".join([*cells[:column], cell, *cells[column + 1 :]])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_recording(folder)
    assert caught.value.message.startswith(f"{path}, line 4: ")
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("share", ["nan", "inf", "-0.1", "1.01", "1e400", "x"])
def test_a_share_is_from_0_to_1(share: str, folder: Path) -> None:
    path = folder / "steps.csv"
    lines = path.read_text().splitlines()
    cells = lines[1].split(",")
    lines[1] = ",".join([*cells[:7], share, cells[8]])
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"steps\.csv, line 2: "):
        read_recording(folder)


@pytest.mark.parametrize("counters", ["[]", "7", '{"a": NaN}', f'{{"a": {HUGE}}}', '{"a": "x"}', '{"a": 1e30}'])
def test_counters_are_figures(counters: str, folder: Path) -> None:
    path = folder / "recording.json"
    path.write_text(with_key(path.read_text(), "counters", counters))
    with pytest.raises(InputError, match=r"recording\.json: "):
        read_recording(folder)


def test_bytes_that_are_no_text_are_told_with_their_line(folder: Path) -> None:
    path = folder / "requests.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\xff", 2))
    with pytest.raises(InputError, match=r"requests\.jsonl, line 2: it is not UTF-8 text"):
        read_recording(folder)


# ---- anything ----

_VALUES = (
    *("null", "true", "0", "-1", "1", "7", "1.5", "NaN", "1e999", HUGE, "9007199254740992", "4294967296", "1000000"),
    *(
        '""',
        '"x"',
        r'"\ud800"',
        '"completed"',
        '"timed-out"',
        "[]",
        "{}",
        "[[1, 2]]",
        "[[5, 1], [3, 1]]",
        "-9007199254740992",
    ),
)


def _damaged(draw: random.Random, content: bytes) -> bytes:
    """A file with a value, a line or some bytes changed."""
    kind = draw.randrange(6)
    lines = [content] if content.startswith(b"{\n") else content.split(b"\n")
    at = draw.randrange(len(lines))
    if kind == 0:  # bytes
        place = draw.randrange(len(content))
        return content[:place] + draw.randbytes(draw.randrange(3)) + content[place + draw.randrange(3) :]
    if kind == 1:
        return content[: draw.randrange(len(content))]
    if kind == 2:
        return b"\n".join([*lines[:at], *lines[at + 1 :]])
    if kind == 3:
        return b"\n".join([*lines[:at], lines[at], *lines[at:]])
    if not lines[at].startswith(b"{"):
        cells = lines[at].split(b",")
        cells[draw.randrange(len(cells))] = draw.choice(_VALUES).encode()
        return b"\n".join([*lines[:at], b",".join(cells), *lines[at + 1 :]])
    document = json.loads(lines[at])
    keys = [*document, "deadline_us", "model", "segments", "session_id", "has_token_ids", "whole"]
    changed = with_key(json.dumps(document), draw.choice(keys), draw.choice(_VALUES)).encode()
    return b"\n".join([*lines[:at], changed, *lines[at + 1 :]])


@pytest.mark.parametrize("seed", every(4, range(8)))
def test_damage_anywhere_is_an_error_with_its_place_or_no_harm(seed: int, folder: Path) -> None:
    draw = random.Random(seed)  # noqa: S311  (no secret)
    messages: list[str] = []
    for _ in range(12):
        path = folder / draw.choice(("requests.jsonl", "metrics.jsonl", "steps.csv", "requests.csv", "recording.json"))
        content = path.read_bytes()
        path.write_bytes(_damaged(draw, content))
        try:
            compare(folder, draw.choice(STEPS))
        except InputError as error:
            messages.append(str(error))
        path.write_bytes(content)
    assert messages
    assert [one for one in messages if str(folder) not in one] == []
    compare(folder)
