"""``blis-tui sweep`` as a user meets it: results, signals, streams, and sweeps that go on where they were."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.study.store import STORE_VARIABLE
from tests.prefork import run_module
from tests.processes import heed_ctrl_c
from tests.study.mishaps import ONCE
from tests.study.studies import MISHAPS, SMALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_regressions.file_regression import FileRegressionFixture

SET = [argument for path, value in SMALL.items() for argument in ("--set", f"{path}={json.dumps(value)}")]
QUICK = ("quickstart", *SET, "--axis", "cluster.instances=1,2")
LIMIT_S = 60


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the user has stays as it is."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


def sweep(*args: str) -> Result:
    return CliRunner().invoke(cli, ["sweep", *QUICK, "-j", "1", *args])


def with_mishaps(*happenings: str) -> list[str]:
    values = [{"kind": "mishap", "what": what, "which": at} for at, what in enumerate(happenings)]
    axis = f"policy.routing={json.dumps(values)}"
    return [sys.executable, "-m", "blis_tui", "sweep", "quickstart", *SET, "--plugins", str(MISHAPS), "--axis", axis]


def test_a_table_and_files_of_all_kinds(file_regression: FileRegressionFixture) -> None:
    files = ("rows.csv", "rows.jsonl", "rows.parquet")
    asked = ("--seeds", "2", "--slo", "latency.ttft_ms.p99<=30", "--objective", "cost.gpus")
    ended = sweep(*asked, *(part for name in files for part in ("-o", name)))
    assert (ended.exit_code, ended.stderr) == (ExitCode.OK, "")
    assert Path("rows.csv").read_text() == sweep(*asked, "--format", "csv").stdout
    assert Path("rows.jsonl").read_text() == sweep(*asked, "--format", "jsonl").stdout
    assert Path("rows.parquet").stat().st_size
    file_regression.check(ended.stdout)


def test_where_no_point_holds_the_check_has_failed() -> None:
    ended = sweep("--slo", "latency.ttft_ms.p99<=1")
    assert (ended.exit_code, ended.stderr) == (ExitCode.CHECK_FAILED, "FAIL  no point meets all bounds\n")


def test_failed_runs_are_told_and_the_others_are_there() -> None:
    ended = CliRunner().invoke(cli, [*with_mishaps("error", "nothing", *["error"] * 4)[3:], "-j1", "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(ended.stdout)))
    assert [row["status"] for row in rows] == ["failed", "done", *["failed"] * 4]
    assert ended.exit_code == ExitCode.SIMULATION
    lines = ended.stderr.splitlines()
    assert lines[0] == "FAIL  point 0, seed 42: ZeroDivisionError at event 3: by nothing"
    assert lines[-1] == "FAIL  2 more runs"


def test_several_processes_give_the_bytes_of_one() -> None:
    several = CliRunner().invoke(cli, ["sweep", *QUICK, "-j", "2", "--store", "none", "--format", "jsonl"])
    assert several.stdout == sweep("--format", "jsonl").stdout


def test_progress_counts_and_goes_away() -> None:
    sweep()
    ended = sweep("--progress")
    assert ended.stderr == "\r1 of 2 runs (1 cached)\r"  # but for the codes that clear a terminal's line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "rows.txt"], "the name must end in"),
        (["-j", "0"], "1<=x<=64"),
        (["--dask", "tcp://x:1", "--jobs", "2"], "cannot be combined"),
        (["-o", "a.csv", "-o", "a.csv"], "must be different files"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments: list[str], message: str) -> None:
    ended = CliRunner().invoke(cli, ["sweep", *QUICK, *arguments])
    assert ended.exit_code == ExitCode.USAGE
    assert message in ended.stderr


# ---- stores ----


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs() -> None:
    Path("file").write_text("")
    ended = sweep("--store", "file/below")
    assert (ended.exit_code, ended.stdout) == (ExitCode.IO, "")
    assert ended.stderr == (
        f"error: cannot keep results in {Path('file/below')}/engine-1: Not a directory\n"
        "  = help: name another folder with --store, or `--store none`\n"
    )


def test_a_folder_without_a_name_is_not_this_one() -> None:
    before = sorted(Path().iterdir())
    ended = sweep("--store", "")
    assert (ended.exit_code, ended.stdout) == (ExitCode.IO, "")
    assert ended.stderr.startswith("error: cannot keep results: the folder name is empty\n")
    assert sorted(Path().iterdir()) == before


def test_without_a_folder_of_the_users_it_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("")
    monkeypatch.setenv(STORE_VARIABLE, "file")
    ended = sweep("--format", "jsonl")
    assert ended.exit_code == ExitCode.OK
    assert ended.stderr.startswith("warning: cannot keep results in file/engine-1: ")
    assert len(ended.stdout.splitlines()) == 2


def test_a_disk_that_is_full_is_a_warning_and_leaves_nothing_half_written() -> None:
    # A limit on the size of a file stands for a full disk: 1 KiB is less than any result.
    blis = shlex.join([sys.executable, "-m", "blis_tui", "sweep", *QUICK, "-j", "1", "--store", "kept"])
    limited = f"export PYTHONDONTWRITEBYTECODE=1; ulimit -f 1; {blis} --format jsonl"  # half bytecode would stay, too
    ended = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    assert ended.returncode == ExitCode.OK
    assert ended.stderr == "warning: cannot keep results in kept/engine-1: File too large\n"
    assert len(ended.stdout.splitlines()) == 2
    assert not [path for path in Path("kept").rglob("*") if path.is_file()]


# ---- signals and streams ----

posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")


class Going:
    """A sweep in a session of its own, once as many of its processes as are wanted are in a run that never ends."""

    def __init__(self, command: list[str], *, endless: int) -> None:
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,  # noqa: PLW1509  (a call, no lock)
        )
        assert self.process.stderr is not None
        printed = b""
        while printed.count(b"ready") < endless:
            more = os.read(self.process.stderr.fileno(), 4096)
            assert more, printed
            printed += more

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that it does."""
        end_s = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < end_s
            time.sleep(0.01)

    def ended(self) -> tuple[int, str, str]:
        """Exit code, output and errors, when the last process has ended: each holds the streams open."""
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        return self.process.returncode, out.decode(), err.decode().replace("ready", "")


@posix
@pytest.mark.parametrize(("number", "everybody"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_signal_ends_all_processes_and_keeps_what_is_done(number: int, everybody: bool) -> None:
    command = with_mishaps("nothing", "endless", "endless", "nothing")
    going = Going([*command, "-j", "2", "--format", "csv", "-o", "rows.csv"], endless=2)
    going.until(lambda: any(path.is_file() for path in Path(os.environ[STORE_VARIABLE]).rglob("*")))
    (os.killpg if everybody else os.kill)(going.process.pid, number)
    code, out, err = going.ended()
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == ExitCode.INTERRUPTED
    message = "interrupted: 1 of 4 runs; the others appear as `missing` in the rows written; the same command continues"
    assert err == f"{message} from there\n"
    assert [row["point"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["status"] for row in rows] == ["done", *["missing"] * 3]
    assert Path("rows.csv").read_text() == out


@posix
def test_nothing_is_said_to_go_on_where_nothing_is_kept() -> None:
    going = Going([*with_mishaps("endless", "endless"), "-j", "1", "--store", "none", "--format", "jsonl"], endless=1)
    os.kill(going.process.pid, signal.SIGINT)
    code, out, err = going.ended()
    assert code == ExitCode.INTERRUPTED
    assert err.endswith("; the same command starts over, because results were not stored\n")
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["missing", "missing"]


@posix
def test_processes_do_not_survive_their_parent() -> None:
    going = Going([*with_mishaps("endless", "endless"), "-j", "2"], endless=2)
    going.process.kill()
    assert going.ended() == (-signal.SIGKILL, "", "")


def test_a_reader_that_goes_away_is_no_failed_check() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "blis_tui", "sweep", *QUICK, "-j", "1"]
    gone = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (ExitCode.READER_GONE, b"")


@posix
def test_a_sweep_that_is_killed_again_and_again_gives_the_bytes_of_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice a run kills all processes of the sweep, parent and all."""
    once = tmp_path / "once"
    monkeypatch.setenv(ONCE, str(once))
    axes = ("--axis", "policy.routing.which=0..7", "--axis", "cluster.instances=1..2")
    mishap = ("--plugins", str(MISHAPS), "--set", "policy.routing={kind: mishap, what: all killed once}")
    command = ["sweep", "quickstart", *SET, *mishap, *axes, "--format", "csv", "-o", "rows.jsonl", "-j", "2"]
    whole = CliRunner().invoke(cli, [*command, "-j", "1", "--store", "none"])
    assert whole.exit_code == ExitCode.OK
    lines = Path("rows.jsonl").read_bytes()
    Path("rows.jsonl").unlink()
    for which in (2, 6):
        once.write_text(str(which))
        killed = run_module("blis_tui", command, cwd=tmp_path, env=os.environ)
        assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
        assert not Path("rows.jsonl").exists()
    resumed = CliRunner().invoke(cli, [*command, "-j", "1", "--progress"])
    assert resumed.stdout == whole.stdout
    assert Path("rows.jsonl").read_bytes() == lines
    assert "cached" in resumed.stderr


def test_values_that_are_the_same_are_refused() -> None:
    ended = sweep("--axis", "engine.max_num_seqs=8,16,8.0")
    assert ended.exit_code == ExitCode.USAGE
    assert "error[BLIS2068]: `8.0` is listed twice: both runs would be the same" in ended.stderr
    assert "engine.max_num_seqs=8,16,8.0\n  |                          ^^^\n" in ended.stderr


def test_a_fault_of_many_values_of_a_range_is_told_once() -> None:
    ended = sweep("--axis", "engine.max_num_seqs=8..16..0.5")
    assert ended.exit_code == ExitCode.USAGE
    assert ended.stderr.count("error[") == 1
    assert "expected a whole number or `auto`, found the number `8.5`" in ended.stderr
