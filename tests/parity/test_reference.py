"""Measured cases of the reference simulator (a Go program), where they are at hand: equal to the microsecond."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.prefork import run_module

if TYPE_CHECKING:
    import subprocess

SHARED = Path(__file__).parents[2].parent / "shared"
FOLDERS = (
    Path(os.environ.get("BLIS_PARITY_CASES", SHARED / "parity")),
    Path(os.environ.get("BLIS_PARITY_CLUSTER_CASES", SHARED / "parity-cluster")),
)
CASES = sorted((folder, path.parent.name) for folder in FOLDERS for path in folder.glob("*/case.json"))


@cache
def checker(folder: Path) -> ModuleType:
    """The folder's own ``check.py``; the programs that it runs are forked."""
    spec = importlib.util.spec_from_file_location(f"{folder.name}_check", folder / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(getattr(module, "base", module))["subprocess"] = SimpleNamespace(run=_forked)
    return module


def _forked(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
    module, *arguments = command
    return run_module(module, arguments, cwd=Path.cwd(), env=os.environ)


# The script leaves the closing of the files that it reads to the interpreter.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not CASES, reason="no measured cases here; BLIS_PARITY_CASES can name their folder")
@pytest.mark.parametrize(("folder", "name"), CASES, ids=[name for _, name in CASES])
def test_every_request_agrees_to_the_microsecond(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = checker(folder)
    monkeypatch.setattr(sys, "argv", ["check.py", "--cli", "blis_tui", "--cases", str(folder), name])
    failed = getattr(module, "base", module).main()
    output = capsys.readouterr().out
    assert not failed, output
    assert "1 of 1 cases hold" in output
