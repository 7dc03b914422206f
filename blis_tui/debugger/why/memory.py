"""Why KV blocks left the GPU and came back, and what the alternative would have cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.units import plural, share_text, span_text
from blis_tui.debugger.why.control import first_record
from blis_tui.debugger.why.explanation import Part, Sentence, Subject, request_ref, say
from blis_tui.engine.records import (
    STORED_BY_OTHERS,
    PreemptedByPriority,
    RestoreChosen,
    Retracted,
    SwappedBack,
    TiersLoaded,
)
from blis_tui.engine.stopped import CAUSES, KV_BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.snapshot import InstanceSnapshot
    from blis_tui.engine.records import Record

_MOST_LISTED: Final = 8
"""Maximum number of a step's requests listed one by one."""
_HOLDERS: Final = 3
"""Maximum number of requests named as holders of KV blocks."""
KV_SHORTAGES: Final = tuple(name for name, cause in CAUSES.items() if cause.unit == KV_BLOCK)
"""Causes by which requests wait for KV blocks that others hold."""


def holders_sentences(instance: InstanceSnapshot) -> list[Sentence]:
    """Return which requests hold the most KV blocks of an instance now; empty if none holds any.

    Waiting requests hold blocks, too, if their prompts were computed on another instance.
    """
    here = (request for request in (*instance.running, *instance.waiting) if request.held_blocks)
    holders = sorted(here, key=lambda request: -request.held_blocks)[:_HOLDERS]
    if not holders:
        return []
    pieces: list[str | Subject] = ["The largest holder is " if len(holders) == 1 else "The largest holders are "]
    for number, holder in enumerate(holders):
        pieces += [", " if number else "", request_ref(holder.request_id), f" ({holder.held_blocks:,})"]
    return [say(*pieces, ".")]


def choice_sentence(choice: RestoreChosen, restore: str) -> Sentence:
    """Return what happened to a victim's blocks and what the alternative would have cost; ``restore``: the policy."""
    blocks, swap = plural(choice.blocks, "KV block"), span_text(choice.swap_us)
    again = span_text(choice.recompute_us)
    if choice.choice == "swap":
        longer = f"Recomputing would have made steps {again} longer."
        return say(f"Its {blocks} moved to the host: an estimated {swap} there and back. {longer}")
    wanted = restore == "swap" or choice.swap_us < choice.recompute_us
    why = "the host had no room for them" if wanted else "that is cheaper"
    other = f"There and back to the host would have taken {swap}."
    return say(f"Its {blocks} are recomputed, which makes steps an estimated {again} longer: {why}. {other}")


def retraction_sentences(retraction: Retracted) -> list[Sentence]:
    """Return how many blocks were short when requests were retracted, and what output is expected from then on."""
    all_running = plural(retraction.retracted + retraction.kept, "running request")
    return [
        say(
            f"The next tokens of {all_running} needed {plural(retraction.needed_blocks, 'KV block')}, and "
            f"{retraction.free_blocks:,} were available: {retraction.retracted:,} went back to the end of the queue,"
            f" until there was room for 20 tokens of each of the {retraction.kept:,} others where possible."
        ),
        say(
            f"Judging by what these have generated, answers were expected to take {share_text(retraction.ratio)} of "
            f"their declared length from then on, {share_text(retraction.ratio_before)} before: that much is kept free "
            f"for the others."
        ),
    ]


def outranking_sentences(outranking: PreemptedByPriority) -> list[Sentence]:
    """Return how much higher the priority of the waiting request was."""
    apart = abs(outranking.priority - outranking.beneficiary_priority)
    return [
        say(
            "No place was left (max_num_seqs), and ",
            request_ref(outranking.beneficiary),
            f", with priority {outranking.beneficiary_priority:,}, was more urgent than it, with"
            f" {outranking.priority:,}: {apart:,} apart, more than priority_scheduling_preemption_threshold"
            f" {outranking.threshold:,}.",
        ),
        say("The least urgent running requests go first; of equals, those that came into the queue last."),
    ]


def outranking_part(records: Sequence[Record]) -> Part:
    """Return which running requests a step preempted for higher priorities."""
    facts = [
        _about(record.request_id) + sentence
        for record in records
        if isinstance(record, PreemptedByPriority)
        for sentence in outranking_sentences(record)[:1]
    ]
    return Part("Preempted by priority", tuple(facts))


def retraction_part(records: Sequence[Record]) -> Part:
    """Return why a step retracted running requests, as ``sglang`` batching does."""
    retraction = first_record(records, Retracted)
    facts = () if retraction is None else tuple(retraction_sentences(retraction))
    return Part("Why requests were retracted", facts)


def return_text(records: Sequence[Record], name: str) -> str:
    """Return how a scheduled request got blocks back, as the end of a sentence; empty if it did not."""
    for record in records:
        if isinstance(record, SwappedBack) and record.request_id == name:
            return f", {plural(record.tokens, 'token')} of it back from the host in {span_text(record.transfer_us)}"
        if isinstance(record, TiersLoaded) and record.request_id == name:
            back = "" if has_blocks_of_others(record) else "back "
            return f", {plural(record.blocks, 'KV block')} of it {back}from tiers ({', '.join(record.tiers)})"
    return ""


def moves_part(records: Sequence[Record], restore: str) -> Part:
    """Return the KV blocks that an event moved."""
    facts: list[Sentence] = []
    for record in records:
        if isinstance(record, RestoreChosen):
            facts.append(_about(record.request_id) + choice_sentence(record, restore))
        elif isinstance(record, SwappedBack):
            moved = f"{plural(record.blocks, 'KV block')} in {span_text(record.transfer_us)}"
            tokens = plural(record.tokens, "token")
            text = f"{moved} moved back from the host, all that the GPU no longer had of its {tokens}."
            facts.append(_about(record.request_id) + say(text))
        elif isinstance(record, TiersLoaded):
            others = has_blocks_of_others(record)
            came = "came from tiers" if others else "came back"
            text = f"{plural(record.blocks, 'KV block')} {came} ({', '.join(record.tiers)})"
            text += f" in {span_text(record.transfer_us)}, instead of being computed{' here' if others else ' again'}."
            if record.thrashing:
                text += f" {plural(record.thrashing, 'block')} of them had gone at most 1 ms before: thrashing."
            facts.append(_about(record.request_id) + say(text))
    left = len(facts) - _MOST_LISTED
    more = [say(f"And {plural(left, 'more request')}.")] if left > 0 else []
    return Part("KV blocks that moved", (*facts[:_MOST_LISTED], *more))


def has_blocks_of_others(record: TiersLoaded) -> bool:
    """Whether some of the blocks were stored by another instance, so that they have not come back."""
    return any(STORED_BY_OTHERS in tier for tier in record.tiers)


def _about(name: str) -> Sentence:
    """Return a request's name as a prefix for what is said about it."""
    return say(request_ref(name), ": ")
