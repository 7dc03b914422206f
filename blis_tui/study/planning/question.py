"""What is asked of a planner, and how a run answers: does it hold, and by how much?"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.study.planning.search import Verdict

if TYPE_CHECKING:
    from blis_tui.spec.model import Expectation
    from blis_tui.study.rows import Row

COMPLETE: Final = 0.99
"""The share of requests that must be served: latencies are of those alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """How far a figure is from its bound."""

    metric: str
    value: float
    bound: float
    of_bound: float
    """Below 1 = it holds: the figure as a multiple of an upper bound, or a lower bound as a multiple of the figure."""


def margins(row: Row, bounds: tuple[Expectation, ...]) -> tuple[Margin, ...]:
    """How far the figures of a run are from their bounds, the tightest first; those without a value are left out."""
    found = []
    for one in bounds:
        value = row.figures.get(one.metric)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for bound, upper in ((one.max, True), (one.min, False)):
            if bound is not None:
                part, whole = (value, bound) if upper else (bound, value)
                share = part / whole if whole else (inf if part > 0 else 0.0)
                found.append(Margin(metric=one.metric, value=float(value), bound=bound, of_bound=share))
    return tuple(sorted(found, key=lambda one: -one.of_bound))


def verdict_of(row: Row, bounds: tuple[Expectation, ...]) -> Verdict:
    """Whether a run holds, and how narrowly."""
    if row.status != "done" or trouble(row):
        return Verdict(holds=False)
    return Verdict(holds=True, of_bound=next((one.of_bound for one in margins(row, bounds)), None))


def trouble(row: Row) -> str:
    """Why a run does not hold; empty = it does."""
    if not row.ok:
        return row.why or row.status
    total, completed = row.figures.get("requests.total"), row.figures.get("requests.completed")
    if isinstance(total, int) and isinstance(completed, int) and completed < COMPLETE * total:
        return f"only {completed:,} of {total:,} requests were served: the latencies are of those"
    if "overload" in row.warnings:
        return "requests arrive faster than they are served: their number grows as long as that goes on"
    return ""
