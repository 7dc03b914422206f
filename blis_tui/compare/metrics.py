"""What differs between two reports: one row a figure, and whether the change is for the better."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

THRESHOLD: Final = 0.01
"""What changes by no more than this share of itself is neither better nor worse: it is noise."""
LOWER: Final = "lower"
HIGHER: Final = "higher"

_DIRECTIONS: Final = (
    (r"(.*\.)?(ttft|e2e|itl|tpot|scheduling_delay)_ms\..*", LOWER),
    (r"(.*\.)?(rejected|dropped_unservable|timed_out)", LOWER),
    (r"requests\.(still_queued|still_running|length_capped)", LOWER),
    (r"(.*\.)?kv\.(preemptions|preempted_requests)", LOWER),
    (r"(requests|slo_classes\..*|tenants\..*)\.completed", HIGHER),
    (r"throughput\..*", HIGHER),
    (r"(.*\.)?kv\.hit_rate", HIGHER),
)
"""Pattern of a metric's whole name -> which way is better. What is not listed has no obvious direction: what is served
in the `steady` half of the arrivals follows what arrives in it, and a backlog from before it counts, too."""

_PATTERNS: Final = tuple((re.compile(pattern), direction) for pattern, direction in _DIRECTIONS)

_MAIN: Final = re.compile(
    r"(requests|tokens|throughput|kv)\..*|(offered|steady)\..*_per_s|duration_us|(latency|slo_classes|tenants)\..*\.(mean|p50|p99|max)"
    r"|(slo_classes|tenants)\..*\.(completed|rejected|timed_out)"
)
"""The figures one looks at first; the others are shown when everything is asked for."""

_NO_RESULTS: Final = frozenset({"meta", "expectations", "warnings"})
"""Parts of a report that say what was simulated or wished, or judge what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of both reports; None where a report does not have it, or nothing was observed."""

    metric: str
    a: float | None
    b: float | None

    @property
    def differs(self) -> bool:
        """Whether the two figures are not the same."""
        return self.a != self.b

    @property
    def main(self) -> bool:
        """Whether it is one of the figures to look at first."""
        return _MAIN.fullmatch(self.metric) is not None

    @property
    def tenant(self) -> str:
        """The tenant whose figure it is; empty for the others."""
        part, _, rest = self.metric.partition(".")
        return rest.partition(".")[0] if part == "tenants" else ""

    @property
    def change(self) -> float | None:
        """``b - a``; None when one of them is missing."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def relative(self) -> float | None:
        """The change as a share of ``a``; None when there is no such share."""
        return None if self.change is None or not self.a else self.change / abs(self.a)

    @property
    def is_noise(self) -> bool:
        """Whether the figures differ by less than what matters."""
        return self.differs and self.a is not None and self.b is not None and not matters(self.a, self.b)

    @property
    def verdict(self) -> str:
        """``better`` or ``worse``; empty when nothing changed, or hardly, or the metric has no obvious direction."""
        direction = direction_of(self.metric)
        if not self.change or self.is_noise or direction is None:
            return ""
        return "better" if (self.change > 0) == (direction == HIGHER) else "worse"

    def to_dict(self) -> dict[str, object]:
        """As plain data."""
        return {
            "metric": self.metric,
            "a": self.a,
            "b": self.b,
            "change": self.change,
            "relative": self.relative,
            "verdict": self.verdict or None,
        }


def matters(a: float, b: float) -> bool:
    """Whether a figure changes by more than noise."""
    return abs(b - a) > THRESHOLD * abs(a)


def direction_of(metric: str) -> str | None:
    """:data:`LOWER` or :data:`HIGHER`: which way is better; None when neither obviously is."""
    return next((direction for pattern, direction in _PATTERNS if pattern.fullmatch(metric)), None)


def rows(a: Mapping[str, object], b: Mapping[str, object]) -> list[Row]:
    """All figures of two reports, in the order of the first; what only the second has follows in its order."""
    left, right = dict(_figures(a)), dict(_figures(b))
    names = [*left, *(name for name in right if name not in left)]
    return [Row(metric=name, a=left.get(name), b=right.get(name)) for name in names]


def _figures(report: Mapping[str, object]) -> Iterator[tuple[str, float | None]]:
    for name, part in report.items():
        if name not in _NO_RESULTS:
            yield from _leaves(name, part)


def _leaves(name: str, value: object) -> Iterator[tuple[str, float | None]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _leaves(f"{name}.{at}", inner)
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield name, value
