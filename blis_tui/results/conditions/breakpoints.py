"""Breakpoints as people write them, and the probes that check for them after every event."""

from __future__ import annotations

import re
from math import isfinite, isnan, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import suggestion
from blis_tui.base.errors import InvariantError
from blis_tui.base.text import printable
from blis_tui.base.units import count_text, filled, milliseconds, time_text
from blis_tui.cluster.records import SessionBegun, SessionContinued
from blis_tui.engine.records import RECORD_KINDS, Completed, FirstToken, StepFinished, streamed_kinds
from blis_tui.results.conditions.language import (
    NAMES,
    ConditionError,
    check_instance,
    check_length,
    parse_condition,
    parse_expression,
    unquoted,
)
from blis_tui.results.conditions.vocabulary import TIME_UNITS, State, instance_of, involves, names_request
from blis_tui.results.record_lines import record_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.model import Expectation
    from blis_tui.results.conditions.language import Expression


def sentence(record: Record) -> str:
    """Describe a record, without a full stop."""
    return filled(record.shown.sentence, record_dict(record))


def quantity_text(value: float, unit: str) -> str:
    """Format a figure with its unit, such as ``1,024 blocks``, ``1 block`` or ``12.5 ms``; a share as it is."""
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.3f}" if abs(value) >= 100 else f"{value:.5g}"
    if unit in ("", "share"):
        return text
    return f"{text} {unit.removesuffix('s')}" if value == 1 and unit not in TIME_UNITS else f"{text} {unit}"


class ObservedSimulation(State, Protocol):
    """What a probe examines: a simulation."""

    def verify(self) -> None:
        """Raise InvariantError if an invariant does not hold."""


class Probe(Protocol):
    """Examines events one by one."""

    def reset(self, simulation: ObservedSimulation) -> None:
        """Start from the simulation's current state: what already holds there does not count."""

    def check(self, simulation: ObservedSimulation, records: Sequence[Record]) -> str:
        """Return why to stop after the event with these records; empty = go on."""


class Condition(Protocol):
    """A condition that a breakpoint waits for."""

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of record it depends on."""

    def probe(self) -> Probe:
        """Create a new probe."""


class _EveryEvent:
    """Stops at every event in which something is found."""

    def __init__(self, find: Callable[[ObservedSimulation, Sequence[Record]], str]) -> None:
        self.check = find

    def reset(self, simulation: ObservedSimulation) -> None:
        """Do nothing, as it has no memory."""


class _RisingEdge:
    """Stops when something becomes true that was false before the event."""

    def __init__(
        self,
        truth: Callable[[ObservedSimulation, Sequence[Record]], float],
        words: Callable[[ObservedSimulation, Sequence[Record]], str],
    ) -> None:
        self._truth = truth
        self._words = words
        self._before: float = False

    def reset(self, simulation: ObservedSimulation) -> None:
        self._before = self._truth(simulation, ())

    def check(self, simulation: ObservedSimulation, records: Sequence[Record]) -> str:
        before = self._before
        self._before = now = self._truth(simulation, records)
        return self._words(simulation, records) if now and not before else ""


@dataclass(frozen=True, slots=True)
class RecordMatch:
    """A record of a kind, about a request, about an instance; all given criteria must match."""

    kind: str = ""
    request: str = ""
    instance: int | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Return its kind, or all kinds of the record stream."""
        return frozenset({self.kind} if self.kind else streamed_kinds())

    def probe(self) -> Probe:
        """Create a probe that stops at each event with such a record."""
        if not self.kind:
            return _EveryEvent(self._find)
        wanted = RECORD_KINDS[self.kind]
        find = self._find

        def find_kind(simulation: ObservedSimulation, records: Sequence[Record]) -> str:
            for record in records:
                if type(record) is wanted:
                    return find(simulation, records)
            return ""

        return _EveryEvent(find_kind)

    def _find(self, simulation: ObservedSimulation, records: Sequence[Record]) -> str:  # noqa: ARG002  (see Probe.check)
        fitting = [record for record in records if self.fits(record)]
        if not fitting:
            return ""
        first = fitting[0]
        if self.request and isinstance(first, StepFinished):
            return f"{self.request} took part in step {first.step:,} of instance {first.instance}"
        more = f" (and {len(fitting) - 1} more)" if self.kind and len(fitting) > 1 else ""
        return sentence(first) + more

    def fits(self, record: Record) -> bool:
        """Whether a record matches."""
        if self.kind and record.kind != self.kind:
            return False
        if self.instance is not None and instance_of(record) != self.instance:
            return False
        if not self.request:
            return True
        # The victim and the beneficiary of a preemption are different roles; without a kind either one matches.
        return (involves if self.kind else names_request)(record, self.request)


@dataclass(frozen=True, slots=True)
class Sends:
    """A session sends a call."""

    session: str

    @property
    def needs(self) -> frozenset[str]:
        """The records about sessions."""
        return frozenset({SessionBegun.kind, SessionContinued.kind})

    def probe(self) -> Probe:
        """Create a probe that stops at each event in which a request of the session arrives."""
        return _EveryEvent(self._find)

    def _find(self, simulation: ObservedSimulation, records: Sequence[Record]) -> str:  # noqa: ARG002  (see Probe.check)
        for record in records:
            if isinstance(record, SessionBegun | SessionContinued) and record.session_id == self.session:
                return sentence(record)
        return ""


@dataclass(frozen=True, slots=True)
class Reaches:
    """A figure that only grows, such as ``time_us``, reaches a value."""

    figure: str
    value: float
    text: str
    """The value as written."""
    needs: ClassVar[frozenset[str]] = frozenset()

    def probe(self) -> Probe:
        """Create a probe that stops at the first event at or after it."""
        name, value = self.figure, self.value
        return _RisingEdge(lambda simulation, _: simulation.figure(name) >= value, self._words)

    def _words(self, simulation: ObservedSimulation, records: Sequence[Record]) -> str:  # noqa: ARG002  (see Probe.check)
        event, time_us = int(simulation.figure("event")), int(simulation.figure("time_us"))
        return f"{self.text} is reached (event {count_text(event)} at {time_text(time_us)})"


@dataclass(frozen=True, slots=True)
class Holds:
    """A condition: stops when it becomes true or, if it depends on events, at each event for which it is true."""

    condition: Expression

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of record that its names depend on."""
        return self.condition.needs

    def probe(self) -> Probe:
        """Create a probe that stops as the class says."""
        truth = self.condition.measure
        if not self.condition.about_event:
            return _RisingEdge(truth, lambda simulation, records: self.words("became true", simulation, records))

        def find(simulation: ObservedSimulation, records: Sequence[Record]) -> str:
            return self.words("is true", simulation, records) if truth(simulation, records) else ""

        return _EveryEvent(find)

    def words(self, says: str, simulation: ObservedSimulation, records: Sequence[Record]) -> str:
        """Describe the condition, what happened to it, and the figures it uses."""
        numbers = [name for name in self.condition.names if name.quantity.is_number]
        values: list[str] = []
        for number in numbers:
            value = number.measure(simulation, records)
            if isfinite(value):
                shown = quantity_text(value, number.quantity.unit)
                values.append(shown if len(numbers) == 1 else f"{number.text}: {shown}")
        return f"{self.condition} {says}" + (f" ({', '.join(values)})" if values else "")


class _Change:
    """Stops whenever a figure has another value than before; an event in which it is undefined changes nothing."""

    def __init__(self, figure: Expression) -> None:
        self._figure = figure
        self._before = nan

    def reset(self, simulation: ObservedSimulation) -> None:
        self._before = self._figure.measure(simulation, ())

    def check(self, simulation: ObservedSimulation, records: Sequence[Record]) -> str:
        now, before = self._figure.measure(simulation, records), self._before
        if now == before or isnan(now):
            return ""
        self._before = now
        text = self._figure.text_of
        return f"{self._figure} is {text(now)}" + ("" if isnan(before) else f", it was {text(before)}")


@dataclass(frozen=True, slots=True)
class Changes:
    """A figure or a condition that changes."""

    figure: Expression

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of record that its names depend on."""
        return self.figure.needs

    def probe(self) -> Probe:
        """Create a probe that stops at each event that changes it."""
        return _Change(self.figure)


@dataclass(frozen=True, slots=True)
class Breaks:
    """A violated invariant. At every event, the check takes time in proportion to the whole state."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def probe(self) -> Probe:
        """Create a probe that stops at the first violation."""
        return _RisingEdge(lambda simulation, _: bool(_broken(simulation)), lambda simulation, _: _broken(simulation))


def _broken(simulation: ObservedSimulation) -> str:
    """Describe the violated invariant; empty = all hold."""
    try:
        simulation.verify()
    except InvariantError as error:
        return error.message
    return ""


@dataclass(frozen=True, slots=True)
class Misses:
    """A request whose client-side latency exceeds a bound. Microseconds; None = no bound."""

    ttft_us: float | None
    e2e_us: float | None

    @property
    def needs(self) -> frozenset[str]:
        """Return first tokens and completions, as far as they have a bound."""
        bounds = ((FirstToken.kind, self.ttft_us), (Completed.kind, self.e2e_us))
        return frozenset(kind for kind, bound in bounds if bound is not None)

    def probe(self) -> Probe:
        """Create a probe that stops at each such first token or completion; of several, the worst is reported."""
        return _EveryEvent(self._find)

    def _find(self, simulation: ObservedSimulation, records: Sequence[Record]) -> str:  # noqa: ARG002  (see Probe.check)
        worst = ""
        excess = 0.0
        count = 0
        for record in records:
            if isinstance(record, FirstToken):
                latency, bound = record.ttft_us, self.ttft_us
            elif isinstance(record, Completed):
                latency, bound = record.e2e_us, self.e2e_us
            else:
                continue
            if bound is None or latency <= bound:
                continue
            count += 1
            if latency - bound > excess:
                excess = latency - bound
                worst = f"{sentence(record)}, the bound is {milliseconds(bound)}"
        return f"{worst} (and {count - 1} more)" if count > 1 else worst


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
        self._probes = tuple((point.condition.probe(), point) for point in breakpoints if point.enabled)
        self.needs = frozenset[str]().union(*(point.condition.needs for _, point in self._probes))

    def __bool__(self) -> bool:
        return bool(self._probes)

    def reset(self, simulation: ObservedSimulation) -> None:
        """Start from the simulation's current state: what already holds there is not a hit."""
        for probe, _ in self._probes:
            probe.reset(simulation)

    def check(self, simulation: ObservedSimulation, records: Sequence[Record]) -> tuple[Hit, ...]:
        """Return the hits of the event just processed, given its records."""
        hits: tuple[Hit, ...] = ()
        for probe, point in self._probes:
            sentence = probe.check(simulation, records)
            if sentence:
                hits = (*hits, Hit(point, sentence))
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


def _change(text: str, start: int, experiment: Known) -> Condition:
    """Read the figure behind the word ``change``; errors are at their places in the whole text."""
    figure = " " * start + text[start:]
    try:
        return Changes(parse_expression(figure, instances=experiment.instance_numbers))
    except ConditionError as error:
        raise ConditionError(error.message, text, error.column, error.end_column, help=error.help) from error


def _no_figure(reader: _Reader) -> Condition:
    raise ConditionError("a metric is missing", reader.text, len(reader.text), help="such as `change kv.used`")


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
    bounds = {expectation.metric: expectation.max for expectation in experiment.expect if expectation.max is not None}
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


CHANGE: Final = "change"

KEYWORDS: Final[Mapping[str, Keyword]] = MappingProxyType(
    {
        "first": Keyword("first preemption", f"the next {', '.join(FIRST)}, slo-miss or other kind, once", _first),
        "request": Keyword("request NAME [KIND]", "any event of a request", _request),
        "instance": Keyword("instance NUMBER [KIND]", "any event on an instance", _instance),
        "session": Keyword("session NAME", "each call of a session, when it is sent", _session),
        CHANGE: Keyword("change kv.used", "each event that changes a metric or a condition", _no_figure),
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
    if words and words[0].group() == CHANGE and len(words) > 1:
        return Breakpoint(text=text.strip(), condition=_change(text, words[0].end(), experiment))
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
