"""Plants faults in the code, one at a time, and says which of them the tests notice.

    python benchmarks/mutants.py                        ten in each place; a table in Markdown
    python benchmarks/mutants.py engine metrics         only in these
    python benchmarks/mutants.py --each 30 --seed 2     more of them, others

A fault is one changed expression: a comparison that includes its bound or no longer does, a sum that becomes a
difference, ``and`` for ``or``, a number that is one more, a statement that is left out. Which ones are planted follows
from the seed and the sources. Each is planted in a copy of the repository; the fast tests of its place run first, and,
where they notice nothing, the goldens and the oracle. A fault that both live through is a test that is missing, or a
change that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
COPIED: Final = ("blis_tui", "tests", "specs", "golden", "schemas", "docs", "benchmarks")
PLACES: Final = {
    "engine": ("engine", "tests/engine"),
    "cluster": ("cluster", "tests/cluster"),
    "workload": ("workload", "tests/workload"),
    "metrics": ("metrics", "tests/metrics"),
    "planning": ("study", "tests/study"),
    "debugger": ("debugger", "tests/debugger"),
}
"""The package in which faults are planted, and the tests that should notice."""
LAST: Final = ("specs/experiments", "tests/oracle")
"""The tests of everything."""
LONGEST_S: Final = 900

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COUNTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}


class Fault(NamedTuple):
    """One change of a module."""

    path: Path
    line: int
    before: str
    after: str
    text: str
    """The whole module with the fault in it."""


def changed(node: ast.AST) -> ast.AST | None:
    """The same with a fault, or None where there is none to plant."""
    other = deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in _COMPARED:
        other.ops[0] = _COMPARED[type(other.ops[0])]()
    elif isinstance(other, ast.BinOp | ast.AugAssign) and type(other.op) in _COUNTED:
        other.op = _COUNTED[type(other.op)]()
    elif isinstance(other, ast.BoolOp):
        other.op = ast.And() if isinstance(other.op, ast.Or) else ast.Or()
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not):
        return other.operand
    elif isinstance(other, ast.Constant) and type(other.value) is int:
        other.value += 1
    elif isinstance(other, ast.Expr) and isinstance(other.value, ast.Call):
        return ast.Pass()
    else:
        return None
    return other


class _Planter(ast.NodeTransformer):
    """Puts a changed node in the place of one."""

    def __init__(self, target: ast.AST, put: ast.AST) -> None:
        self._target = target
        self._put = put

    def visit(self, node: ast.AST) -> ast.AST:
        """The tree, with the change."""
        if node is self._target:
            return ast.copy_location(self._put, node)
        return self.generic_visit(node)


def _inside(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything in the bodies of functions: what stands outside is mostly data."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body[1 if ast.get_docstring(function) is not None else 0 :]:
                yield from ast.walk(statement)


def faults(package: str, count: int, seed: int) -> list[Fault]:
    """The first ones, in an order that follows from the seed alone."""
    found: list[tuple[str, Path, int]] = []
    for path in sorted((ROOT / "blis_tui" / package).rglob("*.py")):
        nodes = list(_inside(ast.parse(path.read_text(encoding="utf-8"))))
        for number, node in enumerate(nodes):
            if changed(node) is not None:
                name = f"{seed} {path.relative_to(ROOT).as_posix()} {number}"
                found.append((hashlib.sha256(name.encode()).hexdigest(), path, number))
    return [_planted(path, number) for _, path, number in sorted(found)[:count]]


def _planted(path: Path, number: int) -> Fault:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = list(_inside(tree))[number]
    put = changed(node)
    if put is None:
        raise ValueError(f"{path} has no fault {number}")
    line = getattr(node, "lineno", 0)
    before, after = ast.unparse(node), ast.unparse(put)
    return Fault(path.relative_to(ROOT), line, before, after, ast.unparse(_Planter(node, put).visit(tree)))


def notice(folder: Path, tests: tuple[str, ...]) -> bool:
    """Whether tests fail there, or find no end."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def tried(folder: Path, fault: Fault, tests: str) -> str:
    """Which tests notice a fault in a copy of the repository."""
    target = folder / fault.path
    whole = target.read_text(encoding="utf-8")
    target.write_text(fault.text, encoding="utf-8")
    try:
        if notice(folder, (tests,)):
            return "its own"
        return "goldens, oracle" if notice(folder, LAST) else "**none**"
    finally:
        target.write_text(whole, encoding="utf-8")


def main() -> None:
    """Plant, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", metavar="PLACE", help=f"of {', '.join(PLACES)}; none = all")
    parser.add_argument("--each", type=int, default=10, help="faults in each place (10)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    asked = parser.parse_args()
    noticed = planted = 0
    print("| place | where | fault | noticed by |\n|---|---|---|---|")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for one in COPIED:
            shutil.copytree(ROOT / one, folder / one, ignore=shutil.ignore_patterns("__pycache__"))
        for one in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "LICENSE"):
            if (ROOT / one).exists():
                shutil.copy(ROOT / one, folder / one)
        for place in asked.places or PLACES:
            package, tests = PLACES[place]
            for sound in ((tests,), LAST):
                if notice(folder, sound):
                    sys.exit(f"{', '.join(sound)}: fails without any fault, so what it notices says nothing")
            for fault in faults(package, asked.each, asked.seed):
                found = tried(folder, fault, tests)
                planted += 1
                noticed += "none" not in found
                where = f"`{fault.path.as_posix()}:{fault.line}`"
                print(f"| {place} | {where} | `{fault.before}` → `{fault.after}` | {found} |", flush=True)
    print(f"\n{noticed} of {planted} are noticed ({100 * noticed / max(planted, 1):.0f} %).")


if __name__ == "__main__":
    main()
