"""The autoscaler's latest evaluation, its conclusion, and its effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.cluster.records import ScalingDecided
from blis_tui.tui.presenters.lines import BLANK, fact, flow, heading, line, words
from blis_tui.units import bar_text, count_text, percent_text, span_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.spec.model import Autoscaler
    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View

EVENT_KEY: Final = "#"
"""Prefix of the key of a line about an event."""
VERDICTS: Final = {
    "scale-up": "↑ scale up",
    "scale-down": "↓ scale down",
    "wait": "… wait",
    "hold": "= hold",
}
_EFFECTS: Final = 5
"""Maximum number of changes shown."""
_BAR: Final = 8


def autoscaler_lines(view: View, width: int) -> list[Line]:
    """Return the latest decisions, one for each role and model, and their effects; empty without an autoscaler."""
    settings = view.experiment.cluster.autoscaler
    if settings is None:
        return []
    lines = [BLANK, heading("⇕ Autoscaler", f"evaluates every {span_text(settings.interval_us)}", width)]
    event = view.tape.latest_of("scaling-decided", view.moment.event)
    if not event:
        return [*lines, line(("It has not evaluated yet.", "$text-muted"))]
    key, head = f"{EVENT_KEY}{event}", time_text(view.tape.time_us(event))
    decisions = _decisions(view, event)
    if not decisions:
        lines += [line(row, key=key) for row in words(f"{head}: {view.tape.reason(event)}", width)]
    for one in decisions:
        verdict = VERDICTS.get(one.verdict, one.verdict)
        count = f" {count_text(one.instances)} in {one.pool}" if one.instances else ""
        lines += [line(row, key=key) for row in words(f"{head} {verdict}{count}: {one.reason}", width)]
        lines += [line(row) for row in flow(_balance(one, settings), width)]
    effects = list(_effects(view))
    if effects:
        lines += [line(row) for row in flow([Content.styled("took effect", "$text-muted"), *effects], width)]
    return lines


def _decisions(view: View, event: int) -> list[ScalingDecided]:
    """Return the decisions' records; none during a run, because a past event would have to be replayed."""
    if view.playing:
        return []
    records = view.moment.records if event == view.moment.event else view.records_of(event)
    return [one for one in records if isinstance(one, ScalingDecided)]


def _balance(one: ScalingDecided, settings: Autoscaler) -> list[Content]:
    """Return demand, supply, and the thresholds."""
    supply = one.supply_tokens + one.pending_tokens
    up, down = settings.scale_up_threshold, settings.scale_down_boundary
    pending = f" {count_text(one.pending_tokens)} of it pending" if one.pending_tokens else ""
    style = "$warning" if one.required_tokens else "$primary"
    return [
        Content.assemble(
            ("demand ", "$text-muted"),
            (bar_text(one.demand_tokens, supply, _BAR), style),
            f" {percent_text(one.demand_tokens, supply)} of supply",
        ),
        fact("supply", f"{count_text(supply)} tokens{pending}"),
        fact("up above", f"{100 * up:g} %"),
        fact("down below", f"{100 * down:g} %"),
    ]


def _effects(view: View) -> Iterator[Content]:
    """Yield the latest changes, the last one first."""
    tape, event = view.tape, view.moment.event
    for _ in range(_EFFECTS):
        event = tape.latest_of("scaled", event)
        if not event:
            return
        change = tape.values(tape.row(event)).get("change", 0)
        yield Content(f"{change:+} at {time_text(tape.time_us(event))}")
        event -= 1
