"""Every command that writes files, on a full disk: one error, exit code 3, and everything is as it was before."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import COMMANDS, cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.output import result_files
from tests.golden.projects import SPEC, project, pytest_in
from tests.live.twin.servers import experiment, recorded

DATA = Path(__file__).parents[1] / "spec" / "foreign" / "data"
AXES = "--axis engine.max_num_seqs=8,16 --seeds 1 --store none -j 1"
EASY = "--rate 0.5 --slo latency.ttft_ms.p50<=9000"
"""What is known after few requests: a 99th percentile needs thousands, a higher rate more in the same time."""
MEASURED = "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n" + "".join(
    f"{at * 50_000},{100 + at},10,{9000 + 20 * at},{60_000 + 90 * at}\n" for at in range(40)
)
WRITING = [
    *(f"run demo.blis.yaml {option} file" for option in ("-o", "--requests", "--records", "--decisions")),
    *(f"run demo.blis.yaml {option} file" for option in ("--trace-output", "--perfetto", "--openmetrics", "--html")),
    "run demo.blis.yaml --requests file.parquet",
    *(f"sweep demo.blis.yaml {AXES} {option}" for option in ("-o file.csv", "-o file.jsonl", "-o file.parquet")),
    f"sweep demo.blis.yaml {AXES} --html file",
    *(
        f"plan demo.blis.yaml {EASY} --sizes cluster.instances=1..1 {option} --store none -j 1"
        for option in ("-o file", "--html file")
    ),
    "sensitivity demo.blis.yaml --slo latency.ttft_ms.p99<=9000 -o file --seeds 2 --store none -j 1",
    "shrink demo.blis.yaml --expect requests.completed<=1 -o file",
    "values demo.blis.yaml 'waiting at completed' -o file.csv",
    "bundle demo.blis.yaml -o file.blis",
    "bundle demo.blis.yaml -o file.html",
    "calibrate measured.csv --spec demo.blis.yaml --html file --compare",
    "calibrate --collect file --spec demo.blis.yaml --set engine.max_num_seqs=4 --set engine.max_model_len=256",
    "twin june demo.blis.yaml --requests file",
    "spec resolve demo.blis.yaml -o file",
    "spec new experiment other -o file --force",
    "spec schema -o folder",
    "spec init folder --force",
    "spec init new",
    "spec fmt unformatted.yaml",
    f"spec import policy {DATA / 'policy-full.yaml'} -o file",
    f"spec import hardware {DATA / 'hardware.json'} -o folder",
    "workload describe demo.blis.yaml --html file",
    "workload convert demo.blis.yaml -o file",
    "workload compose rows.csv trace-replay -o file",
    "workload fit rows.csv -o file",
    "golden review --accept demo --force",
    "golden record kept",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with files of every kind, and a result that waits."""
    folder = project(tmp_path_factory.mktemp("made"))
    (folder / "kept.blis.yaml").write_text(SPEC.replace("name: demo", "name: kept"), encoding="utf-8")
    assert pytest_in(folder, "--blis-update=always").returncode == 0
    spec = SPEC.replace("requests: 25", "requests: 30")
    (folder / "demo.blis.yaml").write_text(spec, encoding="utf-8")
    assert pytest_in(folder).returncode == 1
    (folder / "measured.csv").write_text(MEASURED)
    (folder / "unformatted.yaml").write_text(spec.replace("seed", "seed   ").replace("policy: blis", "policy:   blis"))
    recorded(experiment(), folder / "june", gap_us=800, front_us=12_000)
    assert CliRunner().invoke(cli, ["run", "quickstart", "--requests", str(folder / "rows.csv")]).exit_code == 0
    for name in ("file", "file.parquet", "file.csv", "file.jsonl", "file.yaml", "file.blis", "file.html", "folder/x"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("before")
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", WRITING)
def test_everything_is_as_it_was_before(command: str, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(made)
    monkeypatch.chdir(made)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(_: object) -> None:
        raise full

    monkeypatch.setattr(result_files, "_settle", fail)
    ended = CliRunner().invoke(cli, shlex.split(command))
    assert ended.exit_code == ExitCode.IO, ended.output
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, ended.stderr
    assert errors[0].startswith("error: cannot write ")
    assert errors[0].endswith(": No space left on device")
    assert tree(made) == before


def test_all_commands_that_write_are_here() -> None:
    """Except those without a file, servers, which have tests of their own, and what writes as `spec fmt` does."""
    without = {
        "upgrade",
        "tui",
        "serve",
        "serve-api",
        "diff",
        "whatif",
        "observe",
        "check",
        "explain",
        "completion",
        "lsp",
    }
    assert {one.split()[0] for one in WRITING} == set(COMMANDS) - without
