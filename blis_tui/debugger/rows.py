"""What a tape says of events, of steps, and of what happened to requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

KINDS: Final = (
    "arrived",
    "admitted",
    "rejected",
    "routed",
    "queued",
    "dropped",
    "step",
    "completed",
    "timed-out",
)
"""What an event is called: the kind of its main record."""

MOMENTS: Final = (
    "arrived",
    "admitted",
    "rejected",
    "routed",
    "queued",
    "dropped",
    "scheduled",
    "chunk",
    "stalled",
    "resumed",
    "preempted",
    "first-token",
    "last-token",
    "completed",
    "timed-out",
)
"""What can happen to a request."""


class EventRow(NamedTuple):
    """One event. ``event`` counts from 1."""

    event: int
    time_us: int
    kind: str
    instance: int
    """-1 where no instance was concerned."""
    request: int
    """Number of the request, -1 for steps."""
    step: int
    """Row of the step's figures, -1 for other events."""


class StepRow(NamedTuple):
    """A step's figures; the state figures are those after it."""

    duration_us: int
    admitted: int
    preempted: int
    prefill_tokens: int
    decode_requests: int
    stalled: int
    first_tokens: int
    completed: int
    waiting: int
    running: int
    kv_used_blocks: int
    number: int
    """Of its instance's steps, from 1."""
    all_waiting: int
    """Of all instances together, after it; likewise below."""
    all_running: int
    all_kv_used_blocks: int

    @property
    def batch_tokens(self) -> int:
        """Tokens the step computed."""
        return self.prefill_tokens + self.decode_requests


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened to a request.

    ``first`` and ``second`` are, by ``what``: arrived (input tokens, declared output tokens), routed (instance, -),
    queued (instance, position from 0), scheduled (tokens found in the cache, tokens granted), chunk (tokens computed
    before it, tokens it adds), stalled and resumed (-, -: the first step without a token for it, and the next one with
    a token again), preempted (tokens lost, number of the request it made room for), first-token (time of
    the token, time to first token as the client measures it), last-token (time of the token, -), completed (output
    tokens, end-to-end time), timed-out (output tokens, whether it ran).
    """

    event: int
    time_us: int
    what: str
    first: int
    second: int
