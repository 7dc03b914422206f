"""Why a request waited for its LoRA adapter, and what loading that took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.why.control import record_of
from blis_tui.debugger.why.explanation import Part, Sentence, event_ref, request_ref, say
from blis_tui.engine.adapters.records import AdapterHeld, AdapterLoad
from blis_tui.units import plural, span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.rows import RequestEvent
    from blis_tui.debugger.why.lifespans import Life

_BEGINS = ("queued", "preempted")


def held_since(entries: Sequence[RequestEvent]) -> RequestEvent | None:
    """When a waiting request was passed over, or began to wait for a load, the last time; None = it was not."""
    held = None
    for one in entries:
        if one.what == "adapter-held":
            held = one
        elif one.what in (*_BEGINS, "scheduled"):
            held = None
    return held


def adapter_parts(debugger: Debugger, life: Life) -> list[Part]:
    """How long the request waited for its adapter; nothing where it did not."""
    facts: list[Sentence] = []
    for at, one in enumerate(life.entries):
        if one.what == "adapter-held" and (held := record_of(debugger, one.event, AdapterHeld, life.name)):
            end = next((later for later in life.entries[at:] if later.what == "scheduled"), None)
            facts.append(_held(held, one, end))
        elif one.what == "adapter-load" and (load := record_of(debugger, one.event, AdapterLoad, life.name)):
            took = f"{load.adapter} was loaded for it from {load.source} in {span_text(load.load_us)} ("
            facts.append(say(took, event_ref(one.event), ")."))
    return [Part("LoRA adapter", tuple(facts))] if facts else []


def _held(held: AdapterHeld, since: RequestEvent, end: RequestEvent | None) -> Sentence:
    waited = "still waits" if end is None else f"waited {span_text(end.time_us - since.time_us)}"
    if held.reason == "load":
        return say(f"Its adapter {held.adapter} had to be loaded (", event_ref(since.event), f"); it {waited}.")
    text = f"Its adapter {held.adapter} had no place ("
    others = f"): the batch had {plural(len(held.in_use), 'other')}, {', '.join(held.in_use)} (max_loras)"
    return say(text, event_ref(since.event), f"{others}; it {waited}.")


def held_sentences(debugger: Debugger, name: str) -> list[Sentence]:
    """Why a waiting request is held now; nothing if it is not."""
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
