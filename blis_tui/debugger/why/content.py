"""What a request contains besides plain text: media in its prompt, reasoning before its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.why.explanation import Part, Sentence, event_ref, say
from blis_tui.engine.content_records import AnswerBegun
from blis_tui.units import percent_text, plural, span_text

if TYPE_CHECKING:
    from blis_tui.cluster.snapshot import RequestSnapshot
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.why.lifespans import Life
    from blis_tui.engine.records import Record

_MEDIA = ("image", "audio", "video")


def media_text(tokens: tuple[int, int, int]) -> str:
    """Return the token count of each medium in a prompt, as text; media without tokens are left out."""
    return ", ".join(plural(count, f"{name} token") for name, count in zip(_MEDIA, tokens, strict=True) if count)


def answers_begun(records: tuple[Record, ...]) -> tuple[str, ...]:
    """Return the requests that got the first token of their answer in an event, from its records."""
    return tuple(one.request_id for one in records if isinstance(one, AnswerBegun))


def content_parts(debugger: Debugger, life: Life, live: RequestSnapshot | None) -> list[Part]:
    """Return the parts on a request's media and its reasoning; empty if it has neither."""
    parts: list[Part] = []
    media = debugger.tape.media(life.name)
    if media is not None:
        share = f"{percent_text(sum(media), life.input_tokens)} of its prompt is not text: {media_text(media)}."
        parts.append(Part("Media", (say(share),)))
    facts = _reasoning(debugger, life, live)
    return [*parts, Part("Reasoning", tuple(facts))] if facts else parts


def _reasoning(debugger: Debugger, life: Life, live: RequestSnapshot | None) -> list[Sentence]:
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
