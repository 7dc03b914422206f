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


def whatif_text(what_if: WhatIf, *, everything: bool = False) -> str:
    """Return blocks of text: the question, the request, the others, the reports' figures, the first differing event.

    Args:
        what_if: the result.
        everything: also show equal and minor figures.
    """
    request = what_if.request
    question = f"{request.request_id} on instance {what_if.forced} instead of {what_if.chosen}"
    if what_if.divergence is None:
        question = f"{request.request_id} on instance {what_if.forced}: the router chose it anyway, and nothing changes"
    blocks = [
        [
            clip(f"what if  {question}", WIDTH),
            clip(f"{_WHAT_IF_INDENT}{what_if.experiment.name}, seed {what_if.experiment.seed}", WIDTH),
            *_decision_pair(what_if),
        ],
        _request(request),
    ]
    if what_if.divergence is not None:
        blocks += [
            _others(what_if.others),
            metric_lines(what_if.comparison, everything=everything),
            divergence_lines(what_if.divergence, ("-", "+")),
        ]
    return "\n\n".join("\n".join(printable(line).rstrip() for line in block) for block in blocks) + "\n"


def _decision_pair(what_if: WhatIf) -> list[str]:
    """Return which of several decisions was changed."""
    if len(what_if.decisions) == 1:
        return []
    known = ", ".join(f"{decision.event:,} (to {decision.instance})" for decision in what_if.decisions)
    text = f"It is routed {plural(len(what_if.decisions), 'time')}, at events {known}."
    changed = f"The decision of event {what_if.decision.event:,} is changed; --event names another one."
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
        *(f"  {counts.count:,} {counts.a} -> {counts.b}" for counts in others.different_ends),
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
                (
                    clip(_names(change), 40),
                    _moved(change),
                    ms_text(change.after.e2e_us),
                    ms_change_text(change.e2e_change_us),
                )
                for change in changes
            ]
            lines += _indented(_columns([titles, *cells]))
    return lines


def _names(change: Change) -> str:
    return both_names(change.before.request_id, change.after.request_id)


def _moved(change: Change) -> str:
    before, after = place_text(change.before), place_text(change.after)
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


def hindsight_text(hindsight: Hindsight, *, everything: bool = False) -> str:
    """Return what was replayed, the cost of decisions, and the decisions that cost most.

    Args:
        hindsight: the result.
        everything: list all examined decisions, in order.
    """
    blocks = [_question(hindsight), _losses(hindsight), _decisions(hindsight, everything=everything)]
    return "\n\n".join("\n".join(printable(line).rstrip() for line in block) for block in blocks if block) + "\n"


def _question(hindsight: Hindsight) -> list[str]:
    looked = f"{len(hindsight.judged):,} of {plural(hindsight.decisions, 'routing decision')}"
    return [
        clip(f"true regret  {hindsight.experiment.name}, seed {hindsight.experiment.seed}", WIDTH),
        f"{_REGRET_INDENT}{looked} replayed, {plural(hindsight.replays, 'replay')} from the decision to the end",
    ]


def _losses(hindsight: Hindsight) -> list[str]:
    if not hindsight.replays:
        return [f"{_REGRET_INDENT}no decision had an alternative"]
    rows: list[tuple[str, ...]] = [("E2E lost, ms", "better", *_COLUMNS)]
    losses = (
        ("by the request", "request", hindsight.lost_by_requests),
        ("by all requests together", "run", hindsight.lost_by_run),
    )
    for name, which, lost in losses:
        better = len(
            [
                decision
                for decision in hindsight.judged
                if getattr(decision, f"best_for_{which}").instance != decision.chosen
            ]
        )
        rows.append((name, f"{better:,} of {len(hindsight.judged):,}", *lost.texts(_COLUMNS, ",.3f")))
    return list(aligned(rows, range(len(rows[0]))))


def _decisions(hindsight: Hindsight, *, everything: bool) -> list[str]:
    judged = list(hindsight.judged)
    if not everything:
        judged.sort(
            key=lambda decision: (decision.best_for_run.for_run, decision.best_for_request.for_request, decision.event)
        )
        judged = [decision for decision in judged if _better(decision)][:_ROWS]
    if not judged:
        return []
    lines = aligned([_OVER, _HEAD, *map(_row, judged)], range(len(_HEAD)))
    left = len(hindsight.judged) - len(judged)
    rest = "their alternatives were no better, or saved less" if judged else "no alternative was better"
    return [*lines, *([f"… {left:,} more ({rest}): --all, or JSON"] if left else [])]


def _better(decision: JudgedDecision) -> bool:
    return decision.best_for_run.instance != decision.chosen or decision.best_for_request.instance != decision.chosen


def _row(decision: JudgedDecision) -> tuple[str, ...]:
    request, run = decision.best_for_request, decision.best_for_run
    return (
        f"{decision.event:,}",
        clip(decision.request_id, 20),
        str(decision.chosen),
        _share(decision.regret),
        _share(decision.true_regret),
        *_change(decision, request, request.ttft_change_us, request.e2e_change_us),
        *_change(decision, run, run.run_ttft_change_us, run.run_e2e_change_us),
    )


def _change(
    decision: JudgedDecision, best: Alternative, ttft_us: int | None, e2e_us: int | None
) -> tuple[str, str, str]:
    """Return the better instance and the changes; empty if the chosen one was the best."""
    if best.instance == decision.chosen:
        return "=", "", ""
    if best.completed_change and best is decision.best_for_run:
        return str(best.instance), "", f"{plural(best.completed_change, 'more request')}"
    return str(best.instance), ms_change_text(ttft_us), ms_change_text(e2e_us)


def _share(regret: float | None) -> str:
    return "-" if regret is None else f"{regret:.3f}"
