"""The house rules that a machine can check."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_imports_point_one_way() -> None:
    command = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    run = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "blis_tui").rglob("*.py")), ids=lambda path: path.stem)
def test_modules_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 520
