"""Why a request took as long as it did: its preemptions, what makes up its latencies, and how others compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, percent_text, plural, span_text
from blis_tui.debugger.why.breakdown import PREEMPTION, e2e_breakdown
from blis_tui.debugger.why.explanation import ExplanationRow, Part, Sentence, Subject, event_ref, request_ref, say
from blis_tui.debugger.why.lifespans import next_step, read_life
from blis_tui.debugger.why.memory import (
    choice_of,
    choice_sentence,
    outranking_of,
    outranking_sentences,
    retraction_of,
    retraction_sentences,
    return_text,
)
from blis_tui.debugger.why.ranking import Position, Ranked, ranking
from blis_tui.engine.records import Preempted, StepFinished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import EventStore, RequestEvent
    from blis_tui.debugger.why.breakdown import Breakdown, Share
    from blis_tui.debugger.why.lifespans import RequestLife

_TOLD: Final = 3
"""Maximum number of preemptions explained one by one."""
_NAMED: Final = 3
"""Maximum number of requests named when many were involved."""
GROUPS: Final = {
    "reaching the queue": ("admission", "routing", "intake"),
    "waiting for an instance to come up": ("stranded",),
    "failed attempts": ("gone",),
    "waiting in the gateway": ("deferral", "gateway"),
    "KV transfer": ("transfer",),
    "waiting in the queue": ("wait",),
    "planned for the next step": ("planned",),
    "preemption": PREEMPTION,
    "prefill": ("prefill",),
    "decode": ("decode-only", "pipeline"),
    "prefill of others in decode steps": ("beside-prefill",),
    "stalls": ("stalled",),
    "client side": ("client",),
}
"""Groups of shares that are compared between requests."""


# ---- preemptions ----


def preemption_parts(debugger: Debugger, life: RequestLife) -> list[Part]:
    """Return a part for each of the latest preemptions."""
    found = life.preemptions
    parts = [_preemption_part(debugger, life, one) for one in found[-_TOLD:]]
    if len(found) > _TOLD:
        earlier = [event_ref(one.event) for one in found[:-_TOLD]]
        often = "once, " if len(earlier) == 1 else f"{len(earlier):,} times, first "
        facts = say(f"Before, it had been preempted {often}at ", earlier[0], ".")
        parts.insert(0, Part("Earlier preemptions", (facts,)))
    return parts


def _preemption_part(debugger: Debugger, life: RequestLife, preempted: RequestEvent) -> Part:
    tape = debugger.tape
    beneficiary = tape.name(preempted.second)
    records = debugger.records_of(preempted.event)
    record = next(one for one in records if isinstance(one, Preempted) and one.request_id == life.name)
    step: StepFinished | None = next(one for one in records if isinstance(one, StepFinished))
    if tape.plans_ahead:  # the plan for the following step preempted it
        event = next_step(tape, record.instance, preempted.event, debugger.event)
        following = debugger.records_of(event) if event else ()
        step = next((one for one in following if isinstance(one, StepFinished)), None)
    rule = tape.profiles[record.instance].victims
    own = beneficiary == life.name
    choice, retraction = choice_of(records, life.name), retraction_of(records)
    swapped = choice is not None and choice.choice == "swap"
    if (outranking := outranking_of(records, life.name)) is not None:
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
    again = next((one for one in life.entries if one.what == "scheduled" and one.event > preempted.event), None)
    if life.keeps_output:
        kept = "stays on the host" if swapped else "has to be recomputed"
        facts = [say(f"It went back to the queue with the tokens it had generated; its KV cache {kept}.")]
    else:
        lost = "without the tokens it had generated, and starts again from its prompt"
        facts = [say(f"It went back to the queue {lost}.")]
    if again is None:
        return [*facts, say("It has not been scheduled again since.")]
    waited = span_text(again.time_us - preempted.time_us)
    found = return_text(debugger.records_of(again.event), life.name)
    found = found or (f", {plural(again.first, 'token')} of it still cached" if again.first else "")
    sentence = say(f"It waited {waited} to be scheduled again (", event_ref(again.event), f"){found}")
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
    cut = prefill.end_us not in life.prefilled_us or any(one.time_us == prefill.end_us for one in life.preemptions)
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


def compare(life: RequestLife, own: Breakdown, tape: EventStore) -> Comparison | None:
    """Compare a request with the median of all completed ones; return None if there are fewer than three."""
    ranked = ranking(tape, "e2e", Position(life.until, life.settled))
    if len(ranked) < 3:
        return None
    median = ranked[len(ranked) // 2]
    there = read_life(tape, median.name, life.until)
    other = None if there is None else e2e_breakdown(there, tape)
    if there is None or other is None:
        return None
    excess = own.total_us - other.total_us
    groups = [(name, own.us(*kinds) - other.us(*kinds)) for name, kinds in GROUPS.items()]
    groups.sort(key=lambda pair: -pair[1] if excess >= 0 else pair[1])
    faster = len([one for one in ranked if one.value < own.total_us])
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
