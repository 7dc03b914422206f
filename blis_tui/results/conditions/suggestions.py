"""Completions for a breakpoint that is being typed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.cluster.state import FIGURES
from blis_tui.engine.records import RECORD_KINDS, described
from blis_tui.results.conditions.breakpoints import CHANGE, FIRST, KEYWORDS
from blis_tui.results.conditions.language import COMPARISONS
from blis_tui.results.conditions.vocabulary import EVENT_NUMBERS, EVENT_TEXTS, TIME_UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.state import Figure
    from blis_tui.model import Experiment
    from blis_tui.results.conditions.vocabulary import EventNumber

_TYPED: Final = re.compile(r"""[A-Za-z0-9_.\-]*(?:\[[0-9]*\]?)?[A-Za-z0-9_.\-]*\Z""")
_INSTANCE: Final = re.compile(r"instance\[([0-9]+)\]\.")
_KIND_TEXT: Final = re.compile(r"\bkind\s*[=!]=\s*(['\"]?)\Z")
_BEFORE_OPERAND: Final = re.compile(r"(?:(?:^|\b)(?:and|or|not)|[-<>=+*/(])\s*\Z")
_AFTER_NAME: Final = re.compile(r"[A-Za-z_\]][A-Za-z0-9_.]*\s+\Z")
_OPERATOR_START: Final = tuple("<>=!+-*/()[].")
_MAX_INSTANCES: Final = 16
"""Maximum number of instances offered by number."""

Word = tuple[str, str]
"""A word and its meaning."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A possible completion."""

    text: str
    """The whole input with the word completed."""
    word: str
    meaning: str


def suggestions(text: str, experiment: Experiment) -> tuple[Suggestion, ...]:
    """Return completions of the last word of ``text``, or possible next words.

    Keywords and figures are in the order of their tables, kinds of records by name: plug-ins may add some at any time.
    """
    match = _TYPED.search(text)
    typed = "" if match is None else match.group()
    head = text[: len(text) - len(typed)]
    meanings: dict[str, str] = {}
    for word, meaning in _candidates(head, typed, experiment):
        meanings.setdefault(word, meaning)  # some words are both keywords and names
    return tuple(
        Suggestion(head + word, word, meaning)
        for word, meaning in meanings.items()
        if word.startswith(typed) and word != typed
    )


def _candidates(head: str, typed: str, experiment: Experiment) -> Iterator[Word]:
    words = head.split()
    if not words:
        yield from ((word, keyword.meaning) for word, keyword in KEYWORDS.items())
        yield from _kinds()
        yield from _names(typed)
        return
    if words == [CHANGE]:
        yield from _names(typed)
        return
    rest = head.lstrip()[len(words[0]) :].lstrip()
    if words[0] in KEYWORDS and not rest.startswith(_OPERATOR_START):
        yield from _after_keyword(words, experiment)
        return
    quote = _KIND_TEXT.search(head)
    if quote is not None:
        mark = "" if quote[1] else '"'
        yield from ((f"{mark}{kind}{mark or quote[1]}", meaning) for kind, meaning in _kinds())
    elif _BEFORE_OPERAND.search(head):
        yield from _names(typed)
    elif _AFTER_NAME.search(head):
        yield from ((sign, "compare") for sign in COMPARISONS)
    else:
        yield from (("and", "both conditions"), ("or", "one of the conditions, or both"))


def _after_keyword(words: list[str], experiment: Experiment) -> Iterator[Word]:
    match words:
        case ["first"]:
            yield from ((word, described(kind).meaning) for word, kind in FIRST.items())
            yield "slo-miss", KEYWORDS["slo-miss"].meaning
            yield from _kinds()
        case ["instance"]:
            yield from ((str(number), "an instance") for number in range(experiment.instances)[:_MAX_INSTANCES])
        case ["instance" | "request", _]:
            yield from _kinds()
        case ["slo-miss"] | ["slo-miss", _, _] | ["first", "slo-miss"] | ["first", "slo-miss", _, _]:
            yield "ttft", "a bound of the time to first token"
            yield "e2e", "a bound of the end-to-end time"
        case _:
            return


def _kinds() -> Iterator[Word]:
    return ((kind, RECORD_KINDS[kind].shown.meaning) for kind in sorted(RECORD_KINDS))


def _names(typed: str) -> Iterator[Word]:
    yield from ((name, _with_unit(figure)) for name, figure in FIGURES.items())
    yield from ((name, _with_unit(number)) for name, number in EVENT_NUMBERS.items())
    yield from ((name, text.meaning) for name, text in EVENT_TEXTS.items())
    of_instance = _INSTANCE.match(typed)
    prefix = of_instance.group() if of_instance else "instance[0]."
    for name, figure in FIGURES.items():
        if figure.of_instance is not None:
            yield prefix + name, _with_unit(figure)


def _with_unit(number: Figure | EventNumber) -> str:
    return f"{number.meaning}, in {number.unit}" if number.unit in TIME_UNITS else number.meaning
