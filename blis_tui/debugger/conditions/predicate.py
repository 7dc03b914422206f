"""Conditions that a person writes, such as ``kv.utilization > 90% and instance[0].waiting > 10``.

From loose to tight::

    or    and    not    < <= > >= == !=    + -    * /    -

and within them numbers (``3``, ``1.5s``, ``250ms``, ``300us``, ``90%``), texts in quotes, names,
``instance[0].NAME`` for the figure of one instance, and parentheses. What goes together is checked before anything
runs: times with times, shares with shares, counts with counts, a plain number with everything (in the other's unit).

A comparison is false where one side does not exist: a division by zero, or a fact that the event does not have.
``kind`` and ``request`` have one value for each record of the event: ``==`` asks whether any of them is the text,
``!=`` whether none is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.cluster.figures import FIGURES
from blis_tui.debugger.conditions.compiling import compile_truth
from blis_tui.debugger.conditions.parser import Parser
from blis_tui.debugger.conditions.tree import describe, names_in
from blis_tui.debugger.conditions.vocabulary import EVENT_NUMBERS, EVENT_TEXTS
from blis_tui.debugger.conditions.words import PredicateError
from blis_tui.engine.records import RECORD_KINDS

if TYPE_CHECKING:
    from blis_tui.debugger.conditions.compiling import Truth
    from blis_tui.debugger.conditions.tree import Name, Node

__all__ = ["Predicate", "PredicateError", "parse_predicate"]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that was understood. Its ``str()`` is canonical: it parses to an equal predicate."""

    tree: Node

    def __str__(self) -> str:
        return describe(self.tree)

    @property
    def names(self) -> tuple[Name, ...]:
        """What it names, each once, in order."""
        return tuple(dict.fromkeys(names_in(self.tree)))

    @property
    def about_event(self) -> bool:
        """Whether it asks about the event itself, and not only about the state after it."""
        return any(name.name not in FIGURES for name in self.names)

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of record it looks at."""
        found: set[str] = set()
        for name in self.names:
            if name.name in EVENT_TEXTS:
                return frozenset(RECORD_KINDS)
            if name.name in EVENT_NUMBERS:
                found |= EVENT_NUMBERS[name.name].needs
        return frozenset(found)

    def compile(self) -> Truth:
        """The condition as a function of the state and the records of the event that led to it."""
        return compile_truth(self.tree)


def parse_predicate(text: str, *, instances: int) -> Predicate:
    """Understand a condition on a cluster of so many instances.

    Raises:
        PredicateError: it is none.
    """
    return Predicate(Parser(text, instances).parse())
