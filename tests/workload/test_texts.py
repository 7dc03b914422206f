"""Traces of texts: tokens are estimated at a stated ratio, or counted by a tokenizer that is named."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.model import Trace
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import read_trace

if TYPE_CHECKING:
    from pathlib import Path

WILDCHAT: Final = {
    "conversation_hash": "ab",
    "model": "gpt-4",
    "timestamp": "2023-04-09T00:02:53",
    "conversation": [
        {"role": "user", "content": "one two three", "language": "English"},
        {"role": "assistant", "content": "four five", "language": "English"},
        {"role": "user", "content": "six", "language": "English"},
        {"role": "assistant", "content": "seven", "language": "English"},
    ],
    "turn": 2,
}


@pytest.fixture
def conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "wild.jsonl"
    path.write_text(json.dumps(WILDCHAT) + "\n", encoding="utf-8")
    return path


def lengths(path: Path, **settings: object) -> list[tuple[int, int]]:
    trace = Trace(path=str(path), format="sharegpt", sha256="", rate_per_s=1.0, **settings)  # type: ignore[arg-type]
    table = read_trace(trace, builtin())
    return [(request.input_tokens, request.output_tokens) for request in map(table.request, range(len(table)))]


def test_a_token_is_so_many_bytes(conversations: Path) -> None:
    assert lengths(conversations) == [(4, 3)]
    assert lengths(conversations, bytes_per_token=2.5) == [(6, 4)]
    assert lengths(conversations, pacing="answers", bytes_per_token=1.0) == [(13, 9), (13 + 9 + 3, 5)]


@pytest.mark.parametrize(("settings", "expected"), [({}, [(7, 10)]), ({"pacing": "answers"}, [(7, 10), (19, 1)])])
def test_what_the_system_says_is_part_of_the_next_message(
    settings: dict[str, object], expected: list[tuple[int, int]], tmp_path: Path
) -> None:
    """Otherwise the question would be taken for the answer."""
    texts = [("system", 5), ("user", 2), ("assistant", 10), ("developer", 1), ("user", 1), ("assistant", 1)]
    messages = [{"role": role, "content": "word" * words} for role, words in texts]
    path = tmp_path / "talks.json"
    path.write_text(json.dumps([{"messages": messages}]), encoding="utf-8")
    assert lengths(path, **settings) == expected


def test_the_ratio_is_said(conversations: Path) -> None:
    words = [
        "workload",
        "describe",
        str(conversations),
        "--set",
        "trace.rate_per_s=2",
        "--set",
        "trace.bytes_per_token=2.5",
    ]
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, "sharegpt" in done.output) == (0, False)
    assert "2 token counts that are not in the file: one for each 2.5 bytes of text (`bytes_per_token`)" in done.stdout


def by_words(path: str) -> object:
    """Return a tokenizer that counts words."""
    assert path == "words.json"
    return SimpleNamespace(encode=lambda text, *, add_special_tokens: SimpleNamespace(ids=text.split()))


def test_a_tokenizer_counts(conversations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=SimpleNamespace(from_file=by_words)))
    words = ["workload", "convert", str(conversations), "--set", "trace.rate_per_s=2", "--tokenizer", "words.json"]
    done = CliRunner().invoke(cli, [*words, "-o", "counted.csv"])
    assert (done.exit_code, "token count" in done.stderr) == (0, False)
    table = read_trace(Trace(path="counted.csv", format="requests", sha256=""), builtin())
    assert (table.request(0).input_tokens, table.request(0).output_tokens) == (3, 2)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (None, "--tokenizer needs the package `tokenizers`"),
        (SimpleNamespace(Tokenizer=SimpleNamespace(from_file=open)), "no.json is not a tokenizer"),
    ],
)
def test_a_tokenizer_that_cannot_count_is_one_error(
    module: object, message: str, conversations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", module)
    words = ["workload", "convert", str(conversations), "--set", "trace.rate_per_s=2", "--tokenizer", "no.json"]
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, done.stdout) == (ExitCode.IO, "")
    assert message in done.stderr
    assert "= help: " in done.stderr


def test_a_tokenizer_is_for_texts(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_time_us,input_tokens,output_tokens\n0,1,1\n")
    for source, message in (("chatbot", "is a document"), (str(tmp_path / "trace.csv"), "`tokenizer` does not apply")):
        done = CliRunner().invoke(cli, ["workload", "describe", source, "--tokenizer", "no.json"])
        assert (done.exit_code, message in done.stderr) == (2, True)
