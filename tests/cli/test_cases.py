"""Files with cases on the command line: nothing is left out in silence, and each case can be taken alone."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
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
    assert "(Experiment demo; 4 cases)\n" in blis("check", file.name).stdout
    checked = json.loads(blis("check", file.name, "--format", "json").stdout)["documents"][0]
    assert (checked["cases"], checked["cases_checked"]) == (4, 4)


def test_check_reports_errors_of_cases_where_the_cases_are(file: Path) -> None:
    """Those of several cases once, with the first one's name where its own line does not show it."""
    wrong = "  wrong: {cluster.instancess: 2}\n  split: {cluster.tensor_parallel: 3}\n  none: {workload: nosuch}\n"
    file.write_text(CASES.replace("matrix:", f"{wrong}matrix:"))
    bad = blis("check", file.name)
    assert bad.exit_code == ExitCode.USAGE
    assert bad.stderr.count("error[") == 3
    for text in (
        "error[BLIS1001]: unknown key `instancess`\n  --> demo.blis.yaml:19:19  (cluster.instancess)",
        "error[BLIS2004]: tensor_parallel 3 does not divide the 32 attention heads",
        "error[BLIS2001]: no workload is named `nosuch`\n  --> demo.blis.yaml:21:20  (workload)",
    ):
        assert text in bad.stderr
    long, longer = (f"workload.clients: [{{id: chat, input_tokens: {n}, output_tokens: 10}}]" for n in (5000, 6000))
    file.write_text(CASES.replace("  two:", f"  long: {{{long}}}\n  longer:\n    {longer}\n  two:"))
    assert blis("check", file.name).stderr.count("error[") == 2


def test_check_names_the_case_of_an_error_elsewhere(file: Path) -> None:
    file.write_text(CASES.replace("plain: {}", "plain: {}\n  tiny: {engine.kv_blocks: 1}"))
    bad = blis("check", file.name).stderr
    assert bad.count("error[") == 1
    assert "case `tiny,max_num_seqs=8`: the smallest request of client `chat`, 18 tokens," in bad
    assert "(workload.clients.0.input_tokens)" in bad


def test_check_takes_a_sample_of_very_many_cases_that_has_each_value(file: Path) -> None:
    axes = "engine.max_num_seqs: {from: 1, to: 20, step: 1}, seed: {from: 1, to: 30, step: 1}"
    file.write_text(CASES.replace("engine.max_num_seqs: [8, 16]", axes))
    ok = blis("check", file.name)
    assert re.search(r"; 1,200 cases, (\d+) of them checked\)", ok.stdout)
    file.write_text(CASES.replace("engine.max_num_seqs: [8, 16]", axes).replace("to: 30, step: 1", "to: 30, step: 0.5"))
    bad = blis("check", file.name)
    assert "expected a whole number, found the number `1.5`" in bad.stderr


def test_paths_in_cases_start_from_the_file_that_contains_them(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "elsewhere").mkdir()
    own = "apiVersion: blis/v1\nkind: Policy\nmetadata: {name: own}\nrouting: least-loaded\n"
    (file.parent / "own.yaml").write_text(own)
    file.write_text(SPEC + "cases:\n  own: {policy: ./own.yaml}\n  none: {policy: ./none.yaml}\n")
    monkeypatch.chdir(file.parent / "elsewhere")
    found = {case.name: case for case in cases_of(file)}
    assert found["own"].load().policy.routing.kind == "least-loaded"
    assert blis("run", str(file), "--case", "own", "--format", "table").exit_code == ExitCode.OK
    message = blis("run", str(file), "--case", "none").stderr
    assert "demo.blis.yaml:18:18  (policy)" in message
    assert "paths are relative to the file that contains them" in message


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


def test_check_knows_which_expectations_can_be_broken(file: Path) -> None:
    text = SPEC + "expect:\n  - {metric: requests.completed, equals: 24}\n  - {never: preempted}\n"
    for known, message in (
        ("[requests.completed, never preempted]", ""),
        ("[requests.complete]", "did you mean `requests.completed`?"),
        ("[preempted]", "they are `never preempted`, `requests.completed`"),
    ):
        file.write_text(f"{text}golden: {{xfail: {known}}}\n")
        checked = blis("check", file.name)
        assert (checked.exit_code == ExitCode.OK) == (not message), checked.stderr
        assert message in checked.stderr
    assert "error[BLIS2013]: `preempted` is not an expectation of the experiment\n  --> demo.blis.yaml:19:18" in (
        checked.stderr
    )
