"""What a run is written as: text, tables and traces of the shipped experiments, as recorded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from click.testing import CliRunner

from blis_tui.cli.main import cli
from tests.recorded import REQUESTS, SHIPPED, Digests

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

_FILES: Final = {
    "--requests": "requests.csv",
    "--records": "records.jsonl",
    "--decisions": "decisions.jsonl",
    "--trace-output": "trace",
    "--perfetto": "run.perfetto",
    "--openmetrics": "metrics.txt",
}


def test_shipped_experiments(tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for name in SHIPPED:
        folder = tmp_path / name
        folder.mkdir()
        files = [part for option, file in _FILES.items() for part in (option, str(folder / file))]
        options = ["--set", f"workload.requests={REQUESTS}", "--format", "table", "--counterfactual", "2"]
        done = CliRunner().invoke(cli, ["run", name, *options, *files])
        digests.add("exit", done.exit_code)
        digests.add("table", re.sub(r"in [0-9.]+ s", "", done.output))
        for file in sorted(folder.iterdir()):
            digests.add(file.name, file.read_bytes())
    digests.check(file_regression)
