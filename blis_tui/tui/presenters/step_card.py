"""A step as a card: what each of its four phases did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.debugger.moment import LAST_PHASE, PHASES
from blis_tui.tui.presenters.lines import flow, hang, line, names_text
from blis_tui.units import count_text, plural, span_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.records import StepFinished
    from blis_tui.tui.presenters.lines import Line

_NAMES: Final = 3
_SEPARATOR: Final = " · "


def step_card(
    step: StepFinished, phase: int | None, budget: int, width: int, planned_us: int | None = None
) -> list[Line]:
    """The four phases, ``▶`` at the present one; those not looked into yet have a dot and are dimmed.

    Args:
        step: the step.
        phase: how far it has been looked into, as an index of ``PHASES``; None = all of it.
        budget: ``max_num_batched_tokens``.
        width: in cells.
        planned_us: when it was planned, where steps are planned ahead.
    """
    here = LAST_PHASE if phase is None else phase
    planned = [] if planned_us is None else [Content(f"planned at {time_text(planned_us)}")]
    facts = ([*_schedule(step, budget), *planned], _execute(step), _complete(step), _next(step))
    lines: list[Line] = []
    for at, (name, items) in enumerate(zip(PHASES, facts, strict=True)):
        mark = "▶" if at == here else "·" if at > here else " "
        head_style = "$accent bold" if at == here else "$text-muted"
        head = Content.assemble((f"{mark} {name:<8}  ", head_style))
        rows = flow(items, max(width - head.cell_length, 12), _SEPARATOR)
        if at > here:
            rows = [Content.styled(row.plain, "$text-muted dim") for row in rows]
        lines += map(line, hang(head, rows))
    return lines


def _named(label: str, names: Sequence[str], style: str) -> list[Content]:
    return [Content.assemble((label, style), f" {names_text(names, _NAMES)}")] if names else []


def _schedule(step: StepFinished, budget: int) -> list[Content]:
    prefill = sum(chunk.new_tokens for chunk in step.chunks)
    tokens: list[str | tuple[str, str]] = []
    if prefill:
        tokens += [(count_text(prefill), "$secondary"), " prefill"]
    if prefill and step.decode_requests:
        tokens.append(" + ")
    if step.decode_requests:
        tokens += [(count_text(step.decode_requests), "$primary"), " decode"]
    if not tokens:
        tokens = ["no"]
    return [
        *_named("scheduled", step.admitted, "$success"),
        *_named("preempted", step.preempted, "$error"),
        *_named("stalled", step.stalled, "$warning"),
        Content.assemble(*tokens, f" tokens of {count_text(budget)}"),
    ]


def _execute(step: StepFinished) -> list[Content]:
    items = [Content(span_text(step.duration_us))]
    if step.decode_context_tokens:
        items.append(Content(f"reads {plural(step.decode_context_tokens, 'token')} of context"))
    return items


def _complete(step: StepFinished) -> list[Content]:
    items = [
        *_named("first token", step.first_tokens, "$success"),
        *_named("done", step.completed, "$success"),
    ]
    if not items:
        items.append(Content("no request completed"))
    return items


def _next(step: StepFinished) -> list[Content]:
    if step.next_step_us < 0:
        return [Content("goes idle: no request waits or runs")]
    return [Content(f"next step at {time_text(step.next_step_us)}")]
