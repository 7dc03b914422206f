"""What happened, one frozen record each. The field order is the order in every file and is part of the format.

A record is built only when somebody has subscribed to its kind. ``event`` is the number of the processed event, from
1; several records may carry the same one. All times are simulated microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Record:
    """Base of all records: which event it belongs to, and when that was."""

    kind: ClassVar[str] = "record"

    event: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Arrived(Record):
    """A request reached the cluster."""

    kind: ClassVar[str] = "arrived"

    request_id: str
    input_tokens: int
    max_output_tokens: int
    slo_class: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class Admitted(Record):
    """Admission control let a request in."""

    kind: ClassVar[str] = "admitted"

    request_id: str
    policy: str


@dataclass(frozen=True, slots=True)
class Rejected(Record):
    """Admission control turned a request away."""

    kind: ClassVar[str] = "rejected"

    request_id: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Routed(Record):
    """The router chose an instance; ``reason`` says by what rule."""

    kind: ClassVar[str] = "routed"

    request_id: str
    instance: int
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Queued(Record):
    """A request entered an instance's waiting queue; ``position`` counts from 0."""

    kind: ClassVar[str] = "queued"

    request_id: str
    instance: int
    position: int


@dataclass(frozen=True, slots=True)
class Dropped(Record):
    """An instance can never serve a request."""

    kind: ClassVar[str] = "dropped"

    request_id: str
    instance: int
    reason: str


@dataclass(frozen=True, slots=True)
class Scheduled(Record):
    """A request left the waiting queue for the running batch."""

    kind: ClassVar[str] = "scheduled"

    request_id: str
    instance: int
    cached_tokens: int
    new_tokens: int
    waited_us: int


@dataclass(frozen=True, slots=True)
class Preempted(Record):
    """A running request lost its blocks and went back to the head of the queue, so that ``for_request`` could go on."""

    kind: ClassVar[str] = "preempted"

    request_id: str
    instance: int
    for_request: str
    lost_tokens: int
    freed_blocks: int


@dataclass(frozen=True, slots=True)
class ChunkDone:
    """One prefill chunk of a step: tokens in the cache before it, and tokens it adds."""

    request_id: str
    computed_tokens: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class StepFinished(Record):
    """One step of one instance, with what each of its four phases did.

    Schedule: ``admitted``, ``preempted``, ``chunks``, ``decode_requests`` (all get one token), ``stalled`` (running,
    but no token this step). Execute: ``duration_us`` by the step-time model, ``decode_context_tokens`` before it.
    Complete: ``first_tokens``, ``completed``. Next: ``next_step_us`` (-1 = the instance goes idle).
    """

    kind: ClassVar[str] = "step"

    instance: int
    step: int
    admitted: tuple[str, ...]
    preempted: tuple[str, ...]
    chunks: tuple[ChunkDone, ...]
    decode_requests: int
    decode_context_tokens: int
    stalled: tuple[str, ...]
    duration_us: int
    first_tokens: tuple[str, ...]
    completed: tuple[str, ...]
    waiting: int
    running: int
    kv_used_blocks: int
    next_step_us: int


@dataclass(frozen=True, slots=True)
class FirstToken(Record):
    """A request's first token left the instance; ``ttft_us`` is what its client measures."""

    kind: ClassVar[str] = "first-token"

    request_id: str
    instance: int
    first_token_us: int
    ttft_us: int


@dataclass(frozen=True, slots=True)
class Completed(Record):
    """A request is done; ``e2e_us`` is what its client measures."""

    kind: ClassVar[str] = "completed"

    request_id: str
    instance: int
    output_tokens: int
    ttft_us: int
    e2e_us: int
    length_capped: bool


@dataclass(frozen=True, slots=True)
class TimedOut(Record):
    """A request's deadline passed before it was done."""

    kind: ClassVar[str] = "timed-out"

    request_id: str
    instance: int
    was_running: bool
    output_tokens: int


RECORD_KINDS: dict[str, type[Record]] = {
    record.kind: record
    for record in (
        Arrived,
        Admitted,
        Rejected,
        Routed,
        Queued,
        Dropped,
        Scheduled,
        Preempted,
        StepFinished,
        FirstToken,
        Completed,
        TimedOut,
    )
}
"""Every kind of record by its name in files and subscriptions."""


class Observers:
    """Who wants to know what. An absent subscriber costs the engine one attribute read.

    Attributes:
        event: number of the event being processed; kept current only while there are subscribers.
        kinds: the record classes somebody subscribed to.
    """

    __slots__ = ("_callbacks", "event", "kinds")

    def __init__(self) -> None:
        self.event = 0
        self.kinds: frozenset[type[Record]] = frozenset()
        self._callbacks: dict[type[Record], tuple[Callable[[Record], None], ...]] = {}

    def add(self, kind: type[Record], callback: Callable[[Record], None]) -> None:
        """Call ``callback`` with each record of ``kind`` from now on."""
        self._callbacks[kind] = (*self._callbacks.get(kind, ()), callback)
        self.kinds = frozenset(self._callbacks)

    def remove(self, kind: type[Record], callback: Callable[[Record], None]) -> None:
        """Stop calling ``callback``; nothing happens when it is not called anyway."""
        left = list(self._callbacks.get(kind, ()))
        if callback in left:
            left.remove(callback)
        self._callbacks[kind] = tuple(left)
        if not left:
            del self._callbacks[kind]
        self.kinds = frozenset(self._callbacks)

    def emit(self, record: Record) -> None:
        """Hand ``record`` to everybody who subscribed to its kind, in order of subscription."""
        # A callback may end its own subscription, so the last one for a kind may be gone by now.
        for callback in self._callbacks.get(type(record), ()):
            callback(record)
