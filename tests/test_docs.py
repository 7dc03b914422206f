"""What docs/architecture.md names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def _names(path: Path) -> set[str]:
    """What a module defines, in its classes, too."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_its_walks_pass_through_modules_and_functions_that_exist() -> None:
    steps = re.findall(r"`(blis_tui/[a-z_/]+\.py)`\s+\(`(\w+)`\)", PAGE)
    assert len(steps) >= 12
    assert [(module, name) for module, name in steps if name not in _names(ROOT / module)] == []


def test_its_paths_exist() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", PAGE)
    assert len(named) > 30
    assert [path for path in named if not any((base / path).exists() for base in (ROOT, ROOT / "blis_tui"))] == []
