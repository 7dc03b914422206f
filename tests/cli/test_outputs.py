"""The files that `run` writes for other tools: all of them or none, and what is needed for them."""

import csv
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result

from blis_tui.base.errors import install_command
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.runs.simulation import Simulation

RUN = ("run", "disaggregation", "--set", "workload.requests=8", "--set", "expect=[]")


def blis(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*RUN, *arguments])


def everything(folder: Path) -> list[str]:
    files = {
        "-o": "report.json",
        "--requests": "requests.csv",
        "--records": "records.jsonl",
        "--decisions": "decisions.jsonl",
        "--trace-output": "trace",
        "--html": "run.html",
        "--perfetto": "run.pftrace",
        "--openmetrics": "metrics.om",
    }
    return [part for option, name in files.items() for part in (option, str(folder / name))]


def test_everything_at_once_is_what_each_is_alone_and_the_report_stays(tmp_path: Path) -> None:
    assert blis(*everything(tmp_path)).exit_code == ExitCode.OK
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        *("decisions.jsonl", "metrics.om", "records.jsonl", "report.json"),
        *("requests.csv", "run.html", "run.pftrace", "trace.csv", "trace.yaml"),
    ]
    assert blis("--check", "all").stdout == (tmp_path / "report.json").read_text()
    (tmp_path / "again").mkdir()
    assert blis(*everything(tmp_path / "again"), "--check", "all").exit_code == ExitCode.OK
    for name in names:
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_a_run_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.om").write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Simulation, "report", fail)
    assert isinstance(blis(*everything(tmp_path)).exception, ZeroDivisionError)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.om"]
    assert (tmp_path / "metrics.om").read_text() == "old"


def test_parquet_has_the_values_of_the_csv_file(tmp_path: Path) -> None:
    for name in ("requests.csv", "requests.parquet", "again.PARQUET"):
        assert blis("--requests", str(tmp_path / name), "-o", str(tmp_path / "report")).exit_code == ExitCode.OK
    with (tmp_path / "requests.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(tmp_path / "requests.parquet")
    found = [{name: "" if value is None else str(value) for name, value in row.items()} for row in table.to_pylist()]
    assert found == rows
    assert {str(one.type) for one in table.schema} == {"string", "int64"}
    assert (tmp_path / "requests.parquet").read_bytes() == (tmp_path / "again.PARQUET").read_bytes()


def test_parquet_without_its_package_is_one_error_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run = blis("--requests", str(tmp_path / "requests.parquet"))
    assert run.exit_code == ExitCode.IO
    assert run.stderr.splitlines()[-2:] == [
        "error: a Parquet file needs an extra package",
        f"  = help: {install_command('parquet')}, or name a .csv file",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_page_without_its_package_is_one_error_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    run = blis("--html", str(tmp_path / "run.html"))
    assert run.exit_code == ExitCode.IO
    assert run.stderr.splitlines()[-2:] == [
        "error: an HTML page needs an extra package",
        f"  = help: {install_command('html')}",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_page_does_not_pay_for_it() -> None:
    code = (
        "import sys, blis_tui.cli.main as main\n"
        "try:\n    main.cli(['run', 'quickstart', '--set', 'workload.requests=2', '--set', 'expect=[]'])\n"
        "finally:\n    print([name for name in sys.modules if 'plotly' in name or 'pictures' in name])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
