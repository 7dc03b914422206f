"""Measured cases of the reference simulator (a Go program), where they are at hand: equal to the microsecond."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2].parent / "shared"
FOLDERS = (
    Path(os.environ.get("BLIS_PARITY_CASES", SHARED / "parity")),
    Path(os.environ.get("BLIS_PARITY_CLUSTER_CASES", SHARED / "parity-cluster")),
)
CASES = sorted((folder, path.parent.name) for folder in FOLDERS for path in folder.glob("*/case.json"))


@pytest.mark.skipif(not CASES, reason="no measured cases here; BLIS_PARITY_CASES can name their folder")
@pytest.mark.parametrize(("folder", "name"), CASES, ids=[name for _, name in CASES])
def test_every_request_agrees_to_the_microsecond(folder: Path, name: str) -> None:
    command = [sys.executable, str(folder / "check.py"), "--cli", f"{sys.executable} -m blis_tui", name]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
