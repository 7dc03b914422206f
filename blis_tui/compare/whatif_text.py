"""A counterfactual as text, at most 100 columns wide."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from blis_tui.columns import aligned, clip
from blis_tui.compare.divergence import divergence_lines
from blis_tui.compare.text import WIDTH, metric_lines
from blis_tui.compare.wording import both_names
from blis_tui.printable import printable
from blis_tui.units import ms_change_text, ms_text, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.compare.whatif import Change, LatencyShift, OtherRequests, WhatIf
    from blis_tui.metrics.request_log import RequestRow

_INDENT: Final = " " * len("what if  ")
_STATISTICS = ("mean", "min", "p50", "p90", "p99", "max")


def whatif_text(found: WhatIf, *, everything: bool = False) -> str:
    """Return blocks of text: the question, the request, the others, the reports' figures, the first differing event.

    Args:
        found: the result.
        everything: also show equal and minor figures.
    """
    request = found.request
    question = f"{request.request_id} on instance {found.forced} instead of {found.chosen}"
    if found.divergence is None:
        question = f"{request.request_id} on instance {found.forced}: the router chose it anyway, and nothing changes"
    blocks = [
        [
            clip(f"what if  {question}", WIDTH),
            clip(f"{_INDENT}{found.experiment.name}, seed {found.experiment.seed}", WIDTH),
            *_decisions(found),
        ],
        _request(request),
    ]
    if found.divergence is not None:
        blocks += [
            _others(found.others),
            metric_lines(found.comparison, everything=everything),
            divergence_lines(found.divergence, ("-", "+")),
        ]
    return "\n\n".join("\n".join(printable(line).rstrip() for line in block) for block in blocks) + "\n"


def _decisions(found: WhatIf) -> list[str]:
    """Return which of several decisions was changed."""
    if len(found.decisions) == 1:
        return []
    known = ", ".join(f"{one.event:,} (to {one.instance})" for one in found.decisions)
    text = f"It is routed {plural(len(found.decisions), 'time')}, at events {known}."
    changed = f"The decision of event {found.decision.event:,} is changed; --event names another one."
    return wrap(f"{text} {changed}", WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _request(request: Change) -> list[str]:
    before, after = request.before, request.after
    rows = [
        ("", "before", "after", "change"),
        ("state", before.state, after.state, ""),
        ("instance", place_text(before), place_text(after), ""),
        ("time to first token, ms", *_times(before.ttft_us, after.ttft_us, request.ttft_change_us)),
        ("end to end, ms", *_times(before.e2e_us, after.e2e_us, request.e2e_change_us)),
    ]
    return _columns([(clip(request.request_id, 40), *rows[0][1:]), *rows[1:]])


def _times(before: int | None, after: int | None, change: int | None) -> tuple[str, str, str]:
    return ms_text(before), ms_text(after), ms_change_text(change)


def place_text(row: RequestRow) -> str:
    """Return where the request was served; ``0 > 2``: prefill and decode."""
    there = "-" if row.instance is None else str(row.instance)
    return there if row.prefill_instance is None else f"{row.prefill_instance} > {there}"


def _others(others: OtherRequests) -> list[str]:
    moved = f"others: {others.changed:,} of {others.total:,} changed, {others.moved:,} on another instance"
    lines = [
        f"{moved}; end to end {others.e2e.longer:,} slower, {others.e2e.shorter:,} faster",
        *(f"  {one.count:,} {one.a} -> {one.b}" for one in others.different_ends),
    ]
    if others.not_compared:
        lines.append(f"  {plural(others.not_compared, 'request')} not compared: not the same, or not sent")
    if others.ttft.longer + others.ttft.shorter + others.e2e.longer + others.e2e.shorter:
        shifts = [("time to first token", others.ttft), ("end to end", others.e2e)]
        head = ("change of those, ms", "total", *_STATISTICS)
        lines += _indented(_columns([head, *((name, *_figures(shift)) for name, shift in shifts)]))
    for name, changes in (("worst", others.worst), ("best", others.best)):
        if changes:
            titles = (name, "instance", "end to end, ms", "change")
            cells = [
                (clip(_names(one), 40), _moved(one), ms_text(one.after.e2e_us), ms_change_text(one.e2e_change_us))
                for one in changes
            ]
            lines += _indented(_columns([titles, *cells]))
    return lines


def _names(one: Change) -> str:
    return both_names(one.before.request_id, one.after.request_id)


def _moved(one: Change) -> str:
    before, after = place_text(one.before), place_text(one.after)
    return before if before == after else f"{before} -> {after}"


def _figures(shift: LatencyShift) -> list[str]:
    return [ms_change_text(shift.total_us), *shift.change_ms.texts(_STATISTICS, "+,.3f")]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the first column left and the others right."""
    return list(aligned(rows, range(1, len(rows[0]))))


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
