"""What a step works on: the answer of a batch-formation rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import Chunk
    from blis_tui.engine.request import Request


class Preemption(NamedTuple):
    """A running request that was put back into the queue."""

    victim: Request
    beneficiary: Request
    lost_tokens: int
    lost_blocks: int


@dataclass(slots=True)
class Plan:
    """One step, as it is formed. What it grants is taken from the batch's blocks at once."""

    chunks: list[Chunk] = field(default_factory=list)
    """Pieces of prefills, in the order in which they were granted."""
    admitted: list[Request] = field(default_factory=list)
    """Requests taken from the queue, in order."""
    instant: list[Request] = field(default_factory=list)
    """Those of them whose whole prompt was cached: their prefill ends without a chunk."""
    preempted: list[Preemption] = field(default_factory=list)
    """Requests put back, in order."""
    decodes: bool = True
    """Whether the decode cohort takes part."""
