"""What a step works on: the answer of a batch-formation rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import Chunk
    from blis_tui.engine.request import Request


class Preemption(NamedTuple):
    """A request that lost its KV blocks: a running one is put back into the queue."""

    victim: Request
    beneficiary: Request
    lost_tokens: int
    lost_blocks: int


class Plan:
    """One step, as it is formed. What it grants is taken from the batch's blocks at once.

    Attributes:
        chunks: pieces of prefills, in the order in which they were granted.
        admitted: requests taken from the queue, in order.
        instant: those of them whose whole prompt was cached: their prefill ends without a chunk.
        preempted: requests put back, in order.
        decodes: whether the decode cohort takes part.
    """

    __slots__ = ("admitted", "chunks", "decodes", "instant", "preempted")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.admitted: list[Request] = []
        self.instant: list[Request] = []
        self.preempted: list[Preemption] = []
        self.decodes = True
