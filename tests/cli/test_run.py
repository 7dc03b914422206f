"""``blis-tui run`` as a user meets it: a real process, its output, its files and its exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pytest_regressions.file_regression import FileRegressionFixture

from blis_tui.base.errors import StalledError
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.cluster.invariants import Auditable, Invariant
from blis_tui.runs.simulation import Simulation
from tests.prefork import run_module

SMALL = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: small}
model: qwen3-14b
hardware: h100
workload:
  requests: 20
  rate_per_s: 5
  clients:
    - id: only
      input_tokens: {kind: constant, value: 64}
      output_tokens: {kind: constant, value: 16}
policy: default
"""


def blis(*args: str, text: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_module("blis_tui", args, cwd=cwd or Path.cwd(), env=os.environ, text=text)


FEW = (
    "warning[few-requests]: Only 20 requests completed: p99 is practically the slowest of them.\n"
    "  = help: Simulate at least 100 requests, better 1,000, before relying on p99 (workload.requests).\n"
)
"""What a run of the small experiment is warned about."""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.blis.yaml"
    path.write_text(SMALL)
    return path


def test_warnings_stand_on_standard_error_and_in_the_table(small: Path) -> None:
    """80 requests a second on one GPU do not end in silence."""
    crowded = ["run", "quickstart", "--set", "cluster.instances=1", "--set", "workload.rate_per_s=80"]
    crowded += ["--set", "engine.max_num_seqs=256", "--set", "workload.requests=3000", "--set", "expect=[]"]
    run = blis(*crowded)
    assert [one["id"] for one in json.loads(run.stdout)["warnings"]] == ["overload", "max-num-seqs"]
    sentence = "More requests arrived than were served: in the second half of the arrivals,"
    assert run.stderr.startswith(f"warning[overload]: {sentence} 77.5 requests/s\n  arrived and")
    assert "  = help: " in run.stderr
    table = blis(*crowded, "--format", "table")
    assert "\nwarning[overload]: More requests arrived than were served" in table.stdout
    assert "warning" not in table.stderr
    calm = blis("run", str(small), "--set", "workload.requests=400")
    assert (json.loads(calm.stdout)["warnings"], calm.stderr) == ([], "")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(
    ("options", "shown"), [((), "experiment  small"), (("--format", "json"), "{"), (("-o", "{file}"), "")]
)
def test_a_terminal_gets_the_table_unless_asked_otherwise(options: tuple[str, ...], shown: str, small: Path) -> None:
    """Into pipes, as everywhere else in these tests, and files goes JSON."""
    file = small.with_name("report.json")
    command = [sys.executable, "-m", "blis_tui", "run", str(small), *(option.format(file=file) for option in options)]
    screen, end = os.openpty()
    with os.fdopen(screen, "rb", buffering=0) as seen, os.fdopen(end, "wb", buffering=0) as stream:
        subprocess.run(command, stdout=stream, stderr=subprocess.PIPE, check=True)
        stream.write(b"\n")
        text = seen.read(100_000).decode()
    assert text.startswith(shown)
    assert bool(text.strip()) == bool(shown)
    if file.exists():
        assert json.loads(file.read_text())["meta"]["experiment"] == "small"


def test_the_range_of_errors_is_explained_beside_the_report(small: Path) -> None:
    run = blis("run", "quickstart", "--explain", "accuracy")
    assert json.loads(run.stdout)["meta"]["experiment"] == "quickstart"
    assert "accuracy: errors of mean latencies on measured servers like this" in run.stderr
    assert "9 of 10 within" in run.stderr


def test_standard_output_and_the_output_file_are_the_same_bytes(small: Path, tmp_path: Path) -> None:
    printed = blis("run", str(small))
    assert (printed.returncode, printed.stderr) == (ExitCode.OK, FEW)
    quiet = blis("run", str(small), "-o", str(tmp_path / "report.json"))
    assert (quiet.returncode, quiet.stdout) == (ExitCode.OK, "")
    assert (tmp_path / "report.json").read_text() == printed.stdout
    assert json.loads(printed.stdout)["requests"]["completed"] == 20


def test_the_document_may_come_from_standard_input(small: Path) -> None:
    assert blis("run", "-", text=SMALL).stdout == blis("run", str(small)).stdout


def test_requests_and_records_are_written_and_change_nothing(small: Path, tmp_path: Path) -> None:
    table, stream = tmp_path / "requests.csv", tmp_path / "records.jsonl"
    plain = blis("run", str(small))
    recorded = blis("run", str(small), "--requests", str(table), "--records", str(stream), "--check", "all")
    assert recorded.stdout == plain.stdout
    rows = table.read_text().splitlines()
    assert len(rows) == 21
    assert rows[1].startswith("request_0,completed,0,")
    events = [json.loads(line) for line in stream.read_text().splitlines()]
    assert [event["event"] for event in events] == sorted(event["event"] for event in events)
    assert events[0]["kind"] == "arrived"
    assert sum(event["kind"] == "completed" for event in events) == 20


def test_the_seed_changes_generated_workloads_and_is_told(small: Path) -> None:
    first, second = (json.loads(blis("run", str(small), "--seed", seed).stdout) for seed in ("1", "2"))
    assert (first["meta"]["seed"], second["meta"]["seed"]) == (1, 2)
    assert first["latency"] != second["latency"]


def test_a_failed_expectation_is_told_and_exits_with_1(small: Path) -> None:
    run = blis("run", str(small), "--set", "expect=[{metric: latency.ttft_ms.p99, max: 0.5}]")
    assert run.returncode == ExitCode.CHECK_FAILED
    assert run.stderr.startswith(FEW + "FAIL  latency.ttft_ms.p99 is ")
    assert json.loads(run.stdout)["expectations"][0]["ok"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "no-such-experiment"], ExitCode.IO, "error: no experiment is named `no-such-experiment`"),
        (["run", "missing/file.blis.yaml"], ExitCode.IO, "error: cannot read"),
        (["run", "missing/file.blis.yaml"], ExitCode.IO, "= help: there is no folder missing"),
        (["run", "quickstart.yaml"], ExitCode.IO, "= help: `quickstart` alone is the experiment of that name"),
        (["run", "{small}", "--set", "cluster.instances=0"], ExitCode.USAGE, "error[BLIS1005]"),
        (["run", "{small}", "--set", "cluster.instance=2"], ExitCode.USAGE, "did you mean `instances`?"),
        (["run", "{small}", "--seed", "-1"], ExitCode.USAGE, "Invalid value for '--seed'"),
        (["run", "{small}", "-o", "{tmp}/no/where.json"], ExitCode.IO, "error: cannot write"),
        (["run", "{small}", "--records", "{tmp}/no/where.jsonl"], ExitCode.IO, "error: cannot write"),
        (["run", "{small}", "-o", ""], ExitCode.IO, "error: cannot write: the name of the file is empty"),
        (["run", "{small}", "--trace-output", "{tmp}/no/where"], ExitCode.IO, "error: cannot write"),
        (["run", "{small}", "--trace-output", "{tmp}/a", "-o", "{tmp}/a.csv"], ExitCode.USAGE, "must be different"),
        (["run"], ExitCode.USAGE, "Missing argument 'SPEC'"),
        (["run", "{small}", "-o", "{tmp}/a", "--requests", "{tmp}/a"], ExitCode.USAGE, "must be different files"),
        (["run", "{small}", "-o", "{small}"], ExitCode.USAGE, "-o would overwrite"),
        (["run", "{small}", "--requests", "-"], ExitCode.USAGE, "only the report can go to standard output"),
        (["run", "{small}", "--openmetrics-interval", "5"], ExitCode.USAGE, "has no effect without --openmetrics"),
        (
            [
                *("run", "{small}", "--set", "workload.rate_per_s=1e-9"),
                *("--set", "workload.clients.0.rate_curve.points=[{{at_s: 0, factor: 1e-9}}]"),
            ],
            ExitCode.SIMULATION,
            "a time exceeds 2**63",
        ),
        (
            [
                *("run", "{small}", "--set", "latency=roofline", "--set", "hardware.peak_tflops.bf16=1e-9"),
                *("--set", "hardware.mfu.prefill=1e-9"),
            ],
            ExitCode.SIMULATION,
            "a time exceeds 2**63",
        ),
        (["walk"], ExitCode.USAGE, "No such command 'walk'"),
        (["rnu"], ExitCode.USAGE, "No such command 'rnu'. Did you mean 'run'?"),
    ],
)
def test_failures_are_one_message_and_an_exit_code(
    small: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    run = blis(*[argument.format(small=small, tmp=tmp_path) for argument in arguments])
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert (run.returncode, run.stdout) == (code, "")


def test_a_file_that_is_no_document_by_its_ending_is_told_from_a_name(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(small.read_text())
    wrong = CliRunner().invoke(cli, ["run", "mine.txt"])
    assert (wrong.exit_code, "use `./mine.txt` to read it as a document" in wrong.stderr) == (ExitCode.IO, True)
    assert CliRunner().invoke(cli, ["run", "./mine.txt"]).exit_code == ExitCode.OK


def test_a_simulation_that_cannot_go_on_exits_with_4(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stall(simulation: Simulation, **_: object) -> bool:
        raise StalledError("instance 0 cannot go on", help="limits contradict each other")

    monkeypatch.setattr(Simulation, "run", stall)
    result = CliRunner().invoke(cli, ["run", str(small)])
    assert result.exit_code == ExitCode.SIMULATION
    assert result.stderr == "error: instance 0 cannot go on\n  = help: limits contradict each other\n"
    assert result.stdout == ""


def test_wrong_trace_rows_are_told_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_time_us,input_tokens,output_tokens\n1,8,2\n2,-8,2\nx,8,2\n")
    workload = "{apiVersion: blis/v1, kind: Workload, metadata: {name: t}, trace: {file: t.csv, format: requests}}"
    spec = SMALL[: SMALL.index("workload:")] + f"workload: {workload}\npolicy: default\n"
    (tmp_path / "t.blis.yaml").write_text(spec)
    run = blis("run", "t.blis.yaml", cwd=tmp_path)
    assert run.returncode == ExitCode.USAGE
    assert "t.csv:3" in run.stderr
    assert "note: line 4 (arrival_time_us): 'x' is not a whole number" in run.stderr
    assert run.stderr.count("error[") == 1
    assert "Traceback" not in run.stderr


def test_progress_is_shown_only_when_asked_for_or_on_a_terminal(small: Path) -> None:
    assert blis("run", str(small)).stderr == FEW
    shown = blis("run", str(small), "--set", "workload.requests=3000", "--progress")
    assert "requests done" in shown.stderr
    assert json.loads(shown.stdout)["requests"]["completed"] == 3000


def test_the_table_is_aligned_and_complete(small: Path, file_regression: FileRegressionFixture) -> None:
    run = blis("run", str(small), "--format", "table", "--set", "expect=[{metric: requests.completed, min: 21}]")
    assert run.returncode == ExitCode.CHECK_FAILED
    file_regression.check(run.stdout, extension=".txt")


@pytest.mark.parametrize("command", ["", "run", "check", "spec", "spec list", "spec show"])
def test_help_texts(command: str, file_regression: FileRegressionFixture) -> None:
    result = CliRunner().invoke(cli, [*command.split(), "--help"], prog_name="blis-tui", terminal_width=100)
    assert result.exit_code == ExitCode.OK
    file_regression.check(result.output, extension=".txt")


def test_decisions_are_written_with_what_was_weighed(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "decisions.jsonl"
    changes = ("--set", "cluster.instances=3", "--set", "policy.routing=weighted")
    run = blis("run", str(small), *changes, "--decisions", str(out))
    assert run.returncode == ExitCode.OK
    decisions = [json.loads(line) for line in out.read_text().splitlines()]
    assert {decision["kind"] for decision in decisions} == {"routing-decision"}
    assert len(decisions) == json.loads(run.stdout)["requests"]["total"]
    for decision in decisions:
        assert decision["instance"] in {candidate["instance"] for candidate in decision["top"]}
        assert {"regret_ppm", "true_regret_ppm", "scorers"} <= set(decision)
        assert {"age_us", "waiting", "scores_ppm"} <= set(decision["top"][0])


def test_processes_that_share_a_run_write_the_same_files(small: Path, tmp_path: Path) -> None:
    rows, trace = tmp_path / "rows.csv", tmp_path / "trace"
    written, replayed = [], []
    for jobs in ("1", "2"):
        shared = ["--set", "cluster.instances=3", "--jobs", jobs]
        run = blis("run", str(small), *shared, "--requests", str(rows), "--trace-output", str(trace))
        assert (run.returncode, run.stderr) == (0, FEW)
        written.append((run.stdout, rows.read_bytes(), trace.with_suffix(".csv").read_bytes()))
        recorded = json.dumps({"trace": {"file": f"{trace}.csv", "format": "tracev2"}})
        replayed.append(blis("run", str(small), *shared, "--set", f"workload={recorded}").stdout)
    assert written[0] == written[1]
    assert replayed[0] == replayed[1] != ""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--set", "policy.routing=weighted"], "routing `weighted` looks at all instances"),
        (["--records", os.devnull], "records are written in the order of events"),
        (["--openmetrics", os.devnull], "samples are taken during the run"),
    ],
)
def test_a_run_that_cannot_be_shared_says_why(small: Path, options: list[str], why: str) -> None:
    run = blis("run", str(small), "--set", "cluster.instances=2", "--jobs", "2", *options)
    assert run.returncode == 0
    assert f"note: one process simulates this run: {why}\n" in run.stderr


def test_a_broken_invariant_fails_the_run_by_identifier_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "small.blis.yaml"
    spec.write_text(SMALL, encoding="utf-8")
    late: Invariant[Auditable] = Invariant("INV-3", lambda _state: "it went back")
    monkeypatch.setattr("blis_tui.cluster.invariants.INVARIANTS", (late,))
    run = CliRunner().invoke(cli, ["run", str(spec)])
    assert run.exit_code == ExitCode.CHECK_FAILED
    assert "FAIL  INV-3 clock monotonicity: it went back\n" in run.stderr
    assert json.loads(run.stdout)["invariants"] == {"INV-3": "clock monotonicity: it went back"}
    assert CliRunner().invoke(cli, ["run", str(spec), "--check", "off"]).exit_code == 0
