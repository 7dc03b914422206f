"""What the encoder did for a request's media, and when the request had to wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.debugger.why.control import record_of
from blis_tui.debugger.why.explanation import Part, Sentence, event_ref, say
from blis_tui.engine.content_records import MediaEncoded, MediaHeld
from blis_tui.units import plural, span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.tape import RequestEvent
    from blis_tui.debugger.why.lifespans import Life

_LISTED: Final = 8
"""Maximum number of steps listed one by one."""


def media_parts(debugger: Debugger, life: Life) -> list[Part]:
    """Return when a request's media were encoded or held it up; empty if steps do not schedule the encoder."""
    facts: list[Sentence] = []
    for at, one in enumerate(life.entries):
        if one.what == "media-held" and (held := record_of(debugger, one.event, MediaHeld, life.name)):
            facts.append(_held(held, one, life.entries[at:]))
        elif one.what == "media-encoded" and (done := record_of(debugger, one.event, MediaEncoded, life.name)):
            parts = [f"{plural(done.encoded_tokens, 'media token')} encoded"] if done.encoded_tokens else []
            parts += [f"{plural(done.cached_tokens, 'media token')} in the cache"] if done.cached_tokens else []
            facts.append(say(f"{' and '.join(parts)} (", event_ref(one.event), ")."))
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
