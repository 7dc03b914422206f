"""Compares a result with its golden: by bytes, then by the reports' values, and finally by the texts.

Tolerated and redacted values may differ. So may the facts about the origin of the golden: its Python and system, the
digest of the schemas, the versions of plug-ins.
"""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.golden.golden_store import first_line_difference, report_text
from blis_tui.runs.comparison_text import value_change
from blis_tui.runs.documents import differences
from blis_tui.runs.documents import pointer as as_pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blis_tui.golden.golden_store import Golden, LineDifference
    from blis_tui.runs.documents import Difference

_HEADLINES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"/slo/.*",
        r"/requests/(completed|rejected|timed_out|dropped_unservable)",
        r"/throughput/.*",
        r"/latency/(ttft|itl|e2e)_ms/(p50|p99)",
        r"/kv/(preemptions|hit_rate|peak_used)",
        r"/duration_us",
    )
)
"""Figures listed first, in this order; the others follow in the order of the report, where it is from at the end."""
_ORIGIN: Final = "/meta/"


REDACTED: Final = "[redacted]"
_ROOM: Final = 60
"""Columns for both values of a figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDifference:
    """How a result differs from its golden."""

    report: tuple[Difference, ...]
    """Differences of the reports, without tolerated ones."""
    spec: bool
    """Whether the experiment has changed."""
    engine: tuple[str, str] | None
    """Engine numbers of golden and result, if they differ."""
    schemas: bool
    """Whether the schemas, and so perhaps a default, have changed."""
    records: bool
    """Whether the record streams differ."""
    text: tuple[str, LineDifference] | None = None
    """If no value differs: the file (``report`` or ``header``) with another text, and the place."""

    @property
    def found(self) -> bool:
        """Whether there is a relevant difference."""
        return bool(self.report) or self.records or self.text is not None


def compare(golden: Golden, result: Golden, options: ComparisonOptions) -> ResultDifference:
    """Compare a result with its golden, in layers."""
    report = _report_differences(golden.report, result.report, options)
    records = options.records and golden.chain.sha256 != result.chain.sha256
    return ResultDifference(
        report=report,
        spec=golden.spec_sha256 != result.spec_sha256,
        engine=None if golden.engine == result.engine else (golden.engine, result.engine),
        schemas=golden.schemas_sha256 != result.schemas_sha256,
        records=records,
        text=None if report or records else _other_text(golden, _as_allowed(golden, result, options)),
    )


def _report_differences(golden: str, result: str, options: ComparisonOptions) -> tuple[Difference, ...]:
    if golden == result:
        return ()
    before, after = json.loads(golden), json.loads(result)
    for pointer in options.redact:
        redact(before, pointer)
        redact(after, pointer)
    changes = differences(before, after, as_pointer)
    return tuple(
        difference
        for difference in changes
        if difference.path not in options.tolerance or not _close(difference, options.tolerance)
    )


def most_important_first(differences: Iterable[Difference]) -> list[Difference]:
    """Return the differences of a report, those of the figures that people decide by first."""
    return sorted(differences, key=lambda difference: _rank(difference.path))  # stable: else as in the report


def _rank(path: str) -> int:
    if path.startswith(_ORIGIN):
        return len(_HEADLINES) + 1
    return next((rank for rank, pattern in enumerate(_HEADLINES) if pattern.fullmatch(path)), len(_HEADLINES))


def tolerance_lines(golden: Golden, result: Golden, options: ComparisonOptions) -> list[str]:
    """Return which figures with a tolerance differ, and whether each is within it; empty if none does."""
    if not options.tolerance or golden.report == result.report:
        return []
    changes = differences(json.loads(golden.report), json.loads(result.report), as_pointer)
    lines = []
    for difference in changes:
        if difference.path in options.tolerance and difference.path not in options.redact:
            place = "within" if _close(difference, options.tolerance) else "beyond"
            lines.append(
                printable(
                    f"    {difference.path}: {value_change(difference, _ROOM)}, {place}"
                    f" {options.tolerance[difference.path]}"
                )
            )
    return [f"with a tolerance: {plural(len(lines), 'difference')}", *lines] if lines else []


def _close(difference: Difference, tolerance: Mapping[str, Tolerance]) -> bool:
    old, new = difference.old, difference.new
    if isinstance(old, bool) or isinstance(new, bool):
        return False
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return False
    return tolerance[difference.path].accepts(old, new)


def _other_text(golden: Golden, allowed: Golden) -> tuple[str, LineDifference] | None:
    for name, actual, expected in (
        ("report", golden.report, allowed.report),
        ("header", golden.header(), allowed.header()),
    ):
        if (other := first_line_difference(actual, expected)) is not None:
            return name, other
    return None


def _as_allowed(golden: Golden, result: Golden, options: ComparisonOptions) -> Golden:
    """Return the result with the golden's values wherever they may differ, so that equal results have equal texts."""
    versions = {(plugin["plug_point"], plugin["name"]): plugin for plugin in golden.plugins}
    same = replace(
        result,
        report=_with_values(result.report, golden.report, (*options.redact, *options.tolerance)),
        baseline=golden.baseline,
        schemas_sha256=golden.schemas_sha256,
        plugins=tuple(versions.get((plugin["plug_point"], plugin["name"]), plugin) for plugin in result.plugins),
        chain=result.chain if options.records else golden.chain,
    )
    if "/meta" in options.redact or "/meta/spec_sha256" in options.redact:
        same = replace(same, spec_sha256=golden.spec_sha256, document=golden.document)
    if "/meta" in options.redact or "/meta/engine" in options.redact:
        same = replace(same, engine=golden.engine)
    return same


def _with_values(result: str, golden: str, pointers: Iterable[str]) -> str:
    """Return a report's text with another report's values at these pointers."""
    if result == golden:
        return result
    data, other = json.loads(result), json.loads(golden)
    for pointer in pointers:
        inner, last = _place(data, pointer)
        source, _ = _place(other, pointer)
        if _has(inner, last) and _has(source, last):
            _put(inner, last, _child(source, last))
    return report_text(data)


def redact(data: object, pointer: str) -> None:
    """Replace the value at a JSON pointer (RFC 6901) in place, if there is one."""
    inner, last = _place(data, pointer)
    if _has(inner, last):
        _put(inner, last, REDACTED)


def _place(data: object, pointer: str) -> tuple[object, str]:
    """Return the container of the value at a JSON pointer, and the last step to it."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    for step in steps[:-1]:
        data = _child(data, step)
    return data, steps[-1] if steps else ""


def _has(data: object, step: str) -> bool:
    if isinstance(data, dict):
        return step in data
    return isinstance(data, list) and step.isdecimal() and int(step) < len(data)


def _put(data: object, step: str, value: object) -> None:
    if isinstance(data, dict):
        data[step] = value
    elif isinstance(data, list):
        data[int(step)] = value


def _child(data: object, step: str) -> object:
    if isinstance(data, dict):
        return data.get(step)
    return data[int(step)] if isinstance(data, list) and _has(data, step) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Allowed deviation of one number from its golden value: the larger of two bounds."""

    rel: float = 0.0
    abs: float = 0.0

    def __str__(self) -> str:
        bounds = (f"{name} {bound:g}" for name, bound in (("rel", self.rel), ("abs", self.abs)) if bound)
        return " or ".join(bounds) or "rel 0"

    def accepts(self, golden: float, actual: float) -> bool:
        """Return whether ``actual`` is close enough."""
        return abs(actual - golden) <= max(self.abs, self.rel * abs(golden))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """How results are compared with golden files."""

    records: bool = True
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)
    redact: tuple[str, ...] = ()
