"""Is a new result the golden one? Cheap answers first: equal bytes, then a walk along the paths that differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.compare.walk import walk

if TYPE_CHECKING:
    from blis_tui.compare.walk import Change
    from blis_tui.golden.case import Comparison
    from blis_tui.golden.store import Golden

REDACTED: Final = "[redacted]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a result differs from its golden; it does when ``changes`` is not empty or ``records`` is true."""

    changes: tuple[Change, ...]
    """Paths of the report, tolerated ones left out."""
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
        return bool(self.changes) or self.records


def compare(golden: Golden, result: Golden, comparison: Comparison) -> Difference:
    """Compare a result with its golden, in layers."""
    return Difference(
        changes=_changes(golden.report, result.report, comparison),
        spec=golden.spec_sha256 != result.spec_sha256,
        engine=None if golden.engine == result.engine else (golden.engine, result.engine),
        schemas=golden.schemas_sha256 != result.schemas_sha256,
        records=comparison.records and golden.chain.sha256 != result.chain.sha256,
    )


def _changes(golden: str, result: str, comparison: Comparison) -> tuple[Change, ...]:
    if golden == result:
        return ()
    before, after = json.loads(golden), json.loads(result)
    for pointer in comparison.redact:
        redact(before, pointer)
        redact(after, pointer)
    tolerance = comparison.tolerance
    return tuple(
        change for change in walk(before, after) if change.path not in tolerance or not _close(change, comparison)
    )


def _close(change: Change, comparison: Comparison) -> bool:
    old, new = change.old, change.new
    if isinstance(old, bool) or isinstance(new, bool):
        return False
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return False
    return comparison.tolerance[change.path].accepts(old, new)


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
