"""The house rules that a machine can check."""

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]


def test_imports_point_one_way() -> None:
    command = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    run = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_no_module_needs_itself() -> None:
    # Imports for types count, too: whoever reads a module should not have to read it first.
    graph = grimp.build_graph("blis_tui", cache_dir=None)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while True:
        leaves = {module for module, needed in needs.items() if not needed & needs.keys()}
        if not leaves:
            break
        needs = {module: needed for module, needed in needs.items() if module not in leaves}
    assert sorted(needs) == []


@pytest.mark.parametrize("path", sorted((ROOT / "blis_tui").rglob("*.py")), ids=lambda path: path.stem)
def test_modules_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 520
