"""Why a request of a session came when it came, and with so long a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.records import SessionBegun, SessionContinued
from blis_tui.debugger.why.control import record_of
from blis_tui.debugger.why.explanation import Part, request_ref, say
from blis_tui.units import plural, span_text

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.why.explanation import Ref
    from blis_tui.debugger.why.lifespans import Life


def session_parts(debugger: Debugger, life: Life) -> list[Part]:
    """The request's place in its session; nothing where it has none."""
    number = debugger.tape.number(life.name)
    if number is None or debugger.tape.sessions.of_request(number) is None:
        return []  # without doing its arrival again to find no record of a session there
    event = life.entries[0].event
    begun = record_of(debugger, event, SessionBegun, life.name)
    if begun is not None:
        return [Part("Session", (say(f"It begins {begun.session_id}, a session of {plural(begun.calls, 'call')}."),))]
    record = record_of(debugger, event, SessionContinued, life.name)
    if record is None:
        return []
    others = f", the last of {plural(len(record.after), 'call')} that it waited for" if len(record.after) > 1 else ""
    sent = f"It is call {record.call + 1} of {record.session_id}, sent {span_text(record.waited_us)} after "
    pieces: list[str | Ref] = [sent, request_ref(record.last), f"{others}."]
    said = f"{record.said_tokens:,} of the {plural(life.input_tokens, 'token')} of its prompt were said before."
    return [Part("Session", (say(*pieces), say(said)))]
