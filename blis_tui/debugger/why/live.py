"""Why a live request is where it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.units import bytes_text, percent_text, plural, span_text, time_text
from blis_tui.cluster.stages import CANDIDATES
from blis_tui.debugger.why.breakdown import cause_sentence, preempted_by
from blis_tui.debugger.why.control import record_of
from blis_tui.debugger.why.explanation import (
    Part,
    Sentence,
    Subject,
    event_ref,
    instance_ref,
    listing,
    request_ref,
    say,
)
from blis_tui.debugger.why.lifespans import last_step
from blis_tui.debugger.why.memory import KV_SHORTAGES, holders_sentences
from blis_tui.engine.records import AdapterHeld, AdapterLoad, Scheduled, StepFinished, described
from blis_tui.engine.stopped import ANSWERS, BLOCKS, MAX_NUM_SEQS, PREEMPTED, TOKENS, WATERMARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.snapshot import GatewaySnapshot, InstanceSnapshot, PipelineSnapshot, RequestSnapshot, Snapshot
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import RequestEvent, StepRow, StopRow
    from blis_tui.debugger.why.lifespans import RequestLife
    from blis_tui.engine.profile import Profile


_HEAD_FIRST = "no request is scheduled before the queue head"
_ADAPTERS_APART = "requests whose LoRA adapter has no slot in the batch are passed over"
_SINCE = "; nothing that could change it has happened since"
_SKIPPED = "requests that do not fit are skipped"


@dataclass(frozen=True, slots=True)
class LatestStep:
    """The latest step of an instance: its event, its figures and its records.

    If the step is in progress (``over`` is false), the figures are those in its middle, without its results. Where
    steps are planned ahead, it may represent the planned step (``ahead``), with what the plan saw.
    """

    event: int
    row: StepRow
    step: StepFinished
    preempted: tuple[tuple[str, str], ...]
    """Victims, and for whom each was preempted."""
    over: bool
    planned: int
    """The event in which the step was planned."""
    ahead: bool = False


def latest_step(debugger: Debugger, instance: InstanceSnapshot) -> LatestStep | None:
    """Return the latest step of an instance, as far as the current position has reached."""
    tape = debugger.tape
    event = last_step(tape, instance.index, debugger.event)
    if not event:
        return None
    records = debugger.records_of(event)
    step = next(record for record in records if isinstance(record, StepFinished))
    row = tape.step(tape.row(event).step)
    over = event <= debugger.settled
    if not over:
        row = row._replace(
            first_tokens=0, completed=0, running=instance.running_count, kv_used_blocks=instance.kv.used_blocks
        )
    return LatestStep(event, row, step, preempted_by(tape, event, step.preempted), over, row.planned)


def latest_plan(debugger: Debugger, instance: InstanceSnapshot, latest: LatestStep) -> LatestStep:
    """Return the latest plan that considered the queue; where steps are planned ahead, that of the next step.

    A plan that scheduled nothing has no figures.
    """
    if not instance.profile.traits.plans_ahead:
        return latest
    planned = latest.event if latest.over else latest.planned
    plan = instance.planned
    step = replace(
        latest.step,
        time_us=debugger.tape.time_us(planned),
        step=latest.step.step + latest.over,
        chunks=() if plan is None else plan.chunks,
        decode_requests=0 if plan is None else plan.decode_requests,
    )
    preempted = () if plan is None else plan.preempted
    row = latest.row._replace(completed=0, preempted=len(preempted))
    return LatestStep(latest.event, row, step, preempted, latest.over, planned, ahead=True)


def live_part(debugger: Debugger, live: RequestSnapshot) -> Part:
    """Return where a live request is, and why."""
    if live.phase == "in-transit" or live.instance is None:
        return _in_transit(debugger, live)
    instance = debugger.ask(lambda simulation: simulation.snapshot()).instances[live.instance]
    if live.phase == "waiting":
        return _waiting(debugger, live, instance)
    return _running(debugger, live, instance)


def _in_transit(debugger: Debugger, live: RequestSnapshot) -> Part:
    stage = _stage(debugger, live)
    if stage is not None:
        return Part("Now", stage)
    sentences = [say("It has arrived but is not in a queue yet.")]
    if live.instance is None:
        cluster = debugger.experiment.cluster
        sentences.append(
            say(
                f"Admission takes {span_text(cluster.admission_latency_us)}, "
                f"routing {span_text(cluster.routing_latency_us)}."
            )
        )
    else:
        sentences.append(
            say(
                "It is on its way to ",
                instance_ref(live.instance),
                f": its prompt of {plural(live.input_tokens, 'token')} is being tokenized and enqueued.",
            )
        )
    return Part("Now", tuple(sentences))


def _stage(debugger: Debugger, live: RequestSnapshot) -> tuple[Sentence, ...] | None:
    """Return what holds up a request in transit; None if nothing does."""
    state = debugger.moment().state
    life = debugger.tape.life(live.request_id, debugger.event, debugger.settled)
    last = latest_state(life)
    if last is None:
        return None
    since = f"since {time_text(last.time_us)} (", event_ref(last.event), ")"
    if last.what == "deferred":
        return (
            say("It is deferred until the cluster is idle, ", *since, "."),
            say(f"{plural(state.deferred, 'request')} {'waits' if state.deferred == 1 else 'wait'} for that."),
        )
    if last.what == "stranded":
        return (say("No instance that it could be sent to is receiving requests, ", *since, "."),)
    if last.what == "held" and state.gateway is not None:
        return _in_gateway(state, state.gateway, live, since)
    if last.what == "retried":
        return (say("Its instance could not complete it, so it is being routed again, ", *since, "."),)
    if last.what == "split":
        return _before_room(debugger, life, since)
    if last.what in ("scheduled", "first-token"):
        return (_last_of_prompt(life),)
    if last.what in ("prefilled", "transfer-started", "transfer-finished"):
        return _in_transfer(state, live, last.what, since)
    return None


def latest_state(life: Sequence[RequestEvent]) -> RequestEvent | None:
    """Return the latest entry of a life that changed the request's state; None if there is none."""
    return next((entry for entry in reversed(life) if described(entry.what).state), None)


def _before_room(debugger: Debugger, life: Sequence[RequestEvent], since: Sentence) -> tuple[Sentence, ...] | None:
    """Return that a prompt waits for room where its answer will be generated; None if the engine makes none before."""
    on = next((entry.first for entry in reversed(life) if entry.what == "routed"), -1)
    if on < 0 or not debugger.tape.profiles[on].traits.prepares_handovers:
        return None
    there = debugger.ask(lambda simulation: simulation.snapshot()).instances[on].kv
    free = plural(there.cached_free_blocks + there.blank_blocks, "KV block")
    return (
        say("There is no room yet for its prompt on ", instance_ref(on), ", which will generate its answer, ", *since)
        + say("; it is computed elsewhere once there is."),
        say(f"Free there: {free}; some are kept for the answers of all that run or hold blocks there."),
    )


def _last_of_prompt(life: Sequence[RequestEvent]) -> Sentence:
    """Return that the end of a prompt is being computed, for an answer that another instance generates."""
    on = next(entry.first for entry in reversed(life) if entry.what == "queued")
    end = next((entry for entry in reversed(life) if entry.what == "last-token"), None)
    until = "" if end is None else f", until {time_text(end.first)}"
    return say("The end of its prompt is being computed on ", instance_ref(on), f"{until}; its KV blocks leave then.")


def _in_transfer(state: Snapshot, live: RequestSnapshot, what: str, since: Sentence) -> tuple[Sentence, ...]:
    """Return where a request is between its two instances."""
    if what == "transfer-finished":
        return (say("Its KV blocks have arrived, ", *since, "; the instance that decodes is being chosen."),)
    way = next((transfer for transfer in state.transfers if transfer.request_id == live.request_id), None)
    if way is None:
        return (say("Its prompt is computed; its KV blocks are about to leave ", *since, "."),)
    goal = (
        say("to ", instance_ref(way.decode_instance), ".")
        if way.decode_instance is not None
        else say("the decode instance is chosen when they arrive.")
    )
    size = bytes_text(way.bytes)
    return (
        say(f"{size} of KV blocks are on their way from ", instance_ref(way.instance), ", ", *since, "; ") + goal,
        say(f"{plural(len(state.transfers), 'transfer')} in progress."),
    )


def _in_gateway(
    state: Snapshot, gateway: GatewaySnapshot, live: RequestSnapshot, since: Sentence
) -> tuple[Sentence, ...]:
    facts = [say(f"It is in the gateway's queue, one of {gateway.waiting:,}, ", *since, ".")]
    if gateway.upcoming == live.request_id:
        facts.append(say("It is next."))
    elif gateway.upcoming:
        facts.append(say("Next is ", request_ref(gateway.upcoming), "."))
    ceiling = gateway.bands[0].ceiling if gateway.bands else 1.0
    if gateway.saturation >= ceiling and not any(instance.life in CANDIDATES for instance in state.instances):
        facts.append(say("No instance is receiving requests, so none is dispatched."))
        return tuple(facts)
    if gateway.bands:
        held = "no request is dispatched until it falls below the limit"
        then = "the next dispatch takes one" if gateway.saturation < ceiling else held
        facts.append(
            say(f"By the latest signals saturation is {gateway.saturation:.2f}, the limit is {ceiling:.2f}: {then}.")
        )
    facts.append(say(gateway.rule))
    return tuple(facts)


# ---- waiting ----


def _waiting(debugger: Debugger, live: RequestSnapshot, instance: InstanceSnapshot) -> Part:
    names = [request.request_id for request in instance.waiting]
    place = names.index(live.request_id)
    head = instance.waiting[0]
    here = instance_ref(instance.index)
    if place:
        sentences = [
            say(f"It is number {place + 1} of {len(names):,} in the queue of ", here, "; the queue head is ")
            + say(request_ref(head.request_id), ".")
        ]
    elif len(names) == 1:
        sentences = [say("It is the only one in the queue of ", here, ".")]
    else:
        sentences = [say("It is the queue head of ", here, f"; {len(names) - 1:,} more wait behind it.")]
    latest = latest_step(debugger, instance)
    sentences += _why_not_admitted(debugger, live.request_id, instance, latest)
    if place:
        sentences.append(_order(instance))
    return Part("Why it waits now", tuple(sentences))


def _order(instance: InstanceSnapshot) -> Sentence:
    """Return the order in which a queue is served, as far as the rule states it."""
    order, traits = instance.profile.order, instance.profile.traits
    if traits.overtakes is None:
        kept = "the batching rule does not say whether requests may overtake"
        return say(f"The order of the queue: {order[0].lower()}{order[1:]}; {kept}.")
    rule = _SKIPPED if traits.overtakes else _HEAD_FIRST
    if instance.profile.limits.max_loras and traits.adapters == "in-step":
        rule = _ADAPTERS_APART
    return say(f"{order}; {rule}.")


def _why_not_admitted(
    debugger: Debugger, asked: str, instance: InstanceSnapshot, latest: LatestStep | None
) -> list[Sentence]:
    """Return why the latest step left the head of the queue, or, where requests may overtake, ``asked``.

    ``asked``: the request to explain.
    """
    overtakes = instance.profile.traits.overtakes is not False
    head = next(request for request in instance.waiting if request.request_id == asked or not overtakes)
    for waits in dict.fromkeys((asked, head.request_id)):
        if held := held_sentences(debugger, waits):
            return held
    name = request_ref(head.request_id)
    here = instance_ref(instance.index)
    if latest is None or (not instance.profile.traits.plans_ahead and _joined_after(debugger, head, latest.event)):
        return [say(name, " was queued after the latest step of ", here, " had begun; ", *_next_look(latest))]
    plan = latest_plan(debugger, instance, latest)
    if plan.ahead and _joined_after(debugger, head, plan.planned):
        late = " was queued after the next step of " if plan.over else " was queued after the current step of "
        then = "another one is planned when the current step ends"
        then = then if plan.over else "the plan of the next step considers the queue"
        return [say(name, late, here, " had been planned (", event_ref(plan.planned), f"); {then}.")]
    step = say("In the latest step (", event_ref(plan.event), ") ")
    if plan.ahead:
        which = "When the next step was planned (" if plan.over else "When the current step was planned ("
        step = say(which, event_ref(plan.planned), ") ")
    stop = debugger.tape.stop(plan.planned if plan.ahead else plan.event, plan.step.step)
    if stop is None:
        return [step + say("requests stayed in the queue; the batching rule does not say why.")]
    stopped_at = debugger.tape.number(head.request_id)
    first = request_ref(debugger.tape.name(stop.request)) if stop.request >= 0 else "all"
    row = _when_planned(debugger, instance, plan) if plan.ahead else latest.row
    facts = _why_stopped(debugger, stop, instance, plan, step, row) + _overtaking(stop, instance, asked)
    if overtakes and stop.request not in (-1, stopped_at) and _was_overtaken(debugger, head, plan):
        return [step + say(name, " was passed over; this is what the batching rule says of ", first, "."), *facts]
    return facts


def _when_planned(debugger: Debugger, instance: InstanceSnapshot, plan: LatestStep) -> StepRow:
    """Return a plan's row with the requests that were running then: its own, and those that ended in the step before.

    Where steps are planned ahead, those of the latest step may be others.
    """
    records = debugger.records_of(plan.planned)
    before = next(
        (record for record in records if isinstance(record, StepFinished) and record.instance == instance.index), None
    )
    if before is None:
        return plan.row
    own = [record for record in records if isinstance(record, Scheduled) and record.instance == instance.index]
    return plan.row._replace(running=before.running + len(own), completed=len(before.completed))


def _why_stopped(
    debugger: Debugger, stop: StopRow, instance: InstanceSnapshot, plan: LatestStep, step: Sentence, row: StepRow
) -> list[Sentence]:
    """Return the cause that the batching rule stated, with who holds what was short.

    ``row``: the figures of the latest step, or those at the time of a plan that was made ahead.
    """
    profile = instance.profile
    sentence = cause_sentence(stop, profile, row)
    if stop.cause == PREEMPTED and plan.preempted:
        return [step + _preemptions(plan), say("A step that preempts schedules no request from the queue.")]
    if stop.cause == MAX_NUM_SEQS:
        facts = [step + say(sentence[0].lower(), sentence[1:])]
        if plan.row.completed:
            facts.append(say(f"At its end {plural(plan.row.completed, 'request')} completed; ", *_next_look(plan)))
        return facts
    if stop.cause == TOKENS and not stop.had and plan.row.batch_tokens:
        return [step + _budget(plan, profile)]
    if stop.cause in KV_SHORTAGES:
        return _blocks(debugger, stop, instance, plan, step)
    since = [say(f"That was found at {time_text(stop.tried_us)}{_SINCE}.")] if _found_before(stop, plan) else []
    return [step + say(sentence[0].lower(), sentence[1:]), *since]


def _found_before(stop: StopRow, plan: LatestStep) -> bool:
    """Return whether a plan relies on the finding of an earlier one."""
    return stop.tried_us < plan.step.time_us


def _was_overtaken(debugger: Debugger, request: RequestSnapshot, latest: LatestStep) -> bool:
    """Return whether a step prefilled a request that arrived later."""
    tape = debugger.tape
    came = tape.first_event_of(request.request_id)
    return any(tape.first_event_of(chunk.request_id) > came for chunk in latest.step.chunks)


def _joined_after(debugger: Debugger, request: RequestSnapshot, event: int) -> bool:
    """Return whether a request joined the queue after an event."""
    life = debugger.tape.life(request.request_id, debugger.event)
    joined = [entry.event for entry in life if entry.what in ("queued", "preempted")]
    return bool(joined) and joined[-1] > event


def _next_look(latest: LatestStep | None) -> Sentence:
    if latest is None or not latest.over or latest.step.next_step_us < 0:
        return ("the next step considers the queue.",)
    return (f"the next step, at {time_text(latest.step.next_step_us)}, considers the queue.",)


def _preemptions(latest: LatestStep) -> Sentence:
    victims = [victim for victim, _ in latest.preempted]
    made_for = list(dict.fromkeys(beneficiary for _, beneficiary in latest.preempted))
    if made_for == victims:
        return say(
            "the running requests needed more KV blocks than were free: ",
            *listing([request_ref(name) for name in made_for]),
            " needed one and was itself preempted.",
        )
    return say(
        "the running requests needed more KV blocks than were free: ",
        *listing([request_ref(name) for name in victims]),
        f" {'was' if len(victims) == 1 else 'were'} preempted to free blocks for ",
        *listing([request_ref(name) for name in made_for]),
        ".",
    )


def _budget(latest: LatestStep, profile: Profile) -> Sentence:
    """Return which requests used a step's token budget."""
    step, budget = latest.step, profile.limits.max_num_batched_tokens
    pieces: list[str | Subject] = [f"the whole token budget of {budget:,} was spent ({profile.traits.budget_name})"]
    chunks = sorted(step.chunks, key=lambda chunk: -chunk.new_tokens)
    separator = ": "
    if step.decode_requests:
        most = 1 + profile.limits.draft_tokens
        each = "1 each" if most == 1 else f"1 to {most:,} each"
        pieces.append(f"{separator}{plural(step.decode_requests, 'decode')} took {each}")
        separator = ", "
    for chunk in chunks[:3]:
        pieces += [separator, request_ref(chunk.request_id), f" {chunk.new_tokens:,}"]
        separator = ", "
    if len(chunks) > 3:
        rest = sum(chunk.new_tokens for chunk in chunks[3:])
        pieces.append(f", {plural(len(chunks) - 3, 'more prefill')} {rest:,}")
    return (*pieces, ".")


def _blocks(
    debugger: Debugger, stop: StopRow, instance: InstanceSnapshot, plan: LatestStep, step: Sentence
) -> list[Sentence]:
    profile = instance.profile
    limits, more = profile.limits, profile.traits.asks_for_more
    who: str | Subject = request_ref(debugger.tape.name(stop.request)) if stop.request >= 0 else "the next request"
    size = f"{plural(stop.need - stop.kept, 'KV block')} of {plural(limits.block_size_tokens, 'token')}"
    if limits.kv_groups is not None and limits.kv_groups.states:
        size += f", {limits.kv_groups.states:,} of them for its states"
    failed = "did not enter" if more else "did not fit"
    facts = [step + say(who, f" {failed}: it needs {size}.")]
    if stop.cause == ANSWERS:
        facts = [step + say(who, f" {failed}: with it, {plural(stop.need, 'KV block')} have to be free.")]
    if more:
        facts.append(say(more))
    if stop.kept:
        facts.append(say(f"On top of that, {plural(stop.kept, 'block')} must stay free (watermark)."))
    when = f" at {time_text(stop.tried_us)}{_SINCE}" if _found_before(stop, plan) else ""
    facts.append(say(f"{stop.had:,} of {limits.kv_blocks:,} were free{when}."))
    if plan.row.completed:
        facts.append(say(f"{plural(plan.row.completed, 'request')} completed in that step; ") + _next_look(plan))
    facts += holders_sentences(instance)
    if instance.kv.cached_free_blocks:
        facts.append(
            say(
                f"{instance.kv.cached_free_blocks:,} of the free blocks"
                f" {'is' if instance.kv.cached_free_blocks == 1 else 'are'} evictable (cached)."
            )
        )
    return facts


def _overtaking(stop: StopRow, instance: InstanceSnapshot, asked: str) -> list[Sentence]:
    """Report head-of-line blocking: a request behind the head whose whole prompt fits even if nothing is cached."""
    traits = instance.profile.traits
    if stop.cause not in (BLOCKS, WATERMARK) or traits.overtakes or not traits.chunked_prefill:
        return []
    for request in instance.waiting[1:]:
        early = request.queued_us is not None and request.queued_us <= stop.tried_us
        blocks = max(instance.profile.limits.blocks_for(request.target_tokens) - request.held_blocks, 0)
        if early and blocks + stop.kept <= stop.had:
            has = f"needs {plural(blocks, 'block')}" if blocks else "has its blocks already"
            who: str | Subject = "this request"
            if request.request_id != asked:
                who = request_ref(request.request_id)
            facts = f", further back, {has} and would have fit, but {_HEAD_FIRST}."
            return [say("Head-of-line blocking: ", who, facts)]
    return []


# ---- running ----


def _running(debugger: Debugger, live: RequestSnapshot, instance: InstanceSnapshot) -> Part:
    latest = latest_step(debugger, instance)
    here = instance_ref(instance.index)
    sentences: list[Sentence] = []
    if live.phase == "prefill":
        sentences.append(
            say("It runs on ", here, f" and has computed {live.computed_tokens:,} of {live.target_tokens:,} tokens ")
            + say(f"of its prefill ({percent_text(live.computed_tokens, live.target_tokens)}).")
        )
    else:
        traits, drafts = instance.profile.traits, instance.profile.limits.draft_tokens
        each = "each step that decodes" if traits.prefills_apart else "each step"
        adds = "each of its passes through the pipeline" if traits.pipelined else each
        gain = f"one to {1 + drafts:,}" if drafts else "one"
        sentences.append(
            say(
                "It runs on ",
                here,
                f" and has generated {plural(live.generated_tokens, 'token')}; {adds} adds {gain}.",
            )
        )
    life = debugger.tape.life(live.request_id, debugger.event, debugger.settled)
    if debugger.tape.plans_ahead and life and life[-1].what == "scheduled":
        since = say(
            f"It was planned at {time_text(life[-1].time_us)} (", event_ref(life[-1].event), ") for the next step, "
        )
        start_us = -1 if latest is None else latest.step.next_step_us
        starts = f"which starts at {time_text(start_us)}: " if start_us >= 0 else ""
        sentences.append(since + say(f"{starts}the current step has to end first."))
    elif instance.pipeline is not None:
        sentences += _part_in_pipeline(live, instance.pipeline)
    elif latest is not None:
        sentences += _part_in_step(debugger, live, latest)
    sentences.append(
        say(
            f"It holds {plural(live.held_blocks, 'KV block')} of {instance.kv.total_blocks:,};"
            f" {plural(instance.running_count, 'request')} {'runs' if instance.running_count == 1 else 'run'} there."
        )
    )
    return Part("What it does now", tuple(sentences))


def _part_in_pipeline(live: RequestSnapshot, pipeline: PipelineSnapshot) -> list[Sentence]:
    batches = pipeline.batches
    where = say(f"Batches in progress in the pipeline: {len(batches)} of at most {pipeline.places}.")
    ends = [time_text(batch.end_us) for batch in batches if live.request_id in batch.requests]
    if not ends:
        return [where, say(f"It is in none of them; the next batch considers it when {_next_batch(pipeline)}.")]
    if len(ends) > 1:
        return [where, say(f"It is in those that end at {', '.join(ends[:-1])} and {ends[-1]}.")]
    alone = ", and in no other until then" if pipeline.at_first_stage else ""
    return [where, say(f"It is in the one that ends at {ends[0]}{alone}.")]


def _next_batch(pipeline: PipelineSnapshot) -> str:
    return "the first stage is free" if pipeline.at_first_stage else "the oldest of them ends"


def _part_in_step(debugger: Debugger, live: RequestSnapshot, latest: LatestStep) -> list[Sentence]:
    step = latest.step
    name = live.request_id
    tokens = latest.row.batch_tokens
    if latest.over:
        started = say("The latest step (", event_ref(latest.event), f", {span_text(step.duration_us)}) ")
        computes = "computed"
    else:
        started = say("The current step (", event_ref(latest.event), ") ")
        computes = "computes"
    chunk = next((chunk for chunk in step.chunks if chunk.request_id == name), None)
    if chunk is not None:
        share = percent_text(chunk.new_tokens, tokens)
        facts = f"{computes} {plural(tokens, 'token')}, {chunk.new_tokens:,} of them ({share}) for it."
        return [started + say(facts)]
    if name in step.admitted and not _came_with_prompt(debugger.tape.life(name, debugger.event)):
        return [started + say("scheduled it: its whole prompt was cached, so there was nothing to compute.")]
    if live.phase in ("prefill", "stalled") or not step.decode_requests:
        return [started + say(f"{computes} nothing for it."), *_why_nothing(debugger, latest)]
    drafts = debugger.tape.profiles[step.instance].limits.draft_tokens
    apart = " (drafted ones are not counted)" if drafts else ""
    return [started + say(f"{computes} {plural(tokens, 'token')}, one of them for it{apart}.")]


def _came_with_prompt(life: Sequence[RequestEvent]) -> bool:
    """Return whether a request's prompt was computed on another instance, so that it decodes as soon as it runs."""
    latest = (entry.what for entry in reversed(life) if entry.what in ("transfer-started", "preempted", "retried"))
    return next(latest, "") == "transfer-started"


def _why_nothing(debugger: Debugger, latest: LatestStep) -> list[Sentence]:
    profile = debugger.tape.profiles[latest.step.instance]
    limits, traits = profile.limits, profile.traits
    if traits.prefills_apart and latest.step.chunks:
        return [say("Prompts go first: a step that prefills does not decode.")]
    others = say(f"The step computed {plural(latest.row.batch_tokens, 'token')} for other requests")
    if traits.overtakes is None:
        return [others + say("; the batching rule does not say whom it serves first.")]
    if traits.limits_each_step and latest.row.served >= limits.max_num_seqs:
        return [say(f"It served {limits.max_num_seqs:,} others, which is the limit (max_num_seqs).")]
    if latest.row.batch_tokens >= limits.max_num_batched_tokens:
        facts = _budget(latest, profile)
        order = "arrived" if traits.in_order_of_arrival else "were scheduled"
        return [say(f"Running requests are served in the order in which they {order}: ") + facts]
    if latest.row.preempted:
        return [say("In that step ") + _preemptions(latest), say("The running requests after them got no tokens.")]
    if traits.prefill_interval and not latest.step.chunks:
        every = plural(traits.prefill_interval, "step")
        return [say(f"While requests decode, prompts are computed every {every} (prefill_schedule_interval).")]
    if traits.overtakes:
        return [say("What it needed was not free, so it was skipped.")]
    return [others + say(".")]


# Why a request waited for its LoRA adapter, and how long loading it took.

_BEGINS = ("queued", "preempted")


def held_since(entries: Sequence[RequestEvent]) -> RequestEvent | None:
    """Return when a waiting request last was passed over or began to wait for a load; None = never."""
    held = None
    for entry in entries:
        if entry.what == "adapter-held":
            held = entry
        elif entry.what in (*_BEGINS, "scheduled"):
            held = None
    return held


def adapter_parts(debugger: Debugger, life: RequestLife) -> list[Part]:
    """Return how long the request waited for its adapter; empty if it did not."""
    facts: list[Sentence] = []
    for at, entry in enumerate(life.entries):
        if entry.what == "adapter-held" and (held := record_of(debugger, entry.event, AdapterHeld, life.name)):
            end = next((later for later in life.entries[at:] if later.what == "scheduled"), None)
            facts.append(_held(held, entry, end))
        elif entry.what == "adapter-load" and (load := record_of(debugger, entry.event, AdapterLoad, life.name)):
            took = f"{load.adapter} was loaded for it from {load.source} in {span_text(load.load_us)} ("
            facts.append(say(took, event_ref(entry.event), ")."))
    return [Part("LoRA adapter", tuple(facts))] if facts else []


def _held(held: AdapterHeld, since: RequestEvent, end: RequestEvent | None) -> Sentence:
    waited = "still waits" if end is None else f"waited {span_text(end.time_us - since.time_us)}"
    if held.reason == "load":
        return say(f"Its adapter {held.adapter} had to be loaded (", event_ref(since.event), f"); it {waited}.")
    text = f"Its adapter {held.adapter} had no slot ("
    others = f"): the batch had {plural(len(held.in_use), 'other')}, {', '.join(held.in_use)} (max_loras)"
    return say(text, event_ref(since.event), f"{others}; it {waited}.")


def held_sentences(debugger: Debugger, name: str) -> list[Sentence]:
    """Return why a waiting request is held now; empty if it is not."""
    since = held_since(debugger.tape.life(name, debugger.event))
    held = None if since is None else record_of(debugger, since.event, AdapterHeld, name)
    if since is None or held is None:
        return []
    subject = say(request_ref(name), f" asks for the LoRA adapter {held.adapter}, ")
    if held.reason == "load":
        facts = [subject + say("which has to be loaded first (since ", event_ref(since.event), ").")]
        return [*facts, say("No request is scheduled before it, and loads come one after the other.")]
    used = plural(len(held.in_use), "adapter")
    why = f"and a batch holds at most {used} (max_loras): {', '.join(held.in_use)} when it was first passed over ("
    return [subject + say(why, event_ref(since.event), ")."), say("Others may go before it until one of them is idle.")]
