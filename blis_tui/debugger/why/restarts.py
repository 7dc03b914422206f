"""Why requests start again, or end, because an instance has gone: what broke off, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.cluster.lives import FAILED
from blis_tui.cluster.records import InstanceChanged, Lost, Retried, TransferBrokenOff, TransferStarted
from blis_tui.debugger.why.control import record_of
from blis_tui.debugger.why.explanation import Part, Sentence, event_ref, instance_ref, request_ref, say
from blis_tui.units import bytes_text, plural, span_text

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.rows import EventRow
    from blis_tui.debugger.why.lifespans import Life
    from blis_tui.engine.records import Record

_NAMED: Final = 8
"""Transfers of one event that are told one by one."""
_LOOKS: Final = 60
"""Changes of instances that are looked through for the failure of one."""


def broken_off_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """The explanation of the end of a transfer that does not arrive."""
    one = record_of(debugger, row.event, TransferBrokenOff)
    if one is None:
        return "KV blocks do not arrive.", []
    return f"The KV blocks of {one.request_id} do not arrive: {one.reason}.", []


def broken_off_parts(debugger: Debugger, event: int) -> list[Part]:
    """Whose transfers an event broke off, how far they were, and what becomes of the requests."""
    records = debugger.records_of(event)
    broken = [one for one in records if isinstance(one, TransferBrokenOff)]
    if not broken:
        return []
    facts = [_broken_off(debugger, one) + say(_outcome(records, one.request_id)) for one in broken[:_NAMED]]
    if len(broken) > _NAMED:
        facts.append(say(f"So do those of {plural(len(broken) - _NAMED, 'more request')}."))
    return [Part("KV transfers that do not arrive", tuple(facts))]


def _broken_off(debugger: Debugger, one: TransferBrokenOff) -> Sentence:
    began = _beginning(debugger, one)
    if began is None:
        return say(
            "The prompt of ",
            request_ref(one.request_id),
            " was computed in the last step of ",
            instance_ref(one.instance),
            ": its KV blocks are gone with it.",
        )
    way: Sentence = say(f"{bytes_text(began.bytes)} of ", request_ref(one.request_id), " were on their way from ")
    way += say(instance_ref(began.instance))
    if began.decode_instance >= 0:
        way += say(" to ", instance_ref(began.decode_instance))
    under_way = span_text(one.time_us - began.time_us)
    which = "it came from" if one.instance == began.instance else "it went to"
    return way + say(", since ", event_ref(began.event), f" ({under_way}); the instance {which} has gone.")


def _beginning(debugger: Debugger, one: TransferBrokenOff) -> TransferStarted | None:
    """The start of the transfer; None where it had not started."""
    for entry in reversed(debugger.tape.life(one.request_id, one.event)):
        if entry.what == "transfer-started":
            return record_of(debugger, entry.event, TransferStarted, one.request_id)
        if entry.what == "prefilled" and entry.event < one.event:
            return None
    return None


def _outcome(records: tuple[Record, ...], request: str) -> str:
    for one in records:
        if isinstance(one, Retried) and one.request_id == request:
            return " The request starts again, prefill included."
        if isinstance(one, Lost) and one.request_id == request:
            return f" The request is lost: {one.reason}."
    return ""


def restart_parts(debugger: Debugger, life: Life) -> list[Part]:
    """A part for each time that a request started again."""
    return [_restart_part(debugger, life, one.event) for one in life.restarts]


def _restart_part(debugger: Debugger, life: Life, event: int) -> Part:
    records = debugger.records_of(event)
    retried = next(one for one in records if isinstance(one, Retried) and one.request_id == life.name)
    facts = [say("At ", event_ref(event), " it had to leave ", instance_ref(retried.instance), ".")]
    gone = _going(debugger, retried)
    if gone is not None:
        facts[0] = facts[0] + say(f" That instance had {gone.reason}, at ", event_ref(gone.event), ".")
    facts += [
        _broken_off(debugger, one)
        for one in records
        if isinstance(one, TransferBrokenOff) and one.request_id == life.name
    ]
    since_us = max((one.time_us for one in life.restarts if one.event < event), default=life.arrival_us)
    spent = sum(one.duration_us for one in life.spans if one.gone and since_us <= one.start_us < retried.time_us)
    facts.append(say(f"What it had computed is gone, and the {span_text(spent)} of that attempt with it."))
    return Part(f"Why it started again after {span_text(retried.time_us - life.arrival_us)}", tuple(facts))


def _going(debugger: Debugger, retried: Retried) -> InstanceChanged | None:
    """The failure because of which it had to leave; None where its instance has not failed."""
    event = retried.event + 1
    for _ in range(_LOOKS):
        event = debugger.tape.latest_of("instance-changed", event - 1)
        for one in debugger.records_of(event):
            if isinstance(one, InstanceChanged) and one.instance == retried.instance:
                return one if one.state == FAILED else None
    return None
