"""The names in what describes the code exist, and pages keep to the line length."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
CODE = ("CONTRIBUTING.md", "docs/architecture.md", "docs/lab/schedulers.md")
PAGE = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in CODE)


def _names(path: Path) -> set[str]:
    """Names that a module defines, including those in its classes."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_its_walks_pass_through_modules_and_functions_that_exist() -> None:
    steps = re.findall(r"`(blis_tui/[a-z_/]+\.py)`\s+\(`(\w+)`\)", PAGE)
    assert len(steps) >= 12
    assert [(module, name) for module, name in steps if name not in _names(ROOT / module)] == []


def test_its_paths_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", page)
    assert len(named) > 30
    assert [path for path in named if not any((base / path).exists() for base in (ROOT, ROOT / "blis_tui"))] == []


def test_what_it_names_in_a_module_is_defined_there() -> None:
    named = re.findall(r"`(?:blis_tui/)?([a-z_/]+\.py)` \(((?:`\w+`(?:, )?)+)\)", PAGE)
    assert len(named) > 20
    for path, names in named:
        text = (ROOT / "blis_tui" / path).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^\s*(?:def|class) {name}\b", text, re.MULTILINE), f"{path}: {name}"


def test_modules_that_docstrings_name_exist() -> None:
    """Of a name such as ``results.stats``: rooms are also named as keys of documents are, so these are let pass."""
    package = ROOT / "blis_tui"
    rooms = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    keys = set(re.findall(r'"(\w+)":', "".join(path.read_text() for path in (ROOT / "schemas").glob("*.json"))))
    wrong = [
        f"{path.relative_to(ROOT)}: {room}.{module}"
        for path in sorted(package.rglob("*.py"))
        for room, module in re.findall(r"``(\w+)\.(\w+)", path.read_text(encoding="utf-8"))
        if room in rooms and module not in keys and not list((package / room).glob(f"{module}*"))
    ]
    assert wrong == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_prose_has_lines_of_a_hundred_columns(path: Path) -> None:
    """Except for tables, code and what cannot be broken: a name in code, an image, a heading."""
    fence, long = "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        if mark := re.match(r"```+|~~~+", line):
            fence = "" if mark[0] == fence else fence or mark[0]
        words = re.sub(r"`[^`]*`", "code", line.strip()).split()
        whole = len(words) < 2 or line.lstrip().startswith(("|", "<", "#", "![", "+ "))
        if not fence and not whole and len(line) > 100:
            long.append(line)
    assert long == []
