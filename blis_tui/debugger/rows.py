"""What a tape says of events, of steps, and of what happened to requests."""

from __future__ import annotations

from typing import NamedTuple

from blis_tui.classes import dataclass


class EventRow(NamedTuple):
    """One event, called what its main record is. ``event`` counts from 1."""

    event: int
    time_us: int
    kind: str
    instance: int
    """-1 where no instance was concerned."""
    request: int
    """Number of the request, -1 where it is not about one."""
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
    planned: int
    """The event in which it was planned: its own, or with asynchronous scheduling the start of the step before."""
    chunks: int
    """Requests whose prefill it went on with."""

    @property
    def served(self) -> int:
        """Requests that got something from the step; those apart whose whole prompt was cached."""
        return self.chunks + self.decode_requests

    @property
    def batch_tokens(self) -> int:
        """Tokens the step computed."""
        return self.prefill_tokens + self.decode_requests


class StopRow(NamedTuple):
    """Where the plan of a step stopped to take requests from the queue: see ``SchedulingStopped``."""

    cause: str
    request: int
    """Number of the request that did not get in; -1 = it holds for all that wait."""
    need: int
    had: int
    kept: int
    tried_us: int


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """One thing that happened to a request.

    ``what`` is a kind of record; ``first`` and ``second`` are then the figures of its description, requests by their
    number. Of steps, it is also started (where steps are planned ahead: -, -: the first step after it was scheduled),
    chunk (tokens computed before it, tokens it adds), stalled and resumed (-, -: the first
    step without a token for it, and the next one with a token again), and last-token (time of the token, -).
    """

    event: int
    time_us: int
    what: str
    first: int
    second: int
