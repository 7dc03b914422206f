"""The project's rules that a program can check."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]


def test_imports_point_one_way() -> None:
    command = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    run = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_no_module_needs_itself() -> None:
    # Imports for type checking count, too: no module should depend on itself for reading.
    graph = grimp.build_graph("blis_tui", cache_dir=None)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while True:
        leaves = {module for module, needed in needs.items() if not needed & needs.keys()}
        if not leaves:
            break
        needs = {module: needed for module, needed in needs.items() if module not in leaves}
    assert sorted(needs) == []


MOST_LINES = 60
"""Longest function in lines, without its docstring: what fits on a screen. Modules are as long as their subject."""


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node; expressions, which are most of a tree, contain none."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from _statements(child)


def _lengths(path: Path) -> Iterator[tuple[str, int]]:
    """The functions of a module with their numbers of lines."""
    for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{path.relative_to(ROOT / 'blis_tui').as_posix()} {node.name}", lines


def test_functions_stay_readable() -> None:
    lengths: dict[str, int] = {}
    for path in (ROOT / "blis_tui").rglob("*.py"):
        for name, lines in _lengths(path):
            lengths[name] = max(lines, lengths.get(name, 0))
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_thread_waits_for_the_application() -> None:
    """It may have ended meanwhile: then the thread would wait for ever, and the process with it."""
    waits = [
        path.name
        for path in sorted((ROOT / "blis_tui" / "tui").rglob("*.py"))
        if "call_from_thread" in path.read_text()
    ]
    assert waits == []


def test_classes_of_compiled_modules_can_be_copied_pickled_and_derived_from() -> None:
    """Compiled without this decorator, a class of its own cannot be made without its arguments."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
    bare = []
    for name in hook["include"]:
        for node in ast.parse((ROOT / name).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
                decorators = [ast.unparse(one) for one in node.decorator_list]
                plain = not bases & {"Protocol", "NamedTuple", "IntEnum"}
                if plain and "mypyc_attr(allow_interpreted_subclasses=True)" not in decorators:
                    bare.append(f"{name} {node.name}")
    assert bare == []
