"""Explains requests and events in plain sentences, derived from what the run recorded, never guessed.

An explanation uses the run up to the current position only, and nothing that happens later. Of a request that has
ended, it says why that took as long as it did: its preemptions, the parts of its latencies, and how others compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, percent_text, plural, span_text, time_text
from blis_tui.cluster.records import SessionBegun, SessionContinued
from blis_tui.debugger.why.breakdown import (
    e2e_breakdown,
    prefill_of_others,
    so_far_breakdown,
    ttfat_breakdown,
    ttft_breakdown,
)
from blis_tui.debugger.why.control import first_record, record_of, rejection
from blis_tui.debugger.why.event_stories import capitalized, event_explanation
from blis_tui.debugger.why.explanation import (
    Explanation,
    ExplanationRow,
    Part,
    Sentence,
    Subject,
    event_ref,
    instance_ref,
    request_ref,
    say,
)
from blis_tui.debugger.why.lifecycle import restart_parts
from blis_tui.debugger.why.lifespans import PREEMPTION, STAGE_GROUPS, STAGES, next_step, read_life
from blis_tui.debugger.why.live import adapter_parts, latest_state, live_part
from blis_tui.debugger.why.memory import (
    choice_sentence,
    outranking_sentences,
    retraction_sentences,
    return_text,
)
from blis_tui.debugger.why.ranking import Position, Ranked, ranking
from blis_tui.debugger.why.request_content import content_parts, media_parts
from blis_tui.engine.records import (
    Arrived,
    Dropped,
    Preempted,
    PreemptedByPriority,
    Rejected,
    RestoreChosen,
    Retracted,
    StepFinished,
    described,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import EventStore, RequestEvent
    from blis_tui.debugger.why.breakdown import Breakdown, Share
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.debugger.why.lifespans import RequestLife

__all__ = ["explain", "explain_event", "explain_request", "main_cause"]


def explain(debugger: Debugger, about: Subject) -> Explanation | None:
    """Return the explanation of a request or an event; None for anything else."""
    if about.kind == "request":
        return explain_request(debugger, about.value)
    if about.kind == "event":
        return explain_event(debugger, int(about.value))
    return None


def explain_event(debugger: Debugger, event: int) -> Explanation:
    """Return what an event means, and why it turned out as it did, without moving the debugger."""
    if event <= 0:
        facts = say("Nothing has happened yet. ", _first_event(debugger))
        parts = (Part("Now", (facts,)),)
        return Explanation(event_ref(0), "Before the first event", "Nothing has happened yet.", parts)
    if event > debugger.frontier:
        known = plural(debugger.frontier, "event")
        facts = say(f"{known} {'is' if debugger.frontier == 1 else 'are'} known so far; run on to reach it.")
        return Explanation(
            event_ref(event), f"Event {event:,}", "That event has not happened yet.", (Part("Now", (facts,)),)
        )
    return event_explanation(debugger, event)


def _first_event(debugger: Debugger) -> str:
    """Return what the run begins with, as far as it is known."""
    if debugger.frontier:
        arrives = debugger.tape.kind(1) == Arrived.kind
    else:
        following = debugger.upcoming()
        if following is None:
            return "The run ends without an event."
        arrives = following.kind == "arrival"
    return "The first event is the arrival of a request." if arrives else "The first event is no request's arrival."


def explain_request(debugger: Debugger, name: str) -> Explanation:
    """Return why a request is where it is at the current position, or why it took as long as it did, without moving."""
    about = request_ref(name)
    life = read_life(debugger.tape, name, debugger.event, debugger.settled)
    if life is None:
        return _unarrived(debugger, about)
    tape = debugger.tape
    parts: list[Part] = []
    live = debugger.request(name)
    if live is not None:
        parts.append(live_part(debugger, live))
    elif life.end is not None and life.end.what != "completed":
        parts.append(_end_part(debugger, life))
    parts += session_parts(debugger, life)
    parts += content_parts(debugger, life, live)
    parts += adapter_parts(debugger, life)
    parts += media_parts(debugger, life)
    whole = e2e_breakdown(life, tape)
    comparison = None if whole is None else compare(life, whole, tape)
    parts += _latency_parts(life, tape, whole)
    if comparison is not None:
        parts.append(comparison_part(comparison, name))
    parts += preemption_parts(debugger, life)
    parts += restart_parts(debugger, life)
    headline = _headline(debugger, life, tape, whole, comparison, live.phase if live is not None else "")
    return Explanation(about, _title(life), headline, tuple(parts))


def _unarrived(debugger: Debugger, about: Subject) -> Explanation:
    name = about.value
    arrival = debugger.tape.first_event_of(name)
    if arrival:
        headline = "It has not arrived yet."
        facts = say("It arrives later, at ", event_ref(arrival), ".")
    elif debugger.complete:
        headline = "No request of this run has that name."
        facts = say(f"{plural(debugger.tape.requests, 'request')} arrived.")
    else:
        headline = "No request of that name has arrived yet."
        facts = say("It may arrive later: the run has not been simulated to its end yet.")
    return Explanation(about, name, headline, (Part("Now", (facts,)),))


def _title(life: RequestLife) -> str:
    return f"{life.name}: prompt of {plural(life.input_tokens, 'token')}, arrived at {time_text(life.arrival_us)}"


# ---- endings ----


def _end_part(debugger: Debugger, life: RequestLife) -> Part:
    end = life.end
    if end is None:
        raise ValueError("the request has not ended")
    tape = debugger.tape
    facts: list[Sentence]
    record = record_of(debugger, end.event, Rejected, life.name)
    if record is not None:
        facts = rejection(debugger, record)
    elif end.what == "dropped":
        there = record_of(debugger, end.event, Dropped, life.name)
        who = life.instance if there is None else there.instance
        facts = [say("It could not be served by ", instance_ref(who), f": {_reason(tape, life)}.")]
    elif end.what == "timed-out":
        where = "ran" if end.second else "waited"
        facts = [
            say(f"Its deadline passed while it {where}, {span_text(end.time_us - life.arrival_us)} after it arrived."),
            say(f"It had generated {plural(end.first, 'token')}; they are lost."),
        ]
    else:
        records = debugger.records_of(end.event)
        mine = [record for record in records if getattr(record, "request_id", life.name) == life.name]
        facts = [say(f"{capitalized(record)}.") for record in mine]
    return Part("How it ended", (*facts, say("That was ", event_ref(end.event), ".")))


def _reason(tape: EventStore, life: RequestLife) -> str:
    """Return the reason in the record of a request's end; empty if there was none."""
    number = tape.number(life.name)
    return "" if life.end is None or number is None else tape.reason(life.end.event, life.end.what, number)


# ---- latencies ----


def _latency_parts(life: RequestLife, tape: EventStore, whole: Breakdown | None) -> list[Part]:
    parts: list[Part] = []
    first = ttft_breakdown(life, tape)
    loss = life.first_token_loss
    if loss is not None:
        cause = "it was lost with its instance" if loss.what == "retried" else "preemption discarded it"
        gone = say(f"It has no first token now: {cause} at ", event_ref(loss.event), ".")
        parts.append(Part("Time to first token", (gone,)))
    elif first is not None:
        facts: list[Sentence] = []
        if len([entry for entry in life.entries if entry.what == "first-token"]) > 1:
            cause = "with its instance" if life.restarts else "to preemption"
            facts.append(say(f"It had a first token before, which was lost {cause}; the last one counts."))
        facts += _sooner(first.total_us, tape.latencies.ttfts_us(life.until, tape.requests, life.settled))
        parts.append(breakdown_part(f"Time to first token: {span_text(first.total_us)}", first, facts))
    answer = ttfat_breakdown(life, tape)
    if answer is not None:
        parts.append(breakdown_part(f"Time to first answer token: {span_text(answer.total_us)}", answer))
    if whole is not None:
        parts.append(breakdown_part(f"End to end: {span_text(whole.total_us)}", whole, _others(life, tape)))
    elif life.end is None or life.end.what == "timed-out":
        so_far = so_far_breakdown(life, tape)
        if so_far.shares:
            heading = "Its time so far" if life.end is None else "Its time"
            parts.append(breakdown_part(f"{heading}: {span_text(so_far.total_us)}", so_far))
    return parts


def _sooner(own_us: int, ttfts_us: Sequence[int]) -> list[Sentence]:
    """Return how many of the requests that have a first token got theirs sooner after they had arrived."""
    others = len(ttfts_us) - 1
    if others < _FEWEST_COMPARED:
        return []
    sooner = sum(ttft_us < own_us for ttft_us in ttfts_us)
    return [say(f"Of the {count_text(others)} others that have a first token, {count_text(sooner)} had theirs sooner.")]


def _others(life: RequestLife, tape: EventStore) -> list[Sentence]:
    """Return whose prompts slowed down decoding."""
    prompts = prefill_of_others(life, tape)
    if not prompts:
        return []
    apart = tape.profiles[0].traits.prefills_apart
    pieces: list[str | Subject] = [
        "While it decoded, steps went to prompts of " if apart else "Its decode steps also computed prompts of "
    ]
    return [say(*pieces, *prompts_named(prompts), ".")]


def times(count: int) -> str:
    """Return a count as an adverb: ``once``, ``3 times``."""
    return "once" if count == 1 else f"{count:,} times"


# ---- the answer in one sentence ----

_PHASES = {
    "in-transit": "It is on its way to an instance",
    "waiting": "It waits in the queue",
    "prefill": "It is in prefill",
    "decode": "It is decoding",
    "stalled": "It is decoding, but got no token in the latest step",
}
_HELD_UP = {
    "deferred": "It is deferred until the cluster is idle",
    "held": "It waits in the gateway's queue",
    "stranded": "It waits for an instance to come up",
    "prefilled": "Its prompt is computed, and its KV blocks go to another instance",
    "transfer-started": "Its KV blocks are on their way to another instance",
    "transfer-finished": "Its KV blocks have arrived, and the instance that decodes is being chosen",
    "scheduled": "The end of its prompt is being computed",
    "first-token": "The end of its prompt is being computed",
    "retried": "It is being routed again",
}
"""The headline for requests in transit that are not just on their way, by what last happened to them."""
_WAITS = ("wait", "again")
_ENDINGS = {"rejected": "It was rejected", "dropped": "It was dropped", "timed-out": "It timed out"}
"""Verbs for some ends; other ends use their names."""


def _headline(
    debugger: Debugger,
    life: RequestLife,
    tape: EventStore,
    whole: Breakdown | None,
    comparison: Comparison | None,
    phase: str,
) -> str:
    if whole is not None:
        return _verdict(life, whole, comparison, so_far="" if debugger.at_end else " so far")
    if life.end is not None and life.end.what != "completed":
        reason = _reason(tape, life)
        after = span_text(life.end.time_us - life.arrival_us)
        ending = f"It ended ({described(life.end.what).label})"
        return f"{_ENDINGS.get(life.end.what, ending)} {after} after it arrived{': ' + reason if reason else ''}."
    since = span_text(life.now_us - life.arrival_us)
    if life.now_us > debugger.time_us:
        since += f" (as of {time_text(life.now_us)}, when its step ends)"
    past = f", preempted {times(len(life.preemptions))} before" if life.preemptions else ""
    past += f", started again {times(len(life.restarts))}" if life.restarts else ""
    if not phase:
        return f"It has its last token and is about to leave, {since} after it arrived{past}."
    weight = main_cause(so_far_breakdown(life, tape)) if phase == "waiting" else ""
    last = latest_state(life.entries) if phase == "in-transit" else None
    stands = _PHASES[phase] if last is None else _HELD_UP.get(last.what, _PHASES[phase])
    return f"{stands}, {since} after it arrived{past}{weight}."


def main_cause(so_far: Breakdown) -> str:
    """Return what took most of a request's time; all waits count together, under their main cause if it dominates."""
    causes: dict[str, int] = {}
    others = {share.label: share.us for share in so_far.shares if share.kind not in _WAITS}
    for share in so_far.shares:
        if share.kind in _WAITS:
            for inner in share.inner:
                causes[inner.label] = causes.get(inner.label, 0) + inner.us
    waited = so_far.us(*_WAITS)
    most = max(others.values(), default=0)
    if not waited and not most:
        return ""
    if most > waited:
        facts = others
    elif max(causes.values(), default=0) >= most:
        facts = causes
    else:
        facts = {STAGES["wait"].label: waited}
    main = max(facts, key=lambda label: facts[label])
    return f"; mainly: {main} ({span_text(facts[main])})"


def _verdict(life: RequestLife, whole: Breakdown, comparison: Comparison | None, *, so_far: str) -> str:
    """Return how a completed request compares with the others that have completed, and the main reason."""
    facts = f"It took {span_text(whole.total_us)} end to end"
    if comparison is not None:
        slower = comparison.excess_us > 0
        count = comparison.faster if slower else comparison.others - comparison.faster
        share = "all" if count == comparison.others else f"{percent_text(count, comparison.others)} of the"
        facts += f", {'slower' if slower else 'no slower'} than {share} others{so_far}"
        if slower:
            return f"{facts}; {_main_difference(life, whole, comparison)}."
    main = whole.main
    return f"{facts}." if main is None else f"{facts}; most of it {main.label} ({span_text(main.us)})."


def _main_difference(life: RequestLife, whole: Breakdown, comparison: Comparison) -> str:
    """Return what makes up more than half of the difference from the median request."""
    if comparison.by_group[0][0] == PREEMPTION:
        lost = f"{span_text(whole.us(*STAGE_GROUPS[PREEMPTION]))} of {span_text(whole.total_us)}"
        return f"mostly because it was preempted {times(len(life.preemptions))} ({lost})"
    named: list[str] = []
    covered = 0
    for group, us in comparison.by_group:
        named.append(f"{group} (+{span_text(us)})")
        covered += us
        if 2 * covered >= comparison.excess_us:
            break
    return f"compared with the median request, mostly because of {' and '.join(named)}"


# Why a session's request came when it did, and why its prompt is that long.


def session_parts(debugger: Debugger, life: RequestLife) -> list[Part]:
    """Return the request's place in its session; empty if it belongs to none."""
    number = debugger.tape.number(life.name)
    if number is None or debugger.tape.sessions.of_request(number) is None:
        return []  # saves replaying its arrival only to find no record of a session
    event = life.entries[0].event
    begun = record_of(debugger, event, SessionBegun, life.name)
    if begun is not None:
        return [Part("Session", (say(f"It begins {begun.session_id}, a session of {plural(begun.calls, 'call')}."),))]
    record = record_of(debugger, event, SessionContinued, life.name)
    if record is None:
        return []
    others = f", the last of {plural(len(record.after), 'call')} that it waited for" if len(record.after) > 1 else ""
    sent = f"It is call {record.call + 1} of {record.session_id}, sent {span_text(record.waited_us)} after "
    pieces: list[str | Subject] = [sent, request_ref(record.last), f"{others}."]
    whole = plural(life.input_tokens, "token")
    sentence = f"{record.history_tokens:,} of the {whole} of its prompt are the conversation so far."
    return [Part("Session", (say(*pieces), say(sentence)))]


_MOST_EXPLAINED: Final = 3
"""Maximum number of preemptions explained one by one."""
_NAMED: Final = 3
"""Maximum number of requests named when many were involved."""

# ---- preemptions ----


def preemption_parts(debugger: Debugger, life: RequestLife) -> list[Part]:
    """Return a part for each of the latest preemptions."""
    events = life.preemptions
    parts = [_preemption_part(debugger, life, event) for event in events[-_MOST_EXPLAINED:]]
    if len(events) > _MOST_EXPLAINED:
        earlier = [event_ref(event.event) for event in events[:-_MOST_EXPLAINED]]
        often = "once, " if len(earlier) == 1 else f"{len(earlier):,} times, first "
        facts = say(f"Before, it had been preempted {often}at ", earlier[0], ".")
        parts.insert(0, Part("Earlier preemptions", (facts,)))
    return parts


def _preemption_part(debugger: Debugger, life: RequestLife, preempted: RequestEvent) -> Part:
    tape = debugger.tape
    beneficiary = tape.name(preempted.second)
    records = debugger.records_of(preempted.event)
    record = next(record for record in records if isinstance(record, Preempted) and record.request_id == life.name)
    step: StepFinished | None = next(record for record in records if isinstance(record, StepFinished))
    if tape.plans_ahead:  # the plan for the following step preempted it
        event = next_step(tape, record.instance, preempted.event, debugger.event)
        following = debugger.records_of(event) if event else ()
        step = first_record(following, StepFinished)
    rule = tape.profiles[record.instance].victims
    own = beneficiary == life.name
    choice, retraction = first_record(records, RestoreChosen, life.name), first_record(records, Retracted)
    swapped = choice is not None and choice.choice == "swap"
    if (outranking := first_record(records, PreemptedByPriority, life.name)) is not None:
        reasons = outranking_sentences(outranking)
    else:
        reasons = [_shortage(step, beneficiary, own=own)] if retraction is None else retraction_sentences(retraction)
        picked = f"The rule picks {rule}, which was this one." if own else f"It was chosen because it was {rule}."
        reasons = [*reasons, say(picked)]
    lost = f"lost {plural(preempted.first, 'computed token')}"
    sentences = [
        say(
            "At ",
            event_ref(preempted.event),
            f" it {'left the batch' if swapped else lost} and freed {plural(record.freed_blocks, 'KV block')}.",
        ),
        *reasons,
        *([choice_sentence(choice, debugger.experiment.policy.preemption_restore)] if choice else []),
        *_restart(debugger, life, preempted, swapped=swapped),
    ]
    return Part(f"Why it was preempted after {span_text(preempted.time_us - life.arrival_us)}", tuple(sentences))


def _shortage(step: StepFinished | None, beneficiary: str, *, own: bool) -> Sentence:
    """Return why blocks were short."""
    name = "it" if own else request_ref(beneficiary)
    if step is None:
        return say("The KV cache was full: ", name, " needed more KV blocks than were free.")
    chunk = next((chunk for chunk in step.chunks if chunk.request_id == beneficiary), None)
    if chunk is not None:
        need = f" needed blocks for {plural(chunk.new_tokens, 'token')} of its prefill, and too few were free."
    elif beneficiary in step.preempted:
        need = " needed more KV blocks for its next tokens than were free."
    else:
        need = " needed a KV block for its next token, and none was free."
    return say("The KV cache was full: ", name, need)


def _restart(debugger: Debugger, life: RequestLife, preempted: RequestEvent, *, swapped: bool) -> list[Sentence]:
    """Return what the preemption cost."""
    again = next((entry for entry in life.entries if entry.what == "scheduled" and entry.event > preempted.event), None)
    if life.keeps_output:
        kept = "stays on the host" if swapped else "has to be recomputed"
        facts = [say(f"It went back to the queue with the tokens it had generated; its KV cache {kept}.")]
    else:
        lost = "without the tokens it had generated, and starts again from its prompt"
        facts = [say(f"It went back to the queue {lost}.")]
    if again is None:
        return [*facts, say("It has not been scheduled again since.")]
    waited = span_text(again.time_us - preempted.time_us)
    how = return_text(debugger.records_of(again.event), life.name)
    how = how or (f", {plural(again.first, 'token')} of it still cached" if again.first else "")
    sentence = say(f"It waited {waited} to be scheduled again (", event_ref(again.event), f"){how}")
    attempt = life.preemptions.index(preempted) + 1
    prefill = next(
        (span for span in life.spans if span.what == "prefill" and span.attempt == attempt and not span.open),
        None,
    )
    if prefill is None:
        return [*facts, sentence + say(".")]
    tokens = sum(chunk.tokens for chunk in life.chunks if prefill.start_us <= chunk.start_us < prefill.end_us)
    after = span_text(prefill.end_us - preempted.time_us)
    facts.append(sentence + say(f" and then computed {plural(tokens, 'token')} in {span_text(prefill.duration_us)}."))
    cut = prefill.end_us not in life.prefilled_us or any(
        preemption.time_us == prefill.end_us for preemption in life.preemptions
    )
    facts.append(
        say("Then it was preempted again.") if cut else say(f"Its next token came {after} after the preemption.")
    )
    return facts


# ---- latencies ----


def breakdown_part(heading: str, breakdown: Breakdown, sentences: Sequence[Sentence] = ()) -> Part:
    """Return a latency as a table."""
    rows: list[ExplanationRow] = []
    for share in breakdown.shares:
        rows.append(
            ExplanationRow(
                share.label,
                span_text(share.us),
                percent_text(share.us, breakdown.total_us),
                say(share.note) if share.note else (),
            )
        )
        if [inner.kind for inner in share.inner] in (["decode-only"], ["pipeline"]):
            continue
        rows += [
            ExplanationRow(
                inner.label,
                span_text(inner.us),
                percent_text(inner.us, breakdown.total_us),
                _remark(inner),
                inner=True,
            )
            for inner in share.inner
        ]
    rows.append(ExplanationRow("total", span_text(breakdown.total_us), "", say(f"{breakdown.total_us:,} us")))
    return Part(heading, tuple(sentences), tuple(rows))


def _remark(share: Share) -> Sentence:
    """Return a share's remark, with what spent the token budget meanwhile."""
    pieces: list[str | Subject] = [f": {plural(share.decodes, 'decode')}"] if share.decodes else []
    if share.prompts:
        pieces += [", " if pieces else ": ", "prompts of ", *prompts_named(share.prompts)]
    return say(share.note, *pieces)


def prompts_named(prompts: Sequence[tuple[str, int]]) -> Sentence:
    """Return requests with how many tokens of their prompts were computed; the number of the others if many."""
    pieces: list[str | Subject] = []
    for place, (name, tokens) in enumerate(prompts[:_NAMED]):
        pieces += [", " if place else "", request_ref(name), f" ({plural(tokens, 'token')})"]
    if len(prompts) > _NAMED:
        pieces.append(f" and {plural(len(prompts) - _NAMED, 'more request')}")
    return say(*pieces)


# ---- comparison with other requests ----


@dataclass(frozen=True, slots=True)
class Comparison:
    """A completed request compared with the median one."""

    faster: int
    """Number of faster requests."""
    others: int
    median: Ranked
    excess_us: int
    """How much longer it took than the median request; negative = shorter."""
    by_group: tuple[tuple[str, int], ...]
    """Contributions to the difference by group, the largest in its direction first."""
    sizes: tuple[tuple[str, str], ...]
    """By group, how much there was to compute for this request and for the median one."""


_FEWEST_COMPARED: Final = 2
"""Minimum number of other requests that a request is compared with."""


def compare(life: RequestLife, own: Breakdown, tape: EventStore) -> Comparison | None:
    """Compare a request with the median of all completed ones; return None if there are too few others."""
    ranked = ranking(tape, "e2e", Position(life.until, life.settled))
    if len(ranked) <= _FEWEST_COMPARED:
        return None
    median = ranked[len(ranked) // 2]
    there = read_life(tape, median.name, life.until)
    other = None if there is None else e2e_breakdown(there, tape)
    if there is None or other is None:
        return None
    excess = own.total_us - other.total_us
    groups = [(name, own.us(*kinds) - other.us(*kinds)) for name, kinds in STAGE_GROUPS.items()]
    groups.sort(key=lambda pair: -pair[1] if excess >= 0 else pair[1])
    faster = len([rival for rival in ranked if rival.value < own.total_us])
    sizes = (
        ("prefill", f"{plural(life.input_tokens, 'prompt token')}, median {there.input_tokens:,}"),
        ("decode", f"{plural(_generated(life), 'output token')}, median {_generated(there):,}"),
        (
            "prefill of others in decode steps",
            f"{plural(own.tokens('beside-prefill'), 'prompt token')}, median {other.tokens('beside-prefill'):,}",
        ),
    )
    return Comparison(faster, len(ranked) - 1, median, excess, tuple(groups), sizes)


def _generated(life: RequestLife) -> int:
    """Return the output tokens of a completed request."""
    return 0 if life.end is None else life.end.first


def comparison_part(comparison: Comparison, name: str) -> Part:
    """Return the comparison of the request of this name in words."""
    sizes = dict(comparison.sizes)
    rows = tuple(
        ExplanationRow(name, f"{'+' if us > 0 else ''}{span_text(us)}", "", say(sizes[name]) if name in sizes else ())
        for name, us in comparison.by_group
        if us
    )
    sign = "more" if comparison.excess_us >= 0 else "less"
    return Part(
        "Compared with the median request",
        (
            say(
                f"Of the {count_text(comparison.others)} others that have completed,"
                f" {count_text(comparison.faster)} {'was' if comparison.faster == 1 else 'were'} faster."
            ),
            say("It is the median one.")
            if comparison.median.name == name
            else say(
                "The median one, ",
                request_ref(comparison.median.name),
                f", took {span_text(comparison.median.value)}; this one {span_text(abs(comparison.excess_us))} {sign}:",
            ),
        ),
        rows,
    )
