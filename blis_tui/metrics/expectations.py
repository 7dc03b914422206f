"""``expect:`` entries, judged against a report."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.metrics.kv import zero_where_left_out
from blis_tui.metrics.stats import WHERE_IT_APPLIES
from blis_tui.units import time_text

if TYPE_CHECKING:
    from blis_tui.spec.model import Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One expectation, the value it met, and whether it holds."""

    metric: str
    """The metric that the expectation is about, by its dotted path."""
    min: float | None
    """The least it may be, in the figure's unit; None = no such bound."""
    max: float | None
    """The most it may be, in the figure's unit; None = no such bound."""
    equals: float | str | bool | None
    """What it must be exactly; None = no such bound."""
    value: float | str | bool | None
    """What the report says; None when it has no such metric, or nothing was observed."""
    ok: bool
    """Whether it holds; a metric that is missing or null never does."""
    event: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Of what is expected of the course of the run: the number of the event at which it was broken first."""
    time_us: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """When that was, in microseconds."""
    why: str | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """What happened there."""

    def wish(self) -> str:
        """What was expected, in words."""
        wishes = [
            f"{word} {wish}"
            for word, wish in (("at least", self.min), ("at most", self.max), ("exactly", self.equals))
            if wish is not None
        ]
        return " and ".join(wishes)

    def sentence(self) -> str:
        """The verdict in words."""
        broken = "" if self.event is None else f" at event {self.event:,} ({time_text(self.time_us or 0)}): {self.why}"
        if not self.wish():
            return f"{self.metric}: {'holds' if self.ok else 'violated'}{broken}"
        if broken:
            broken = f"; exceeded{broken}"
        value = "nothing" if self.value is None else self.value
        return f"{self.metric} is {value}, expected {self.wish()}{broken}"


def judge(expectation: Expectation, report: dict[str, object]) -> Verdict:
    """Whether ``report`` is as expected. A metric that is missing or has no value is never as expected."""
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
    """The value at a dotted path; list elements by their number. None when there is none."""
    here: object = report
    for name in metric.split("."):
        if isinstance(here, dict):
            here = here.get(name)
        elif isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        else:
            return zero_where_left_out(metric)
    if here is None:
        return zero_where_left_out(metric)
    return here if isinstance(here, (int, float, str)) else None


def _same(value: float | str | bool, wish: float | str | bool) -> bool:
    """Equality that keeps truth values and numbers apart."""
    return isinstance(value, bool) == isinstance(wish, bool) and value == wish


def holds(expectation: Expectation, value: float | str | bool | None) -> bool:
    """Whether a value is within the bounds; none never is."""
    if value is None:
        return False
    if expectation.equals is not None and not _same(value, expectation.equals):
        return False
    if expectation.min is None and expectation.max is None:
        return True
    if isinstance(value, str):
        return False
    above = expectation.min is None or value >= expectation.min
    return above and (expectation.max is None or value <= expectation.max)
