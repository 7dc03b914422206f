"""Judges ``expect:`` entries against a report."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.source import equal
from blis_tui.base.units import time_text
from blis_tui.results.sections.instances import zero_if_omitted
from blis_tui.results.stats import OMITTED_IF_ABSENT

if TYPE_CHECKING:
    from blis_tui.model import Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One expectation, the observed value, and whether the expectation holds."""

    metric: str
    """The metric that the expectation is about, by its dotted path."""
    min: float | None
    """The lower bound, in the figure's unit; None = no such bound."""
    max: float | None
    """The upper bound, in the figure's unit; None = no such bound."""
    equals: float | str | bool | None
    """The exact value required; None = no such requirement."""
    value: float | str | bool | None
    """The value in the report; None if it has no such metric, or nothing was observed."""
    ok: bool
    """Whether it holds; a metric that is missing or null never does."""
    event: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """For expectations of the course of the run: the number of the first event that broke it."""
    time_us: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Time of that event, in microseconds."""
    why: str | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """What happened in that event."""

    def wish(self) -> str:
        """Return what was expected, in words."""
        wishes = [
            f"{word} {wish}"
            for word, wish in (("at least", self.min), ("at most", self.max), ("exactly", self.equals))
            if wish is not None
        ]
        return " and ".join(wishes)

    def sentence(self) -> str:
        """Return the verdict in words."""
        broken = "" if self.event is None else f" at event {self.event:,} ({time_text(self.time_us or 0)}): {self.why}"
        if not self.wish():
            return f"{self.metric}: {'holds' if self.ok else 'violated'}{broken}"
        if broken:
            broken = f"; exceeded{broken}"
        value = "nothing" if self.value is None else self.value
        return f"{self.metric} is {value}, expected {self.wish()}{broken}"


def judge(expectation: Expectation, report: dict[str, object]) -> Verdict:
    """Judge an expectation against a report; it does not hold if the metric is missing or has no value."""
    value = look_up(expectation.metric, report)
    return Verdict(
        metric=expectation.metric,
        min=expectation.min,
        max=expectation.max,
        equals=expectation.equals,
        value=value,
        ok=holds(expectation, value),
    )


def look_up(metric: str, report: dict[str, object]) -> float | str | bool | None:
    """Return the value at a dotted path (list elements by index); None if there is none."""
    here: object = report
    for name in metric.split("."):
        if isinstance(here, dict):
            here = here.get(name)
        elif isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        else:
            return zero_if_omitted(metric)
    if here is None:
        return zero_if_omitted(metric)
    return here if isinstance(here, (int, float, str)) else None


def holds(expectation: Expectation, value: float | str | bool | None) -> bool:
    """Return whether a value is within the bounds; None never is."""
    if value is None:
        return False
    if expectation.equals is not None and not equal(value, expectation.equals):
        return False
    if expectation.min is None and expectation.max is None:
        return True
    if isinstance(value, str):
        return False
    above = expectation.min is None or value >= expectation.min
    return above and (expectation.max is None or value <= expectation.max)
