"""Files with cases on the command line: nothing is left out in silence, and each case can be taken alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.failures import ExitCode
from blis_tui.cli.main import cli
from blis_tui.golden.case import cases_of
from tests.golden.projects import SPEC

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

CASES = SPEC.replace("kv_blocks: 60", "kv_blocks: 200") + (
    "cases:\n  plain: {}\n  two: {cluster.instances: 2}\nmatrix: {engine.max_num_seqs: [8, 16]}\n"
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "demo.blis.yaml"
    path.write_text(CASES)
    return path


def blis(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def test_cases_are_not_left_out_in_silence(file: Path) -> None:
    run = blis("run", file.name)
    assert run.exit_code == ExitCode.OK
    assert json.loads(run.stdout)["meta"]["experiment"] == "demo"  # nothing but the report stands there
    assert run.stderr.startswith(
        "note: demo.blis.yaml has 4 cases; this run uses none of them\n"
        "  = help: select one with --case plain,max_num_seqs=8; pytest demo.blis.yaml::plain,max_num_seqs=8 tests one,"
        " pytest demo.blis.yaml all\n"
    )
    assert "note: standard input has 4 cases" in blis("run", "-", stdin=CASES).stderr
    assert "note" not in blis("run", "-", stdin=SPEC).stderr
    assert "its 4 cases are pytest's to check" in blis("check", file.name).stdout
    assert json.loads(blis("check", file.name, "--format", "json").stdout)["documents"][0]["cases"] == 4


def test_a_case_gives_what_its_golden_test_gives(file: Path) -> None:
    for case in cases_of(file):
        run = blis("run", file.name, "--case", case.name)
        assert run.stdout == blis_tui.run(case.load()).to_json()
        assert "note" not in run.stderr
        assert blis("run", "-", "--case", case.name, stdin=CASES).stdout == run.stdout
    changed = blis("run", file.name, "--case", "two,max_num_seqs=8", "--set", "cluster.instances=3")
    assert len(json.loads(changed.stdout)["instances"]) == 3  # what is set counts more than what the case says


def test_an_unknown_case(file: Path) -> None:
    near = blis("run", file.name, "--case", "two,max_num_seqs=9")
    assert near.exit_code == ExitCode.USAGE
    assert "demo.blis.yaml has no case `two,max_num_seqs=9`: did you mean `two,max_num_seqs=8`?" in near.stderr
    assert "the cases are `plain,max_num_seqs=16`" in blis("run", file.name, "--case", "x").stderr
    assert "the file has neither `cases` nor `matrix`" in blis("run", "quickstart", "--case", "x").stderr
