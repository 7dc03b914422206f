"""A comparison as text, and the wording of differences on the command line, in golden tests and on screens."""

from __future__ import annotations

import json
import re
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from blis_tui.base.text import aligned, clip, printable
from blis_tui.base.units import ms_change_text, ms_text, plural, share_change_text
from blis_tui.runs.comparison import THRESHOLD, direction_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from blis_tui.runs.comparison import ComparedFigure, ComparedRun, Comparison, RequestChanges
    from blis_tui.runs.documents import Difference


MARKS: Final[Mapping[str, str]] = {"added": "+", "removed": "-", "reordered": "~"}
"""Kind of a difference -> its mark; a changed value has none."""

_LONGEST: Final = 60
"""Maximum width of a value, in columns."""
_DIGITS: Final = (6, 9, 12, 17)
"""Numbers of significant digits to try until two values differ as text."""
_NO_CHANGE: Final = 0.00005
"""Smaller relative changes would be shown as 0.00 %."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32,}")
_DIGEST_SHOWN: Final = 12


def both_names(a: str, b: str) -> str:
    """Return a request's names in two runs; ``request_12/14`` if they differ."""
    if a == b or not b:
        return a
    head = len(a.rstrip("0123456789"))
    return f"{a}/{b[head:] if b[:head] == a[:head] else b}"


def difference_lines(differences: Sequence[Difference], most: int) -> list[str]:
    """Return the differences in columns, with ``-`` for old and ``+`` for new values; beyond ``most``, their number."""
    shown: list[tuple[Difference, str, str]] = []
    for difference in differences[:most]:
        old, new = value_texts(difference)
        shown.append((difference, clip(old, _LONGEST), clip(new, _LONGEST)))
    paths = max((len(difference.path) for difference, *_ in shown), default=0)
    figures = max(
        (len(text) for difference, *texts in shown for text in texts if _is_number(difference.old)), default=0
    )
    lines: list[str] = []
    for difference, old, new in shown:
        width = figures if _is_number(difference.old) else 0
        if old:
            lines.append(f"  - {difference.path:<{paths}}  {old:>{width}}")
        if new:
            share = relative_text(difference)
            lines.append(f"  + {difference.path:<{paths}}  {new:>{width}}{'  ' if share else ''}{share}")
    lines += [f"  … {len(differences) - most:,} more"] * (len(differences) > most)
    return [printable(line) for line in lines]


def value_change(difference: Difference, room: int, arrow: str = "->") -> str:
    """Return the old and new value, or the only one, in at most ``room`` columns."""
    old, new = value_texts(difference)
    if not old or not new:
        return clip(old or new, room)
    between = f" {arrow} "
    room -= len(between)
    old = clip(old, max(room // 2, room - len(new), 4))
    return f"{old}{between}{clip(new, max(room - len(old), 4))}"


def value_texts(difference: Difference) -> tuple[str, str]:
    """Return both values as text; empty for an absent one."""
    old, new = difference.old, difference.new
    if difference.kind in ("added", "removed"):
        return ("", _value(new)) if difference.kind == "added" else (_value(old), "")
    if _is_number(old) and _is_number(new):
        pairs = ((_number(old, digits), _number(new, digits)) for digits in _DIGITS)
        return next((pair for pair in pairs if pair[0] != pair[1]), (repr(old), repr(new)))
    bare = type(old) is type(new)
    return _value(old, bare=bare), _value(new, bare=bare)


def relative_text(difference: Difference) -> str:
    """Return the relative change, such as ``-65.23 %``; empty if undefined."""
    old, new = difference.old, difference.new
    if isinstance(old, bool) or isinstance(new, bool) or not old:
        return ""
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return ""
    try:
        share = (new - old) / abs(old)
    except OverflowError:  # an integer of a damaged report
        return ""
    if not share:
        return ""
    return share_change_text(share, 2) if abs(share) >= _NO_CHANGE else "< 0.01 %"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: object, digits: int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"


def _value(value: object, *, bare: bool = True) -> str:
    """Return a value as JSON; a text without quotes if they are not needed, a digest shortened."""
    if isinstance(value, str):
        text = value if bare and value and value.isprintable() else json.dumps(value, ensure_ascii=False)
        return _DIGEST.sub(lambda match: f"{match[0][:_DIGEST_SHOWN]}…", text)
    return _number(value, _DIGITS[0]) if _is_number(value) else json.dumps(value, ensure_ascii=False)


WIDTH: Final = 100
_TENANTS: Final = 3
"""Maximum number of tenants whose figures are shown."""


def comparison_text(comparison: Comparison, *, everything: bool = False) -> str:
    """Return blocks of text: the two sides, documents, figures, requests.

    Args:
        comparison: the comparison.
        everything: also show equal and minor figures.
    """
    blocks = [
        [
            _side("A", comparison.a),
            _side("B", comparison.b),
            *(clip(f"note: {note}", WIDTH) for note in comparison.notes),
        ],
        document_lines(comparison.spec, same=comparison.a.sha256 == comparison.b.sha256),
        metric_lines(comparison, everything=everything),
    ]
    if comparison.requests is not None:
        blocks.append(_requests(comparison.requests))
    return "\n\n".join("\n".join(printable(line).rstrip() for line in block) for block in blocks) + "\n"


def _side(letter: str, side: ComparedRun) -> str:
    overrides = "".join(f" --set {override}" for override in side.overrides)
    source = "" if side.source == side.name else f"  ({side.source})"
    return clip(f"{letter}  {side.name}{overrides}{source}  seed {side.seed}", WIDTH)


def document_lines(spec: Sequence[Difference] | None, *, same: bool) -> list[str]:
    """Return what differs between two experiments; None = only whether they are the ``same`` is known."""
    if spec is None:
        return [
            "specification: the same"
            if same
            else "specification: different (by `spec_sha256`; a report does not contain the specification itself)"
        ]
    if not spec:
        return ["specification: no differences"]
    lines = [f"specification: {plural(len(spec), 'difference')}"]
    width = min(max(len(difference.path) for difference in spec), WIDTH // 2)
    room = WIDTH - width - 6
    for difference in spec:
        mark = MARKS.get(difference.kind, " ")
        lines.append(f"  {mark} {clip(difference.path, width):<{width}}  {value_change(difference, room)}")
    return lines


def metric_lines(comparison: Comparison, *, everything: bool) -> list[str]:
    """Return a table of the differing figures, or of all, below a line that counts them."""
    rows = comparison.shown_metrics(everything=everything)
    if not everything:
        folded = _folded(rows)
        rows = [row for row in rows if row.tenant not in folded]
    differing = sum(row.differs for row in comparison.metrics)
    total = len(comparison.metrics)
    if not differing and not rows:
        return [f"report: no differences in {plural(total, 'metric')}"]
    lines = [f"report: {differing:,} of {plural(total, 'metric')} differ"]
    table = [("", "A", "B", "change", "%", ""), *map(_cells, rows)] if rows else []
    taken = [max((len(cells[column]) for cells in table), default=0) for column in range(1, 6)]
    room = max(12, WIDTH - 2 - sum(taken) - 2 * 5)
    lines += _table([(clip(name, room), *figures) for name, *figures in table], range(1, 5))
    hidden = sum(row.differs for row in comparison.metrics) - sum(row.differs for row in rows)
    if hidden:
        lines.append(f"  and {plural(hidden, 'more metric')} that differ (--all shows everything)")
    if rows:
        legend = f"worse, better: by more than {100 * THRESHOLD:g} % of A"
        if any(row.change and not row.judged and direction_of(row.metric) is not None for row in rows):
            legend += "; figures that follow the arrivals are not judged, because the arrivals differ"
        legend += f"; `blis-tui explain {rows[0].metric}` explains a metric"
        lines += wrap(legend, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return lines


def _folded(rows: Sequence[ComparedFigure]) -> frozenset[str]:
    """Return the tenants with the smallest changes, if there are many, because they would hide everything else."""
    largest: dict[str, float] = {}
    for row in rows:
        if row.tenant:
            largest[row.tenant] = max(largest.get(row.tenant, 0.0), abs(row.relative or 0.0))
    return frozenset(sorted(largest, key=lambda tenant: -largest[tenant])[_TENANTS:])


def _cells(row: ComparedFigure) -> tuple[str, str, str, str, str, str]:
    change = "-" if row.change is None else "=" if not row.change else _figure(row.change, signed=True)
    relative = "" if not row.change or row.relative is None else f"{100 * row.relative:+,.2f}"
    return (row.metric, _figure(row.a), _figure(row.b), change, relative, row.verdict)


def _figure(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    sign = "+" if signed else ""
    return f"{value:{sign},d}" if isinstance(value, int) else f"{value:{sign},.3f}"


def _requests(requests: RequestChanges) -> list[str]:
    counts = f"{requests.slower:,} slower and {requests.faster:,} faster by more than {100 * THRESHOLD:g} %"
    lines = [f"requests: {requests.compared:,} compared end to end, {counts}"]
    lines += [f"  {fate.count:,} {fate.a} -> {fate.b}" for fate in requests.different_ends]
    if requests.other:
        lines.append(f"  {plural(requests.other, 'request')} with another arrival or prompt in B (not compared)")
    for letter, count in (("A", requests.only_a), ("B", requests.only_b)):
        if count:
            lines.append(f"  {plural(count, 'request')} only in {letter}")
    if requests.most_affected:
        renamed = any(change.request_id != change.b_request_id for change in requests.most_affected)
        head = (f"most affected{', A/B' if renamed else ''}", "A, ms", "B, ms", "change, ms")
        cells = [
            (
                clip(both_names(change.request_id, change.b_request_id), 40),
                ms_text(change.a_us),
                ms_text(change.b_us),
                ms_change_text(change.change_us),
            )
            for change in requests.most_affected
        ]
        lines += _table([head, *cells], range(1, 4))
    return lines


def _table(rows: Sequence[Sequence[str]], right: Container[int]) -> list[str]:
    return [f"  {line}" for line in aligned(rows, right)]
