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
            one = live[record.request_id]
            one.phase, one.computed = "prefill", record.cached_tokens
            one.planned = self.plans_ahead
            one.queued_us += record.time_us - one.waits_since_us
        elif isinstance(record, Preempted):
            one = live[record.request_id]
            if one.phase == "leaving":
                return  # it loses its blocks while its last token is computed
            if self.keeps_output:
                one.target = max(one.target, record.lost_tokens + 1) if one.phase != "prefill" else one.target
            else:
                one.generated, one.first_token_us, one.ttft_us = 0, None, None
                one.token_times_us.clear()
                self.first_tokens = [pair for pair in self.first_tokens if pair[0] != record.request_id]
            one.phase, one.computed = "waiting", 0
            one.waits_since_us = self.ends_us.get(record.instance, 0) if self.plans_ahead else record.time_us
            one.preemptions += 1
        elif isinstance(record, StepFinished):
            self._step(record)
        elif isinstance(record, FirstToken):
            self.first_tokens.append((record.request_id, record.ttft_us))
            if record.request_id in live:
                one = live[record.request_id]
                one.first_token_us, one.ttft_us = record.first_token_us, record.ttft_us
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
        for name, one in self.live.items():
            if one.instance != step.instance or one.phase not in ("prefill", "decode", "stalled"):
                continue
            if one.planned and name not in step.admitted:
                continue
            one.planned = False
            one.known_until_us = end_us
            if one.phase == "prefill":
                instant = name in step.admitted and name not in computing
                one.computed += computing.get(name, 0)
                if one.computed == one.target and (name in computing or instant):
                    one.phase = "decode"
                    one.generated += 1
                    one.token_times_us.append(end_us)
            elif name in step.stalled:
                one.phase = "stalled"
            else:
                one.phase = "decode"
                one.computed += 1
                one.generated += 1
                one.token_times_us.append(end_us)
        for name in step.completed:
            self.live[name].phase = "leaving"


def past_of(records: Iterable[Record], event: int, settled: int) -> list[Record]:
    """The records that are past at a position."""
    found: list[Record] = []
    over = -1
    for one in records:
        if isinstance(one, StepFinished):
            over = one.event
        if one.event <= settled or (one.event == event and isinstance(one, DECISIONS) and over != event):
            found.append(one)
    return found
