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
        threshold: the ``long_prefill_token_threshold`` of this step; 0 = off.
        chunks: pieces of prefills, in the order in which they were granted.
        admitted: requests taken from the queue, in order.
        instant: those of them whose whole prompt was cached: their prefill ends without a chunk.
        preempted: requests put back, in order.
        decodes: whether the decode cohort takes part.
    """

    __slots__ = ("admitted", "chunks", "decodes", "instant", "preempted", "threshold")

    def __init__(self, threshold: int = 0) -> None:
        self.threshold = threshold
        self.chunks: list[Chunk] = []
        self.admitted: list[Request] = []
        self.instant: list[Request] = []
        self.preempted: list[Preemption] = []
        self.decodes = True

    @property
    def computes_nothing(self) -> bool:
        """Whether, decodes apart, a step without effect would come of it."""
        return not self.chunks and not self.instant and not self.preempted


class Planned(NamedTuple):
    """A step that has been planned and has not started."""

    plan: Plan | None
    """None = a plain decode."""
    epoch: int
    """Of the block pool, after planning."""
    free_blocks: int
    """After planning."""
    places: int
    """Requests with a place in the batch after planning."""

    @property
    def prefills_nothing(self) -> bool:
        """Whether there is nothing in it to compute, decodes apart."""
        return self.plan is None or not self.plan.chunks

    def after(self, idle: Plan) -> Planned:
        """The same step, with what a plan before it preempted that is no step of its own."""
        plan = Plan() if self.plan is None else self.plan
        plan.preempted[:0] = idle.preempted
        return self._replace(plan=plan)
