"""Conditions and figures as people write them (``kv.utilization > 90%``), with errors at their place.

Parses a text with Python's grammar: numbers with units, texts and names become operands of a Python syntax tree.

Tokens are read from left to right, which locates errors in their order and in operands. The rest is Python source with
exactly one blank between tokens. The number of blanks before a node's column is thus the number of its first token,
which gives every node's place in the text.

User-written conditions and figures, such as ``kv.utilization > 90% and instance[0].waiting > 10``.

From loose to tight, as in Python::

    or    and    not    < <= > >= == !=    + -    * /    -

and within them numbers (``3``, ``1.5s``, ``250ms``, ``300us``, ``90%``), quoted texts, names, ``instance[0].NAME`` for
the figure of one instance, ``request_12.NAME`` or ``request["any name"].NAME`` for that of a request, and parentheses.
Compatibility is checked before anything runs: times with times, shares with shares, counts with counts, phases with
quoted texts, and a plain number with everything (in the other's unit).

A comparison is false if one side does not exist: a division by zero, or a fact that the event does not have. ``kind``
and ``request`` have one value for each record of the event: ``==`` asks whether any of them is the text, ``!=`` whether
none is.
"""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import field
from functools import partial, reduce
from math import isfinite, isinf, nan
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import cells, suggestion
from blis_tui.base.errors import BlisError
from blis_tui.base.text import printable
from blis_tui.base.units import share_text
from blis_tui.cluster.state import FIGURES
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.results.conditions.vocabulary import (
    BOOLEAN,
    EVENT_NUMBERS,
    EVENT_TEXTS,
    PHASE,
    PHASES,
    REQUEST_FIGURES,
    TEXT,
    TIME_UNITS,
    Quantity,
    combine,
    common_unit,
    of_unit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.results.conditions.vocabulary import State

    Measure: TypeAlias = Callable[[State, Sequence[Record]], float]


MAX_LENGTH: Final = 500
"""Maximum length of a condition in characters."""
_MAX_SHOWN: Final = 100
"""Longer texts are clipped around the error."""

_TOKEN: Final = re.compile(
    r"""
      (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<unit>[A-Za-zµ_]+|%)?
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign><=|>=|==|!=|[-<>+*/()\[\].])
    | (?P<space>\s+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_FOREIGN: Final = {
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not` before a condition, `!=` between two numbers",
    "=": "compare with `==`",
}


class ConditionError(BlisError):
    """A condition is invalid.

    Attributes:
        source: the condition as written.
        column: where the error starts, from 0; the text's length if something is missing at the end.
        end_column: the first column after the error.
    """

    def __init__(
        self,
        message: str,
        source: str,
        column: int,
        end_column: int = 0,
        *,
        help: str | None = None,  # noqa: A002  (as in the base)
    ) -> None:
        super().__init__(message, help=help)
        self.source = source
        self.column = column
        self.end_column = max(end_column, column + 1)

    def __str__(self) -> str:
        left = max(0, min(self.column - _MAX_SHOWN // 2, len(self.source) - _MAX_SHOWN))
        shown = self.source[left : left + _MAX_SHOWN]
        start, end = self.column - left, self.end_column - left
        mark = max(1, cells(printable(shown[start:end])))
        lines = [
            self.message,
            "  |",
            f"  | {printable(shown)}".rstrip(),
            f"  | {' ' * cells(printable(shown[:start]))}{'^' * mark}",
        ]
        if self.help:
            lines.append(f"  = help: {self.help}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Token:
    """One of ``number`` (its ``text`` without the ``unit``), ``name``, ``text`` (in quotes), ``sign`` or ``end``."""

    kind: str
    text: str
    start: int
    end: int
    unit: str = ""


def check_length(text: str) -> None:
    """Raise ConditionError if a text is longer than a condition may be."""
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"a condition has at most {MAX_LENGTH} characters, not {len(text)}", text, MAX_LENGTH)


def tokens(text: str) -> list[Token]:
    """Return the tokens of a condition; the last one is always its ``end``.

    Raises:
        ConditionError: some part is not a token.
    """
    check_length(text)
    scanned: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        at, word = match.start(), match.group()
        if word in ("'", '"'):
            raise ConditionError("a text without its closing quote", text, at, len(text))
        if kind == "other":
            raise ConditionError(f"`{printable(word)}` means nothing here", text, at, help=_FOREIGN.get(word))
        if kind == "unit":
            scanned.append(Token("number", match["number"], at, match.end(), match["unit"]))
        elif kind != "space":
            scanned.append(Token(kind, word, at, match.end()))
    scanned.append(Token("end", "", len(text), len(text)))
    return scanned


def unquoted(text: str) -> str:
    r"""Return the content of a quoted text: without the quotes, and without escaping ``\`` characters."""
    return _ESCAPE.sub(r"\1", text[1:-1])


def quote(text: str) -> str:
    r"""Return a text in quotes, with ``\\`` before quotes and ``\\`` in it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


NAMES: Final = (*FIGURES, *EVENT_TEXTS, *EVENT_NUMBERS)
"""All names that conditions may use."""
COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")
MAX_DEPTH: Final = 20
"""Maximum nesting depth."""
_BINARY: Final = ("and", "or", *COMPARISONS, "+", "-", "*", "/")
_KEYWORDS: Final = ("and", "or", "not")
_UNITS: Final = (*TIME_UNITS, "%")
_MAX_QUOTED: Final = 40
_OF_INSTANCE: Final = tuple(name for name, figure in FIGURES.items() if figure.of_instance is not None)


@dataclass(frozen=True, slots=True)
class Operand:
    """A number, a text in quotes, or a name; its ``text`` is canonical."""

    text: str
    quantity: Quantity
    measure: Measure = field(default=lambda _state, _records: nan, compare=False, repr=False)
    """Returns its number in a state, after an event with these records; NaN = undefined."""
    name: str = ""
    """The name; empty for a number or a text."""
    quoted: str | None = None
    """The content of a quoted text."""


class Syntax:
    """The syntax tree of a text about a cluster with ``instances`` instances.

    Attributes:
        text: what was written.
        tree: consists only of names (each stands for an operand) and operators.
        operands: token number -> operand.
        rest: the first token after the tree; of the kind ``end`` if the tree covers all tokens.

    Raises:
        ConditionError: the text does not even start with an expression.
    """

    def __init__(self, text: str, instances: int) -> None:
        self.text = text
        self.operands: dict[int, Operand] = {}
        self._instances = instances
        self._tokens = tokens(text)
        self._at = 0
        self._read: list[Token] = []
        self._expression()
        self.rest = self._next
        self._source = " ".join("_" if token.kind == "operand" else token.text for token in self._read)
        self.tree = ast.parse(self._source, mode="eval").body

    # ---- positions of nodes ----

    def token_numbers(self, node: ast.expr) -> tuple[int, int]:
        """Return the numbers of a node's first and last token, surrounding parentheses included."""
        first = self._source.count(" ", 0, node.col_offset)
        last = self._source.count(" ", 0, node.end_col_offset)
        around = self._read
        while first > 0 and last + 1 < len(around) and (around[first - 1].text, around[last + 1].text) == ("(", ")"):
            first, last = first - 1, last + 1
        return first, last

    def operand(self, node: ast.Name) -> Operand:
        """Return the operand that a name in the tree stands for."""
        return self.operands[self._source.count(" ", 0, node.col_offset)]

    def quote(self, node: ast.expr) -> str:
        """Return the text of a node for display."""
        first, last = self.token_numbers(node)
        text = printable(self.text[self._read[first].start : self._read[last].end])
        return text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 3] + "..."

    def wrong(self, node: ast.expr, message: str, help: str | None = None) -> ConditionError:  # noqa: A002  (the errors' word)
        """Create an error about a node."""
        first, last = self.token_numbers(node)
        return ConditionError(message, self.text, self._read[first].start, self._read[last].end, help=help)

    def error_after(self, node: ast.expr, message: str, help: str | None = None) -> ConditionError:  # noqa: A002  (as above)
        """Create an error about the operator after a node."""
        return self._error_at(self._read[self.token_numbers(node)[1] + 1], message, help)

    def require_end(self, hint: str) -> None:
        """Raise ConditionError if any token is left."""
        token = self.rest
        if token.kind != "end":
            if token.text in (")", "]"):
                hint = "there is no opening bracket for it"
            elif token.text.lower() in _KEYWORDS:
                hint = f"write `{token.text.lower()}`"
            raise self._error_at(token, f"unexpected `{printable(token.text)}`", hint)

    # ---- reading ----

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _may_negate(self) -> bool:
        """Whether a ``not`` may come next: not as a side of a comparison or calculation."""
        return not self._read or self._read[-1].text in ("(", *_KEYWORDS)

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        self._read.append(token)
        return token

    def _expression(self) -> None:
        """Read operands, operators and brackets as far as possible."""
        opened: list[Token] = []
        while True:
            while self._next.text in ("(", "-") or (self._next.text == "not" and self._may_negate):
                opened.append(self._take())
                if len(opened) > MAX_DEPTH:
                    raise self._error_at(opened[-1], f"more than {MAX_DEPTH} nested conditions")
            self._operand()
            _close(opened, "-")
            while self._next.text == ")" and any(token.text == "(" for token in opened):
                self._take()
                while opened.pop().text != "(":
                    pass
                _close(opened, "-")
            if self._next.text not in _BINARY:
                break
            if self._take().text in ("and", "or"):
                _close(opened, "not")
        for bracket in reversed(opened):
            if bracket.text == "(":
                raise self._error_at(self._next, f"the `(` at column {bracket.start + 1} is never closed")

    def _operand(self) -> None:
        """Read a number, a text or a name."""
        start = self._next
        match start.kind:
            case "number":
                operand = self._number(start)
            case "text":
                quoted = unquoted(start.text)
                operand = Operand(quote(quoted), TEXT, quoted=quoted)
            case "name" if start.text not in _KEYWORDS:
                operand = self._name(start)
            case "end":
                hint = "a number, a name or a condition"
                raise self._error_at(start, f"something is missing after `{self._read[-1].text}`", hint)
            case _:
                raise self._error_at(start, f"unexpected `{start.text}`", "a number or a name is expected here")
        end = self._next.end
        self._at += 1
        self.operands[len(self._read)] = operand
        self._read.append(Token("operand", operand.text, start.start, end))

    def _number(self, token: Token) -> Operand:
        written = float(token.text)
        if isinf(written):
            raise self._error_at(token, "this number is too large")
        if token.unit and token.unit not in _UNITS:
            start = token.end - len(token.unit)
            hint = f"units are {', '.join(f'`{unit}`' for unit in _UNITS)}"
            raise ConditionError(f"unknown unit `{token.unit}`", self.text, start, token.end, help=hint)
        value = written / 100 if token.unit == "%" else written
        text = f"{repr(written).removesuffix('.0')}{token.unit}"
        return Operand(text, of_unit(token.unit, constant=True), lambda _state, _records: value)

    def _name(self, token: Token) -> Operand:
        name = token.text
        bracket = self._tokens[self._at + 1]
        if bracket.text == "[":
            if name == "instance":
                return self._figure_of_instance()
            if name == "request":
                return self._figure_of_request()
            if name in NAMES:
                raise self._error_at(
                    bracket, "unexpected `[`", f"write `instance[0].{name}` for the metric of one instance"
                )
        if name in FIGURES:
            return _figure(name)
        if name in EVENT_NUMBERS:
            number = EVENT_NUMBERS[name]
            return Operand(name, of_unit(number.unit), lambda _state, records: float(number.read(records)), name)
        if name in EVENT_TEXTS:
            return Operand(name, TEXT, name=name)
        request, dot, figure = name.rpartition(".")
        if dot and figure in REQUEST_FIGURES:
            return _of_request(request, figure, name)
        raise self._error_at(token, f"unknown name `{name}`", self._known(token))

    def _figure_of_request(self) -> Operand:
        """Read up to the last token of ``request["NAME"].FIGURE``."""
        self._at += 2
        example = 'such as `request["request_12"].phase`'
        quoted = self._next
        if quoted.kind != "text":
            raise self._error_at(quoted, "the name of a request in quotes is expected here", example)
        for sign, message, hint in (("]", "the `[` is never closed", None), (".", "what of it must follow", example)):
            self._at += 1
            if self._next.text != sign:
                raise self._error_at(self._next, message, hint)
        self._at += 1
        figure = self._next
        if figure.text not in REQUEST_FIGURES:
            message = f"a request has no metric `{printable(figure.text)}`"
            raise self._error_at(figure, message, suggestion(figure.text, tuple(REQUEST_FIGURES)))
        name = unquoted(quoted.text)
        return _of_request(name, figure.text, f"request[{quote(name)}].{figure.text}")

    def _figure_of_instance(self) -> Operand:
        """Read up to the last token of ``instance[N].NAME``."""
        self._at += 2
        number = self._next
        example = "such as `instance[0].waiting`"
        if number.kind != "number" or number.unit or not number.text.isdecimal():
            raise self._error_at(number, "the number of an instance is expected here", example)
        check_instance(int(number.text), self._instances, self.text, number.start, number.end)
        for sign, message, hint in (("]", "the `[` is never closed", None), (".", "a metric must follow", example)):
            self._at += 1
            if self._next.text != sign:
                raise self._error_at(self._next, message, hint)
        self._at += 1
        name = self._next
        if name.text in _OF_INSTANCE:
            return _figure(name.text, int(number.text))
        if name.text in FIGURES:
            raise self._error_at(name, f"`{name.text}` is a metric of the whole cluster", "leave out `instance[...].`")
        message = f"an instance has no metric `{printable(name.text)}`"
        raise self._error_at(name, message, suggestion(name.text, _OF_INSTANCE))

    def _known(self, token: Token) -> str:
        """Suggest what an unknown name may mean."""
        before = [previous.text for previous in self._tokens[max(0, self._at - 2) : self._at]]
        kind = next((candidate for candidate in RECORD_KINDS if self.text.startswith(candidate, token.start)), None)
        if len(before) == 2 and before[0] in EVENT_TEXTS and before[1] in COMPARISONS:
            return f'put the text in quotes: `"{token.text}"`'
        if kind is not None:
            return f'write `kind == "{kind}"`'
        if token.text.lower() in _KEYWORDS:
            return f"write `{token.text.lower()}`"
        family = [name for name in NAMES if name.startswith(f"{token.text}.")]
        return suggestion(token.text, family or NAMES)

    def _error_at(self, token: Token, message: str, help: str | None = None) -> ConditionError:  # noqa: A002  (as above)
        return ConditionError(message, self.text, token.start, token.end, help=help)


def _close(opened: list[Token], text: str) -> None:
    """Remove the latest opened tokens with this text."""
    while opened and opened[-1].text == text:
        opened.pop()


def _figure(name: str, instance: int | None = None) -> Operand:
    text = name if instance is None else f"instance[{instance}].{name}"
    quantity = of_unit(FIGURES[name].unit)
    return Operand(text, quantity, partial(_measured, name, instance), name)


def _of_request(request: str, figure: str, text: str) -> Operand:
    """Return a figure of a request; ``text``: as it is written."""
    known = REQUEST_FIGURES[figure]
    read = known.read

    def measure(state: State, _records: Sequence[Record]) -> float:
        live = state.request(request)
        return 0 if live is None else read(live)

    return Operand(text, known.quantity, measure, text)


def _measured(name: str, instance: int | None, state: State, _records: Sequence[Record]) -> float:
    """Return a figure; NaN for an instance that does not exist yet."""
    try:
        return float(state.figure(name, instance))
    except IndexError:
        return nan


def check_instance(number: int, instances: int, text: str, start: int, end: int) -> None:
    """Raise ConditionError unless the cluster has an instance with that number, written at these columns."""
    if number >= instances:
        known = "the only one is 0" if instances == 1 else f"they are numbered 0 to {instances - 1}"
        raise ConditionError(f"there is no instance {number}", text, start, end, help=known)


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
        return any(name.name in EVENT_TEXTS or name.name in EVENT_NUMBERS for name in self.names)

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of record it depends on."""
        needs: set[str] = set()
        for name in self.names:
            if name.name in EVENT_TEXTS:
                return frozenset(RECORD_KINDS)
            if name.name in EVENT_NUMBERS:
                needs |= EVENT_NUMBERS[name.name].needs
        return frozenset(needs)

    def shown(self, state: State, records: Sequence[Record]) -> str:
        """Format its current value with its unit; ``-`` = undefined."""
        return self.text_of(self.measure(state, records))

    def text_of(self, number: float, *, unit: bool = True) -> str:
        """Format a value, with its unit unless that is known; ``-`` = undefined."""
        if self.quantity == BOOLEAN:
            return "yes" if number else "no"
        if not isfinite(number):
            return "-"
        if self.quantity == PHASE:
            return PHASES[int(number)]
        if self.quantity.dimension == "share":
            return share_text(number)
        text = f"{number:,.0f}" if number == int(number) else f"{number:,.3f}"
        return f"{text} {self.quantity.unit}".rstrip() if unit else text

    def plain_text(self, number: float) -> str:
        """Format a value for other programs: without unit and separators; empty = undefined."""
        if self.quantity in (BOOLEAN, PHASE):
            return self.text_of(number)
        return "" if not isfinite(number) else repr(number).removesuffix(".0")


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
        names = dict.fromkeys(operand for operand in self.syntax.operands.values() if operand.name)
        return Expression(self.whole.text, self.whole.quantity, tuple(names), self.whole.measure)

    def _part(self, node: ast.expr) -> _Part:
        match node:
            case ast.Name():
                operand = self.syntax.operand(node)
                return _Part(node, operand.text, _ATOM, operand.quantity, operand.measure, operand)
            case ast.BoolOp():
                part = self._junction(node, [self._part(value) for value in node.values])
            case ast.UnaryOp(op=ast.Not()):
                part = self._negation(node, self._part(node.operand))
            case ast.UnaryOp(op=ast.USub()):
                part = self._negative(node, self._part(node.operand))
            case ast.Compare():
                part = self._comparison(node, self._part(node.left), self._part(node.comparators[0]))
            case ast.BinOp():
                part = self._arithmetic(node, self._part(node.left), self._part(node.right))
            case _:
                raise TypeError(f"{type(node).__name__} cannot be part of a condition")
        if part.depth > MAX_DEPTH:
            raise self.syntax.wrong(node, f"more than {MAX_DEPTH} nested operations", "make it simpler")
        return part

    # ---- conditions ----

    def require_boolean(self, part: _Part) -> None:
        """Raise ConditionError unless it is a condition."""
        if part.quantity != BOOLEAN:
            quoted = self.syntax.quote(part.node)
            limit = "90%" if part.quantity.dimension == "share" else "0"
            texts = {TEXT: 'kind == "preempted"', PHASE: f'{quoted} == "decode"'}
            example = texts.get(part.quantity, f"{quoted} > {limit}")
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
        if PHASE in (left.quantity, right.quantity):
            measure = self._phase_comparison(sign, left, right)
        elif TEXT in (left.quantity, right.quantity):
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

    def _phase_comparison(self, sign: str, left: _Part, right: _Part) -> Measure:
        phase, other = (left, right) if left.quantity == PHASE else (right, left)
        if sign not in ("==", "!="):
            raise self.syntax.error_after(left.node, "phases cannot be ordered", "compare them with `==` or `!=`")
        wanted = other.quoted
        if wanted is None:
            hint = f'such as `{self.syntax.quote(phase.node)} == "decode"`'
            raise self.syntax.wrong(other.node, "a phase is compared with a text in quotes", hint)
        if wanted not in PHASES:
            message = f"there is no phase `{printable(wanted)}`"
            raise self.syntax.wrong(other.node, message, suggestion(wanted, PHASES))
        read, place, equal = phase.measure, PHASES.index(wanted), sign == "=="
        return lambda state, records: (read(state, records) == place) == equal

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
