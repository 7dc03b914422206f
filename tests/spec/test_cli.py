"""The validate and spec commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blis_tui.cli.main import cli
from blis_tui.spec.shipped import shipped_specs
from blis_tui.workload.traces import read

BROKEN = Path(__file__).parent / "broken"


def run_validate(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["check", *arguments], input=text)


def run_spec(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["spec", *arguments])


def test_valid_documents() -> None:
    result = run_validate(str(shipped_specs() / "policies"), "quickstart")
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[-1] == f"{len(lines) - 1} documents, no errors"
    assert lines[-2] == "ok  quickstart  (Experiment quickstart)"


def test_errors_go_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    result = run_validate("./schema-unknown-keys.yaml", "quickstart")
    assert result.exit_code == 2
    assert "error[BLIS1001]: unknown key `engin`" in result.stderr
    assert result.stdout.splitlines() == [
        "ok  quickstart  (Experiment quickstart)",
        "2 documents, 1 with errors",
    ]


def test_unreadable_files_are_another_exit_code() -> None:
    result = run_validate("./none.yaml")
    assert result.exit_code == 3
    assert "cannot read none.yaml: No such file" in result.stderr


def test_standard_input() -> None:
    text = (shipped_specs() / "policies" / "sjf.yaml").read_text(encoding="utf-8")
    assert run_validate("-", text=text).stdout == "ok  -  (Policy sjf)\n1 document, no errors\n"
    assert run_validate("-", text="kind: [").exit_code == 2


def test_json_is_one_document_on_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    result = run_validate("--format", "json", "./schema-unknown-keys.yaml", "quickstart")
    assert result.exit_code == 2
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document["ok"] is False
    broken, fine = document["documents"]
    assert (broken["ok"], fine["ok"], fine["kind"]) == (False, True, "Experiment")
    assert broken["diagnostics"][0]["code"] == "BLIS1001"


def test_a_path_is_needed() -> None:
    assert run_validate().exit_code == 2


def test_list() -> None:
    result = run_spec("list", "--kind", "policy")
    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["policy", path.stem] for path in sorted((shipped_specs() / "policies").glob("*.yaml"))
    ]
    listed = json.loads(run_spec("list", "--format", "json").stdout)
    assert {
        "kind": "Hardware",
        "name": "h100",
        "shipped": True,
        "description": "NVIDIA H100 SXM, 80 GB HBM3.",
    } in listed


def test_show() -> None:
    text = (shipped_specs() / "models" / "yi-34b.yaml").read_text(encoding="utf-8")
    assert run_spec("show", "yi-34b").stdout == text
    assert run_spec("show", "01-ai/YI-34b").stdout == text
    resolved = json.loads(run_spec("show", "sjf", "--resolved", "--set", "cluster.instances=3").stdout)
    assert resolved["cluster"]["instances"] == 3
    assert resolved["policy"]["scheduling"] == {"kind": "sjf"}
    assert "sjf" in run_spec("show", "sjf", "--kind", "policy").stdout
    policy = json.loads(run_spec("show", "default", "--resolved").stdout)
    assert policy["preemption"] == {"victim": "tail", "restore": "recompute"}


def test_show_says_what_is_wrong() -> None:
    assert "--kind policy shows the other one" in run_spec("show", "sjf").stderr
    unknown = run_spec("show", "quickstrat")
    assert (unknown.exit_code, "did you mean `quickstart`?" in unknown.stderr) == (3, True)
    invalid = run_spec("show", "quickstart", "--set", "cluster.instance=3")
    assert (invalid.exit_code, "BLIS1001" in invalid.stderr) == (2, True)


def test_hidden_folders_belong_to_other_programs(tmp_path: Path) -> None:
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "workflow.yml").write_text("on: [push]\n")
    (tmp_path / "house.yaml").write_text("apiVersion: blis/v1\nkind: Policy\nmetadata: {name: house}\n")
    result = run_validate(str(tmp_path))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "1 document, no errors")


@pytest.mark.parametrize("kind", ["Workload", "Experiment"])
def test_the_rows_of_a_trace_are_checked(kind: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_time_us,input_tokens,output_tokens\n1,2,3\n2,-5,3\n")
    trace = "trace: {file: trace.csv}"
    body = trace if kind == "Workload" else f"model: llama-3.1-8b-instruct\nhardware: h100\nworkload: {{{trace}}}"
    document = tmp_path / "document.yaml"
    document.write_text(f"apiVersion: blis/v1\nkind: {kind}\nmetadata: {{name: one}}\n{body}\n")
    result = run_validate(str(document))
    assert result.exit_code == 2
    assert "error[BLIS2100]: '-5' is negative" in result.stderr
    assert "trace.csv:3:1  (input_tokens)" in result.stderr


def test_of_a_long_trace_the_first_rows_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_MOST_CHECKED_BYTES", 60)
    document, trace = tmp_path / "document.yaml", tmp_path / "trace.csv"
    document.write_text("apiVersion: blis/v1\nkind: Workload\nmetadata: {name: one}\ntrace: {file: trace.csv}\n")
    head = "arrival_time_us,input_tokens,output_tokens,tenant\n"
    trace.write_text(head + '1,2,3,"a"\n2,3,4,"a long\nname"\n3,x,4,c\n')
    assert run_validate(str(document)).exit_code == 0
    trace.write_text(head + "1,x,3,a\n2,3,4,b\n")
    assert run_validate(str(document)).exit_code == 2


def test_a_folder_without_documents_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/one.yaml").write_text("kind: Hardware\n")
    result = run_validate(str(tmp_path), "quickstart")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (3, "1 document, no errors, 1 path not read")
    assert (
        f"error: no documents in {tmp_path}: it contains no `*.yaml` or `*.yml` file that is not hidden"
        in result.stderr
    )


def test_a_pattern_that_matches_nothing_is_told_of(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["check", str(tmp_path / "*.blis.yaml")])
    assert result.exit_code == 3
    assert "the shell passes on a pattern that matches nothing as it is" in result.stderr


def test_documents_and_policies_are_checked_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "from blis_tui.plugins import ADMISSION\n\n\n"
        '@ADMISSION.plugin("generous", "Turns none away.")\n'
        "class Generous:\n    def __init__(self, settings): pass\n"
        '    rule = ""\n\n'
        "    def refusal(self, request, fleet, context):\n"
        '        return ""\n\n'
        "    def state(self):\n"
        "        return ()\n"
    )
    result = run_validate("quickstart", "own.py", "--set", "workload.requests=20")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "ok  quickstart  (Experiment quickstart)",
        "1 document, no errors",
        "policy.admission generous: ok",
    ]
    found = json.loads(run_validate("own.py", "--set", "workload.requests=20", "--format", "json").stdout)
    assert (found["ok"], found["documents"]) == (True, [])
    (policy,) = found["policies"]
    assert policy == {"point": "policy.admission", "name": "generous", "verdict": "ok", "found": "", "note": ""}
    wrong = run_validate("quickstart", "--seed", "3")
    assert (wrong.exit_code, "apply only to policies" in wrong.stderr) == (2, True)
