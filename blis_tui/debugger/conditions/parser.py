"""From the words of a predicate to its tree: recursive descent, one method for each level of the grammar."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING, Final

from blis_tui.cluster.figures import FIGURES
from blis_tui.debugger.conditions.tree import (
    MAX_DEPTH,
    TIME_UNITS,
    TRUTH,
    Arithmetic,
    Comparison,
    Junction,
    Name,
    Negative,
    Not,
    Number,
    Text,
    combine,
    describe,
    quantity_of,
)
from blis_tui.debugger.conditions.vocabulary import EVENT_NUMBERS, EVENT_TEXTS
from blis_tui.debugger.conditions.words import PredicateError, tokens, unquoted
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.spec.diagnostics import printable, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.debugger.conditions.tree import Node, Quantity
    from blis_tui.debugger.conditions.words import Token

NAMES: Final = (*FIGURES, *EVENT_TEXTS, *EVENT_NUMBERS)
"""Everything a predicate may name."""
COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")
_UNITS: Final = (*TIME_UNITS, "%")
_KEYWORDS: Final = ("and", "or", "not")
_MAX_QUOTED: Final = 40


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that was understood: where it stands, and how many parts lie within each other in it."""

    node: Node
    start: int
    end: int
    depth: int = 1

    @property
    def quantity(self) -> Quantity:
        return quantity_of(self.node)


class Parser:
    """Reads one predicate about a cluster of so many instances."""

    def __init__(self, text: str, instances: int) -> None:
        self._text = text
        self._instances = instances
        self._tokens = tokens(text)
        self._at = 0
        self._open = 0

    def parse(self) -> Node:
        """The tree of the whole text. Raises PredicateError when it is no condition."""
        if self._next.kind == "end":
            raise self._error("there is no condition", self._next, help="write one, such as `kv.utilization > 90%`")
        part = self._disjunction()
        self._require_truth(part)
        self._require_end("join two conditions with `and` or `or`")
        return part.node

    def parse_number(self) -> Node:
        """The tree of the whole text. Raises PredicateError when it is no number."""
        if self._next.kind == "end":
            raise self._error("there is no figure", self._next, help="write one, such as `kv.utilization`")
        part = self._sum()
        if part.quantity.dimension in ("truth", "text"):
            raise self._wrong(part, f"`{self._quote(part)}` is {part.quantity}, not a number")
        self._require_end("only one figure is expected here")
        return part.node

    def _require_end(self, hint: str) -> None:
        token = self._next
        if token.kind != "end":
            if token.text in (")", "]"):
                hint = "there is no opening bracket for it"
            elif token.text.lower() in _KEYWORDS:
                hint = f"write `{token.text.lower()}`"
            raise self._error(f"unexpected `{printable(token.text)}`", token, help=hint)

    # ---- conditions ----

    def _disjunction(self) -> _Part:
        return self._junction("or", self._conjunction)

    def _conjunction(self) -> _Part:
        return self._junction("and", self._negation)

    def _junction(self, op: str, operand: Callable[[], _Part]) -> _Part:
        first = operand()
        parts = [first]
        while self._accept(op):
            parts.append(operand())
        if len(parts) == 1:
            return first
        nodes: list[Node] = []
        for part in parts:
            self._require_truth(part)
            node = part.node
            nodes += node.parts if isinstance(node, Junction) and node.op == op else [node]
        return self._around(Junction(op, tuple(nodes)), *parts)

    def _negation(self) -> _Part:
        token = self._next
        if not self._accept("not"):
            return self._comparison()
        of = self._deeper(token, self._negation)
        self._require_truth(of)
        return self._around(Not(of.node), of, start=token.start)

    def _comparison(self) -> _Part:
        left = self._sum()
        op = self._next
        if not self._accept(*COMPARISONS):
            return left
        right = self._sum()
        self._check_comparison(left, op, right)
        found = Comparison(op.text, left.node, right.node)
        another = self._next
        if another.kind == "sign" and another.text in COMPARISONS:
            hint = f"write `{describe(found)} and {describe(right.node)} {another.text} ...`"
            raise self._error("comparisons do not chain", another, help=hint)
        return self._around(found, left, right)

    def _check_comparison(self, left: _Part, op: Token, right: _Part) -> None:
        a, b = left.quantity, right.quantity
        for part, quantity in ((left, a), (right, b)):
            if quantity == TRUTH:
                raise self._wrong(part, "a condition cannot be compared", help="join it with `and`, `or`, `not`")
        if "text" in (a.dimension, b.dimension):
            self._check_texts(left, op, right)
        elif combine(op.text, a, b) is None:
            raise self._wrong(
                right,
                f"`{self._quote(left)}` is {a} and `{self._quote(right)}` is {b}: they cannot be compared",
                help=_remedy(a, b),
            )

    def _check_texts(self, left: _Part, op: Token, right: _Part) -> None:
        literal, other = (left, right) if isinstance(left.node, Text) else (right, left)
        if not isinstance(literal.node, Text):
            text, wrong = (left, right) if left.quantity.dimension == "text" else (right, left)
            name = self._quote(text)
            raise self._wrong(wrong, f"`{name}` is compared with a text in quotes", help=f'such as `{name} == "..."`')
        if not (isinstance(other.node, Name) and other.node.name in EVENT_TEXTS):
            raise self._wrong(other, "only `kind` and `request` are compared with texts")
        if op.text not in ("==", "!="):
            raise self._error("texts cannot be ordered", op, help="compare them with `==` or `!=`")
        wanted = literal.node.value
        if other.node.name == "kind" and wanted not in RECORD_KINDS:
            message = f"there is no record kind `{printable(wanted)}`"
            raise self._wrong(literal, message, help=suggestion(wanted, RECORD_KINDS))

    def _require_truth(self, part: _Part) -> None:
        if part.quantity != TRUTH:
            quoted = self._quote(part)
            if part.quantity.dimension == "text":
                hint = 'compare it, such as `kind == "preempted"`'
            else:
                hint = f"compare it, such as `{quoted} > {'90%' if part.quantity.dimension == 'share' else '0'}`"
            raise self._wrong(part, f"`{quoted}` alone is not a condition", help=hint)

    # ---- numbers ----

    def _sum(self) -> _Part:
        return self._chain(self._product, "+", "-")

    def _product(self) -> _Part:
        return self._chain(self._signed, "*", "/")

    def _chain(self, operand: Callable[[], _Part], *ops: str) -> _Part:
        left = operand()
        op = self._next
        while self._accept(*ops):
            right = operand()
            for part in (left, right):
                if part.quantity.dimension in ("truth", "text"):
                    raise self._wrong(part, f"`{op.text}` needs numbers, this is {part.quantity}")
            if combine(op.text, left.quantity, right.quantity) is None:
                a, b = f"`{self._quote(left)}` is {left.quantity}", f"`{self._quote(right)}` is {right.quantity}"
                raise self._error(f"{a} and {b}: `{op.text}` does not apply to them", op)
            left = self._around(Arithmetic(op.text, left.node, right.node), left, right)
            op = self._next
        return left

    def _signed(self) -> _Part:
        token = self._next
        if not self._accept("-"):
            return self._operand()
        of = self._deeper(token, self._signed)
        if of.quantity.dimension in ("truth", "text"):
            raise self._wrong(of, f"`-` needs a number, this is {of.quantity}")
        return self._around(Negative(of.node), of, start=token.start)

    def _operand(self) -> _Part:
        token = self._next
        match token.kind:
            case "number":
                self._at += 1
                return _Part(self._number(token), token.start, token.end)
            case "text":
                self._at += 1
                return _Part(Text(unquoted(token.text)), token.start, token.end)
            case "name" if token.text not in _KEYWORDS:
                return self._name(token)
            case "sign" if self._accept("("):
                inner = self._deeper(token, self._disjunction)
                end = self._next.end
                self._expect(")", f"the `(` at column {token.start + 1} is never closed")
                return _Part(inner.node, token.start, end, inner.depth)
            case "end":
                before = f" after `{self._tokens[self._at - 1].text}`" if self._at else ""
                raise self._error(f"something is missing{before}", token, help="a number, a name or a condition")
            case _:
                raise self._error(f"unexpected `{token.text}`", token, help="a number or a name is expected here")

    def _number(self, token: Token) -> Number:
        value = float(token.text)
        if isinf(value):
            raise self._error("this number is too large", token)
        if token.unit and token.unit not in _UNITS:
            start = token.end - len(token.unit)
            hint = f"units are {', '.join(f'`{unit}`' for unit in _UNITS)}"
            raise PredicateError(f"unknown unit `{token.unit}`", self._text, start, token.end, help=hint)
        return Number(value, token.unit)

    def _name(self, token: Token) -> _Part:
        self._at += 1
        bracket = self._next.text == "["
        if token.text == "instance" and bracket:
            return self._figure_of_instance(token)
        if token.text not in NAMES:
            raise self._unknown(token)
        if bracket:
            hint = f"write `instance[0].{token.text}` for the figure of one instance"
            raise self._error("unexpected `[`", self._next, help=hint)
        return _Part(Name(token.text), token.start, token.end)

    def _figure_of_instance(self, start: Token) -> _Part:
        self._expect("[", "")
        number = self._next
        if number.kind != "number" or number.unit or not number.text.isdecimal():
            raise self._error(
                "the number of an instance is expected here", number, help="such as `instance[0].waiting`"
            )
        check_instance(int(number.text), self._instances, self._text, number.start, number.end)
        self._at += 1
        self._expect("]", "the `[` is never closed")
        self._expect(".", "a figure must follow", help="such as `instance[0].waiting`")
        name = self._next
        known = [figure.name for figure in FIGURES.values() if figure.of_instance is not None]
        if name.text in FIGURES and name.text not in known:
            raise self._error(
                f"`{name.text}` is a figure of the whole cluster", name, help="leave out `instance[...].`"
            )
        if name.text not in known:
            hint = suggestion(name.text, known)
            raise self._error(f"an instance has no figure `{printable(name.text)}`", name, help=hint)
        self._at += 1
        return _Part(Name(name.text, int(number.text)), start.start, name.end)

    def _unknown(self, token: Token) -> PredicateError:
        before = [one.text for one in self._tokens[max(0, self._at - 3) : self._at - 1]]
        kind = next((one for one in RECORD_KINDS if self._text.startswith(one, token.start)), None)
        if len(before) == 2 and before[0] in EVENT_TEXTS and before[1] in COMPARISONS:
            hint = f'put the text in quotes: `"{token.text}"`'
        elif kind is not None:
            hint = f'write `kind == "{kind}"`'
        elif token.text.lower() in _KEYWORDS:
            hint = f"write `{token.text.lower()}`"
        else:
            family = [name for name in NAMES if name.startswith(f"{token.text}.")]
            hint = suggestion(token.text, family or NAMES)
        return self._error(f"unknown name `{token.text}`", token, help=hint)

    # ---- tools ----

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _accept(self, *texts: str) -> bool:
        """Take the next word if it is one of these operators."""
        token = self._next
        found = token.kind in ("sign", "name") and token.text in texts
        self._at += found
        return found

    def _expect(self, text: str, message: str, help: str | None = None) -> None:  # noqa: A002  (the errors' word)
        if not self._accept(text):
            raise self._error(message, self._next, help=help)

    def _deeper(self, token: Token, read: Callable[[], _Part]) -> _Part:
        """Read what lies within something; not without limits, because the reader calls itself."""
        self._open += 1
        if self._open > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} nested conditions", token)
        part = read()
        self._open -= 1
        return part

    def _around(self, node: Node, *parts: _Part, start: int | None = None) -> _Part:
        """A part made of others."""
        begin = parts[0].start if start is None else start
        found = _Part(node, begin, parts[-1].end, 1 + max(part.depth for part in parts))
        if found.depth > MAX_DEPTH:
            raise self._wrong(found, f"more than {MAX_DEPTH} nested operations", help="make it simpler")
        return found

    def _quote(self, part: _Part) -> str:
        text = printable(self._text[part.start : part.end])
        return text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 3] + "..."

    def _error(self, message: str, token: Token, help: str | None = None) -> PredicateError:  # noqa: A002  (as above)
        return PredicateError(message, self._text, token.start, token.end, help=help)

    def _wrong(self, part: _Part, message: str, help: str | None = None) -> PredicateError:  # noqa: A002  (as above)
        return PredicateError(message, self._text, part.start, part.end, help=help)


def check_instance(number: int, instances: int, text: str, start: int, end: int) -> None:
    """Raise PredicateError unless the cluster has an instance of that number, written at these columns."""
    if number >= instances:
        known = "the only one is 0" if instances == 1 else f"they are numbered 0 to {instances - 1}"
        raise PredicateError(f"there is no instance {number}", text, start, end, help=known)


def _remedy(a: Quantity, b: Quantity) -> str | None:
    """What to do about two quantities that do not go together."""
    if {a.dimension, b.dimension} == {"share", "count"}:
        return "a share is written as a division, such as `kv.used / kv.total`"
    return None
