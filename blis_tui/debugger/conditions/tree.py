"""Predicates as frozen trees: what each part measures, and its canonical text.

Functions of a tree recurse; whoever builds one keeps it shallow (``MAX_DEPTH``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.cluster.figures import FIGURES
from blis_tui.debugger.conditions.vocabulary import EVENT_NUMBERS, EVENT_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 20
"""How many parts may lie within each other."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written, such as ``250`` with the unit ``ms``."""

    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A text in quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Name:
    """A figure, of the cluster or of one instance, or a fact about the event."""

    name: str
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class Negative:
    """``-of``."""

    of: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left op right`` with ``+ - * /``."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left op right`` with ``< <= > >= == !=``."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Junction:
    """Two or more ``parts``, none of them a junction of the same ``op``, joined by ``and`` or ``or``."""

    op: str
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """``not of``."""

    of: Node


Node: TypeAlias = "Number | Text | Name | Negative | Arithmetic | Comparison | Junction | Not"


def names_in(node: Node) -> Iterator[Name]:
    """Every name, from left to right."""
    match node:
        case Name():
            yield node
        case Negative() | Not():
            yield from names_in(node.of)
        case Arithmetic() | Comparison():
            yield from names_in(node.left)
            yield from names_in(node.right)
        case Junction():
            for part in node.parts:
                yield from names_in(part)
        case _:
            pass


# ---- what a part measures ----


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a part of a predicate measures."""

    dimension: str
    """``number``, ``share``, ``count`` or ``time``; ``truth`` for conditions, ``text`` for texts."""
    unit: str = ""
    constant: bool = False
    """Whether it is the same in every state."""

    def __str__(self) -> str:
        match self.dimension:
            case "count":
                return f"a number of {self.unit}"
            case "time":
                return f"a time in {self.unit}"
            case "truth":
                return "a condition"
            case _:
                return f"a {self.dimension}"


TIME_UNITS: Final = {"us": 1, "ms": 1000, "s": 1_000_000}
"""Units of time, in microseconds."""
_RANKS: Final = ("number", "share", "count", "time")
TRUTH: Final = Quantity("truth")


def of_unit(unit: str, *, constant: bool = False) -> Quantity:
    """What a figure of that unit measures."""
    if unit in TIME_UNITS:
        return Quantity("time", unit, constant)
    if unit in ("share", "%"):
        return Quantity("share", "", constant)
    return Quantity("count", unit, constant) if unit else Quantity("number", "", constant)


def combine(op: str, left: Quantity, right: Quantity) -> Quantity | None:
    """What ``left op right`` measures; None when the two do not go together.

    A plain number goes with everything and is taken in the other side's unit. Shares and counts scale what they
    multiply. Whatever else is divided by each other becomes a plain number.
    """
    constant = left.constant and right.constant
    if left.dimension not in _RANKS or right.dimension not in _RANKS:
        return None
    higher = max(left, right, key=lambda one: _RANKS.index(one.dimension))
    if op == "*":
        both_times = left.dimension == right.dimension == "time"
        return None if both_times else Quantity(higher.dimension, higher.unit, constant)
    if op == "/":
        if left.dimension in ("number", right.dimension) or right.dimension == "time":
            return Quantity("number", "", constant)
        return Quantity(left.dimension, left.unit, constant)
    if left.dimension == right.dimension:
        return Quantity(left.dimension, common_unit(left, right), constant)
    return Quantity(higher.dimension, higher.unit, constant) if "number" in (left.dimension, right.dimension) else None


def common_unit(left: Quantity, right: Quantity) -> str:
    """The unit two times are brought to: what is constant gives way."""
    return right.unit if left.constant and not right.constant else left.unit


def quantity_of(node: Node) -> Quantity:
    """What a well-formed part measures."""
    match node:
        case Number():
            return of_unit(node.unit, constant=True)
        case Text():
            return Quantity("text", constant=True)
        case Name():
            if node.name in EVENT_TEXTS:
                return Quantity("text")
            figure = FIGURES.get(node.name)
            return of_unit(EVENT_NUMBERS[node.name].unit if figure is None else figure.unit)
        case Negative():
            return quantity_of(node.of)
        case Arithmetic():
            found = combine(node.op, quantity_of(node.left), quantity_of(node.right))
            if found is None:
                raise TypeError(f"`{describe(node)}` mixes units that do not go together")
            return found
        case _:
            return TRUTH


# ---- as text ----

_LEVEL: Final = {"or": 0, "and": 1, "+": 4, "-": 4, "*": 5, "/": 5}


def _level(node: Node) -> int:
    """How tightly the outermost operator of a part binds."""
    match node:
        case Junction() | Arithmetic():
            return _LEVEL[node.op]
        case Not():
            return 2
        case Comparison():
            return 3
        case _:
            return 6


def describe(node: Node) -> str:
    """The canonical text of a part: it parses to an equal tree."""
    match node:
        case Number():
            return f"{repr(node.value).removesuffix('.0')}{node.unit}"
        case Text():
            return '"' + node.value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case Name():
            return node.name if node.instance is None else f"instance[{node.instance}].{node.name}"
        case Negative():
            return f"-{_within(node.of, 6)}"
        case Not():
            return f"not {_within(node.of, 2)}"
        case Junction():
            return f" {node.op} ".join(_within(part, _LEVEL[node.op] + 1) for part in node.parts)
        case Comparison():
            return f"{_within(node.left, 4)} {node.op} {_within(node.right, 4)}"
        case Arithmetic():
            level = _LEVEL[node.op]
            return f"{_within(node.left, level)} {node.op} {_within(node.right, level + 1)}"


def _within(node: Node, level: int) -> str:
    text = describe(node)
    return text if _level(node) >= level else f"({text})"
