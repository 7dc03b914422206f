"""Explains requests and events in plain sentences, derived from what the run recorded, never guessed.

An explanation uses the run up to the current position only, and nothing that happens later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.units import percent_text, plural, span_text, time_text
from blis_tui.cluster.records import SessionBegun, SessionContinued
from blis_tui.debugger.why.breakdown import (
    KINDS,
    PREEMPTION,
    e2e_breakdown,
    prefill_of_others,
    so_far_breakdown,
    ttfat_breakdown,
    ttft_breakdown,
)
from blis_tui.debugger.why.control import record_of, rejection
from blis_tui.debugger.why.event_stories import capitalized, event_explanation
from blis_tui.debugger.why.explanation import (
    Explanation,
    Part,
    Sentence,
    Subject,
    event_ref,
    instance_ref,
    request_ref,
    say,
)
from blis_tui.debugger.why.lifecycle import restart_parts
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.debugger.why.live import adapter_parts, latest_state, live_part
from blis_tui.debugger.why.past import breakdown_part, compare, comparison_part, preemption_parts, prompts_named
from blis_tui.debugger.why.request_content import content_parts, media_parts
from blis_tui.engine.records import Arrived, Dropped, Rejected, described

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.why.breakdown import Breakdown
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.debugger.why.lifespans import RequestLife
    from blis_tui.debugger.why.past import Comparison


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
        if len([one for one in life.entries if one.what == "first-token"]) > 1:
            cause = "with its instance" if life.restarts else "to preemption"
            facts.append(say(f"It had a first token before, which was lost {cause}; the last one counts."))
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


def _others(life: RequestLife, tape: EventStore) -> list[Sentence]:
    """Return whose prompts slowed down decoding."""
    found = prefill_of_others(life, tape)
    if not found:
        return []
    apart = tape.profiles[0].traits.prefills_apart
    pieces: list[str | Subject] = [
        "While it decoded, steps went to prompts of " if apart else "Its decode steps also computed prompts of "
    ]
    return [say(*pieces, *prompts_named(found), ".")]


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
        return _verdict(life, whole, comparison)
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
        facts = {KINDS["wait"]: waited}
    main = max(facts, key=lambda label: facts[label])
    return f"; mainly: {main} ({span_text(facts[main])})"


def _verdict(life: RequestLife, whole: Breakdown, comparison: Comparison | None) -> str:
    """Return how a completed request compares with the others, and the main reason."""
    facts = f"It took {span_text(whole.total_us)} end to end"
    if comparison is not None:
        slower = comparison.excess_us > 0
        count = comparison.faster if slower else comparison.others - comparison.faster
        share = "all" if count == comparison.others else f"{percent_text(count, comparison.others)} of the"
        facts += f", {'slower' if slower else 'no slower'} than {share} others"
        if slower:
            return f"{facts}; {_main_difference(life, whole, comparison)}."
    main = whole.main
    return f"{facts}." if main is None else f"{facts}; most of it {main.label} ({span_text(main.us)})."


def _main_difference(life: RequestLife, whole: Breakdown, comparison: Comparison) -> str:
    """Return what makes up more than half of the difference from the median request."""
    if comparison.by_group[0][0] == "preemption":
        lost = f"{span_text(whole.us(*PREEMPTION))} of {span_text(whole.total_us)}"
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
    said = (
        f"{record.said_tokens:,} of the {plural(life.input_tokens, 'token')} of its prompt are the conversation so far."
    )
    return [Part("Session", (say(*pieces), say(said)))]
