"""Why requests wait: for each step of an instance, what kept the head of its queue out.

The rule, from a step's figures alone (``StepRow``), for a step after which requests still wait. Batching rules admit
from the head of the queue until something stops them:

1. ``preempted``: the step preempted a request. Then it admits none.
2. ``seqs``: ``max_num_seqs`` requests ran in it (those it completed included), or, where that bounds each step alone,
   were served by it.
3. ``tokens``: it computed ``max_num_batched_tokens`` tokens, its whole budget.
   Where requests overtake, some may have been skipped for want of blocks before that; the figures do not tell.
4. ``blocks``: otherwise the head did not fit into the free KV blocks, and none overtakes the head; where requests do
   overtake, none that waits fitted. With chunked prefill off it may instead be that its prompt did not fit into the
   rest of the token budget; the figures do not tell which, so that cause is called ``room``. Where prompts go first, it
   is why a step decodes at all.

5. ``adapter``: in place of these, once the request has been held because of its LoRA adapter.

Where several hold, the first is named. Time that passes before an instance's next step begins is the cause ``step``:
the engine decides between steps only.

Where steps are planned ahead (asynchronous scheduling), the plan that counts from the start of a step on is that of the
step after it. It saw the batch as the starting step leaves it; those whose last token that computes still have their
place in the batch. It is known once its own step starts; until then the cause is ``step``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.debugger.why.lifespans import next_step, steps_within
from blis_tui.units import span_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.debugger.rows import StepRow
    from blis_tui.debugger.tape import Tape
    from blis_tui.debugger.why.lifespans import Life, Span
    from blis_tui.engine.profile import Profile

CAUSES: Final = ("step", "planned", "preempted", "seqs", "tokens", "blocks", "room", "adapter")
"""Every cause, in the order in which they are longest."""


def step_cause(row: StepRow, profile: Profile) -> str:
    """What kept the head of the queue out of a step after which requests wait."""
    if row.preempted:
        return "preempted"
    traits = profile.traits
    if traits.prefills_apart and row.decode_requests:
        return "room"
    if (row.served if traits.limits_each_step else row.running + row.completed) >= profile.limits.max_num_seqs:
        return "seqs"
    if row.batch_tokens >= profile.limits.max_num_batched_tokens:
        return "tokens"
    return "blocks" if profile.traits.chunked_prefill else "room"


def planned_cause(event: int, row: StepRow, following: StepRow | None, profile: Profile) -> str:
    """The same of the plan that was made when a step started, for the step that follows.

    Args:
        event: the step that started.
        row: its figures.
        following: those of the step after it; None = it has not started yet.
        profile: of the instance.
    """
    if following is None:
        return "step"
    if following.preempted:
        return "preempted"
    made = following.planned == event  # else it came to nothing, and the step after it was planned when it started
    if row.running + row.completed + (following.admitted if made else 0) >= profile.limits.max_num_seqs:
        return "seqs"
    if made and following.batch_tokens >= profile.limits.max_num_batched_tokens:
        return "tokens"
    return "blocks" if profile.traits.chunked_prefill else "room"


@dataclass(frozen=True, slots=True)
class WaitCauses:
    """How the time of a wait divides among causes, and in how many steps each of them held."""

    us: Mapping[str, int]
    steps: Mapping[str, int]


def wait_causes(tape: Tape, profile: Profile, span: Span, instance: int, life: Life) -> WaitCauses:
    """Divide a wait: each step that did not admit the request accounts for the time until the next one began."""
    until = life.until
    held = [one.event for one in life.entries if one.what == "adapter-held" and span.start_us <= one.time_us]
    held_from = held[0] if held else None
    us = dict.fromkeys(CAUSES, 0)
    steps = dict.fromkeys(CAUSES, 0)
    if span.what == "planned":
        return WaitCauses({"planned": span.duration_us}, steps)
    cause, since = "step", span.start_us
    for event, start_us, row, following in _with_following(tape, instance, span, until):
        us[cause] += start_us - since
        if profile.traits.plans_ahead:
            cause = planned_cause(event, row, following, profile)
        else:
            cause = step_cause(row, profile)
        if held_from is not None and event >= held_from and cause in ("blocks", "room"):
            cause = "adapter"
        since = start_us
        steps[cause] += cause != "step"
    us[cause] += span.end_us - since
    return WaitCauses({name: value for name, value in us.items() if value}, steps)


def _with_following(
    tape: Tape, instance: int, span: Span, until: int
) -> Iterator[tuple[int, int, StepRow, StepRow | None]]:
    """The steps that began in a span: event, start, figures, and those of the step after it, if it has started."""
    before: tuple[int, int, StepRow] | None = None
    for step in steps_within(tape, instance, span.start_us, span.end_us, until):
        if before is not None:
            yield *before, step[2]
        before = step
    if before is not None:
        following = next_step(tape, instance, before[0], until)
        yield *before, tape.step(tape.row(following).step) if following else None


def preempted_by(tape: Tape, event: int, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Whom a step's plan preempted (``StepFinished.preempted``), and for whom."""
    until = event - 1 if tape.plans_ahead else event
    found: list[tuple[str, str]] = []
    for name in names:
        number = tape.number(name)
        entry = None if number is None else tape.latest(number, "preempted", until)
        if entry is not None:
            found.append((name, tape.name(entry.second)))
    return tuple(found)


def _one_waits_for_all(profile: Profile) -> bool:
    """Whether no request is scheduled while the queue head waits for its LoRA adapter; figures of steps do not tell."""
    return bool(profile.limits.max_loras) and profile.traits.adapters == "beside"


def cause_text(cause: str, profile: Profile) -> str:
    """A cause in a few words."""
    return {
        "step": "step under way",
        "planned": "planned for the next step",
        "preempted": "preemption",
        "seqs": f"batch full ({profile.limits.max_num_seqs:,})",
        "tokens": f"token budget spent ({profile.limits.max_num_batched_tokens:,})",
        "blocks": "too few free KV blocks" + (", or an adapter awaited" if _one_waits_for_all(profile) else ""),
        "room": "whole prompt does not fit",
        "adapter": "waiting for its LoRA adapter",
    }[cause]


def cause_sentence(cause: str, profile: Profile) -> str:
    """Why a step scheduled no further request, for people who never read the documentation."""
    limits, traits = profile.limits, profile.traits
    ran = "were served" if traits.limits_each_step else "ran"
    blocks = "The queue head needed more KV blocks than were free, and no request is scheduled before it."
    if _one_waits_for_all(profile):
        blocks = "The queue head needed more KV blocks than were free, or a LoRA adapter that was not loaded yet."
    if traits.overtakes:
        blocks = "Every request that waits needed more KV blocks than were free."
    return {
        "planned": "It is planned for the next step; the one under way has to end first.",
        "step": "Requests are scheduled only between steps, and one was under way.",
        "preempted": "The step preempted running requests; such a step schedules no request from the queue.",
        "seqs": f"{limits.max_num_seqs:,} requests {ran}, which is the limit (max_num_seqs).",
        "tokens": f"The step spent the token budget of {limits.max_num_batched_tokens:,} (max_num_batched_tokens).",
        "blocks": blocks,
        "adapter": "Its LoRA adapter had no place in the batch (max_loras), or had to be loaded.",
        "room": "There were too few free KV blocks, or too little token budget, for the queue head's whole prompt.",
    }[cause]


def wait_lines(tape: Tape, life: Life) -> Mapping[int, str]:
    """Why a request waited: the event at which a wait began -> a few words about it."""
    lines: dict[int, str] = {}
    for span in life.spans:
        if span.what == "wait":
            profile = tape.profiles[span.instance]
            causes = wait_causes(tape, profile, span, span.instance, life)
            longest = sorted(causes.us, key=lambda cause: -causes.us[cause])
            pieces = [f"{cause_text(cause, profile)} {span_text(causes.us[cause])}" for cause in longest[:2]]
            verb = "waits" if span.open else "waited"
            tail = f": {', '.join(pieces)}" if pieces else ""
            lines[span.first] = f"{verb} {span_text(span.duration_us)}{tail}"
    return lines
