"""An instance with speculative decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.instance import Instance
from blis_tui.engine.speculative.records import DraftDone, DraftsVerified

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.parts import Parts
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request
    from blis_tui.engine.speculative.cohort import SpeculativeCohort
    from blis_tui.engine.step_records import Done


class SpeculativeInstance(Instance):
    """One whose decodes verify drafted tokens: every step is planned, request by request."""

    __slots__ = ("_drafting_us", "cohort")

    def __init__(self, index: int, batch: Batch, parts: Parts, *, cohort: SpeculativeCohort, drafting_us: int) -> None:
        super().__init__(index, batch, parts)
        self.cohort = cohort
        self._drafting_us = drafting_us

    def step(self, now: int, *, planned: bool = False) -> int:  # noqa: ARG002  (it plans every step when it starts)
        """Run one step from ``now``; returns when the next one starts, IDLE or NO_STEP."""
        self.cohort.noting = DraftsVerified in self._observers.kinds
        return self._planned_step(now)

    def _duration_us(self, load: StepLoad) -> int:
        """With the time that drafting takes."""
        drafts = self._drafting_us if any(self.cohort.drafts.values()) else 0
        return super()._duration_us(load) + drafts

    def _emit_step(self, plan: Plan, done: Done) -> None:
        """With what became of the drafts."""
        super()._emit_step(plan, done)
        if not self.cohort.noting or not done.decode_requests:
            return
        observers = self._observers
        verified = tuple(DraftDone(*one[1:]) for one in sorted(self.cohort.latest))
        drafted = accepted = gained = 0
        for one in verified:
            drafted += one.draft_tokens
            accepted += one.accepted_tokens
            gained += one.output_tokens
        observers.emit(DraftsVerified(observers.event, done.start_us, self.index, drafted, accepted, gained, verified))

    def _vacate(self, request: Request, end: int) -> None:
        """Without content for what was accepted in its last step, where that is noted with the next one."""
        request.batch_slot = -1
        self.pool.release(request, self.cohort.noted_tokens(request), end=end)

    def plans(self) -> tuple[object, ...]:
        """What its drafts add up to, as plain values (for digests)."""
        return self.cohort.tallies.state()
