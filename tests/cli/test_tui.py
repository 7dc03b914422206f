"""``blis-tui`` and ``tui`` from the outside, and what ``serve`` refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from blis_tui.cli import tui as command
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.study.store import FolderStore
from blis_tui.tui.app import Start, StudyStart
from tests.tui.server import BLIS
from tests.tui.studies import write_study

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.tui.app import BlisApp


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="blis-tui", terminal_width=100)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BlisApp]:
    """A terminal, and the applications that would take it over."""
    apps: list[BlisApp] = []
    monkeypatch.setattr(command, "has_terminal", lambda: True)
    monkeypatch.setattr(command, "_run", apps.append)
    return apps


@pytest.mark.parametrize("name", ["tui", "serve"])
def test_help_texts(name: str, file_regression: FileRegressionFixture) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == ExitCode.OK
    file_regression.check(result.output, extension=".txt")


# ---- starting ----


def test_without_a_terminal_there_is_help() -> None:
    run = subprocess.run(BLIS, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert run.returncode == ExitCode.OK
    assert run.stdout.startswith("Usage: blis-tui")
    assert re.search(r"^  tui +Step through an experiment in the terminal\.$", run.stdout, re.MULTILINE)
    assert run.stderr == ""


def test_on_a_terminal_there_is_the_list(started: list[BlisApp]) -> None:
    assert invoke().exit_code == ExitCode.OK
    assert invoke("tui").exit_code == ExitCode.OK
    assert [app.start for app in started] == [None, None]


def test_an_experiment_is_loaded_before_the_screen_is_taken(started: list[BlisApp]) -> None:
    result = invoke(
        "tui", "quickstart", "--at", "1.5s", "--break", "preempted", "--break", "event 7", "--set", "seed=3", "--seed=4"
    )
    assert result.exit_code == ExitCode.OK, result.output
    start = started[0].start
    assert isinstance(start, Start)
    assert (start.experiment.name, start.experiment.seed) == ("quickstart", 4)
    assert (start.source, start.at, start.breaks) == ("quickstart", "1.5s", ("preempted", "event 7"))
    assert (start.overrides, start.seed) == (("seed=3",), 4)


def test_a_study_or_axes_open_the_points(started: list[BlisApp], tmp_path: Path) -> None:
    path = write_study(tmp_path)
    store = str(tmp_path / "runs")
    assert invoke("tui", str(path), "--jobs", "3", "--store", store, "--early-stop").exit_code == ExitCode.OK
    axes = ("--axis", "cluster.instances=1..3", "--slo", "latency.ttft_ms.p99<=30", "--objective", "cost.gpus")
    result = invoke("tui", "quickstart", *axes, "--seeds", "2", "--set", "workload.requests=20")
    assert result.exit_code == ExitCode.OK, result.output
    first, second = (app.start for app in started)
    assert isinstance(first, StudyStart)
    assert (first.study.name, len(first.study.points), first.jobs, first.early_stop) == ("sizing", 9, 3, True)
    assert isinstance(first.store, FolderStore)
    assert first.store.folder.is_relative_to(store)
    assert isinstance(second, StudyStart)
    assert (second.study.experiment, len(second.study.points), second.study.runs) == ("quickstart", 3, 6)
    assert [objective.metric for objective in second.study.objectives] == ["cost.gpus"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["tui", "quickstrt"], ExitCode.IO, "did you mean `quickstart`?"),
        (["tui", "quickstart", "--set", "engin.x=1"], ExitCode.USAGE, "error[BLIS1001]: unknown key `engin`"),
        (["tui", "quickstart", "--break", "preemptd"], ExitCode.USAGE, "did you mean `preempted`?"),
        (["tui", "quickstart", "--break", "instance 7"], ExitCode.USAGE, "instance"),
        (["tui", "quickstart", "--axis", "cluster.instance=1..2"], ExitCode.USAGE, "unknown key `instance`"),
        (["tui", "quickstart", "--axis", "seed=1..2", "--at", "3"], ExitCode.USAGE, "not to a study"),
        (["tui", "--jobs", "2"], ExitCode.USAGE, "give its name as SPEC"),
        (["tui", "quickstart", "--at", ""], ExitCode.USAGE, "no place is given"),
        (["tui", "-"], ExitCode.USAGE, "standard input is the keyboard here"),
        (["tui", "--at", "3"], ExitCode.USAGE, "give its name as SPEC"),
        (["tui", "--seed", "3"], ExitCode.USAGE, "give its name as SPEC"),
        (["serve", "--seed", "3"], ExitCode.USAGE, "give its name as SPEC"),
        (["serve", "quickstrt"], ExitCode.IO, "did you mean `quickstart`?"),
        (["serve", "--host", "256.1.1.1"], ExitCode.IO, "cannot listen on 256.1.1.1:8000"),
    ],
)
def test_what_is_wrong_is_said_on_the_ordinary_screen(
    started: list[BlisApp], arguments: list[str], code: ExitCode, message: str
) -> None:
    result = invoke(*arguments)
    assert message in result.output
    assert result.exit_code == code
    assert not started


def test_wrong_traces_are_said_on_the_ordinary_screen(started: list[BlisApp], tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_time_us,input_tokens,output_tokens\n1,-5,3\n")
    spec = tmp_path / "x.blis.yaml"
    spec.write_text(
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: x}\nmodel: qwen3-14b\nhardware: h100\n"
        "workload: {trace: {file: trace.csv, format: requests}}\n"
    )
    result = invoke("tui", str(spec))
    assert "trace.csv:2" in result.output
    assert result.exit_code == ExitCode.USAGE
    assert not started


def test_no_terminal_no_interface() -> None:
    run = subprocess.run(
        [*BLIS, "tui", "quickstart"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert run.returncode == ExitCode.USAGE
    assert "use `blis-tui run` to simulate without one" in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], []])
def test_little_is_imported_to_say_little(arguments: list[str]) -> None:
    code = f"""
import sys
from blis_tui.cli.main import cli
cli({arguments!r}, standalone_mode=False)
print(sorted({{"textual", "rich", "yaml", "jsonschema", "platformdirs"}} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


def test_the_list_of_experiments_needs_no_schemas_to_appear() -> None:
    code = """
import sys
import blis_tui.tui.app, blis_tui.tui.screens.home
print(sorted({"jsonschema", "yaml", "blis_tui.runs.simulation", "blis_tui.tui.screens.debugger"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
