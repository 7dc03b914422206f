"""``blis-tui bundle`` and the commands that take what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from tests.golden.projects import SPEC

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.blis.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def test_a_bundle_runs_as_what_it_was_made_of(demo: Path) -> None:
    made = CliRunner().invoke(cli, ["bundle", "demo.blis.yaml", "-o", "run.blis", "--set", "engine.kv_blocks=70"])
    assert made.exit_code == 0, made.output
    assert made.stderr.startswith("wrote run.blis: a run of ")
    plain = CliRunner().invoke(cli, ["run", "demo.blis.yaml", "--set", "engine.kv_blocks=70"])
    opened = CliRunner().invoke(cli, ["run", "run.blis", "--requests", "rows.csv"])
    assert (opened.exit_code, opened.stdout) == (0, plain.stdout)
    assert (demo / "rows.csv").read_text(encoding="utf-8").count("\n") == 26


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["demo.blis.yaml", "-o", "run.zip"], "the name must end in .blis"),
        (["-", "-o", "run.blis"], "a bundle is made from files"),
        (["demo.blis.yaml", "-o", "run.blis", "--at", " "], "--at: no place is given"),
        (["demo.blis.yaml", "-o", "run.blis", "--at", "99999999"], "--at: the run ends after "),
        (["demo.blis.yaml", "-o", "run.blis", "--at", "5h"], "--at: the run "),
        (["demo.blis.yaml", "-o", "run.blis", "--at", "100s"], "--at: the run ends at "),
        (["demo.blis.yaml", "-o", "run.blis", "--at", "request_99"], "--at: the run has no request `request_99`"),
        (["demo.blis.yaml", "-o", "run.blis", "--break", "preemptet"], "did you mean `preempted`?"),
        (["demo.blis.yaml", "-o", "nowhere/run.blis"], "nowhere"),
        (["demo.blis.yaml"], "Missing option '-o'"),
    ],
)
def test_what_cannot_be_packed_is_an_error_and_leaves_nothing(arguments: list[str], says: str, demo: Path) -> None:
    done = CliRunner().invoke(cli, ["bundle", *arguments])
    assert done.exit_code in (ExitCode.USAGE, ExitCode.IO)
    assert says in done.stderr
    assert [path.name for path in demo.iterdir()] == ["demo.blis.yaml"]


@pytest.mark.parametrize("command", ["run", "tui"])
def test_what_is_no_bundle_is_an_error(command: str, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blis_tui.cli.tui.has_terminal", lambda: True)
    (demo / "run.blis").write_text("no bundle", encoding="utf-8")
    for name, code, says in (
        ("run.blis", ExitCode.IO, "is not a bundle of format 1"),
        ("gone.blis", ExitCode.IO, "gone"),
    ):
        done = CliRunner().invoke(cli, [command, name])
        assert done.exit_code == code
        assert says in done.stderr


@pytest.mark.parametrize("command", ["run", "tui"])
@pytest.mark.parametrize("change", [["--set", "engine.kv_blocks=70"], ["--seed", "3"], ["--case", "small"]])
def test_a_bundle_is_opened_as_it_is(
    command: str, change: list[str], demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blis_tui.cli.tui.has_terminal", lambda: True)
    assert CliRunner().invoke(cli, ["bundle", "demo.blis.yaml", "-o", "run.blis", "--at", "request_3"]).exit_code == 0
    done = CliRunner().invoke(cli, [command, "run.blis", *change])
    assert done.exit_code == ExitCode.USAGE
    assert "a bundle is opened as it is" in done.stderr


def test_what_helps_names_the_bundle(demo: Path) -> None:
    failing = "\nexpect: [{never: preempted}]\n"
    (demo / "demo.blis.yaml").write_text(SPEC + failing, encoding="utf-8")
    assert CliRunner().invoke(cli, ["bundle", "demo.blis.yaml", "-o", "run.blis"]).exit_code == ExitCode.OK
    ended = CliRunner().invoke(cli, ["run", "run.blis"])
    assert ended.exit_code == ExitCode.CHECK_FAILED
    assert "open it in the debugger: blis-tui tui run.blis --at " in ended.stderr
