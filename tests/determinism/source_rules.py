"""What may not stand in sources whose results reach output bytes, found in their syntax trees.

The rules do not know types, so they are strict where a type would decide: iterating over anything that is called like
a set in that file, any power that is not of two literals. What is right nevertheless is listed, with its reason, in the
test.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES: Final = {
    "asyncio": "takes turns by the clock",
    "cmath": "is libm's",
    "concurrent": "takes turns by chance",
    "glob": "has no fixed order",
    "locale": "is the machine's",
    "multiprocessing": "takes turns by chance",
    "numpy": "is another mathematics on each machine",
    "platform": "is the machine's",
    "random": "is chance that others may draw from: use engine/streams.py",
    "secrets": "is chance",
    "statistics": "is partly libm's and changes with versions",
    "threading": "takes turns by chance",
    "time": "is a clock",
    "uuid": "is chance",
    "zoneinfo": "is the machine's",
}
PORTABLE_MATH: Final = frozenset(
    (
        *("ceil", "floor", "trunc", "isqrt", "gcd", "lcm", "comb"),
        *("sqrt", "fsum", "frexp", "ldexp", "modf", "copysign", "nextafter", "ulp"),
        *("inf", "nan", "isfinite", "isinf", "isnan"),
    )
)
"""Names of ``math`` that give the same bits everywhere: exact, or correctly rounded by IEEE 754."""

BUILTINS: Final = {
    "hash": "differs from process to process",
    "id": "differs from process to process",
    "pow": "is libm's for floats",
    "sum": "adds floats differently since Python 3.12: use a loop, or math.fsum",
}
ATTRIBUTES: Final = {
    "environ": "is the machine's",
    "getenv": "is the machine's",
    "getpid": "differs from process to process",
    "glob": "has no fixed order",
    "iterdir": "has no fixed order",
    "listdir": "has no fixed order",
    "rglob": "has no fixed order",
    "scandir": "has no fixed order",
    "urandom": "is chance",
}
CLOCKS: Final = frozenset({"now", "today", "utcnow"})
"""Methods of ``datetime`` and ``date``."""

ORDERED_BY: Final = frozenset({"dict", "enumerate", "filter", "iter", "list", "map", "reversed", "tuple", "zip"})
"""Functions whose result has the order of their argument (``sorted``, ``min``, ``len`` and ``fsum`` do not)."""
ORDERED_BY_METHODS: Final = frozenset({"extend", "fromkeys", "join", "writelines"})
SET_TYPES: Final = frozenset({"AbstractSet", "FrozenSet", "MutableSet", "Set", "frozenset", "set"})
SET_METHODS: Final = frozenset({"difference", "intersection", "symmetric_difference", "union"})


class Finding(NamedTuple):
    """Something that may not stand there."""

    line: int
    rule: str
    """A few words that name the rule and what broke it; exceptions are listed by it."""
    reason: str


def findings(source: str) -> list[Finding]:
    """Everything in a module's source that may make its results differ."""
    tree = ast.parse(source)
    found = [finding for node in ast.walk(tree) for finding in (*_names(node), *_powers(node))]
    found += _Sets(tree).findings()
    return sorted(set(found))


def _names(node: ast.AST) -> Iterator[Finding]:
    """Imports, functions and attributes that are not to be used."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _module(node.lineno, alias.name)
    elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
        yield from _module(node.lineno, node.module)
        for alias in node.names:
            yield from _member(node.lineno, node.module, alias.name)
    elif isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name):
            yield from _member(node.lineno, node.value.id, node.attr)
        if node.attr in ATTRIBUTES:
            yield Finding(node.lineno, f".{node.attr}", ATTRIBUTES[node.attr])
        if node.attr in CLOCKS and _name(node.value) in {"date", "datetime"}:
            yield Finding(node.lineno, f".{node.attr}", "is a clock")
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BUILTINS:
        yield Finding(node.lineno, f"{node.id}()", BUILTINS[node.id])


def _module(line: int, name: str) -> Iterator[Finding]:
    root = name.partition(".")[0]
    if root in MODULES:
        yield Finding(line, f"import {name}", MODULES[root])


def _member(line: int, module: str, name: str) -> Iterator[Finding]:
    if module == "math" and name not in PORTABLE_MATH:
        yield Finding(line, f"math.{name}", "is libm's, whose last bit differs: see engine/portable_math.py")
    if module == "os" and name in ATTRIBUTES:
        yield Finding(line, f".{name}", ATTRIBUTES[name])


def _powers(node: ast.AST) -> Iterator[Finding]:
    """``x ** y`` is libm's ``pow`` when either is a float; powers of literals are worked out when compiling."""
    operands: tuple[ast.expr, ...] = ()
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        operands = (node.left, node.right)
        if _is_power_of_two_or_ten(node.left) and _is_whole(node.right):
            return
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Pow):
        operands = (node.value,)
    if operands:
        yield Finding(node.lineno, "**", "is libm's pow for floats: see engine/portable_math.py")  # type: ignore[attr-defined]


def _is_power_of_two_or_ten(node: ast.expr) -> bool:
    """Whether powers of this literal are exact: 2, 2.0, or the integer 10."""
    if not isinstance(node, ast.Constant):
        return False
    return node.value == 2 or (isinstance(node.value, int) and node.value == 10)


def _is_whole(node: ast.expr) -> bool:
    operand = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(operand, ast.Constant) and isinstance(operand.value, int)


class _Sets:
    """Finds places where the order of a set comes out: it differs from process to process."""

    def __init__(self, tree: ast.Module) -> None:
        self._nodes = list(ast.walk(tree))
        self._known: set[str] = set()
        # Twice: a name may be bound to another one that turns out to be a set only later.
        for _ in range(2):
            for node in self._nodes:
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        """Note the names (of variables, attributes, parameters, functions) that stand for sets."""
        if isinstance(node, ast.Assign) and self._is_set(node.value):
            self._known.update(filter(None, map(_name, node.targets)))
        elif isinstance(node, ast.AnnAssign) and (
            _is_set_type(node.annotation) or (node.value is not None and self._is_set(node.value))
        ):
            self._known.update(filter(None, [_name(node.target)]))
        elif isinstance(node, ast.arg) and node.annotation is not None and _is_set_type(node.annotation):
            self._known.add(node.arg)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None and _is_set_type(node.returns):
            self._known.add(f"{node.name}()")
        elif isinstance(node, ast.NamedExpr) and self._is_set(node.value):
            self._known.add(node.target.id)

    def _is_set(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Set, ast.SetComp)):
            return True
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if isinstance(node.func, ast.Attribute) and name in SET_METHODS | {"copy"}:
                return name in SET_METHODS or self._is_set(node.func.value)
            return name in {"set", "frozenset"} or f"{name}()" in self._known
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)):
            return any(self._is_set(side) or _is_view(side) for side in (node.left, node.right))
        if isinstance(node, ast.IfExp):
            return self._is_set(node.body) or self._is_set(node.orelse)
        return _name(node) in self._known

    def findings(self) -> Iterator[Finding]:
        for node in self._nodes:
            if any(self._is_set(used) for used in _ordered_uses(node)):
                yield Finding(
                    node.iter.lineno if isinstance(node, ast.comprehension) else node.lineno,  # type: ignore[attr-defined]
                    "order of a set",
                    "differs from process to process: use a dict, or sorted()",
                )


def _ordered_uses(node: ast.AST) -> list[ast.expr]:
    """The expressions whose order of elements a node uses."""
    if isinstance(node, (ast.For, ast.comprehension)):
        return [node.iter]
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.YieldFrom):
        return [node.value]
    if isinstance(node, ast.Assign) and any(isinstance(target, (ast.Tuple, ast.List)) for target in node.targets):
        return [node.value]
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in ORDERED_BY:
            return list(node.args)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in ORDERED_BY_METHODS:
                return list(node.args)
            if node.func.attr == "pop" and not node.args:
                return [node.func.value]
    return []


def _name(node: ast.expr) -> str | None:
    """What a variable or attribute is called, whoever's it is."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _is_view(node: ast.expr) -> bool:
    """Whether it is ``x.keys()`` or ``x.items()``, whose ``&`` and ``|`` are sets."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"keys", "items"}


def _is_set_type(annotation: ast.expr) -> bool:
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    if isinstance(annotation, ast.Subscript) and _name(outer) in {"ClassVar", "Final"}:
        return _is_set_type(annotation.slice)
    if isinstance(annotation, ast.BinOp):
        return _is_set_type(annotation.left) or _is_set_type(annotation.right)
    return _name(outer) in SET_TYPES
