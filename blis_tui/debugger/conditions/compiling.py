"""Predicates as functions: what runs after every event, so nothing is looked up or decided twice."""

from __future__ import annotations

import operator
from math import nan
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.cluster.figures import FIGURES
from blis_tui.debugger.conditions.tree import (
    TIME_UNITS,
    Arithmetic,
    Comparison,
    Junction,
    Name,
    Negative,
    Not,
    Number,
    Text,
    common_unit,
    describe,
    quantity_of,
)
from blis_tui.debugger.conditions.vocabulary import EVENT_NUMBERS, EVENT_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.debugger.conditions.tree import Node
    from blis_tui.debugger.conditions.vocabulary import State
    from blis_tui.engine.records import Record

    Measure: TypeAlias = Callable[[State, Sequence[Record]], float]
    Truth: TypeAlias = Callable[[State, Sequence[Record]], bool]


def _differs(a: float, b: float) -> bool:
    """``!=``, but false when one of the two does not exist (NaN)."""
    return a < b or a > b


_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": _differs,
}


def _divide(a: float, b: float) -> float:
    return a / b if b else nan


_COMPUTE: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}


def compile_truth(node: Node) -> Truth:
    """A condition as a function of the state and the records of the event that led to it."""
    match node:
        case Not():
            negated = compile_truth(node.of)
            return lambda state, records: not negated(state, records)
        case Junction():
            parts = tuple(map(compile_truth, node.parts))
            return _all_of(parts) if node.op == "and" else _any_of(parts)
        case Comparison() if quantity_of(node.left).dimension == "text":
            return _compile_text(node)
        case Comparison():
            return _compile_comparison(node)
        case _:
            raise TypeError(f"`{describe(node)}` is not a condition")


def _all_of(parts: Sequence[Truth]) -> Truth:
    def holds(state: State, records: Sequence[Record]) -> bool:
        for part in parts:  # noqa: SIM110  (twice as fast as a generator; this runs after every event)
            if not part(state, records):
                return False
        return True

    return holds


def _any_of(parts: Sequence[Truth]) -> Truth:
    def holds(state: State, records: Sequence[Record]) -> bool:
        for part in parts:  # noqa: SIM110  (as above)
            if part(state, records):
                return True
        return False

    return holds


def _compile_text(node: Comparison) -> Truth:
    name, text = (node.left, node.right) if isinstance(node.left, Name) else (node.right, node.left)
    if not isinstance(name, Name) or not isinstance(text, Text):
        raise TypeError(f"`{describe(node)}` does not compare a name with a text")
    fits = EVENT_TEXTS[name.name].fits
    wanted = text.value
    equal = node.op == "=="

    def holds(state: State, records: Sequence[Record]) -> bool:  # noqa: ARG001  (every condition takes both)
        for record in records:
            if fits(record, wanted):
                return equal
        return not equal

    return holds


def _compile_comparison(node: Comparison) -> Truth:
    compare = _COMPARE[node.op]
    left, right = _in_one_unit(node)
    if quantity_of(node.right).constant:
        # The ordinary case: a figure against a number.
        limit = right(_NO_STATE, ())
        return lambda state, records: compare(left(state, records), limit)
    return lambda state, records: compare(left(state, records), right(state, records))


def _in_one_unit(node: Arithmetic | Comparison) -> tuple[Measure, Measure]:
    """Both sides as functions; two times in the same unit."""
    left, right = quantity_of(node.left), quantity_of(node.right)
    unit = common_unit(left, right)
    measures = []
    for side, quantity in ((node.left, left), (node.right, right)):
        measure = compile_measure(side)
        if left.dimension == right.dimension == "time" and node.op != "*" and quantity.unit != unit:
            measure = _scaled(measure, TIME_UNITS[quantity.unit], TIME_UNITS[unit])
        measures.append(measure)
    return measures[0], measures[1]


def _scaled(measure: Measure, numerator: int, denominator: int) -> Measure:
    # One multiplication and one division, either of them by 1: exact wherever the figures themselves are.
    return lambda state, records: measure(state, records) * numerator / denominator


def compile_measure(node: Node) -> Measure:
    """A number as a function of the state and the records of the event that led to it; NaN where it does not exist."""
    match node:
        case Number():
            value = node.value / 100 if node.unit == "%" else node.value
            return lambda state, records: value  # noqa: ARG005  (every number takes both)
        case Name() if node.name in FIGURES:
            name, instance = node.name, node.instance
            return lambda state, records: float(state.figure(name, instance))  # noqa: ARG005  (as above)
        case Name():
            read = EVENT_NUMBERS[node.name].read
            return lambda state, records: float(read(records))  # noqa: ARG005  (as above)
        case Negative():
            positive = compile_measure(node.of)
            return lambda state, records: -positive(state, records)
        case Arithmetic():
            compute = _COMPUTE[node.op]
            left, right = _in_one_unit(node)
            return lambda state, records: compute(left(state, records), right(state, records))
        case _:
            raise TypeError(f"`{describe(node)}` is not a number")


class _NoState:
    """Knows no figure: constants need none."""

    def figure(self, name: str, instance: int | None = None) -> float:
        """Never asked."""
        raise TypeError(f"a constant asks for {name} of {instance}")


_NO_STATE: Final = _NoState()
