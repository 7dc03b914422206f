"""Which session a request belongs to, one frozen record for each that does."""

from __future__ import annotations

import blis_tui.cluster.lifecycle_records  # noqa: F401  (kinds are listed in the order in which they are defined)
from blis_tui.classes import dataclass
from blis_tui.engine.records import Description, Record


@dataclass(frozen=True, slots=True)
class SessionBegun(Record):
    """A request begins a session: a conversation, or a run of an agent."""

    shown = Description(
        "session-begun",
        sign="(",
        meaning="a request began a session",
        explanation="Later calls of the session wait for its answer, and their prompts begin with what was said.",
        sentence="{request_id} begins the session {session_id}",
        line="begins a session of {calls:call}",
        figures=("calls",),
        state="in transit",
        own_event=False,
    )

    request_id: str
    session_id: str
    calls: int
    """Requests that the session has if each is answered."""


@dataclass(frozen=True, slots=True)
class SessionContinued(Record):
    """A request goes on with a session."""

    shown = Description(
        "session-continued",
        sign=")",
        meaning="a request went on with a session",
        explanation="The calls that it waits for had been answered, and somebody had thought, or a tool had worked.",
        sentence="{request_id} goes on with the session {session_id} as call {call:place}, {waited_us:span} later",
        line="goes on with its session {waited_us:span} after {last}",
        figures=("last", "waited_us"),
        state="in transit",
        own_event=False,
    )

    request_id: str
    session_id: str
    call: int
    """Its position in the session, from 0."""
    after: tuple[str, ...]
    """Requests that it waited for."""
    last: str
    """The last of them to be answered or, with ``pacing: clock``, sent."""
    waited_us: int
    """Since then."""
    said_tokens: int
    """Tokens of its prompt that were said before in the session, or stand before every prompt of its client."""
