"""Is a new result the golden one? Cheap answers first: equal bytes, then what differs in the reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.compare.documents import differences
from blis_tui.compare.documents import pointer as as_pointer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.compare.documents import Difference
    from blis_tui.golden.case import ComparisonOptions, Tolerance
    from blis_tui.golden.store import Golden

REDACTED: Final = "[redacted]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDifference:
    """How a result differs from its golden; it does when ``report`` is not empty or ``records`` is true."""

    report: tuple[Difference, ...]
    """Of the reports; tolerated ones are left out."""
    spec: bool
    """The experiment is another one than the golden's."""
    engine: tuple[str, str] | None
    """Golden's engine number and this one's, where they differ."""
    schemas: bool
    """The schemas, and with them perhaps a default, have changed."""
    records: bool
    """The record streams differ."""

    @property
    def found(self) -> bool:
        """Whether there is a difference that counts."""
        return bool(self.report) or self.records


def compare(golden: Golden, result: Golden, options: ComparisonOptions) -> ResultDifference:
    """Compare a result with its golden, in layers."""
    return ResultDifference(
        report=_report_differences(golden.report, result.report, options),
        spec=golden.spec_sha256 != result.spec_sha256,
        engine=None if golden.engine == result.engine else (golden.engine, result.engine),
        schemas=golden.schemas_sha256 != result.schemas_sha256,
        records=options.records and golden.chain.sha256 != result.chain.sha256,
    )


def _report_differences(golden: str, result: str, options: ComparisonOptions) -> tuple[Difference, ...]:
    if golden == result:
        return ()
    before, after = json.loads(golden), json.loads(result)
    for pointer in options.redact:
        redact(before, pointer)
        redact(after, pointer)
    found = differences(before, after, as_pointer)
    return tuple(one for one in found if one.path not in options.tolerance or not _close(one, options.tolerance))


def _close(one: Difference, tolerance: Mapping[str, Tolerance]) -> bool:
    old, new = one.old, one.new
    if isinstance(old, bool) or isinstance(new, bool):
        return False
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return False
    return tolerance[one.path].accepts(old, new)


def redact(data: object, pointer: str) -> None:
    """Replace the value at a JSON pointer (RFC 6901) in place, where there is one."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    for step in steps[:-1]:
        data = _child(data, step)
    last = steps[-1] if steps else ""
    if isinstance(data, dict) and last in data:
        data[last] = REDACTED
    elif isinstance(data, list) and last.isdecimal() and int(last) < len(data):
        data[int(last)] = REDACTED


def _child(data: object, step: str) -> object:
    if isinstance(data, dict):
        return data.get(step)
    if isinstance(data, list) and step.isdecimal() and int(step) < len(data):
        return data[int(step)]
    return None
