"""Why KV blocks left the GPU and came back, and what the other choice would have cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.debugger.why.explanation import Part, Sentence, request_ref, say
from blis_tui.engine.preemption.records import PreemptedByPriority, RestoreChosen, Retracted, SwappedBack, TiersLoaded
from blis_tui.units import plural, share_text, span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.records import Record

_TOLD: Final = 8
"""Requests of a step that are told one by one."""


def choice_of(records: Sequence[Record], name: str) -> RestoreChosen | None:
    """What was decided about a victim in an event; None where nothing had to be."""
    found = (one for one in records if isinstance(one, RestoreChosen) and one.request_id == name)
    return next(found, None)


def choice_sentence(choice: RestoreChosen, restore: str) -> Sentence:
    """What became of a victim's blocks, and what the other choice would have cost; ``restore``: the policy's rule."""
    blocks, swap = plural(choice.blocks, "KV block"), span_text(choice.swap_us)
    again = span_text(choice.recompute_us)
    if choice.choice == "swap":
        return say(f"Its {blocks} moved to the host: {swap} there and back. Recomputing would have taken {again}.")
    wanted = restore == "swap" or choice.swap_us < choice.recompute_us
    why = "the host had no room for them" if wanted else "that is cheaper"
    return say(f"Its {blocks} are recomputed, in {again}: {why}. There and back to the host takes {swap}.")


def retraction_of(records: Sequence[Record]) -> Retracted | None:
    """Why an event put running requests back, where it did."""
    return next((one for one in records if isinstance(one, Retracted)), None)


def retraction_sentences(retraction: Retracted) -> list[Sentence]:
    """For want of how many blocks requests were put back, and what is expected of answers from then on."""
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


def outranking_of(records: Sequence[Record], name: str) -> PreemptedByPriority | None:
    """For whom an event put a running request back, where it did so by priority."""
    return next((one for one in records if isinstance(one, PreemptedByPriority) and one.request_id == name), None)


def outranking_sentences(outranking: PreemptedByPriority) -> list[Sentence]:
    """By how much the one was more urgent that was waiting for a place."""
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
    """Which running requests a step put back for more urgent ones."""
    facts = [
        _about(one.request_id) + sentence
        for one in records
        if isinstance(one, PreemptedByPriority)
        for sentence in outranking_sentences(one)[:1]
    ]
    return Part("Preempted by priority", tuple(facts))


def retraction_part(records: Sequence[Record]) -> Part:
    """Why a step put running requests back, as ``sglang`` batching does."""
    retraction = retraction_of(records)
    facts = () if retraction is None else tuple(retraction_sentences(retraction))
    return Part("Why requests were retracted", facts)


def return_text(records: Sequence[Record], name: str) -> str:
    """How a request got blocks back when it was scheduled, as the end of a sentence; empty where it did not."""
    for one in records:
        if isinstance(one, SwappedBack) and one.request_id == name:
            return f", {plural(one.tokens, 'token')} of it back from the host in {span_text(one.transfer_us)}"
        if isinstance(one, TiersLoaded) and one.request_id == name:
            return f", {plural(one.blocks, 'KV block')} of it back from tiers ({', '.join(one.tiers)})"
    return ""


def moves_part(records: Sequence[Record], restore: str) -> Part:
    """The KV blocks that an event moved."""
    facts: list[Sentence] = []
    for one in records:
        if isinstance(one, RestoreChosen):
            facts.append(_about(one.request_id) + choice_sentence(one, restore))
        elif isinstance(one, SwappedBack):
            moved = f"{plural(one.blocks, 'KV block')} in {span_text(one.transfer_us)}"
            tokens = plural(one.tokens, "token")
            text = f"{moved} moved back from the host, all that the GPU no longer had of its {tokens}."
            facts.append(_about(one.request_id) + say(text))
        elif isinstance(one, TiersLoaded):
            text = (
                f"{plural(one.blocks, 'KV block')} came back ({', '.join(one.tiers)}) in {span_text(one.transfer_us)}"
            )
            text += ", instead of being computed again."
            if one.thrashing:
                text += f" {plural(one.thrashing, 'block')} of them had gone at most 1 ms before: thrashing."
            facts.append(_about(one.request_id) + say(text))
    left = len(facts) - _TOLD
    more = [say(f"And {plural(left, 'more request')}.")] if left > 0 else []
    return Part("KV blocks that moved", (*facts[:_TOLD], *more))


def _about(name: str) -> Sentence:
    """A request's name before what is said of it."""
    return say(request_ref(name), ": ")
