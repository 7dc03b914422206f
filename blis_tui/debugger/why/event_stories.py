"""What an event means, and why it turned out as it did."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.units import count_text, percent_text, plural, span_text, time_text
from blis_tui.cluster.decisions import ALTERNATIVES
from blis_tui.cluster.records import ScalingDecided
from blis_tui.cluster.stages import ACTIVE
from blis_tui.debugger.state import LAST_PHASE, PHASES
from blis_tui.debugger.why.breakdown import cause_sentence, preempted_by, stop_of
from blis_tui.debugger.why.control import (
    decision_parts,
    deferred_event,
    first_record,
    gateway_parts,
    rejected_event,
    rejection_parts,
    resumed_parts,
    split_parts,
    transfer_finished_event,
    transfer_started_event,
)
from blis_tui.debugger.why.explanation import (
    Explanation,
    ExplanationRow,
    Part,
    Sentence,
    Subject,
    event_ref,
    instance_ref,
    listing,
    request_ref,
    say,
)
from blis_tui.debugger.why.lifecycle import (
    broken_off_event,
    broken_off_parts,
    instance_changed_event,
    instance_stopped_event,
    lifecycle_parts,
    scaled_event,
    scaling_decided_event,
    scaling_meaning,
    stranded_event,
)
from blis_tui.debugger.why.lifespans import STAGES, last_step, next_step, read_life
from blis_tui.debugger.why.memory import KV_SHORTAGES, holders_sentences, moves_part, outranking_part, retraction_part
from blis_tui.debugger.why.request_content import answers_begun, media_text
from blis_tui.engine.latency.wrappers import captured_size
from blis_tui.engine.records import DraftsVerified, Routed, StepFinished, described
from blis_tui.results.conditions.breakpoints import sentence
from blis_tui.results.stats import median_high

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import EventRow, EventStore, StepRow
    from blis_tui.engine.profile import Profile
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment


_EXECUTE: Final = PHASES.index("execute")
_COMPLETE: Final = PHASES.index("complete")
_COMPARED: Final = 1000
"""Number of preceding steps with which a step's duration is compared."""


def event_explanation(debugger: Debugger, event: int) -> Explanation:
    """Return what a recorded event (from 1) means, and why it turned out as it did."""
    row = debugger.tape.row(event)
    about = event_ref(event)
    later = ", later than the current position" if event > debugger.event else ""
    title = f"Event {event:,}: {row.kind} at {time_text(row.time_us)}{later}"
    headline, parts = _EXPLAINERS.get(row.kind, _other)(debugger, row)
    shown = described(row.kind)
    own = scaling_meaning(debugger) if row.kind == ScalingDecided.kind else ""
    meaning = say(own or shown.explanation or f"An event in which {shown.meaning}.")
    beside = [
        *(rejection_parts(debugger, event) if row.kind != "rejected" else ()),
        *gateway_parts(debugger, event),
        *resumed_parts(debugger, event),
        *split_parts(debugger, event),
        *decision_parts(debugger, event),
        *lifecycle_parts(debugger, event),
        *broken_off_parts(debugger, event),
    ]
    return Explanation(about, title, headline, (Part("What it is", (meaning,)), *parts, *beside))


def _other(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return what the records say, for events without an explanation of their own."""
    sentences = [capitalized(record) for record in debugger.records_of(row.event)]
    subject = () if row.request < 0 else (say("The request is ", _subject(debugger.tape, row), "."),)
    return f"{sentences[0]}.", [Part("Its records", (*subject, *(say(f"{text}.") for text in sentences)))]


def capitalized(record: Record) -> str:
    """Return what a record says with a capital letter at its beginning, unless that is a request's name."""
    text = sentence(record)
    name = getattr(record, "request_id", "")
    return text if name and text.startswith(name) else text[:1].upper() + text[1:]


# ---- events about a request ----


def _arrived(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    life = debugger.tape.life(debugger.tape.name(row.request), row.event)
    prompt, declared = life[0].first, life[0].second
    facts = [say("The request is ", _subject(debugger.tape, row), f", with a prompt of {plural(prompt, 'token')}.")]
    if declared:
        facts.append(say(f"It asks for at most {plural(declared, 'output token')}."))
    media = debugger.tape.media(debugger.tape.name(row.request))
    if media is not None:
        facts.append(say(f"Of its prompt, {media_text(media)} {'is' if sum(media) == 1 else 'are'} not text."))
    return f"A request with a prompt of {plural(prompt, 'token')} arrived.", [Part("The request", tuple(facts))]


def _admitted(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    plug = debugger.experiment.policy.admission
    since = row.time_us - _arrival_us(debugger.tape, row)
    facts = [
        say(
            f"The policy {plug.kind} admitted ",
            _subject(debugger.tape, row),
            f" {span_text(since)} after it arrived.",
        ),
        *_rule(debugger.moment().state.admission_rule),
    ]
    return f"Admission control ({plug.kind}) admitted it.", [Part("The decision", tuple(facts))]


def _rule(sentence: str) -> list[Sentence]:
    return [say(sentence)] if sentence else []


def _routed(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    tape = debugger.tape
    rows = _instances_before(debugger, row)  # its replay has the records, too
    kind = next(record.policy for record in debugger.records_of(row.event) if isinstance(record, Routed))
    reason = tape.reason(row.event)
    facts = say(f"The policy {kind} sent ", _subject(tape, row), " to ", instance_ref(row.instance), f" ({reason}).")
    head = f"The router ({kind}) chose instance {row.instance}: {reason}."
    sentences = [facts, *_rule(debugger.moment().state.routing_rules.get(kind, ""))]
    parts = [Part("The choice", tuple(sentences)), Part("The instances just before", (), tuple(rows))]
    return head, parts if rows else parts[:1]


def _instances_before(debugger: Debugger, routed: EventRow) -> list[ExplanationRow]:
    """Return the instances as they were just before a request was routed; none if they are many."""
    before = debugger.state_before(routed.event)
    rows = []
    for instance in () if len(before.instances) > ALTERNATIVES + 1 else before.instances:
        chosen = "chosen" if instance.index == routed.instance else ""
        life = "" if instance.life == ACTIVE else f", {instance.life}"
        note = f"{instance.running_count:,} running, {plural(instance.kv.used_blocks, 'KV block')} in use{life}"
        rows.append(
            ExplanationRow(f"instance {instance.index}", f"{instance.waiting_count:,} waiting", chosen, say(note))
        )
    return rows


def _queued(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    tape = debugger.tape
    entry = tape.latest(row.request, "queued", row.event)
    position = 0 if entry is None else entry.second
    since = row.time_us - _arrival_us(tape, row)
    place = "first" if position == 0 else f"number {position + 1:,}"
    facts = say(_subject(tape, row), f" became {place} in the queue of ", instance_ref(row.instance), ".")
    before = say(f"That was {span_text(since)} after it arrived: {_way_to_queue(debugger, row)}.")
    return f"It became {place} in the queue of instance {row.instance}.", [Part("Its place", (facts, before))]


def _way_to_queue(debugger: Debugger, row: EventRow) -> str:
    """Return what took the time from a request's arrival to its place in a queue."""
    life = read_life(debugger.tape, debugger.tape.name(row.request), row.event)
    spans = () if life is None else life.spans
    kinds = dict.fromkeys("gone" if span.gone else span.what for span in spans if not span.open)
    return ", ".join([stage.label for stage in STAGES.values() if stage.name in kinds]) or "nothing delayed it"


def _dropped(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    reason = debugger.tape.reason(row.event)
    facts = say(_subject(debugger.tape, row), " cannot be served by ", instance_ref(row.instance), f": {reason}.")
    return f"Instance {row.instance} cannot serve it: {reason}.", [Part("The reason", (facts,))]


def _completed(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    entry = debugger.tape.latest(row.request, "completed", row.event)
    tokens, e2e = (0, 0) if entry is None else (entry.first, entry.second)
    facts = say(
        _subject(debugger.tape, row),
        f" generated {plural(tokens, 'token')}; its client waited {span_text(e2e)} for all of them.",
    )
    more = say("Its own explanation breaks that time down.")
    return f"Done after {span_text(e2e)}, with {plural(tokens, 'token')}.", [Part("The request", (facts, more))]


def _timed_out(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    entry = debugger.tape.latest(row.request, "timed-out", row.event)
    tokens, ran = (0, 0) if entry is None else (entry.first, entry.second)
    waited = span_text(row.time_us - _arrival_us(debugger.tape, row))
    where = "while it ran" if ran else "while it waited"
    facts = say(_subject(debugger.tape, row), f" timed out {where}, {waited} after it arrived.")
    more = say(f"It had generated {plural(tokens, 'token')}.")
    return f"It timed out {where}, after {waited}.", [Part("The request", (facts, more))]


def _subject(tape: EventStore, row: EventRow) -> Subject:
    return request_ref(tape.name(row.request))


def _arrival_us(tape: EventStore, row: EventRow) -> int:
    return tape.time_us(tape.first_event_of(tape.name(row.request)))


# ---- steps ----


def _step(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    figures = debugger.tape.step(row.step)
    records = debugger.records_of(row.event)
    record = next(record for record in records if isinstance(record, StepFinished))
    preempted = preempted_by(debugger.tape, row.event, record.preempted)
    usual = usual_duration(debugger.tape, row.instance, row.event)
    # In the middle of a step, its later phases do not apply yet.
    here = debugger.phase if row.event == debugger.event else None
    phase = LAST_PHASE if here is None else here
    drafts = first_record(records, DraftsVerified)
    drafted = "" if drafts is None or not drafts.draft_tokens else f" and {plural(drafts.draft_tokens, 'drafted one')}"
    head = (
        f"Instance {row.instance} {'computed' if phase >= _COMPLETE else 'computes'}"
        f" {plural(figures.batch_tokens, 'token')}{drafted} for {plural(figures.served, 'request')}"
    )
    parts = [_batch(record, figures, drafts)]
    if phase >= _EXECUTE:
        head += f" in {span_text(figures.duration_us)}"
        if usual and _is_slow(figures, usual):
            head += f", {figures.duration_us / usual:.1f} times as long as usual"
        duration = _duration(figures, usual, debugger.tape.profiles[row.instance])
        if _is_lockstep_rank(debugger.experiment, row.instance):
            together = say("The ranks of its replica step together: it lasted until the slowest of them was done.")
            duration = replace(duration, sentences=(*duration.sentences, together))
        parts.append(duration)
    parts.append(_decisions(record, preempted, debugger.tape.profiles[row.instance]))
    parts += [outranking_part(records), retraction_part(records)]
    parts.append(moves_part(records, debugger.experiment.policy.preemption_restore))
    if debugger.tape.plans_ahead:
        parts.insert(0, _plan(debugger.tape, row, figures))
    if phase >= _COMPLETE:
        parts += [
            _outcome(record, answers_begun(records), ahead=debugger.tape.plans_ahead),
            drafts_part(records),
            _admissions(debugger, row, record, figures),
        ]
    return f"{head}.", [part for part in parts if part.sentences or part.rows]


def _plan(tape: EventStore, row: EventRow, figures: StepRow) -> Part:
    """Return when a step was planned, if that is not when it started."""
    if figures.planned == row.event:
        facts = say(f"It was planned when it started, at {time_text(row.time_us)}.")
    else:
        facts = say(
            f"It was planned at {time_text(tape.time_us(figures.planned))} (", event_ref(figures.planned), ") "
        ) + say(f"and started at {time_text(row.time_us)}, when the step before it had ended.")
    return Part("When it was planned", (facts,))


def _is_lockstep_rank(experiment: Experiment, instance: int) -> bool:
    """Return whether an instance is a rank that steps in lockstep with others; instances are numbered pool by pool."""
    for pool in experiment.pools:
        if instance < pool.instances:
            return pool.lockstep
        instance -= pool.instances
    return False


def _is_slow(figures: StepRow, usual: int | None) -> bool:
    return usual is not None and usual > 0 and 2 * figures.duration_us >= 3 * usual


def usual_duration(tape: EventStore, instance: int, event: int) -> int | None:
    """Return the median duration of an instance's steps before an event, over the latest thousand; None if none."""
    durations: list[int] = []
    while len(durations) < _COMPARED:
        event = last_step(tape, instance, event - 1)
        if not event:
            break
        durations.append(tape.step(tape.row(event).step).duration_us)
    return median_high(durations)


def _batch(record: StepFinished, figures: StepRow, drafts: DraftsVerified | None) -> Part:
    rows: list[ExplanationRow] = []
    total = figures.batch_tokens
    if record.decode_requests:
        share = percent_text(record.decode_requests, total)
        drafted = 0 if drafts is None else drafts.draft_tokens
        each = f"one token each, and {plural(drafted, 'drafted token')} to verify" if drafted else "one token each"
        note = say(f"{each}, {plural(record.decode_context_tokens, 'token')} of context")
        rows.append(
            ExplanationRow(plural(record.decode_requests, "decode"), f"{record.decode_requests:,}", share, note)
        )
    chunks = sorted(record.chunks, key=lambda chunk: -chunk.new_tokens)
    for chunk in chunks[:8]:
        note = say(request_ref(chunk.request_id), f", {chunk.computed_tokens:,} tokens computed before")
        share = percent_text(chunk.new_tokens, total)
        rows.append(ExplanationRow("prefill", f"{chunk.new_tokens:,}", share, note))
    if len(chunks) > 8:
        rest = sum(chunk.new_tokens for chunk in chunks[8:])
        rows.append(ExplanationRow(plural(len(chunks) - 8, "more prefill"), f"{rest:,}", percent_text(rest, total)))
    return Part("Its batch, in tokens", (), tuple(rows))


def _duration(figures: StepRow, usual: int | None, profile: Profile) -> Part:
    facts: list[Sentence] = []
    if usual is not None:
        facts.append(
            say(
                f"It took {span_text(figures.duration_us)}; the median of this instance's previous steps"
                f" (up to {_COMPARED:,}) was {span_text(usual)}."
            )
        )
    if _is_slow(figures, usual) and figures.prefill_tokens:
        facts.append(
            say(
                f"{figures.prefill_tokens:,} of its {figures.batch_tokens:,} tokens were prefill,"
                " which makes a step long; the whole batch waits for its end."
            )
        )
    if profile.traits.captured_sizes and figures.decode_requests and not figures.prefill_tokens:
        size = captured_size(figures.decode_requests, profile.limits.max_num_seqs)
        if size > figures.decode_requests:
            facts.append(
                say(f"A captured CUDA graph was replayed: it took as long as {plural(size, 'decode')} would have.")
            )
    return Part("Its duration", tuple(facts))


def _named(*lists: tuple[str, tuple[str, ...]]) -> list[Sentence]:
    """Return a sentence for each list of requests that is not empty."""
    return [
        say(label, ": ", *listing([request_ref(name) for name in names], 5), ".") for label, names in lists if names
    ]


def _decisions(record: StepFinished, preempted: tuple[tuple[str, str], ...], profile: Profile) -> Part:
    facts = _named(
        ("Scheduled from the queue", record.admitted),
        ("Preempted", record.preempted),
        ("Stalled (got no token)", record.stalled),
    )
    made_for = list(dict.fromkeys(beneficiary for _, beneficiary in preempted))
    if made_for:
        why = "Preempted for " if profile.traits.priorities else "Preempted to free KV blocks for "
        facts.append(say(why, *listing([request_ref(name) for name in made_for]), "."))
    return Part("What it scheduled", tuple(facts))


def _outcome(record: StepFinished, answers: tuple[str, ...], *, ahead: bool) -> Part:
    """Return what a step led to; ``ahead``: the next step is planned already, with requests of its own."""
    facts = _named(
        ("First token", record.first_tokens),
        ("First token of the answer, behind its reasoning", answers),
        ("Completed", record.completed),
    )
    when = "After it, before the next step takes requests" if ahead else "After it"
    after = f"{when}: {plural(record.running, 'request')} running, {count_text(record.waiting)} waiting"
    facts.append(say(f"{after}, {plural(record.kv_used_blocks, 'KV block')} in use."))
    return Part("Its result", tuple(facts))


def _admissions(debugger: Debugger, row: EventRow, record: StepFinished, figures: StepRow) -> Part:
    """Return why no further request was scheduled, and when the next step begins."""
    facts: list[Sentence] = []
    profile = debugger.tape.profiles[row.instance]
    if record.waiting and profile.traits.plans_ahead:
        event = next_step(debugger.tape, row.instance, row.event, debugger.event)
        if event:
            following = debugger.tape.step(debugger.tape.row(event).step)
            own = following.admitted if following.planned == row.event else 0
            if record.waiting > own:
                stop = stop_of(debugger.tape, row.event, figures)
                why = cause_sentence(stop, profile, figures._replace(running=figures.running + own))
                facts.append(say("The next step was planned when this one started. ", why))
    elif record.waiting:
        stop = stop_of(debugger.tape, row.event, figures)
        facts.append(say(cause_sentence(stop, profile, figures)))
        if stop is not None and stop.cause in KV_SHORTAGES and row.event == debugger.event:
            # Who holds blocks is known at the present event only.
            facts += holders_sentences(debugger.ask(lambda simulation: simulation.snapshot()).instances[row.instance])
    if record.next_step_us < 0:
        facts.append(say("No request is left: ", instance_ref(row.instance), " is idle until a request arrives."))
    heading = "Why no more were scheduled" if record.waiting else "What follows"
    return Part(heading, tuple(facts))


_EXPLAINERS: Final[dict[str, Callable[[Debugger, EventRow], tuple[str, list[Part]]]]] = {
    "arrived": _arrived,
    "admitted": _admitted,
    "rejected": rejected_event,
    "deferred": deferred_event,
    "transfer-started": transfer_started_event,
    "transfer-finished": transfer_finished_event,
    "transfer-broken-off": broken_off_event,
    "routed": _routed,
    "scaling-decided": scaling_decided_event,
    "scaled": scaled_event,
    "instance-changed": instance_changed_event,
    "instance-stopped": instance_stopped_event,
    "stranded": stranded_event,
    "queued": _queued,
    "dropped": _dropped,
    "step": _step,
    "completed": _completed,
    "timed-out": _timed_out,
}


# What became of the draft tokens.

_MOST_LISTED: Final = 8
"""Maximum number of a step's requests that are listed one by one."""


def drafts_part(records: Sequence[Record]) -> Part:
    """Return how many draft tokens of a step were accepted, request by request."""
    drafts = first_record(records, DraftsVerified)
    if drafts is None or not drafts.draft_tokens:
        return Part("Drafts", ())
    accepted = f"{drafts.accepted_tokens:,} of {plural(drafts.draft_tokens, 'drafted token')} accepted"
    facts = [say(f"{accepted}; the answers gained {plural(drafts.output_tokens, 'token')}.")]
    for draft in drafts.verified[:_MOST_LISTED]:
        gained = plural(draft.output_tokens, "token")
        text = f": {draft.accepted_tokens:,} of {draft.draft_tokens:,} accepted, {gained} more."
        facts.append(say(request_ref(draft.request_id), text))
    left = len(drafts.verified) - _MOST_LISTED
    if left > 0:
        facts.append(say(f"And {plural(left, 'more request')}."))
    return Part("Drafts", tuple(facts))
