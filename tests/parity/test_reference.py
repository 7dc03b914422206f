"""Measured cases of the reference simulator (a Go program), where they are at hand: equal to the microsecond."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(os.environ.get("BLIS_PARITY_CASES", Path(__file__).parents[2].parent / "shared" / "parity"))
NAMES = sorted(path.parent.name for path in CASES.glob("*/case.json"))


@pytest.mark.skipif(not NAMES, reason="no measured cases here; BLIS_PARITY_CASES can name their folder")
@pytest.mark.parametrize("name", NAMES)
def test_every_request_agrees_to_the_microsecond(name: str) -> None:
    command = [sys.executable, str(CASES / "check.py"), "--cli", f"{sys.executable} -m blis_tui", name]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
