"""What docs/workloads.md shows is what the commands print."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/workloads.md").read_text(encoding="utf-8")


def run(*args: str) -> str:
    result = CliRunner().invoke(cli, [*args])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = ROOT / "tests/spec/foreign/data/inference-perf-shared-prefix.yaml"
    (tmp_path / "config.yaml").write_text(config.read_text())
    block = re.search(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        run(*shlex.split(line, comments=True)[1:])
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".yaml", ".yaml", ".yaml", ".yaml"]


@pytest.mark.parametrize(("command", "name"), [("describe", "prefix-heavy"), ("fit", "mixed-slo")])
def test_the_tables_are_those_of_now(command: str, name: str, tmp_path: Path) -> None:
    shown = re.search(rf"<!-- {command} {name} -->\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown is not None
    output = ("-o", str(tmp_path / "x.yaml")) if command == "fit" else ()
    assert run("workload", command, name, *output).startswith(shown[1])
