"""What a broken expectation of the course of a run looks like to those who run it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from tests.golden.projects import SPEC, blis_in, project, pytest_in

PAGE: Final = (Path(__file__).parents[2] / "docs" / "golden.md").read_text(encoding="utf-8")


def test_the_guide_shows_what_is_told() -> None:
    """The event, the exit code, and a command that opens the debugger there."""
    match = re.search(r"^\$ blis-tui (run recovery .*)\n((?:.+\n)+)```", PAGE, re.MULTILINE)
    assert match is not None
    done = CliRunner().invoke(cli, match[1].split())
    assert done.exit_code == ExitCode.CHECK_FAILED
    assert done.stderr.endswith(match[2])
    broken = [one for one in json.loads(done.stdout)["expectations"] if not one["ok"]]
    assert [one["event"] for one in broken] == [25062]
    assert f"--at {broken[0]['event']}" in match[2]


def test_its_golden_test_and_its_comment_open_the_debugger_there(tmp_path: Path) -> None:
    """A golden does not make it right."""
    folder = project(tmp_path, f"{SPEC}expect:\n  - {{never: completed}}\n")
    pytest_in(folder)
    assert blis_in(folder, "golden", "accept").returncode == 0
    run = pytest_in(folder)
    assert run.returncode == 1
    violation = re.search(r"expectation failed: never completed: violated at event (\d+) ", run.stdout)
    assert violation is not None
    opens = f"blis-tui tui demo.blis.yaml --at {violation[1]}\n"
    assert f"open it in the debugger: {opens}" in run.stdout
    comment = blis_in(folder, "golden", "report")
    assert comment.returncode == 1
    assert "| `never completed` |  | **fails** |" in comment.stdout
    assert f"`never completed` failed at event {violation[1]}: " in comment.stdout
    assert f"```sh\n{opens}```" in comment.stdout


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--seed", "7"),
        ("--case", "small"),
        ("--set", "engine.kv_blocks=40", "--set", "workload.requests=9"),
        ("--case", "small", "--set", "workload.requests=9", "--seed", "0"),
    ],
    ids=" ".join,
)
def test_the_command_that_opens_the_debugger_opens_this_very_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    """It has all that decides what happens, as it was given."""
    cases = "cases: {small: {engine: {kv_blocks: 50}}}\n"
    spec = tmp_path / "a demo.yaml"
    spec.write_text(f"{SPEC}expect:\n  - {{never: completed}}\n{cases}", encoding="utf-8")
    done = CliRunner().invoke(cli, ["run", str(spec), *options])
    assert done.exit_code == ExitCode.CHECK_FAILED
    (command,) = re.findall(r"open it in the debugger: (.*) --at \d+\n", done.stderr)
    opened = shlex.split(command)
    assert opened[:3] == ["blis-tui", "tui", str(spec)]
    given, found = ([*zip(words[::2], words[1::2], strict=True)] for words in (options, opened[3:]))
    assert sorted(found) == sorted(given)
