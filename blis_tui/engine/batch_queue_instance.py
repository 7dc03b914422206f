"""A pipeline that is kept full as vLLM's engine core does it: a queue of batches, topped up when the oldest is over.

Batches are planned until the queue holds as many as there are stages; then the engine waits for the oldest of them, and
whoever arrives meanwhile waits, too. A plan that finds nothing to do takes a place in the queue as any other. The next
chunk of a prompt may enter right behind the one before it. A decode goes on when its latest token has come; with
asynchronous scheduling the queue has one place more, and a decode is planned again as many plans later as there are
stages, and enters the first stage when its token is there.

Source: vLLM 0.32.0, ``v1/engine/core.py`` (``step_with_batch_queue``, 698), ``config/vllm.py``
(``max_concurrent_batches``, 577), ``v1/core/sched/scheduler.py`` (who is passed over: 680, 756, 934) and, of the V2
model runner, ``v1/core/sched/async_scheduler.py`` (``next_decode_eligible_step``, 52).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from blis_tui.engine.pipelined_instance import PipelinedInstance, UnderWay
from blis_tui.engine.step_event import IDLE, NO_STEP

if TYPE_CHECKING:
    from collections.abc import Collection

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.parts import Parts
    from blis_tui.engine.plan import Plan

_NOTHING: Final = UnderWay(0, (), ())
"""A plan that found nothing to do: over at once, when its turn comes."""


class BatchQueueInstance(PipelinedInstance):
    """An instance with a queue of batches.

    Attributes:
        sampled: slots that got a token, of each of the latest plans, one fewer than there are stages; without
            asynchronous scheduling nothing.
    """

    __slots__ = ("_token_us", "sampled")

    def __init__(self, index: int, batch: Batch, parts: Parts, *, stages: int, ahead: bool) -> None:
        super().__init__(index, batch, parts, stages=stages)
        self.places += ahead
        self.sampled: deque[tuple[int, ...]] | None = deque(maxlen=stages - 1) if ahead else None
        self._token_us = 0

    def step(self, now: int, *, planned: bool = False) -> int:  # noqa: ARG002  (it plans every step when it enters)
        """Plan until a batch enters the pipeline or the queue is full; NO_STEP where nothing has come of it."""
        batch = self.batch
        answer = NO_STEP
        if self.under_way and self.under_way[0].end_us < now:
            self._drain(now - 1)
            self._fill_up()
        while self.has_work:
            self._drain(now)
            if len(self.under_way) == self.places:
                self._want_step(now)
                break
            alone = not any(one.end_us for one in self.under_way)
            batch.paused = self._paused()
            plan = self._plan(now, ahead=not alone)
            if plan is None:
                break
            if plan.chunks or batch.load.decode_requests:
                return self._send(plan, now)
            if plan.preempted:
                answer = IDLE
            elif alone and not batch.paused:
                raise batch.deadlock(self.index, now)
            self._note(_NOTHING, ())
        return answer

    def _paused(self) -> Collection[int]:
        """Slots of those whose next token is not up yet."""
        return self.batch.busy if self.sampled is None else {slot for slots in self.sampled for slot in slots}

    def _send(self, plan: Plan, now: int) -> int:
        batch, cohort = self.batch, self.batch.cohort
        decodes = cohort.members()
        token_us = {one.index: cohort.last_token_us(one) for one in decodes}
        self._token_us = max(token_us.values(), default=now)
        slots = [one.batch_slot for one in decodes]
        slots += [c.request.batch_slot for c in plan.chunks if c.computed + c.new == c.request.target_tokens]
        upcoming = self._enter(plan, now)
        batch.blind.update((index, self._free_us) for index, time_us in token_us.items() if time_us > now)
        self._note(self.under_way.pop(), tuple(slots))
        if self.has_work:
            self._come_by(self._next_us(now, [one.end_us for one in self.under_way]))
        else:
            self._fill_up()
        return upcoming

    def _fill_up(self) -> None:
        """The engine has gone on planning for want of work, while any batch was under way."""
        if any(one.end_us for one in self.under_way):
            self.under_way += [_NOTHING] * (self.places - len(self.under_way))

    def _note(self, entry: UnderWay, sampled: tuple[int, ...]) -> None:
        self.under_way.append(entry)
        if self.sampled is not None:
            self.sampled.append(sampled)

    def _want_step(self, now: int) -> None:
        """The engine plans again when the oldest batch is over."""
        if self.has_work:
            self._come_by(next((one.end_us for one in self.under_way if one.end_us >= now), now))

    def _next_us(self, now: int, ends_us: list[int]) -> int:
        return ends_us[0] if len(ends_us) == self.places else now

    def _enters_us(self, now: int) -> int:
        """Not before the tokens are there that its decodes go on from."""
        return max(now, self._token_us)

    def plans(self) -> tuple[object, ...]:
        """The queue and what it makes requests wait for, as plain values (for digests)."""
        batch = self.batch
        waits = (batch.busy, batch.stale, batch.blind)
        return (*super().plans(), *(sorted(one.items()) for one in waits), self.sampled and list(self.sampled))
