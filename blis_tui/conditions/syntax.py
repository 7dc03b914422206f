"""Parses a text with Python's grammar: numbers with units, texts and names become operands of a Python syntax tree.

Tokens are read from left to right, which locates errors in their order and in operands. The rest is Python source with
exactly one blank between tokens. The number of blanks before a node's column is thus the number of its first token,
which gives every node's place in the text.
"""

from __future__ import annotations

import ast
from dataclasses import field
from functools import partial
from math import isinf, nan
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.classes import dataclass
from blis_tui.cluster.figures import FIGURES
from blis_tui.conditions.lexer import ConditionError, Token, tokens, unquoted
from blis_tui.conditions.vocabulary import EVENT_NUMBERS, EVENT_TEXTS, TEXT, TIME_UNITS, Quantity, of_unit
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.printable import printable
from blis_tui.spec.diagnostics import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.conditions.vocabulary import State
    from blis_tui.engine.records import Record

    Measure: TypeAlias = Callable[[State, Sequence[Record]], float]

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
        self._source = " ".join("_" if one.kind == "operand" else one.text for one in self._read)
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
            while self._next.text == ")" and any(one.text == "(" for one in opened):
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
                found = self._number(start)
            case "text":
                quoted = unquoted(start.text)
                shown = '"' + quoted.replace("\\", "\\\\").replace('"', '\\"') + '"'
                found = Operand(shown, TEXT, quoted=quoted)
            case "name" if start.text not in _KEYWORDS:
                found = self._name(start)
            case "end":
                hint = "a number, a name or a condition"
                raise self._error_at(start, f"something is missing after `{self._read[-1].text}`", hint)
            case _:
                raise self._error_at(start, f"unexpected `{start.text}`", "a number or a name is expected here")
        end = self._next.end
        self._at += 1
        self.operands[len(self._read)] = found
        self._read.append(Token("operand", found.text, start.start, end))

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
        raise self._error_at(token, f"unknown name `{name}`", self._known(token))

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
        before = [one.text for one in self._tokens[max(0, self._at - 2) : self._at]]
        kind = next((one for one in RECORD_KINDS if self.text.startswith(one, token.start)), None)
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
