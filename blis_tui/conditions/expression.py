"""User-written conditions and figures, such as ``kv.utilization > 90% and instance[0].waiting > 10``.

From loose to tight, as in Python::

    or    and    not    < <= > >= == !=    + -    * /    -

and within them numbers (``3``, ``1.5s``, ``250ms``, ``300us``, ``90%``), quoted texts, names, ``instance[0].NAME`` for
the figure of one instance, and parentheses. Compatibility is checked before anything runs: times with times, shares
with shares, counts with counts, and a plain number with everything (in the other's unit).

A comparison is false if one side does not exist: a division by zero, or a fact that the event does not have. ``kind``
and ``request`` have one value for each record of the event: ``==`` asks whether any of them is the text, ``!=`` whether
none is.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import field
from functools import reduce
from math import isfinite, nan
from typing import TYPE_CHECKING, Final, cast

from blis_tui.classes import dataclass
from blis_tui.cluster.figures import FIGURES
from blis_tui.conditions.lexer import ConditionError
from blis_tui.conditions.syntax import MAX_DEPTH, Syntax
from blis_tui.conditions.vocabulary import (
    BOOLEAN,
    EVENT_NUMBERS,
    EVENT_TEXTS,
    TEXT,
    TIME_UNITS,
    Quantity,
    combine,
    common_unit,
)
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.printable import printable
from blis_tui.spec.diagnostics import suggestion
from blis_tui.units import share_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.conditions.syntax import Measure, Operand
    from blis_tui.conditions.vocabulary import State
    from blis_tui.engine.records import Record

_ATOM: Final = 6
"""The level of parts that never need parentheses."""
_UP_TO_ONE: Final = frozenset({"kv.utilization"})
"""Shares that never exceed 1; others, such as the gateway's saturation, may."""
_JOIN_HINT: Final = "join two conditions with `and` or `or`"


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed condition or figure. Its ``str()`` is canonical: it parses to an equal one."""

    text: str
    quantity: Quantity
    names: tuple[Operand, ...]
    """The names it uses, each once, in order."""
    measure: Measure = field(compare=False, repr=False)
    """Returns its value in a state, after an event with these records: a bool for a condition; NaN = undefined."""

    def __str__(self) -> str:
        return self.text

    @property
    def about_event(self) -> bool:
        """Whether it depends on the event itself, not only on the state after it."""
        return any(one.name not in FIGURES for one in self.names)

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of record it depends on."""
        found: set[str] = set()
        for one in self.names:
            if one.name in EVENT_TEXTS:
                return frozenset(RECORD_KINDS)
            if one.name in EVENT_NUMBERS:
                found |= EVENT_NUMBERS[one.name].needs
        return frozenset(found)

    def shown(self, state: State, records: Sequence[Record]) -> str:
        """Format its current value with its unit; ``-`` = undefined."""
        number = self.measure(state, records)
        if self.quantity == BOOLEAN:
            return "yes" if number else "no"
        if not isfinite(number):
            return "-"
        if self.quantity.dimension == "share":
            return share_text(number)
        text = f"{number:,.0f}" if number == int(number) else f"{number:,.3f}"
        return f"{text} {self.quantity.unit}".rstrip()


def parse_condition(text: str, *, instances: int) -> Expression:
    """Parse a condition on a cluster with ``instances`` instances.

    Raises:
        ConditionError: it is invalid.
    """
    if not text.strip():
        raise ConditionError("no condition is given", text, len(text), help="write one, such as `kv.utilization > 90%`")
    analysis = _Analysis(Syntax(text, instances))
    analysis.require_boolean(analysis.whole)
    analysis.syntax.require_end(_JOIN_HINT)
    return analysis.expression()


def parse_expression(text: str, *, instances: int) -> Expression:
    """Parse a condition or a figure.

    Raises:
        ConditionError: it is neither.
    """
    if not text.strip():
        raise ConditionError("no metric is given", text, len(text), help="write one, such as `kv.utilization`")
    analysis = _Analysis(Syntax(text, instances))
    whole = analysis.whole
    if whole.quantity == TEXT:
        raise analysis.syntax.wrong(whole.node, f"`{analysis.syntax.quote(whole.node)}` is a text, not a number")
    analysis.syntax.require_end(_JOIN_HINT if whole.quantity == BOOLEAN else "only one metric is expected here")
    return analysis.expression()


@dataclass(frozen=True, slots=True)
class _Part:
    """An analyzed node."""

    node: ast.expr
    text: str
    """Canonical text. (``ast.unparse`` uses more parentheses in ``and`` and ``or`` than people do.)"""
    level: int
    """How tightly its outermost operator binds."""
    quantity: Quantity
    measure: Measure
    operand: Operand | None = None
    """The operand, if the node is nothing else."""
    depth: int = 1

    @property
    def quoted(self) -> str | None:
        """The content of a quoted text, if the node is one."""
        return None if self.operand is None else self.operand.quoted

    def within(self, level: int) -> str:
        """Return its text for use beside an operator of that level."""
        return self.text if self.level >= level else f"({self.text})"


class _Analysis:
    """Checks a tree from its leaves to its root, and compiles it to functions."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.whole = self._part(syntax.tree)

    def expression(self) -> Expression:
        """Return the result for the whole tree."""
        names = dict.fromkeys(one for one in self.syntax.operands.values() if one.name)
        return Expression(self.whole.text, self.whole.quantity, tuple(names), self.whole.measure)

    def _part(self, node: ast.expr) -> _Part:
        match node:
            case ast.Name():
                operand = self.syntax.operand(node)
                return _Part(node, operand.text, _ATOM, operand.quantity, operand.measure, operand)
            case ast.BoolOp():
                found = self._junction(node, [self._part(one) for one in node.values])
            case ast.UnaryOp(op=ast.Not()):
                found = self._negation(node, self._part(node.operand))
            case ast.UnaryOp(op=ast.USub()):
                found = self._negative(node, self._part(node.operand))
            case ast.Compare():
                found = self._comparison(node, self._part(node.left), self._part(node.comparators[0]))
            case ast.BinOp():
                found = self._arithmetic(node, self._part(node.left), self._part(node.right))
            case _:
                raise TypeError(f"{type(node).__name__} cannot be part of a condition")
        if found.depth > MAX_DEPTH:
            raise self.syntax.wrong(node, f"more than {MAX_DEPTH} nested operations", "make it simpler")
        return found

    # ---- conditions ----

    def require_boolean(self, part: _Part) -> None:
        """Raise ConditionError unless it is a condition."""
        if part.quantity != BOOLEAN:
            quoted = self.syntax.quote(part.node)
            limit = "90%" if part.quantity.dimension == "share" else "0"
            example = 'kind == "preempted"' if part.quantity == TEXT else f"{quoted} > {limit}"
            raise self.syntax.wrong(
                part.node, f"`{quoted}` alone is not a condition", f"compare it, such as `{example}`"
            )

    def _junction(self, node: ast.BoolOp, parts: Sequence[_Part]) -> _Part:
        for part in parts:
            self.require_boolean(part)
        sign, level, join = ("and", 1, _and) if isinstance(node.op, ast.And) else ("or", 0, _or)
        text = f" {sign} ".join(part.within(level) for part in parts)
        return _around(node, text, level, BOOLEAN, reduce(join, (part.measure for part in parts)), *parts)

    def _negation(self, node: ast.UnaryOp, part: _Part) -> _Part:
        self.require_boolean(part)
        measure = part.measure
        text = f"not {part.within(2)}"
        return _around(node, text, 2, BOOLEAN, lambda state, records: not measure(state, records), part)

    def _comparison(self, node: ast.Compare, left: _Part, right: _Part) -> _Part:
        sign, compare = _COMPARE[type(node.ops[0])]
        for part in (left, right):
            if part.quantity == BOOLEAN:
                raise self.syntax.wrong(part.node, "a condition cannot be compared", "join it with `and`, `or`, `not`")
        if TEXT in (left.quantity, right.quantity):
            measure = self._text_comparison(sign, left, right)
        elif combine(sign, left.quantity, right.quantity) is None:
            message = f"{self._what(left)} and {self._what(right)}: they cannot be compared"
            share = {left.quantity.dimension, right.quantity.dimension} == {"share", "count"}
            hint = "a share is written as a division, such as `kv.used / kv.total`" if share else None
            raise self.syntax.wrong(right.node, message, hint)
        else:
            self._require_reachable(left, right)
            self._require_reachable(right, left)
            measure = _number_comparison(compare, left, right)
        text = f"{left.within(4)} {sign} {right.within(4)}"
        if len(node.ops) > 1:
            hint = f"write `{text} and {right.text} {_COMPARE[type(node.ops[1])][0]} ...`"
            raise self.syntax.error_after(right.node, "comparisons do not chain", hint)
        return _around(node, text, 3, BOOLEAN, measure, left, right)

    def _require_reachable(self, figure: _Part, limit: _Part) -> None:
        """Raise ConditionError if a figure from 0 to 1 is compared with more: that would always or never hold."""
        if figure.operand is None or figure.operand.name not in _UP_TO_ONE or not limit.quantity.constant:
            return
        value = limit.measure(cast("State", None), ())
        if value > 1:
            message = f"`{figure.text}` is a share, from 0 to 1: `{self.syntax.quote(limit.node)}` is out of its reach"
            plain = limit.operand is not None and limit.quantity.dimension == "number"
            hint = f"write `{limit.text}%`" if plain and value <= 100 else "100 % is `1` or `100%`"
            raise self.syntax.wrong(limit.node, message, hint)

    def _text_comparison(self, sign: str, left: _Part, right: _Part) -> Measure:
        literal, other = (left, right) if left.quoted is not None else (right, left)
        wanted = literal.quoted
        if wanted is None:
            text, wrong = (left, right) if left.quantity == TEXT else (right, left)
            name = self.syntax.quote(text.node)
            message, hint = f"`{name}` is compared with a text in quotes", f'such as `{name} == "..."`'
            raise self.syntax.wrong(wrong.node, message, hint)
        if other.quantity != TEXT or other.operand is None or other.quoted is not None:
            raise self.syntax.wrong(other.node, "only `kind` and `request` are compared with texts")
        if sign not in ("==", "!="):
            raise self.syntax.error_after(left.node, "texts cannot be ordered", "compare them with `==` or `!=`")
        name = other.operand.name
        if name == "kind" and wanted not in RECORD_KINDS:
            message = f"there is no record kind `{printable(wanted)}`"
            raise self.syntax.wrong(literal.node, message, suggestion(wanted, RECORD_KINDS))
        fits, equal = EVENT_TEXTS[name].fits, sign == "=="

        def holds(state: State, records: Sequence[Record]) -> bool:  # noqa: ARG001  (the signature of all conditions)
            for record in records:
                if fits(record, wanted):
                    return equal
            return not equal

        return holds

    # ---- numbers ----

    def _negative(self, node: ast.UnaryOp, part: _Part) -> _Part:
        if not part.quantity.is_number:
            raise self.syntax.wrong(part.node, f"`-` needs a number, this is {part.quantity}")
        measure = part.measure
        text = f"-{part.within(_ATOM)}"
        return _around(node, text, _ATOM, part.quantity, lambda state, records: -measure(state, records), part)

    def _arithmetic(self, node: ast.BinOp, left: _Part, right: _Part) -> _Part:
        sign, level, compute = _COMPUTE[type(node.op)]
        for part in (left, right):
            if not part.quantity.is_number:
                raise self.syntax.wrong(part.node, f"`{sign}` needs numbers, this is {part.quantity}")
        quantity = combine(sign, left.quantity, right.quantity)
        if quantity is None:
            message = f"{self._what(left)} and {self._what(right)}: `{sign}` does not apply to them"
            raise self.syntax.error_after(left.node, message)
        a, b = _in_same_unit(left, right)
        text = f"{left.within(level)} {sign} {right.within(level + 1)}"
        measure: Measure = lambda state, records: compute(a(state, records), b(state, records))  # noqa: E731
        return _around(node, text, level, quantity, measure, left, right)

    def _what(self, part: _Part) -> str:
        return f"`{self.syntax.quote(part.node)}` is {part.quantity}"


# ---- functions called after every event, so all look-ups and decisions are made beforehand ----


def _differs(a: float, b: float) -> bool:
    """Compute ``!=``, but false if one of the two does not exist (NaN)."""
    return a < b or a > b


def _divide(a: float, b: float) -> float:
    return a / b if b else nan


_COMPARE: Final[dict[type[ast.cmpop], tuple[str, Callable[[float, float], bool]]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", _differs),
}
_COMPUTE: Final[dict[type[ast.operator], tuple[str, int, Callable[[float, float], float]]]] = {
    ast.Add: ("+", 4, operator.add),
    ast.Sub: ("-", 4, operator.sub),
    ast.Mult: ("*", 5, operator.mul),
    ast.Div: ("/", 5, _divide),
}


def _and(a: Measure, b: Measure) -> Measure:
    return lambda state, records: a(state, records) and b(state, records)


def _or(a: Measure, b: Measure) -> Measure:
    return lambda state, records: a(state, records) or b(state, records)


def _number_comparison(compare: Callable[[float, float], bool], left: _Part, right: _Part) -> Measure:
    a, b = _in_same_unit(left, right)
    if right.quantity.constant:  # the usual case: a figure compared with a number
        limit = b(cast("State", None), ())
        return lambda state, records: compare(a(state, records), limit)
    return lambda state, records: compare(a(state, records), b(state, records))


def _in_same_unit(left: _Part, right: _Part) -> tuple[Measure, Measure]:
    """Return both sides as functions; two times in the same unit."""
    if not left.quantity.dimension == right.quantity.dimension == "time":
        return left.measure, right.measure
    unit = common_unit(left.quantity, right.quantity)
    return _scaled(left, unit), _scaled(right, unit)


def _scaled(part: _Part, unit: str) -> Measure:
    if part.quantity.unit == unit:
        return part.measure
    # One multiplication and one division, one of them by 1: exact wherever the figures themselves are.
    measure, numerator, denominator = part.measure, TIME_UNITS[part.quantity.unit], TIME_UNITS[unit]
    return lambda state, records: measure(state, records) * numerator / denominator


def _around(node: ast.expr, text: str, level: int, quantity: Quantity, measure: Measure, *parts: _Part) -> _Part:
    """Create the node that contains these parts."""
    return _Part(node, text, level, quantity, measure, depth=1 + max(part.depth for part in parts))
