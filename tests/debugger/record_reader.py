"""Where every request stands, read from nothing but the records up to a position: what the debugger is held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blis_tui.engine.records import (
    Admitted,
    Arrived,
    Completed,
    Dropped,
    FirstToken,
    Preempted,
    Queued,
    Rejected,
    Routed,
    Scheduled,
    StepFinished,
    TimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.records import Record

DECISIONS = (Scheduled, Preempted)
"""What of a step's records is past in its middle."""


@dataclass
class Standing:
    """A request."""

    arrival_us: int
    input_tokens: int
    phase: str = "in-transit"
    planned: bool = False
    """It takes part from the next step on."""
    computed: int = 0
    generated: int = 0
    target: int = 0
    instance: int = -1
    first_token_us: int | None = None
    ttft_us: int | None = None
    known_until_us: int = 0
    waits_since_us: int = 0
    queued_us: int = 0
    """In the queue, its present wait not counted."""
    preemptions: int = 0
    token_times_us: list[int] = field(default_factory=list)
    """When it got the tokens it has."""


@dataclass
class Reader:
    """Folds records."""

    keeps_output: bool
    live: dict[str, Standing] = field(default_factory=dict)
    first_tokens: list[tuple[str, int]] = field(default_factory=list)
    """Request and time to first token in microseconds, without those that a preemption took back."""
    gaps_us: list[tuple[int, int]] = field(default_factory=list)
    """Duration and decoding requests of each step."""
    completed: dict[str, int] = field(default_factory=dict)
    ended: dict[str, Standing] = field(default_factory=dict)
    plans_ahead: bool = False
    ends_us: dict[int, int] = field(default_factory=dict)
    """When the latest step of each instance ends."""

    def read(self, records: Iterable[Record]) -> None:
        for record in records:
            self._read(record)

    def _read(self, record: Record) -> None:
        live = self.live
        if isinstance(record, Arrived):
            live[record.request_id] = Standing(record.time_us, record.input_tokens, target=record.input_tokens)
        elif isinstance(record, Routed):
            live[record.request_id].instance = record.instance
        elif isinstance(record, Queued):
            live[record.request_id].phase, live[record.request_id].waits_since_us = "waiting", record.time_us
        elif isinstance(record, Scheduled):
            standing = live[record.request_id]
            standing.phase, standing.computed = "prefill", record.cached_tokens
            standing.planned = self.plans_ahead
            standing.queued_us += record.time_us - standing.waits_since_us
        elif isinstance(record, Preempted):
            standing = live[record.request_id]
            if standing.phase == "leaving":
                return  # it loses its blocks while its last token is computed
            if self.keeps_output:
                standing.target = (
                    max(standing.target, record.lost_tokens + 1) if standing.phase != "prefill" else standing.target
                )
            else:
                standing.generated, standing.first_token_us, standing.ttft_us = 0, None, None
                standing.token_times_us.clear()
                self.first_tokens = [pair for pair in self.first_tokens if pair[0] != record.request_id]
            standing.phase, standing.computed = "waiting", 0
            standing.waits_since_us = self.ends_us.get(record.instance, 0) if self.plans_ahead else record.time_us
            standing.preemptions += 1
        elif isinstance(record, StepFinished):
            self._step(record)
        elif isinstance(record, FirstToken):
            self.first_tokens.append((record.request_id, record.ttft_us))
            if record.request_id in live:
                standing = live[record.request_id]
                standing.first_token_us, standing.ttft_us = record.first_token_us, record.ttft_us
        elif isinstance(record, Completed):
            self.completed[record.request_id] = record.e2e_us
            self.ended[record.request_id] = live.pop(record.request_id)
        elif isinstance(record, Rejected | Dropped | TimedOut):
            self.ended[record.request_id] = live.pop(record.request_id)
        else:
            assert isinstance(record, Admitted)

    def _step(self, step: StepFinished) -> None:
        end_us = self.ends_us[step.instance] = step.time_us + step.duration_us
        self.gaps_us.append((step.duration_us, step.decode_requests))
        computing = {chunk.request_id: chunk.new_tokens for chunk in step.chunks}
        for name, standing in self.live.items():
            if standing.instance != step.instance or standing.phase not in ("prefill", "decode", "stalled"):
                continue
            if standing.planned and name not in step.admitted:
                continue
            standing.planned = False
            standing.known_until_us = end_us
            if standing.phase == "prefill":
                instant = name in step.admitted and name not in computing
                standing.computed += computing.get(name, 0)
                if standing.computed == standing.target and (name in computing or instant):
                    standing.phase = "decode"
                    standing.generated += 1
                    standing.token_times_us.append(end_us)
            elif name in step.stalled:
                standing.phase = "stalled"
            else:
                standing.phase = "decode"
                standing.computed += 1
                standing.generated += 1
                standing.token_times_us.append(end_us)
        for name in step.completed:
            self.live[name].phase = "leaving"


def past_of(records: Iterable[Record], event: int, settled: int) -> list[Record]:
    """The records that are past at a position."""
    found: list[Record] = []
    over = -1
    for record in records:
        if isinstance(record, StepFinished):
            over = record.event
        if record.event <= settled or (record.event == event and isinstance(record, DECISIONS) and over != event):
            found.append(record)
    return found
