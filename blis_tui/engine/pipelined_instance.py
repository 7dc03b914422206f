"""An instance whose layers are spread over several stages: pipeline parallelism.

A batch goes through all stages, and when it has left the first one, the next batch may enter; at most as many batches
are under way as there are stages. A request takes part in one of them at a time. Every stage takes an equal part of the
step-time model's answer; a batch that finds the next stage taken waits before it, and what the stages idle meanwhile is
the *bubble*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from blis_tui.engine.holding_instance import HoldingInstance
from blis_tui.engine.step_event import NO_STEP

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.parts import Parts
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request
    from blis_tui.engine.step_records import Done


class UnderWay(NamedTuple):
    """A batch in the pipeline."""

    end_us: int
    slots: tuple[int, ...]
    ending: tuple[Request, ...]
    """Those of them that have their last token at its end."""


class Pass:
    """The first stage is free, and another batch may enter: an event, or nothing where none can be formed."""

    __slots__ = ("instance", "instance_index", "time_us")

    kind = "step"
    request = None

    def __init__(self, instance: PipelinedInstance, time_us: int) -> None:
        self.instance = instance
        self.instance_index = instance.index
        self.time_us = time_us

    @property
    def stale(self) -> bool:
        """Whether an earlier one came instead, or nobody is left."""
        return self.instance.upcoming is not self or not self.instance.has_work

    def happen(self, now: int) -> bool:
        """Form a batch."""
        if self.stale:
            return False
        self.drop()
        return self.instance.step(now) != NO_STEP

    def drop(self) -> None:
        """It is no longer pending."""
        if self.instance.upcoming is self:
            self.instance.upcoming = None
            self.instance.step_pending = False


class PipelinedInstance(HoldingInstance):
    """An instance with several steps in flight, each with requests of its own.

    Attributes:
        stages: when each stage is free again, the first stage first.
        places: how many batches may be under way.
        under_way: the batches in the pipeline, in the order in which they entered it.
        upcoming: when the next batch may enter.
    """

    __slots__ = ("places", "stages", "under_way", "upcoming")

    def __init__(self, index: int, batch: Batch, parts: Parts, *, stages: int) -> None:
        super().__init__(index, batch, parts)
        self.stages = [0] * stages
        self.places = stages
        self.under_way: list[UnderWay] = []
        self.upcoming: Pass | None = None

    def step(self, now: int, *, planned: bool = False) -> int:  # noqa: ARG002  (it plans every step when it starts)
        """Let a batch enter the pipeline; returns when the next one may, or NO_STEP where none can be formed."""
        batch = self.batch
        self._drain(now)
        if len(self.under_way) == self.places:
            return self._come_again(self.under_way[0].end_us)
        plan = self._plan(now, ahead=bool(self.under_way)) if self.has_work else None
        if plan is None or (plan.computes_nothing and not batch.load.decode_requests):
            if self.under_way:
                return self._come_again(self.under_way[0].end_us)
            if plan is None:
                return NO_STEP
            raise batch.deadlock(self.index, now)
        upcoming = self._enter(plan, now)
        if self.has_work:
            self._want_step(now)
        return upcoming

    def _enter(self, plan: Plan, now: int) -> int:
        """Send a batch on its way; returns when the next one may enter, or IDLE."""
        batch = self.batch
        slots = [chunk.request.batch_slot for chunk in plan.chunks]
        slots += [request.batch_slot for request in (*plan.instant, *batch.cohort.members())]
        before = dict.fromkeys(batch.ending)
        upcoming = self._run(plan, self.pool.epoch, now)
        held = tuple(request for slot, request in batch.ending.items() if slot not in before)
        end = self._free_us
        self.under_way.append(UnderWay(end, tuple(slots), held))
        for slot in slots:
            batch.busy[slot] = end
        return upcoming

    def _want_step(self, now: int) -> None:
        """There is a pass to come as long as there is work; it may turn out to come earlier than thought."""
        if self.has_work:
            self._come_by(self._next_us(now, [one.end_us for one in self.under_way]))

    def withdraw(self, request: Request, now: int) -> None:
        """Take out somebody who waits or runs; others may fit now."""
        super().withdraw(request, now)
        if self.waiting.items:
            self._want_step(now)

    def _next_us(self, now: int, ends_us: list[int]) -> int:
        """When the next batch may enter at the earliest, behind those that end then."""
        full = len(ends_us) == self.places
        return max(now, self.stages[0], ends_us[0] if full else 0)

    def _come_by(self, time_us: int) -> None:
        if self.upcoming is None or self.upcoming.time_us > time_us:
            self.upcoming = Pass(self, time_us)
            self.step_pending = True
            self._events.push(time_us, self.order_step, self.upcoming)

    def _come_again(self, time_us: int) -> int:
        """No batch can be formed before one has left the pipeline."""
        self._come_by(time_us)
        return NO_STEP

    def _drain(self, now: int) -> None:
        """Batches that have left the pipeline: their requests may take part in others."""
        busy = self.batch.busy
        while self.under_way and self.under_way[0].end_us <= now:
            gone = self.under_way.pop(0)
            for slot in gone.slots:
                if busy.get(slot, 0) <= gone.end_us:
                    busy.pop(slot, None)
            for request in gone.ending:
                self._release(request)

    def _under_way_us(self, duration_us: int, now: int) -> int:
        """Through all stages, and before those that are taken."""
        count = len(self.stages)
        active_from = max(now, self.stages[-1])
        time = self._enters_us(now)
        for stage in range(count):
            part = duration_us * (stage + 1) // count - duration_us * stage // count
            time = self.stages[stage] = max(time, self.stages[stage]) + part
        tallies = self.tallies
        tallies.active_us += time - active_from
        tallies.computing_us += duration_us
        return time - now

    def _enters_us(self, now: int) -> int:
        """From when on a batch that is formed now could enter the first stage."""
        return now

    def _emit_step(self, plan: Plan, done: Done) -> None:
        """With when the next batch may enter."""
        upcoming = done.upcoming_us
        if upcoming >= 0:
            ends_us = [*(one.end_us for one in self.under_way), done.start_us + done.duration_us]
            upcoming = self._next_us(done.start_us, ends_us)
        super()._emit_step(plan, done._replace(upcoming_us=upcoming))

    def abandon(self) -> None:
        """Stop in the middle of everything: its requests have been taken out."""
        self.under_way.clear()
        self.batch.busy.clear()
        super().abandon()

    def plans(self) -> tuple[object, ...]:
        """The pipeline, as plain values (for digests)."""
        under_way = [(one.end_us, one.slots, [request.index for request in one.ending]) for one in self.under_way]
        return (tuple(self.stages), under_way, self.upcoming and self.upcoming.time_us, sorted(self.batch.busy))
