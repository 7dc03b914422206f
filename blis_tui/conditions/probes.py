"""The conditions that breakpoints wait for: plain data that creates probes, which examine every event."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, ClassVar, Protocol

from blis_tui.classes import dataclass
from blis_tui.cluster.records import SessionBegun, SessionContinued
from blis_tui.conditions.vocabulary import TIME_UNITS, State, instance_of, involves, names_request
from blis_tui.engine.records import RECORD_KINDS, Completed, FirstToken, StepFinished, streamed_kinds
from blis_tui.errors import InvariantError
from blis_tui.records.tables import record_dict
from blis_tui.units import count_text, filled, milliseconds, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.conditions.expression import Expression
    from blis_tui.engine.records import Record


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
        found = [record for record in records if self.fits(record)]
        if not found:
            return ""
        first = found[0]
        if self.request and isinstance(first, StepFinished):
            return f"{self.request} took part in step {first.step:,} of instance {first.instance}"
        more = f" (and {len(found) - 1} more)" if self.kind and len(found) > 1 else ""
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
        numbers = [one for one in self.condition.names if one.quantity.is_number]
        values: list[str] = []
        for one in numbers:
            value = one.measure(simulation, records)
            if isfinite(value):
                shown = quantity_text(value, one.quantity.unit)
                values.append(shown if len(numbers) == 1 else f"{one.text}: {shown}")
        return f"{self.condition} {says}" + (f" ({', '.join(values)})" if values else "")


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
