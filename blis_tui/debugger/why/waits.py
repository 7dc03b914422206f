"""Why requests wait: what kept the head of a queue out of each step, as stated by the batching rule.

If a plan leaves requests in the queue, its rule states a cause (``engine.stopped``), which holds until the next step is
planned. There are three further causes:

- ``step``: nothing was planned since the request joined the queue. The engine decides between steps only.
- ``planned``: the request is scheduled for the step after the current one.
- ``unsaid``: a step was planned and left the request in the queue, and the rule does not say why.

Where steps are planned ahead (asynchronous scheduling), the plan that counts from the start of a step is that of the
following step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import plural, span_text
from blis_tui.debugger.why.lifespans import next_step, steps_within
from blis_tui.engine import stopped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.debugger.event_store import EventStore, StepRow, StopRow
    from blis_tui.debugger.why.lifespans import RequestLife, Span
    from blis_tui.engine.profile import Profile

CAUSES: Final = ("step", "planned", *stopped.CAUSES, "unsaid")
"""The causes described here; a plug-in may have causes of its own."""


def stop_of(tape: EventStore, event: int, row: StepRow) -> StopRow | None:
    """Return the cause stated by the plan made when a step started; planned ahead, that is the following step's plan.

    Args:
        tape: the recorded run.
        event: the step that started.
        row: its figures.
    """
    return tape.stop(event, row.number + tape.plans_ahead)


@dataclass(frozen=True, slots=True)
class WaitCauses:
    """How the time of a wait divides among causes, and in how many steps each of them held.

    ``spent``: events of the steps that the token budget kept it out of, as far as they are known: where steps are
    planned ahead, those that were planned while it waited.
    """

    us: Mapping[str, int]
    steps: Mapping[str, int]
    spent: tuple[int, ...] = ()


def wait_causes(tape: EventStore, span: Span, instance: int, life: RequestLife) -> WaitCauses:
    """Divide a wait among causes: a step that did not schedule the request accounts for the time to the next."""
    held = [one.event for one in life.entries if one.what == "adapter-held" and span.start_us <= one.time_us]
    number = tape.number(life.name)
    us: dict[str, int] = {}
    steps: dict[str, int] = {}
    spent: list[int] = []
    if span.what == "planned":
        return WaitCauses({"planned": span.duration_us}, steps)
    cause, since = "step", span.start_us
    looked = [*steps_within(tape, instance, span.start_us, span.end_us, life.until, "number")]
    stops = tape.stops_of(looked[0][0], looked[-1][0]) if looked else {}
    for event, start_us, step in looked:
        us[cause] = us.get(cause, 0) + start_us - since
        since = start_us
        if event < span.first or (tape.plans_ahead and event > life.settled):
            cause = "step"  # the step was planned earlier, or its plan is not made yet
            continue
        cause, kept_out = stops.get((event, step + tape.plans_ahead), ("unsaid", -1))  # step number as in stop_of
        if held and event >= held[0] and kept_out not in (-1, number):
            cause = stopped.ADAPTER  # the request was passed over before another one was kept out
        steps[cause] = steps.get(cause, 0) + 1
        if cause == stopped.TOKENS:
            spent.append(event)
    us[cause] = us.get(cause, 0) + span.end_us - since
    known = _steps_planned(tape, instance, spent, life.settled)
    return WaitCauses({name: value for name, value in us.items() if value}, steps, known)


def _steps_planned(tape: EventStore, instance: int, plans: Sequence[int], until: int) -> tuple[int, ...]:
    """Return the steps (their events, up to ``until``) that were planned in some events."""
    if not plans:
        return ()
    last = next_step(tape, instance, plans[-1], until) if tape.plans_ahead else 0
    made = frozenset(plans)
    there = tape.steps_of(instance, plans[0], min(last or plans[-1], until), "planned")
    return tuple(event for event, _, planned in there if planned in made)


def preempted_by(tape: EventStore, event: int, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the victims of a step's plan (``StepFinished.preempted``), and for whom each was preempted."""
    until = event - 1 if tape.plans_ahead else event
    found: list[tuple[str, str]] = []
    for name in names:
        number = tape.number(name)
        entry = None if number is None else tape.latest(number, "preempted", until)
        if entry is not None:
            found.append((name, tape.name(entry.second)))
    return tuple(found)


def cause_text(cause: str, profile: Profile) -> str:
    """Return a cause in a few words; a plug-in's own causes are returned unchanged."""
    limits = profile.limits
    return {
        "step": "step in progress",
        "planned": "planned for the next step",
        "unsaid": "the rule does not say",
        stopped.PREEMPTED: "preemption",
        stopped.OUTRANKED: "preempted by priority",
        stopped.MAX_NUM_SEQS: f"batch full ({limits.max_num_seqs:,})",
        stopped.TOKENS: f"token budget spent ({limits.max_num_batched_tokens:,})",
        stopped.PROMPTS: "prompt tokens spent (max_prefill_tokens)",
        stopped.BLOCKS: "too few free KV blocks",
        stopped.WATERMARK: "KV blocks kept free (watermark)",
        stopped.ANSWERS: "no KV blocks for whole answers",
        stopped.ROOM: "no room beside expected answers",
        stopped.ADAPTER: "waiting for its LoRA adapter",
        stopped.ENCODER: "waiting for the encoder",
        stopped.LATE: "its last step in progress",
        stopped.GATHERING: "prompts wait for others",
        stopped.CADENCE: "a step without prompts",
        stopped.UNSEEN: "the scheduler had not looked",
        stopped.APART: "a step of prompts alone",
    }.get(cause, cause)


def cause_sentence(stop: StopRow | None, profile: Profile, row: StepRow) -> str:
    """Return why a step scheduled no further request, as a sentence that needs no documentation.

    Args:
        stop: the cause that the rule stated.
        profile: profile of the instance.
        row: the step that was planned, or that was in progress during planning.
    """
    if stop is None:
        return "Requests stayed in the queue; the batching rule does not say why."
    limits = profile.limits
    amounts = f" ({stop.need:,} needed, {stop.had:,} left)" if stop.need else ""
    spent = f"The step spent the token budget of {limits.max_num_batched_tokens:,} ({profile.traits.budget_name})."
    if stop.had:
        spent = f"The next prompt did not fit into what was left of the token budget, and is not split{amounts}."
    known = {
        stopped.PREEMPTED: "The step preempted running requests; such a step schedules no request from the queue.",
        stopped.OUTRANKED: (
            "The step took all requests from the queue, and preempted less urgent ones for them; the next step looks at"
            " these."
        ),
        stopped.MAX_NUM_SEQS: _places(stop, profile, row),
        stopped.TOKENS: spent,
        stopped.PROMPTS: f"The step took all that it may of prompts (max_prefill_tokens){amounts}.",
        stopped.BLOCKS: f"The next request needed more KV blocks than were free{amounts}.",
        stopped.WATERMARK: (
            f"The next request did not fit beside the {stop.kept:,} KV blocks that must stay free (watermark){amounts}."
        ),
        stopped.ANSWERS: f"The KV blocks of all prompts and whole declared answers must be free{amounts}.",
        stopped.ROOM: (
            "The next request did not fit beside what running requests were expected to generate"
            + (f" ({stop.need:,} tokens needed, {stop.had:,} left)." if stop.need else ".")
        ),
        stopped.ADAPTER: "A LoRA adapter had no slot in the batch (max_loras), or had to be loaded.",
        stopped.ENCODER: (
            "The next item of media exceeded what was left of the encoder's budget, or of the room in its cache"
            + (f" ({stop.need:,} tokens needed, {stop.had:,} left)." if stop.need else ".")
        ),
        stopped.LATE: "The waiting request was preempted while a step was in progress, and is not scheduled before "
        "that step ends.",
        stopped.GATHERING: (
            f"Prompts waited for others (batch_wait_timeout_iters): {stop.had + 1:,} of {plural(stop.need, 'step')}."
        ),
        stopped.CADENCE: (
            f"While requests decode, prompts are computed every {plural(stop.need, 'step')}"
            f" (prefill_schedule_interval); this was step {stop.had:,} since the latest ones."
        ),
        stopped.UNSEEN: "The scheduler had not looked for new requests yet (scheduler_recv_interval).",
        stopped.APART: "The step computed prompts, and the next request's was computed on another instance.",
    }
    return known.get(stop.cause, f"The batching rule says: {stop.cause}{amounts}.")


def _places(stop: StopRow, profile: Profile, row: StepRow) -> str:
    """Return the sentence for a full batch; it names ``max_num_seqs`` only if that many requests were running."""
    limit = profile.limits.max_num_seqs
    each = profile.traits.limits_each_step
    there = row.served if each else row.running + row.completed
    if there < limit:
        amounts = f"{stop.need:,} needed, {stop.had:,} left"
        return f"The batching rule says that it had no room for another request ({amounts})."
    were = f"{'was' if limit == 1 else 'were'} {'served' if each else 'running'}"
    return f"{plural(limit, 'request')} {were}, which is the limit (max_num_seqs {limit:,})."


def wait_lines(tape: EventStore, life: RequestLife) -> Mapping[int, str]:
    """Return a remark on why a request waited, by the event at which each wait began."""
    lines: dict[int, str] = {}
    for span in life.spans:
        if span.what == "wait":
            profile = tape.profiles[span.instance]
            causes = wait_causes(tape, span, span.instance, life)
            longest = sorted(causes.us, key=lambda cause: -causes.us[cause])
            pieces = [f"{cause_text(cause, profile)} {span_text(causes.us[cause])}" for cause in longest[:2]]
            verb = "waits" if span.open else "waited"
            tail = f": {', '.join(pieces)}" if pieces else ""
            lines[span.first] = f"{verb} {span_text(span.duration_us)}{tail}"
    return lines
