"""Plant faults in the code, one at a time, and report which of them the tests notice.

    python benchmarks/mutants.py                        ten faults in each package; prints a Markdown table
    python benchmarks/mutants.py engine results         only in these packages
    python benchmarks/mutants.py --each 30 --seed 2     more faults, and different ones
    python benchmarks/mutants.py --own                  only by the package's own fast tests

A fault is one changed expression or statement: a comparison that gains or loses its bound, a sum that becomes a
difference, ``and`` for ``or``, a number that is one larger, a statement that is left out. The seed and the sources
decide which faults are planted. Each is planted in a copy of the repository. The fast tests of its package run first,
those that name its module before the others; if they all pass, the goldens and the oracle run. A fault that survives
both means a missing test, or a change without effect. ``mutants.md`` has the findings.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import resource
import shutil
import subprocess
import sys
from copy import deepcopy
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
COPIED: Final = ("blis_tui", "tests", "specs", "golden", "schemas", "docs", "benchmarks")
PLACES: Final = (
    *("base", "model", "engine", "workload", "cluster", "results", "output", "spec"),
    *("runs", "study", "pictures", "live", "debugger", "golden", "tui", "cli"),
)
"""The packages in which faults are planted; the tests of the same name should notice."""
LAST: Final = ("specs/experiments", "tests/oracle")
"""Tests that cover everything, run last."""
PATIENCE: Final = 4
"""Tests that take this many times their usual CPU time are taken to loop for ever."""
MEMORY_BYTES: Final = 6 << 30
"""Memory limit of the tests: an endless loop may fill a list."""

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
    """The node with a fault, or None if none can be planted there."""
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
    """Replaces one node by a changed one."""

    def __init__(self, target: ast.AST, put: ast.AST) -> None:
        self._target = target
        self._put = put

    def visit(self, node: ast.AST) -> ast.AST:
        """The tree, with the change."""
        if node is self._target:
            return ast.copy_location(self._put, node)
        return self.generic_visit(node)


def _inside(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes in the bodies of functions; code outside them is mostly data."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body[1 if ast.get_docstring(function) is not None else 0 :]:
                yield from ast.walk(statement)


def faults(package: str, count: int, seed: int) -> list[Fault]:
    """The first faults in an order that depends on the seed alone."""
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


def notice(folder: Path, tests: tuple[str, ...], longest_s: float | None = None) -> bool:
    """Whether tests fail there or run out of time: a limit of CPU seconds, or ten times as many seconds in all."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    waiting_s = None
    if longest_s is not None:
        command = ["bash", "-c", f'ulimit -t {ceil(longest_s)} && exec "$@"', "bash", *command]
        waiting_s = 10 * longest_s
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=waiting_s, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def patience(folder: Path, package: str, tests: tuple[str, ...]) -> float:
    """How many CPU seconds the tests may take. Their modules lose their comments, as they will with a fault.

    Raises:
        SystemExit: they fail.
    """
    for path in (folder / "blis_tui" / package).rglob("*.py"):
        path.write_text(ast.unparse(ast.parse(path.read_text(encoding="utf-8"))), encoding="utf-8")
    began_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    if notice(folder, tests):
        sys.exit(f"{', '.join(tests)}: fails without any fault, so what it notices says nothing")
    return PATIENCE * (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began_s)


def in_turn(folder: Path, fault: Fault, room: str) -> tuple[str, ...]:
    """The test files of a package: first what compares all results with those on file, then what names the module."""
    module = ".".join(fault.path.with_suffix("").parts)

    def strange(file: Path) -> tuple[bool, bool]:
        named = fault.path.stem in file.stem or module in file.read_text(encoding="utf-8")
        return file.name != "test_recorded.py", not named

    files = sorted(sorted((folder / room).rglob("test_*.py")), key=strange)
    return tuple(file.relative_to(folder).as_posix() for file in files)


def tried(folder: Path, fault: Fault, room: str, longest_s: tuple[float, float | None]) -> str:
    """Which tests notice a fault in a copy of the repository; goldens and oracle are asked if they have a limit."""
    target = folder / fault.path
    whole = target.read_text(encoding="utf-8")
    target.write_text(fault.text, encoding="utf-8")
    try:
        if notice(folder, in_turn(folder, fault, room), longest_s[0]):
            return "its own"
        return "goldens, oracle" if longest_s[1] and notice(folder, LAST, longest_s[1]) else "**none**"
    finally:
        target.write_text(whole, encoding="utf-8")


def main() -> None:
    """Plant, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", metavar="PLACE", help=f"of {', '.join(PLACES)}; none = all")
    parser.add_argument("--each", type=int, default=10, help="faults in each place (10)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--own", action="store_true", help="run neither goldens nor oracle")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))  # of the tests, too
    noticed = planted = 0
    print("| place | where | fault | noticed by |\n|---|---|---|---|")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for one in COPIED:
            shutil.copytree(ROOT / one, folder / one, ignore=shutil.ignore_patterns("__pycache__"))
        for path in sorted(ROOT.iterdir()):
            if path.is_file():
                shutil.copy(path, folder / path.name)
        last_s: float | None = None
        for place in asked.places or PLACES:
            tests = f"tests/{place}"
            if not asked.own:
                last_s = last_s or patience(folder, place, LAST)  # the same for all places
            longest_s = patience(folder, place, (tests,)), last_s
            for fault in faults(place, asked.each, asked.seed):
                found = tried(folder, fault, tests, longest_s)
                planted += 1
                noticed += "none" not in found
                where = f"`{fault.path.as_posix()}:{fault.line}`"
                print(f"| {place} | {where} | `{fault.before}` → `{fault.after}` | {found} |", flush=True)
    print(f"\n{noticed} of {planted} are noticed ({100 * noticed / max(planted, 1):.0f} %).")


if __name__ == "__main__":
    main()
