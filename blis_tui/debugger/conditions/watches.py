"""Figures that somebody wants to see all the time: ``kv.utilization``, ``waiting + running``, ``waiting > 3``."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from blis_tui.debugger.conditions.compiling import compile_measure
from blis_tui.debugger.conditions.parser import Parser
from blis_tui.debugger.conditions.predicate import Predicate
from blis_tui.debugger.conditions.tree import describe, quantity_of
from blis_tui.debugger.conditions.words import PredicateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.conditions.tree import Node
    from blis_tui.debugger.conditions.vocabulary import State
    from blis_tui.engine.records import Record
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True)
class WatchExpression:
    """A number or a condition; its text is canonical."""

    tree: Node
    is_condition: bool

    def __str__(self) -> str:
        return describe(self.tree)

    def value(self, state: State, records: Sequence[Record]) -> str:
        """What it is at present, as text with its unit; ``-`` where it does not exist."""
        if self.is_condition:
            return "yes" if Predicate(self.tree).compile()(state, records) else "no"
        number = compile_measure(self.tree)(state, records)
        if not isfinite(number):
            return "-"
        unit = quantity_of(self.tree).unit
        if quantity_of(self.tree).dimension == "share":
            return f"{100 * number:.1f} %"
        text = f"{number:,.0f}" if number == int(number) else f"{number:,.3f}"
        return f"{text} {unit}".rstrip()


def parse_watch(text: str, experiment: Experiment) -> WatchExpression:
    """Understand a watch.

    Raises:
        PredicateError: it is neither a number nor a condition.
    """
    instances = experiment.instances
    try:
        return WatchExpression(Parser(text, instances).parse(), is_condition=True)
    except PredicateError as condition:
        try:
            return WatchExpression(Parser(text, instances).parse_number(), is_condition=False)
        except PredicateError as number:
            # The reading that got further knows better what is wrong.
            raise (number if number.column >= condition.column else condition) from None
