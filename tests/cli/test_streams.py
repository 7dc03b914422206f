"""Closed, broken and full streams, and files that must not be lost: never a traceback, never half a result."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from blis_tui.cli.standard_streams import ExitCode
from tests.prefork import run_module

SPEC = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: own}
model: {config_file: config.json}
hardware: h100
workload: {apiVersion: blis/v1, kind: Workload, metadata: {name: t}, trace: {file: trace.csv, format: requests}}
policy: ./policy.yaml
"""
CHILD = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: child}
extends: parent.blis.yaml
"""
CONFIG = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 4096,
}
INPUTS = {
    "parent.blis.yaml": SPEC,
    "child.blis.yaml": CHILD,
    "config.json": json.dumps(CONFIG),
    "policy.yaml": "{apiVersion: blis/v1, kind: Policy, metadata: {name: p}}\n",
    "trace.csv": "arrival_time_us,input_tokens,output_tokens\n0,100,50\n10,100,50\n",
}


def shell(command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which ``blis`` is this program."""
    blis = f'blis() {{ {shlex.quote(sys.executable)} -m blis_tui "$@"; }}\nset -o pipefail\n'
    return subprocess.run(
        ["bash", "-c", blis + command], capture_output=True, text=True, cwd=cwd, check=False, timeout=60
    )


def blis(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A process whose streams are as they should be."""
    return run_module("blis_tui", command.split(), cwd=cwd, env=os.environ)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in INPUTS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("command", ["run -", "validate -", "spec resolve -", "spec fmt -", "diff - quickstart"])
def test_without_standard_input_there_is_no_document(command: str) -> None:
    ended = shell(f"blis {command} <&-")
    assert ended.returncode == ExitCode.IO
    assert ended.stderr == "error: there is no standard input\n  = help: name a file instead of `-`\n"


@pytest.mark.parametrize("asked", ["--help", "-h", "--version", "run --help", "spec --help", "spec list", ""])
def test_whatever_is_to_be_printed_on_a_closed_output_is_one_error(asked: str) -> None:
    ended = shell(f"blis {asked} >&-")
    assert (ended.returncode, ended.stdout) == (ExitCode.IO, "")
    assert ended.stderr.startswith("error: there is no standard output\n")


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_without_standard_error_results_and_exit_codes_stay(closed: str) -> None:
    assert json.loads(shell(f"blis run quickstart {closed}").stdout)["meta"]["complete"] is True
    assert shell(f"blis run nowhere {closed}").returncode == ExitCode.IO
    assert shell(f"blis run quickstart --seed x {closed}").returncode == ExitCode.USAGE
    failing = "--set 'expect=[{metric: requests.completed, max: 1}]'"
    assert shell(f"blis run quickstart {failing} {closed}").returncode == ExitCode.CHECK_FAILED


def test_without_standard_output_the_report_goes_to_a_file(tmp_path: Path) -> None:
    ended = shell("blis run trace-replay -o report.json >&-", tmp_path)
    assert (ended.returncode, ended.stderr) == (ExitCode.OK, "")
    assert json.loads((tmp_path / "report.json").read_text())["meta"]["complete"] is True
    ended = shell("blis run quickstart --requests rows.csv >&-", tmp_path)
    assert ended.returncode == ExitCode.IO
    assert ended.stderr.startswith("error: there is no standard output\n")


@pytest.mark.parametrize("command", ["run quickstart", "spec list", "spec resolve quickstart", "--help", "run --help"])
def test_a_reader_that_goes_away_is_no_failed_expectation(command: str) -> None:
    read, write = os.pipe()
    os.close(read)
    gone = subprocess.run(
        [sys.executable, "-m", "blis_tui", *command.split()], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (gone.returncode, gone.stderr) == (ExitCode.READER_GONE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", ["run quickstart", "spec list", "--help"])
def test_a_standard_output_that_takes_nothing_is_an_io_error(command: str) -> None:
    ended = shell(f"blis {command} >/dev/full")
    assert ended.returncode == ExitCode.IO
    assert ended.stderr == "error: cannot write standard output: No space left on device\n"


@pytest.mark.parametrize("option", ["-o", "--requests", "--records"])
def test_a_full_disk_is_told_by_the_files_name_and_leaves_nothing_behind(option: str, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("before")
    # A limit on the size of a file stands for a full disk: 1 KiB is less than any result.
    ended = shell(f"ulimit -f 1; blis run quickstart {option} kept", tmp_path)
    assert (ended.returncode, ended.stdout) == (ExitCode.IO, "")
    assert ended.stderr == "error: cannot write kept: File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "before"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("option", ["-o", "--requests", "--records"])
def test_no_result_appears_when_another_cannot_be_written(option: str, tmp_path: Path) -> None:
    files = {"-o": "report.json", "--requests": "rows.csv", "--records": "events.jsonl", option: "/dev/full"}
    if option != "-o":
        del files["-o"]  # the report would be printed
    ended = blis("run quickstart " + " ".join(f"{name} {file}" for name, file in files.items()), tmp_path)
    assert (ended.returncode, ended.stdout) == (ExitCode.IO, "")
    assert ended.stderr == "error: cannot write /dev/full: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told_before_the_simulation(tmp_path: Path) -> None:
    endless = "run quickstart --set workload.requests=100000000"
    ended = blis(f"{endless} -o nowhere/report.json", tmp_path)
    assert ended.returncode == ExitCode.IO
    assert ended.stderr == "error: cannot write nowhere/report.json: No such file or directory\n"


@pytest.mark.parametrize("name", INPUTS)
def test_results_spare_everything_the_experiment_is_read_from(name: str, project: Path) -> None:
    (project / "link").hardlink_to(project / name)
    for option, target in (("-o", name), ("--requests", "link"), ("--records", f"../{project.name}/{name}")):
        ended = blis(f"run child.blis.yaml {option} {target}", project)
        assert (ended.returncode, ended.stdout) == (ExitCode.USAGE, "")
        assert f"{option} would overwrite" in ended.stderr
        assert name in ended.stderr
    assert {path.name: path.read_text() for path in project.iterdir()} == {**INPUTS, "link": INPUTS[name]}


def test_a_resolved_document_spares_them_too(project: Path) -> None:
    ended = blis("spec resolve child.blis.yaml -o parent.blis.yaml", project)
    assert ended.returncode == ExitCode.USAGE
    assert "-o would overwrite parent.blis.yaml" in ended.stderr
    assert (project / "parent.blis.yaml").read_text() == SPEC


def test_other_files_may_be_replaced(project: Path) -> None:
    (project / "old").write_text("old")
    assert blis("run child.blis.yaml -o old --requests rows.csv", project).returncode == ExitCode.OK
    assert json.loads((project / "old").read_text())["requests"]["completed"] == 2


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be deleted")
@pytest.mark.parametrize(
    "command", ["run quickstart -o FILE", "run quickstart", "spec list", "bundle quickstart -o FILE.blis"]
)
def test_a_working_directory_that_is_gone_is_told_as_that(command: str, tmp_path: Path) -> None:
    written = command.replace("FILE", str(tmp_path / "file"))
    ended = shell(f"mkdir gone; cd gone; rmdir ../gone; blis {written}", tmp_path)
    assert (ended.returncode, ended.stdout) == (ExitCode.IO, "")
    assert ended.stderr == ("error: the working directory does not exist any more\n  = help: change to another one\n")


def test_no_room_for_temporary_files_is_told_by_their_folder(tmp_path: Path) -> None:
    ended = shell(
        "TMPDIR=/nowhere TMP=/nowhere TEMP=/nowhere ulimit -f 0; blis bundle quickstart -o run.blis", tmp_path
    )
    assert (ended.returncode, ended.stdout) == (ExitCode.IO, "")
    assert ended.stderr.startswith("error: ")
    assert "standard output" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_that_takes_only_a_part_is_an_error(unbuffered: str, tmp_path: Path) -> None:
    """Without a buffer, one write may take only a part."""
    ended = shell(f"ulimit -f 1; PYTHONUNBUFFERED={unbuffered} blis run trace-replay > report.json", tmp_path)
    assert ended.returncode == ExitCode.IO
    assert ended.stderr == "error: cannot write standard output: File too large\n"


DEFECT = """
import sys
import blis_tui.runs.simulation
def broken(*_, **__): raise ZeroDivisionError("an own fault")
blis_tui.runs.simulation.Simulation.run = broken
sys.argv = ["blis-tui", "run", "quickstart"]
from blis_tui.__main__ import main
main()
"""


def test_a_defect_is_no_failed_expectation() -> None:
    ended = subprocess.run([sys.executable, "-c", DEFECT], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (ExitCode.DEFECT, "")
    assert "ZeroDivisionError: an own fault\nerror: this is a defect of blis-tui: please report it" in ended.stderr
