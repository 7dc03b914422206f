"""Breakpoints as people write them, and the watch that checks for them after every event."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.classes import dataclass
from blis_tui.conditions.expression import parse_condition
from blis_tui.conditions.lexer import ConditionError, check_length, unquoted
from blis_tui.conditions.probes import Breaks, Holds, Misses, Reaches, RecordMatch, Sends
from blis_tui.conditions.syntax import NAMES, check_instance
from blis_tui.conditions.vocabulary import TIME_UNITS
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.printable import printable
from blis_tui.spec.diagnostics import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from blis_tui.conditions.probes import Condition, ObservedSimulation
    from blis_tui.engine.records import Record
    from blis_tui.spec.model import Expectation


class Known(Protocol):
    """What breakpoints may refer to: an experiment."""

    @property
    def instance_numbers(self) -> int:
        """Upper bound on instance numbers: all are below it."""

    @property
    def expect(self) -> tuple[Expectation, ...]:
        """Bounds on the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakpoint:
    """A breakpoint as the user asked for it."""

    text: str
    """The text as written."""
    condition: Condition
    enabled: bool = True
    once: bool = False
    """Whether its owner disables it after one hit."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A hit of a breakpoint."""

    breakpoint: Breakpoint
    sentence: str
    """The reason, such as ``kv.utilization > 0.9 became true (0.93)``."""


class Watch:
    """Checks for breakpoints after every event of a simulation.

    Attributes:
        needs: the kinds of record that it must be shown; other kinds may be left out.
    """

    def __init__(self, breakpoints: Iterable[Breakpoint]) -> None:
        self._probes = tuple((one.condition.probe(), one) for one in breakpoints if one.enabled)
        self.needs = frozenset[str]().union(*(one.condition.needs for _, one in self._probes))

    def __bool__(self) -> bool:
        return bool(self._probes)

    def reset(self, simulation: ObservedSimulation) -> None:
        """Start from the simulation's current state: what already holds there is not a hit."""
        for probe, _ in self._probes:
            probe.reset(simulation)

    def check(self, simulation: ObservedSimulation, records: Sequence[Record]) -> tuple[Hit, ...]:
        """Return the hits of the event just processed, given its records."""
        hits: tuple[Hit, ...] = ()
        for probe, one in self._probes:
            sentence = probe.check(simulation, records)
            if sentence:
                hits = (*hits, Hit(one, sentence))
        return hits


# ---- the syntax of breakpoints ----


def about_request(name: str) -> str:
    """Return the breakpoint for a request, as a user would write it."""
    return f"request {_written(name)}"


def about_session(name: str) -> str:
    """Return the breakpoint for a session, as a user would write it."""
    return f"session {_written(name)}"


def _written(name: str) -> str:
    """Write a name for use in a breakpoint, quoted if necessary."""
    quoted = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
    return name if _PLAIN_NAME.fullmatch(name) else quoted


_WORD: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|\S+', re.DOTALL)
_DURATION: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(us|ms|s)")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_OPERATORS: Final = tuple("<>=!+-*/()[].&|")

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:#@-]*")

FIRST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "preemption": "preempted",
        "drop": "dropped",
        "timeout": "timed-out",
        "rejection": "rejected",
        "completion": "completed",
    }
)
"""Words that can follow ``first``, besides ``slo-miss`` and the kinds of record, and the kinds they mean."""

_STRICTNESS: Final = ("max", "p99", "p95", "p90", "p50", "mean")
"""Latency statistics; the first bounded one in this order serves as the bound for a single request."""


def duration_us(text: str) -> float:
    """Parse a time such as ``1.5s`` or ``250ms`` to microseconds. Raises ValueError if invalid."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is not a time with a unit")
    return float(match[1]) * TIME_UNITS[match[2]]


class _Reader:
    """Reads the words after a keyword one by one."""

    def __init__(self, text: str, words: Sequence[re.Match[str]], experiment: Known) -> None:
        self.text = text
        self.experiment = experiment
        self._words = words
        self._at = 1

    def take(self, what: str, example: str) -> re.Match[str]:
        """Return the next word, which must exist."""
        word = self.optional()
        if word is None:
            raise ConditionError(f"{what} is missing", self.text, len(self.text), help=f"such as `{example}`")
        return word

    def optional(self) -> re.Match[str] | None:
        """Return the next word, if any."""
        if self._at == len(self._words):
            return None
        self._at += 1
        return self._words[self._at - 1]

    def kind(self) -> str:
        """Read the next word as a kind of record; empty = there is none."""
        word = self.optional()
        if word is None:
            return ""
        kind = word.group()
        if kind not in RECORD_KINDS:
            raise self.error(word, f"there is no record kind `{printable(kind)}`", suggestion(kind, RECORD_KINDS))
        return kind

    def duration_us(self, example: str) -> tuple[float, str]:
        """Read the next word as a time; return microseconds and the text."""
        word = self.take("a time", example)
        try:
            return duration_us(word.group()), word.group()
        except ValueError as error:
            message = f"write one in us, ms or s, such as `{example}`"
            raise self.error(word, printable(str(error)), message) from error

    def finish(self) -> None:
        """Check that no word is left."""
        word = self.optional()
        if word is not None:
            raise self.error(word, f"unexpected `{printable(word.group())}`", "nothing more is expected here")

    def error(self, word: re.Match[str], message: str, help: str) -> ConditionError:  # noqa: A002  (the errors' word)
        """Create an error about a word."""
        return ConditionError(message, self.text, word.start(), word.end(), help=help)


def _first(reader: _Reader) -> Condition:
    word = reader.take("what to wait for", "first preemption")
    what = word.group()
    if what == "slo-miss":
        return _slo_miss(reader)
    kind = FIRST.get(what, what)
    if kind not in RECORD_KINDS:
        hint = suggestion(what, (*FIRST, "slo-miss", *RECORD_KINDS))
        raise reader.error(word, f"`first` does not support `{printable(what)}`", hint)
    return RecordMatch(kind)


def _request(reader: _Reader) -> Condition:
    return RecordMatch(request=_name(reader, "the name of a request", "request request_12"), kind=reader.kind())


def _session(reader: _Reader) -> Condition:
    return Sends(_name(reader, "the name of a session", "session chat-0"))


def _name(reader: _Reader, what: str, example: str) -> str:
    name = reader.take(what, example).group()
    quoted = len(name) > 1 and name[0] == name[-1] and name[0] in "\"'"
    return unquoted(name) if quoted else name


def _instance(reader: _Reader) -> Condition:
    word = reader.take("the number of an instance", "instance 0")
    number = _whole_number(reader, word, "instance 0")
    check_instance(number, reader.experiment.instance_numbers, reader.text, word.start(), word.end())
    return RecordMatch(instance=number, kind=reader.kind())


def _time(reader: _Reader) -> Condition:
    time_us, text = reader.duration_us("time 1.5s")
    return Reaches("time_us", time_us, f"time {text}")


def _event(reader: _Reader) -> Condition:
    word = reader.take("the number of an event", "event 1234")
    number = _whole_number(reader, word, "event 1234")
    return Reaches("event", number, f"event {number:,}")


def _invariant(reader: _Reader) -> Condition:  # noqa: ARG001  (the signature of all readers)
    return Breaks()


def _slo_miss(reader: _Reader) -> Condition:
    bounds: dict[str, float] = {}
    while (word := reader.optional()) is not None:
        latency = word.group()
        if latency not in ("ttft", "e2e"):
            message = f"`{printable(latency)}` is not a latency of a request"
            raise reader.error(word, message, "write `ttft` (time to first token) or `e2e` (end to end)")
        if latency in bounds:
            raise reader.error(word, f"a second bound of `{latency}`", "remove one of them")
        bounds[latency] = reader.duration_us(f"slo-miss {latency} 250ms")[0]
    if bounds:
        return Misses(bounds.get("ttft"), bounds.get("e2e"))
    expected = Misses(_expected_us(reader.experiment, "ttft_ms"), _expected_us(reader.experiment, "e2e_ms"))
    if not expected.needs:
        raise ConditionError(
            "the experiment expects no maximum of `latency.ttft_ms` or `latency.e2e_ms`",
            reader.text,
            0,
            len(reader.text),
            help="name a bound, such as `slo-miss ttft 250ms`",
        )
    return expected


def _expected_us(experiment: Known, latency: str) -> float | None:
    """The bound that the experiment's ``expect:`` sets on a latency, in microseconds; None = there is none."""
    bounds = {one.metric: one.max for one in experiment.expect if one.max is not None}
    for statistic in _STRICTNESS:
        bound = bounds.get(f"latency.{latency}.{statistic}")
        if bound is not None:
            return bound * 1e3
    return None


def _whole_number(reader: _Reader, word: re.Match[str], example: str) -> int:
    text = word.group()
    if not (text.isascii() and text.isdecimal()):
        raise reader.error(word, f"`{printable(text)}` is not a whole number", f"such as `{example}`")
    return int(text)


@dataclass(frozen=True, slots=True)
class Keyword:
    """A word that starts a breakpoint other than a condition."""

    usage: str
    meaning: str
    read: Callable[[_Reader], Condition]


KEYWORDS: Final[Mapping[str, Keyword]] = MappingProxyType(
    {
        "first": Keyword("first preemption", f"the next {', '.join(FIRST)}, slo-miss or other kind, once", _first),
        "request": Keyword("request NAME [KIND]", "any event of a request", _request),
        "instance": Keyword("instance NUMBER [KIND]", "any event on an instance", _instance),
        "session": Keyword("session NAME", "each call of a session, when it is sent", _session),
        "time": Keyword("time 1.5s", "the first event at or after a time", _time),
        "event": Keyword("event 1234", "an event by its number", _event),
        "slo-miss": Keyword("slo-miss [ttft 250ms] [e2e 2s]", "a request that takes longer than its bound", _slo_miss),
        "invariant": Keyword("invariant", "an invariant that is violated (slow: checks the whole state)", _invariant),
    }
)
"""Breakpoints other than conditions, by their first word; a kind of record alone is also a breakpoint."""


def parse_breakpoint(text: str, experiment: Known) -> Breakpoint:
    """Parse a breakpoint: a kind of record, one of :data:`KEYWORDS`, or a condition.

    Raises:
        ConditionError: it is invalid.
    """
    check_length(text)
    words = list(_WORD.finditer(text))
    if not words:
        hint = "write one, such as `preempted`, `first timeout`, `time 1.5s` or `kv.utilization > 90%`"
        raise ConditionError("no breakpoint is given", text, len(text), help=hint)
    first = words[0].group()
    rest = text[words[0].end() :].lstrip()
    plain = not rest.startswith(_OPERATORS)
    if plain and first in KEYWORDS:
        reader = _Reader(text, words, experiment)
        condition = KEYWORDS[first].read(reader)
        reader.finish()
        return Breakpoint(text=text.strip(), condition=condition, once=first == "first")
    if plain and first in RECORD_KINDS:
        if rest:
            raise _error_after_kind(text, first, words[1])
        return Breakpoint(text=text.strip(), condition=RecordMatch(first))
    if plain and _NAME.fullmatch(first) and first not in (*NAMES, "not"):
        hint = suggestion(first, tuple(dict.fromkeys((*KEYWORDS, *RECORD_KINDS, *NAMES))))
        raise ConditionError(f"unknown word `{first}`", text, words[0].start(), words[0].end(), help=hint)
    return Breakpoint(text=text.strip(), condition=Holds(parse_condition(text, instances=experiment.instance_numbers)))


def _error_after_kind(text: str, kind: str, word: re.Match[str]) -> ConditionError:
    """Create the error for a word after a kind of record."""
    if word.group() in ("and", "or"):
        hint = f'within a condition write `kind == "{kind}" {word.group()} ...`'
    else:
        hint = f"write `request NAME {kind}` or `instance NUMBER {kind}`"
    return ConditionError(f"unexpected `{printable(word.group())}`", text, word.start(), word.end(), help=hint)
