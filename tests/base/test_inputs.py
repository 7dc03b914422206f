"""Anything named as an input: files are read, everything else gives one error, at once and without a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import blis_tui
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import (
    MAX_DEPTH,
    TooLargeError,
    input_digest,
    parse_foreign_json,
    parse_json,
    read_input,
    real_path,
)
from blis_tui.golden.golden_store import HEADER, RECORDS, REPORT, GoldenFiles
from blis_tui.golden.produce import produce
from tests.prefork import run_module

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")

SPEC = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: mine}
model: llama-3.1-8b-instruct
hardware: h100
workload: chatbot
"""
REASONS = {
    "pipe.yaml": "it is a pipe, not a file",
    "folder.yaml": "Is a directory",
    "loop.yaml": "Too many levels of symbolic links",
    "/dev/zero": "it is a device, not a file",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "mine.blis.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("name", "reason"), REASONS.items())
def test_only_regular_files_are_read(folder: Path, name: str, reason: str) -> None:
    path = folder / name  # an absolute name stays absolute
    with pytest.raises(InputError) as caught:
        read_input(path, "that", limit=100)
    assert caught.value.message == f"cannot read that: {reason}"
    with pytest.raises(InputError, match=reason):
        input_digest(path, limit=100)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("mine.blis.yml", "did you mean `{folder}/mine.blis.yaml`?"),
        ("mine.yaml", "did you mean `{folder}/mine.blis.yaml`?"),
        ("other.csv", None),
        ("nowhere/mine.blis.yaml", "there is no folder {folder}/nowhere"),
    ],
)
def test_a_missing_file_is_looked_for_beside(tmp_path: Path, asked: str, hint: str | None) -> None:
    for name in ("mine.blis.yaml", "theirs.blis.yaml"):
        (tmp_path / name).write_text("")
    with pytest.raises(InputError, match="No such file or directory") as caught:
        read_input(tmp_path / asked, limit=10)
    assert caught.value.help == (hint and hint.format(folder=tmp_path))


def test_files_are_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_input(path, limit=5) == b"12345"
    assert input_digest(path, limit=5) == "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"
    for read in (read_input, input_digest):
        with pytest.raises(TooLargeError):
            read(path, limit=4)


def test_a_file_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 10 * 2**30)  # a sparse file: it takes no space
    with pytest.raises(TooLargeError, match="is larger than 8 MiB"):
        read_input(path, limit=8 * 2**20)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs a file that does not know its size")
def test_the_limit_holds_for_files_that_do_not_know_their_size() -> None:
    assert read_input("/proc/self/maps", limit=10**8)
    for read in (read_input, input_digest):
        with pytest.raises(InputError):
            read("/proc/self/maps", limit=10)


def test_a_loop_of_links_has_a_real_path(folder: Path) -> None:
    assert real_path(folder / "loop.yaml") == real_path(folder) / "loop.yaml"


def test_json_is_parsed_up_to_a_depth() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(deepest)
    for text in (f"[{deepest}]", "[" * 100_000, '{"a":' * 100_000):
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            parse_json(text)


HUGE = "9" * 400


@pytest.mark.parametrize(
    ("text", "mended", "says"),
    [
        ("[NaN, 1]", [None, 1], r"`\[0\]` is nan"),
        ("[1e999, -Infinity]", [None, None], r"`\[0\]` is inf"),
        (f'{{"a": [-{HUGE}, 2.5]}}', {"a": [None, 2.5]}, r"`a\[0\]` has more than 100 digits"),
        (r'{"a": "x\ud800", "\udc00b": 1}', {"a": "x\ufffd", "\ufffdb": 1}, "half a character"),
        (r'["\\ud800", "\ud83d\ude00"]', None, ""),  # a backslash and a text, and a whole character
        ("[1e99, true, null, false]", None, ""),
    ],
)
def test_json_has_no_number_or_text_that_nothing_can_hold(text: str, mended: object, says: str) -> None:
    if says:
        with pytest.raises(ValueError, match=says):
            parse_json(text)
        assert parse_foreign_json(text.encode()) == mended
    else:
        assert parse_json(text) == parse_foreign_json(text.encode()) == json.loads(text)


def test_what_is_no_json_at_all_is_told() -> None:
    deep = "[" * MAX_DEPTH + "[]" + "]" * MAX_DEPTH
    for text, says in (("{", "Expecting"), ("[" * 5000, "nested deeper"), (deep, "nested deeper")):
        for parse in (parse_json, parse_foreign_json):
            with pytest.raises(ValueError, match=says):
                parse(text.encode())
    with pytest.raises(ValueError, match="too many digits"):
        parse_json("9" * 5000)
    assert parse_foreign_json(b"[" + b"9" * 5000 + b"]") == [None]
    assert parse_foreign_json(b'\xef\xbb\xbf"\xed\xa0\x80"') == "\ufffd" * 3  # a mark of byte order, and no UTF-8
    with pytest.raises(ValueError, match="invalid continuation byte"):
        parse_json(b'"\xed\xa0\x80"')


@pytest.mark.parametrize("kind", [HEADER, REPORT])
@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "{", "\x00"])
def test_a_damaged_golden_is_an_error_with_its_file(tmp_path: Path, kind: str, text: str) -> None:
    files = GoldenFiles(tmp_path, "demo")
    files.file(HEADER).write_text("{}", encoding="utf-8")
    files.file(REPORT).write_text("{}", encoding="utf-8")
    files.file(kind).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"demo{kind} is not a golden file of format 1"):
        files.read()


def test_a_damaged_record_stream_is_an_error_with_its_file(tmp_path: Path) -> None:
    files = GoldenFiles(tmp_path, "demo")
    golden = produce(blis_tui.load("quickstart", set={"workload.requests": 3}), spec="demo.blis.yaml", case="default")
    files.write_records(iter(["{}\n"] * 100))
    whole = files.file(RECORDS).read_bytes()
    for damaged in (b"plain text", whole[:-9], whole[:12] + b"\xff" * 9 + whole[21:]):
        files.file(RECORDS).write_bytes(damaged)
        with pytest.raises(InputError, match=r"demo\.records\.jsonl\.gz"):
            files.read_records(golden)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "./{}"), 3),
        (("check", "./{}"), 3),
        (("diff", "./{}", "quickstart"), 3),
        (("spec", "show", "./{}"), 3),
        (("spec", "resolve", "./{}"), 3),
        (("spec", "import", "model", "{}"), 3),
        (("spec", "import", "workload", "{}"), 3),
        (("run", "mine.blis.yaml", "--set", "workload=./{}"), 2),
        (("run", "mine.blis.yaml", "--set", "workload={{trace: {{file: ./{}}}}}"), 2),
        (("run", "mine.blis.yaml", "--set", "model={{config_file: ./{}}}"), 2),
        (("run", "mine.blis.yaml", "--set", "extends=./{}"), 2),
        (("spec", "fmt", "--check", "{}"), 3),
    ],
)
def test_no_command_waits_for_a_pipe_or_follows_a_loop(folder: Path, arguments: tuple[str, ...], code: int) -> None:
    for name in ("pipe.yaml", "loop.yaml"):
        command = [argument.format(name) for argument in arguments]
        done = run_module("blis_tui", command, cwd=folder, env=os.environ)
        assert (done.returncode, done.stdout) == (
            code,
            "0 documents, no errors, 1 path not read\n" if "check" in command else "",
        )
        assert f"{name}: {REASONS[name]}" in done.stderr
        assert "Traceback" not in done.stderr
