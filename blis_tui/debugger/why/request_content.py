"""What a request contains besides plain text, and what the encoder did for its media."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.units import percent_text, plural, span_text
from blis_tui.debugger.why.control import record_of
from blis_tui.debugger.why.explanation import Part, Sentence, event_ref, say
from blis_tui.engine.records import AnswerBegun, MediaEncoded, MediaHeld

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.snapshot import RequestSnapshot
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import RequestEvent
    from blis_tui.debugger.why.lifespans import RequestLife
    from blis_tui.engine.records import Record


_MEDIA = ("image", "audio", "video")


def media_text(tokens: tuple[int, int, int]) -> str:
    """Return the token count of each medium in a prompt, as text; media without tokens are left out."""
    return ", ".join(plural(count, f"{name} token") for name, count in zip(_MEDIA, tokens, strict=True) if count)


def answers_begun(records: tuple[Record, ...]) -> tuple[str, ...]:
    """Return the requests that got the first token of their answer in an event, from its records."""
    return tuple(record.request_id for record in records if isinstance(record, AnswerBegun))


def content_parts(debugger: Debugger, life: RequestLife, live: RequestSnapshot | None) -> list[Part]:
    """Return the parts on a request's media and its reasoning; empty if it has neither."""
    parts: list[Part] = []
    media = debugger.tape.media(life.name)
    if media is not None:
        share = f"{percent_text(sum(media), life.input_tokens)} of its prompt is not text: {media_text(media)}."
        parts.append(Part("Media", (say(share),)))
    facts = _reasoning(debugger, life, live)
    return [*parts, Part("Reasoning", tuple(facts))] if facts else parts


def _reasoning(debugger: Debugger, life: RequestLife, live: RequestSnapshot | None) -> list[Sentence]:
    answer, first, loss = life.answer, life.first_token, life.answer_loss
    if answer is not None:
        thought = debugger.tape.reasoned(life.name)
        at = f"Its answer began {span_text(answer.second)} after it was sent (", event_ref(answer.event), "), "
        facts = [say(*at, f"behind {plural(thought, 'reasoning token')}.")]
        if first is not None and answer.first > first.first:
            facts.append(say(f"It had reasoned for {span_text(answer.first - first.first)} since its first token."))
        end = life.end
        if end is not None and end.what == "completed":
            facts.append(say(f"{end.first - thought:,} of its {plural(end.first, 'output token')} are the answer."))
        return facts
    facts = []
    if loss is not None:
        cause = "it was lost with its instance" if loss.what == "retried" else "preemption discarded it"
        facts.append(say(f"It had begun its answer, but {cause} at ", event_ref(loss.event), "."))
    if live is not None and live.reasoning_tokens:
        done = min(live.generated_tokens, live.reasoning_tokens)
        whole = plural(live.reasoning_tokens, "reasoning token")
        facts.append(say(f"It has {done:,} of the {whole} that come before its answer."))
    return facts


_LISTED: Final = 8
"""Maximum number of steps listed one by one."""


def media_parts(debugger: Debugger, life: RequestLife) -> list[Part]:
    """Return when a request's media were encoded or held it up; empty if steps do not schedule the encoder."""
    facts: list[Sentence] = []
    for at, entry in enumerate(life.entries):
        if entry.what == "media-held" and (held := record_of(debugger, entry.event, MediaHeld, life.name)):
            facts.append(_held(held, entry, life.entries[at:]))
        elif entry.what == "media-encoded" and (done := record_of(debugger, entry.event, MediaEncoded, life.name)):
            parts = [f"{plural(done.encoded_tokens, 'media token')} encoded"] if done.encoded_tokens else []
            parts += [f"{plural(done.cached_tokens, 'media token')} in the cache"] if done.cached_tokens else []
            facts.append(say(f"{' and '.join(parts)} (", event_ref(entry.event), ")."))
    if len(facts) > _LISTED:
        facts = [*facts[:_LISTED], say(f"… and {len(facts) - _LISTED:,} more.")]
    return [Part("Encoder", tuple(facts))] if facts else []


def _held(held: MediaHeld, since: RequestEvent, entries: Sequence[RequestEvent]) -> Sentence:
    end = next((later for later in entries if later.what == "media-encoded" and later.event > since.event), None)
    waited = "still waits" if end is None else f"waited {span_text(end.time_us - since.time_us)}"
    item = f"its next item of media takes {plural(held.tokens, 'token')}"
    why = {
        "budget": f"of the encoder's budget of the step {held.had:,} were left (max_num_encoder_input_tokens)",
        "cache": f"the encoder's cache had room for {held.had:,} (encoder_cache_size)",
        "whole": f"the step reached {held.had:,} of them, which are not split (disable_chunked_mm_input)",
    }[held.reason]
    return say(f"It {waited} for the encoder: {item}, and {why} (", event_ref(since.event), ").")
