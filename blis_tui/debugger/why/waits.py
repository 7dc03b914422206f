"""Why requests wait: for each step of an instance, what kept the head of its queue out.

The rule, from a step's figures alone (``StepRow``), for a step after which somebody still waits. Both batching rules
serve the running requests first and then admit from the head of the queue until something stops them:

1. ``preempted``: the step preempted somebody. Then it admits nobody.
2. ``seqs``: ``max_num_seqs`` requests ran in it (those it completed included).
3. ``tokens``: it computed ``max_num_batched_tokens`` tokens, its whole budget.
4. ``blocks``: otherwise the head did not fit into the free KV blocks, and nobody overtakes the head. With chunked
   prefill off it may instead be that its prompt did not fit into the rest of the token budget; the figures do not
   tell which, so that cause is called ``room``.

Where several hold, the first is named. Time that passes before an instance's next step begins is the cause ``step``:
the engine decides between steps only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.debugger.why.lifespans import steps_within
from blis_tui.units import span_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.debugger.rows import StepRow
    from blis_tui.debugger.tape import Tape
    from blis_tui.debugger.why.lifespans import Life, Span
    from blis_tui.engine.profile import Profile

CAUSES: Final = ("step", "preempted", "seqs", "tokens", "blocks", "room")
"""Every cause, in the order in which they are longest."""


def step_cause(row: StepRow, profile: Profile) -> str:
    """What kept the head of the queue out of a step after which somebody waits."""
    if row.preempted:
        return "preempted"
    if row.running + row.completed >= profile.limits.max_num_seqs:
        return "seqs"
    if row.batch_tokens >= profile.limits.max_num_batched_tokens:
        return "tokens"
    return "blocks" if profile.traits.chunked_prefill else "room"


@dataclass(frozen=True, slots=True)
class WaitCauses:
    """How the time of a wait divides among causes, and in how many steps each of them held."""

    us: Mapping[str, int]
    steps: Mapping[str, int]


def wait_causes(tape: Tape, profile: Profile, span: Span, instance: int, until: int) -> WaitCauses:
    """Divide a wait: each step that did not admit the request accounts for the time until the next one began."""
    us = dict.fromkeys(CAUSES, 0)
    steps = dict.fromkeys(CAUSES, 0)
    cause, since = "step", span.start_us
    for _, start_us, row in steps_within(tape, instance, span.start_us, span.end_us, until):
        us[cause] += start_us - since
        cause, since = step_cause(row, profile), start_us
        steps[cause] += 1
    us[cause] += span.end_us - since
    return WaitCauses({name: value for name, value in us.items() if value}, steps)


def cause_text(cause: str, profile: Profile) -> str:
    """A cause in a few words."""
    return {
        "step": "step under way",
        "preempted": "preemption",
        "seqs": f"batch full ({profile.limits.max_num_seqs:,})",
        "tokens": f"token budget spent ({profile.limits.max_num_batched_tokens:,})",
        "blocks": "too few free KV blocks",
        "room": "whole prompt does not fit",
    }[cause]


def cause_sentence(cause: str, profile: Profile) -> str:
    """Why a step scheduled no further request, for people who never read the documentation."""
    limits = profile.limits
    return {
        "step": "Requests are scheduled only between steps, and one was under way.",
        "preempted": "The step preempted running requests; such a step schedules no request from the queue.",
        "seqs": f"{limits.max_num_seqs:,} requests ran, which is the limit (max_num_seqs).",
        "tokens": f"The step spent the token budget of {limits.max_num_batched_tokens:,} (max_num_batched_tokens).",
        "blocks": "The queue head needed more KV blocks than were free, and no request is scheduled before it.",
        "room": "There were too few free KV blocks, or too little token budget, for the queue head's whole prompt.",
    }[cause]


def wait_lines(tape: Tape, life: Life) -> Mapping[int, str]:
    """Why a request waited: the event at which a wait began -> a few words about it."""
    lines: dict[int, str] = {}
    for span in life.spans:
        if span.what == "wait":
            profile = tape.profiles[span.instance]
            causes = wait_causes(tape, profile, span, span.instance, life.until)
            longest = sorted(causes.us, key=lambda cause: -causes.us[cause])
            pieces = [f"{cause_text(cause, profile)} {span_text(causes.us[cause])}" for cause in longest[:2]]
            verb = "waits" if span.open else "waited"
            tail = f": {', '.join(pieces)}" if pieces else ""
            lines[span.first] = f"{verb} {span_text(span.duration_us)}{tail}"
    return lines
