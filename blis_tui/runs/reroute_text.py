"""Runs with other routing decisions as text, at most 100 columns wide."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from blis_tui.base.text import aligned, clip, printable
from blis_tui.base.units import ms_change_text, ms_text, plural
from blis_tui.runs.comparison_text import WIDTH, both_names, metric_lines
from blis_tui.runs.divergence import divergence_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.results.request_log import RequestRow
    from blis_tui.runs.reroute import (
        Alternative,
        Change,
        Hindsight,
        JudgedDecision,
        LatencyShift,
        OtherRequests,
        WhatIf,
    )


_WHAT_IF_INDENT: Final = " " * len("what if  ")
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
            clip(f"{_WHAT_IF_INDENT}{found.experiment.name}, seed {found.experiment.seed}", WIDTH),
            *_decision_pair(found),
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


def _decision_pair(found: WhatIf) -> list[str]:
    """Return which of several decisions was changed."""
    if len(found.decisions) == 1:
        return []
    known = ", ".join(f"{one.event:,} (to {one.instance})" for one in found.decisions)
    text = f"It is routed {plural(len(found.decisions), 'time')}, at events {known}."
    changed = f"The decision of event {found.decision.event:,} is changed; --event names another one."
    return wrap(f"{text} {changed}", WIDTH, initial_indent=_WHAT_IF_INDENT, subsequent_indent=_WHAT_IF_INDENT)


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


_ROWS: Final = 20
"""Maximum number of decisions listed: those that cost all requests together most."""
_REGRET_INDENT: Final = " " * len("true regret  ")
_COLUMNS: Final = ("mean", "p50", "p90", "p99", "max")
_HEAD: Final = ("event", "request", "chosen", "as seen", "as it was", "best", "TTFT", "E2E", "best", "TTFT", "E2E")
_OVER: Final = ("", "", "", "score", "lost", "for the", "request,", "ms", "for", "all,", "ms")


def hindsight_text(found: Hindsight, *, everything: bool = False) -> str:
    """Return what was replayed, the cost of decisions, and the decisions that cost most.

    Args:
        found: the result.
        everything: list all examined decisions, in order.
    """
    blocks = [_question(found), _losses(found), _decisions(found, everything=everything)]
    return "\n\n".join("\n".join(printable(line).rstrip() for line in block) for block in blocks if block) + "\n"


def _question(found: Hindsight) -> list[str]:
    looked = f"{len(found.judged):,} of {plural(found.decisions, 'routing decision')}"
    return [
        clip(f"true regret  {found.experiment.name}, seed {found.experiment.seed}", WIDTH),
        f"{_REGRET_INDENT}{looked} replayed, {plural(found.replays, 'replay')} from the decision to the end",
    ]


def _losses(found: Hindsight) -> list[str]:
    if not found.replays:
        return [f"{_REGRET_INDENT}no decision had an alternative"]
    rows: list[tuple[str, ...]] = [("E2E lost, ms", "better", *_COLUMNS)]
    told = (
        ("by the request", "request", found.lost_by_requests),
        ("by all requests together", "run", found.lost_by_run),
    )
    for name, which, lost in told:
        better = len([one for one in found.judged if getattr(one, f"best_for_{which}").instance != one.chosen])
        rows.append((name, f"{better:,} of {len(found.judged):,}", *lost.texts(_COLUMNS, ",.3f")))
    return list(aligned(rows, range(len(rows[0]))))


def _decisions(found: Hindsight, *, everything: bool) -> list[str]:
    judged = list(found.judged)
    if not everything:
        judged.sort(key=lambda one: (one.best_for_run.for_run, one.best_for_request.for_request, one.event))
        judged = [one for one in judged if _better(one)][:_ROWS]
    if not judged:
        return []
    lines = aligned([_OVER, _HEAD, *map(_row, judged)], range(len(_HEAD)))
    left = len(found.judged) - len(judged)
    rest = "their alternatives were no better, or saved less" if judged else "no alternative was better"
    return [*lines, *([f"… {left:,} more ({rest}): --all, or JSON"] if left else [])]


def _better(one: JudgedDecision) -> bool:
    return one.best_for_run.instance != one.chosen or one.best_for_request.instance != one.chosen


def _row(one: JudgedDecision) -> tuple[str, ...]:
    request, run = one.best_for_request, one.best_for_run
    return (
        f"{one.event:,}",
        clip(one.request_id, 20),
        str(one.chosen),
        _share(one.regret),
        _share(one.true_regret),
        *_change(one, request, request.ttft_change_us, request.e2e_change_us),
        *_change(one, run, run.run_ttft_change_us, run.run_e2e_change_us),
    )


def _change(one: JudgedDecision, best: Alternative, ttft_us: int | None, e2e_us: int | None) -> tuple[str, str, str]:
    """Return the better instance and the changes; empty if the chosen one was the best."""
    if best.instance == one.chosen:
        return "=", "", ""
    if best.completed_change and best is one.best_for_run:
        return str(best.instance), "", f"{plural(best.completed_change, 'more request')}"
    return str(best.instance), ms_change_text(ttft_us), ms_change_text(e2e_us)


def _share(regret: float | None) -> str:
    return "-" if regret is None else f"{regret:.3f}"
