"""An instance that plans each step while the one before it runs: vLLM's asynchronous scheduling.

Two steps are in flight at any time. When a step starts, the results of the one before it have come, and the step after
it is planned: that plan sees whoever has arrived by then, and takes for done what the starting step computes, except
that a request whose last token it computes keeps its slot and its blocks until that token is there. The first two steps
of a busy period are planned at once. Source: vLLM 0.32.0, ``v1/engine/core.py`` (``step_with_batch_queue``) and
``v1/core/sched/async_scheduler.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.holding_instance import HoldingInstance
from blis_tui.engine.plan import Plan, Planned
from blis_tui.engine.step_event import NO_STEP
from blis_tui.engine.tallies import tally_wait

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


class AsyncInstance(HoldingInstance):
    """An instance with two steps in flight."""

    __slots__ = ()

    def step(self, now: int, *, planned: bool = False) -> int:  # noqa: ARG002  (it knows)
        """Start the step that is planned, and plan the next one; returns when that starts, IDLE or NO_STEP."""
        batch = self.batch
        if batch.ending:
            self._release_all()
        ready = batch.planned
        decodes = batch.load.decode_requests
        if not decodes:
            batch.cohort.ahead = 0  # those for whom it was planned have left
        if ready is None or (ready.prefills_nothing and not decodes):
            if not self.has_work:
                return NO_STEP
            self._lapse(now)
            ready = self._plan_anew(ready, now)
            if ready is None:
                return NO_STEP
        upcoming = super().step(now, planned=True) if ready.plan is None else self._run(ready.plan, ready.epoch, now)
        batch.planned = following = self._plan_next(now, ahead=True)
        if self.waiting.items:
            plan = (following and following.plan) or Plan()
            full, duration = self._full(plan), self._free_us - now
            tally_wait(self.tallies, batch, plan, self.pool.epoch, len(batch.ending), duration, full_budget=full)
        return upcoming

    def _full(self, plan: Plan) -> bool:
        """Whether a plan spends the whole token budget."""
        tokens = self.batch.load.decode_requests if plan.decodes else 0
        for chunk in plan.chunks:
            tokens += chunk.new
        return tokens >= self.batch.limits.max_num_batched_tokens

    def _plan_anew(self, before: Planned | None, now: int) -> Planned | None:
        """Plan the step that starts now; what a plan before it preempted that computes nothing belongs to it."""
        planned = self._plan_next(now, ahead=False)
        if planned is None:
            if self.batch.awaits_blocks():
                return None
            raise self.batch.deadlock(self.index, now)
        return planned if before is None or before.plan is None else planned.after(before.plan)

    def _plan_next(self, now: int, *, ahead: bool) -> Planned | None:
        """Plan the step that starts now, or after the one under way; None = there is nothing it could do."""
        batch = self.batch
        plan: Plan | None = None
        due = self._due_for_plain_decode()
        if due >= 0:
            self.pool.take(due)
        else:
            plan = self._plan(now, ahead=ahead) if self.has_work else None
            if plan is None or (plan.computes_nothing and not batch.load.decode_requests):
                return None
            self.pool.planned()
        batch.cohort.ahead = int(batch.load.decode_requests > 0 and (plan is None or plan.decodes))
        return Planned(plan, self.pool.epoch, self.pool.free, len(batch.running) + len(batch.ending))

    def _due_for_plain_decode(self) -> int:
        """The KV blocks due where there is nothing to decide and every running request gets its token; else -1."""
        batch = self.batch
        decodes = batch.load.decode_requests
        if (
            not decodes
            or batch.prefills
            or batch.stalled
            or self.pool.tiers is not None
            or decodes > batch.max_decodes
            or (self.waiting.items and len(batch.running) + len(batch.ending) < batch.max_running)
        ):
            return -1
        due = len(batch.cohort.due())
        return due if due <= self.pool.free else -1

    def withdraw(self, request: Request, now: int) -> None:
        """Take out somebody who waits or runs; the step that is planned goes on without."""
        super().withdraw(request, now)
        plan = self.batch.planned and self.batch.planned.plan
        if plan is not None:
            plan.chunks = [chunk for chunk in plan.chunks if chunk.request is not request]
            plan.admitted = [one for one in plan.admitted if one is not request]
            if not self.has_work:
                self._lapse(now)

    def _lapse(self, now: int) -> None:
        """Whoever a plan was made for has left: what is in their blocks counts as computed."""
        self.pool.computed(now, -1)

    def abandon(self) -> None:
        """Stop in the middle of everything: its requests have been taken out."""
        self.batch.planned = None
        self.batch.cohort.ahead = 0
        super().abandon()

    def plans(self) -> tuple[object, ...]:
        """What is planned and not carried out, as plain values (for digests)."""
        ending = sorted(self.batch.ending)
        if self.batch.planned is None:
            return (ending,)
        plan, epoch, _, _ = self.batch.planned
        if plan is None:
            return (ending, epoch)
        chunks = [(chunk.request.index, chunk.computed, chunk.new) for chunk in plan.chunks]
        preempted = [(one.victim.index, one.beneficiary.index) for one in plan.preempted]
        return (ending, epoch, chunks, [one.index for one in plan.admitted], preempted)
