"""No command writes its result over a file that it reads."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.output.tables import requests_csv
from blis_tui.runs.simulation import Simulation
from tests.golden.projects import blis_in
from tests.live.twin.servers import experiment, recorded

if TYPE_CHECKING:
    from pathlib import Path

PLUGIN = """\
from blis_tui.plugins import ROUTING, NoSettings

@ROUTING.plugin("mine", "For tests.")
class Mine:
    rule = "The first."
    def __init__(self, settings: NoSettings) -> None: ...
    def choose(self, request, fleet, context): return 0, "the first"
    def state(self): return ()
"""
BASE = "{model: llama-3.1-8b-instruct, hardware: h100, workload: load.yaml, policy: mine.yaml}"
SLO = ("--slo", "latency.ttft_ms.p99<=500")
STUDY = ("--axis", "cluster.instances=1", "--store", "none")
FILES = ("it.blis.yaml", "load.yaml", "mine.yaml", "own.py", "rows.csv", "prices.yaml")
OWN = ("--plugins", "own.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment that is read from several files."""
    made = tmp_path_factory.mktemp("read")
    simulation = Simulation(blis_tui.load("quickstart", set={"workload.requests": 20}))
    simulation.run()
    (made / "rows.csv").write_text("".join(requests_csv(simulation.report().rows)), encoding="utf-8")
    head = "apiVersion: blis/v1\nkind: {}\nmetadata: {{name: it}}\n"
    (made / "load.yaml").write_text(f"{head.format('Workload')}trace: {{file: rows.csv, format: requests}}\n", "utf-8")
    (made / "mine.yaml").write_text(f"{head.format('Policy')}routing: mine\n", encoding="utf-8")
    lines = BASE.strip("{}").replace(", ", "\n")
    (made / "it.blis.yaml").write_text(f"{head.format('Experiment')}{lines}\n", encoding="utf-8")
    (made / "own.py").write_text(PLUGIN, encoding="utf-8")
    (made / "prices.yaml").write_text("{h100: 2.5}\n", encoding="utf-8")
    (made / "link").symlink_to("load.yaml")
    recorded(experiment(), made / "recording", gap_us=800, front_us=12_000)
    return made


@pytest.mark.parametrize("file", [*FILES[:5], "link"])
@pytest.mark.parametrize(
    "command",
    [
        ("run", "it.blis.yaml", *OWN, "--requests"),
        ("run", "it.blis.yaml", *OWN, "--records"),
        ("sweep", "it.blis.yaml", *OWN, *STUDY, "--html"),
        ("plan", "it.blis.yaml", *OWN, *SLO, "--rate", "1", "--store", "none", "-o"),
        ("plan", "it.blis.yaml", *OWN, *SLO, "--rate", "1", "--store", "none", "--html"),
        ("sensitivity", "it.blis.yaml", *OWN, *SLO, "--store", "none", "-o"),
        ("serve-api", "it.blis.yaml", *OWN, "--port", "0", "-o"),
        ("serve-api", "it.blis.yaml", *OWN, "--port", "0", "--requests"),
        ("spec", "resolve", "it.blis.yaml", *OWN, "-o"),
        ("workload", "describe", "it.blis.yaml", *OWN, "--html"),
        ("workload", "convert", "it.blis.yaml", *OWN, "-o"),
        ("twin", "recording", "it.blis.yaml", *OWN, "--requests"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_what_is_read_stays(command: tuple[str, ...], file: str, folder: Path) -> None:
    before = {name: (folder / name).read_bytes() for name in FILES}
    done = blis_in(folder, *command, file)
    assert done.returncode == 2, done.stderr
    assert f"would overwrite {'load.yaml' if file == 'link' else file}, which this command reads" in (
        done.stderr.replace(f"{folder}/", "")
    )
    assert {name: (folder / name).read_bytes() for name in FILES} == before


@pytest.mark.parametrize("output", ["it", "rows"])
def test_a_shrunk_workload_goes_elsewhere(output: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "it")
    before = {name: (tmp_path / "it" / name).read_bytes() for name in FILES}
    done = blis_in(
        tmp_path / "it", "shrink", "it.blis.yaml", *OWN, "--expect", "latency.ttft_ms.p99<=0.01", "-o", output
    )
    assert done.returncode == 2, done.stderr
    assert "which this command reads" in done.stderr
    assert {name: (tmp_path / "it" / name).read_bytes() for name in FILES} == before


def test_that_is_said_before_the_first_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(folder, tmp_path / "it")
    monkeypatch.chdir(tmp_path / "it")
    monkeypatch.setattr("blis_tui.study.shrink.shrink", lambda *_, **__: pytest.fail("it has run"))
    asked = ["shrink", "it.blis.yaml", *OWN, "--expect", "latency.ttft_ms.p99<=0.01", "-o", "rows"]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 2
    assert "which this command reads" in done.output


@pytest.mark.parametrize("file", ["rows.csv", "load.yaml", "plain.blis.yaml"])
@pytest.mark.parametrize(
    "command", [("rows.csv", "-o"), ("rows.csv", "--html"), ("--collect",)], ids=lambda one: one[-1]
)
def test_a_fit_spares_the_experiment_that_was_measured(
    command: tuple[str, ...], file: str, folder: Path, tmp_path: Path
) -> None:
    for name in FILES:
        shutil.copy(folder / name, tmp_path / name)
    text = (tmp_path / "it.blis.yaml").read_text(encoding="utf-8").replace("policy: mine.yaml\n", "")
    (tmp_path / "plain.blis.yaml").write_text(text, encoding="utf-8")
    before = (tmp_path / file).read_bytes()
    done = blis_in(tmp_path, "calibrate", "--spec", "plain.blis.yaml", *command, file)
    assert done.returncode == 2, done.stderr
    assert f"would overwrite {file}, which this command reads" in done.stderr.replace(f"{tmp_path}/", "")
    assert (tmp_path / file).read_bytes() == before


def test_what_is_converted_stays(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("routing: {policy: round-robin}\n", encoding="utf-8")
    done = blis_in(tmp_path, "spec", "import", "policy", "policy.yaml", "-o", "policy.yaml")
    assert done.returncode == 2, done.stderr
    assert "would overwrite policy.yaml, which this command reads" in done.stderr
    assert policy.read_text(encoding="utf-8") == "routing: {policy: round-robin}\n"
