"""True regret as text, at most 100 columns wide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.columns import aligned, clip
from blis_tui.compare.text import WIDTH
from blis_tui.printable import printable
from blis_tui.units import ms_change_text, plural

if TYPE_CHECKING:
    from blis_tui.compare.hindsight import Alternative, Hindsight, JudgedDecision

_ROWS: Final = 20
"""Maximum number of decisions listed: those that cost all requests together most."""
_INDENT: Final = " " * len("true regret  ")
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
        f"{_INDENT}{looked} replayed, {plural(found.replays, 'replay')} from the decision to the end",
    ]


def _losses(found: Hindsight) -> list[str]:
    if not found.replays:
        return [f"{_INDENT}no decision had an alternative"]
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
