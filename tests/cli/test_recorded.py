"""Help and refusals of every command, and what it prints with other options, as recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from blis_tui.cli.help import RARE
from blis_tui.cli.main import cli
from tests.recorded import Digests, commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture

_FEW: Final = "--set workload.requests=30"
_LINES: Final = (
    "run nothing",
    "run quickstart --set engine.max_num_seqs=0",
    "run quickstart --set engine.nonsense=1",
    "run quickstart --case none",
    f"run quickstart {_FEW} --seed 3 --format table --explain accuracy",
    f"run quickstart {_FEW} --openmetrics-interval 5",
    f"run quickstart {_FEW} -o same.json --records same.json",
    f"run mixed-fleet {_FEW} --check all --counterfactual 3 --format json",
    f"run round-robin {_FEW} -j 2",
    f"run stale-signals {_FEW} -j 2 --format table",
    "tui quickstart",
    "tui quickstart --at nowhere",
    "sweep quickstart",
    "sweep quickstart --axis nonsense=1,2",
    "sweep quickstart --axis seed=1 --slo nonsense<=1",
    "plan quickstart",
    "plan quickstart --rate 0 --slo latency.ttft_ms.p99<=100",
    "plan quickstart --rate 1 --slo latency.ttft_ms.p99<=0 --sizes cluster.instances=2..1",
    "shrink quickstart",
    "sensitivity quickstart",
    "diff quickstart",
    "whatif quickstart",
    "workload describe nothing",
    "observe http://127.0.0.1:1 --workload chatbot",
    "twin nothing quickstart",
    "calibrate nothing.csv --spec quickstart",
    "golden status",
    "golden review",
    "spec show nothing",
    "spec resolve nothing",
    "check nothing.yaml",
    "upgrade nothing.yaml",
    "explain BLIS9999",
    "explain --kind study nothing",
    "bundle quickstart",
    "bundle quickstart -o run.txt",
    "completion bash",
    "completion zsh",
    "completion fish",
    "serve quickstart --port 99999999",
    "nonsense",
)


def _paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    yield " ".join(path)
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from _paths(inner, (*path, name))


def test_help(tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for path in _paths(cli):
        for option in ("--help", *(["--help-all"] if path in RARE else [])):
            commands(digests, tmp_path, f"{path} {option}".strip(), kind=path or "blis-tui")
    digests.check(file_regression)


def test_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    for number, line in enumerate(_LINES):
        commands(digests, tmp_path, line, kind=f"{number} {line.split()[0]}")
    digests.check(file_regression)
