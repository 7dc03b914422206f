"""Pages about the shipped experiments' runs, as recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.recorded import REQUESTS, SHIPPED, Digests, commands

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture


def test_pages_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    for name in SHIPPED[::3]:
        few = f"--set workload.requests={REQUESTS}"
        commands(digests, tmp_path, f"run {name} {few} --html {name}.html -o {name}.json", kind=name)
    commands(digests, tmp_path, "bundle kv-pressure -o debugger.html --at 120 --events 60", kind="bundle")
    digests.check(file_regression)
