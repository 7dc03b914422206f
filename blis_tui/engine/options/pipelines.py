"""Pipeline parallelism: layers spread over several stages.

A batch passes through all stages. When it has left the first one, the next batch may enter; at most as many batches
are in flight as there are stages. A request takes part in one of them at a time. Every stage takes an equal part of
the step-time model's answer. A batch that finds the next stage busy waits for it; the idle time of the stages is the
*bubble*.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.events import IDLE, NO_STEP
from blis_tui.engine.plan import StepPart
from blis_tui.engine.request import Request  # noqa: TC001  (mypyc evaluates annotations of named tuples)
from blis_tui.engine.step_loop import StepLoop

if TYPE_CHECKING:
    from collections.abc import Collection

    from blis_tui.engine.counts import Tallies
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.steps import Steps


class InFlightBatch(NamedTuple):
    """A batch in the pipeline."""

    end_us: int
    slots: tuple[int, ...]
    finishing: tuple[Request, ...]
    """The requests of the batch that get their last token at its end."""


_NOTHING: Final = InFlightBatch(0, (), ())
"""A plan that found nothing to do: over at once, when its turn comes."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FirstStageFree(Picklable):
    """The event that the first stage is free and another batch may enter; it does nothing if none can be formed."""

    __slots__ = ("_loop", "instance_index", "time_us")

    kind: ClassVar[str] = "step"
    request: ClassVar[None] = None

    def __init__(self, loop: Stages, time_us: int) -> None:
        self._loop = loop
        self.instance_index = loop.index
        self.time_us = time_us

    @property
    def stale(self) -> bool:
        """Whether an earlier pass replaced it, or no request is left."""
        return self._loop.upcoming is not self or not self._loop.has_work

    def fire(self, now: int) -> bool:
        """Form a batch."""
        if self.stale:
            return False
        self.drop()
        return self._loop.step(now) != NO_STEP

    def drop(self) -> None:
        """Mark it as no longer pending."""
        if self._loop.upcoming is self:
            self._loop.upcoming = None
            self._loop.step_pending = False


@mypyc_attr(allow_interpreted_subclasses=True)
class PipelineLatency(StepPart):
    """The pipeline stages: how long a batch takes to get through them.

    Attributes:
        free_us: when each stage is free again, the first stage first.
        enters_us: earliest time at which a batch enters the first stage.
    """

    def __init__(self, stages: int, tallies: Tallies) -> None:
        self.free_us = [0] * stages
        self.enters_us = 0
        self._tallies = tallies

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:  # noqa: ARG002  (the same for every plan)
        """Return the time to pass all stages, including waits for busy ones."""
        stages = self.free_us
        count = len(stages)
        active_from = max(now, stages[-1])
        time = max(now, self.enters_us)
        for stage in range(count):
            part = duration_us * (stage + 1) // count - duration_us * stage // count
            time = stages[stage] = max(time, stages[stage]) + part
        tallies = self._tallies
        tallies.active_us += time - active_from
        tallies.computing_us += duration_us
        return time - now


@mypyc_attr(allow_interpreted_subclasses=True)
class Stages(StepLoop):
    """Keeps several steps in flight, each with different requests.

    Attributes:
        pipe: the stages.
        places: how many batches may be in flight.
        under_way: the batches in the pipeline, in the order in which they entered it.
        upcoming: the event at which the next batch may enter.
        halted: no other batch enters; the instance dies when those in flight are through.
    """

    def __init__(self, steps: Steps, stages: int) -> None:
        super().__init__(steps)
        self.pipe = PipelineLatency(stages, steps.tallies)
        steps.parts += (self.pipe,)
        steps.holds = True
        self.places = stages
        self.under_way: list[InFlightBatch] = []
        self.upcoming: FirstStageFree | None = None
        self.halted = False

    def step(self, now: int) -> int:
        """Let a batch enter the pipeline; return when the next one may, or NO_STEP if none can be formed."""
        batch = self.batch
        self._drain(now)
        if len(self.under_way) == self.places:
            return self._retry_at(self.under_way[0].end_us)
        plan = self.steps.plan(now, ahead=bool(self.under_way)) if self.has_work else None
        if plan is None or (plan.computes_nothing and not batch.load.decode_requests):
            if self.under_way:
                return self._retry_at(self.under_way[0].end_us)
            if plan is None:
                return NO_STEP
            raise batch.deadlock(self.index, now)
        upcoming = self._enter(plan, now)
        if self.has_work:
            self.want_step(now)
        return upcoming

    def _enter(self, plan: Plan, now: int) -> int:
        """Send a batch through the pipeline; return when it is through, or IDLE if no work is left."""
        batch, steps = self.batch, self.steps
        slots = [chunk.request.batch_slot for chunk in plan.chunks]
        slots += [request.batch_slot for request in (*plan.instant, *batch.cohort.members())]
        before = dict.fromkeys(batch.finishing)
        end = steps.run(plan, batch.pool.epoch, now)
        held = tuple(request for slot, request in batch.finishing.items() if slot not in before)
        self.under_way.append(InFlightBatch(end, tuple(slots), held))
        for slot in slots:
            batch.in_flight_until[slot] = end
        goes_on = self.has_work
        if steps.done is not None:
            ends_us = [in_flight_batch.end_us for in_flight_batch in self.under_way]
            steps.tell(plan, self._next_us(now, ends_us) if goes_on else IDLE)
            if batch.waiting.items:
                steps.report_stopped(plan, now)
        return end if goes_on else IDLE

    def want_step(self, now: int) -> None:
        """Schedule a pass if there is work; it may move to an earlier time later on."""
        if self.has_work and not self.halted:
            self._schedule_entry(self._next_us(now, [in_flight_batch.end_us for in_flight_batch in self.under_way]))

    def on_withdrawn(self, now: int) -> None:
        """React to a waiting or running request that left: others may fit now."""
        if self.batch.waiting.items:
            self.want_step(now)

    def _next_us(self, now: int, ends_us: list[int]) -> int:
        """Earliest time at which the next batch may enter, given when the batches in flight end."""
        full = len(ends_us) == self.places
        return max(now, self.pipe.free_us[0], ends_us[0] if full else 0)

    def _schedule_entry(self, time_us: int) -> None:
        if self.upcoming is None or self.upcoming.time_us > time_us:
            self.upcoming = FirstStageFree(self, time_us)
            self.step_pending = True
            self.steps.events.push(time_us, self.order, self.upcoming)

    def _retry_at(self, time_us: int) -> int:
        """Try again at ``time_us``: no batch can be formed before one has left the pipeline."""
        self._schedule_entry(time_us)
        return NO_STEP

    def _drain(self, now: int) -> None:
        """Remove batches that have left the pipeline; their requests may take part in others."""
        batch = self.batch
        busy = batch.in_flight_until
        while self.under_way and self.under_way[0].end_us <= now:
            gone = self.under_way.pop(0)
            for slot in gone.slots:
                if busy.get(slot, 0) <= gone.end_us:
                    busy.pop(slot, None)
            for request in gone.finishing:
                if batch.finishing.get(request.batch_slot) is request:
                    batch.release_finishing(request)

    def halt(self) -> int | None:
        """Let no other batch enter; return when the last of those in flight is through."""
        self.halted = True
        self.upcoming = None
        self.step_pending = True  # blocks new passes: the instance's stop is pending instead
        return max((in_flight_batch.end_us for in_flight_batch in self.under_way), default=-1)

    def abandon(self) -> None:
        """Stop at once; all requests have been taken out."""
        self.halted = self.step_pending = False
        self.under_way.clear()
        self.batch.forget_flights()
        self.batch.release_all()
        super().abandon()

    def state(self) -> tuple[object, ...]:
        """Return the pipeline's state as plain values (for digests)."""
        under_way = [
            (in_flight_batch.end_us, in_flight_batch.slots, [request.index for request in in_flight_batch.finishing])
            for in_flight_batch in self.under_way
        ]
        pending = self.upcoming and self.upcoming.time_us
        return (tuple(self.pipe.free_us), under_way, pending, sorted(self.batch.in_flight_until))


@mypyc_attr(allow_interpreted_subclasses=True)
class BatchQueue(Stages):
    """A pipeline kept full by a queue of batches, as in vLLM's engine core.

    Batches are planned until the queue holds as many as there are stages. Then the engine waits for the oldest of
    them, and requests that arrive meanwhile wait, too. A plan that finds nothing to do takes a place in the queue
    like any other. The next chunk of a prompt may enter right behind the previous one. A decode goes on when its
    latest token has come. With asynchronous scheduling the queue has one more place; a decode is planned again as
    many plans later as there are stages, and enters the first stage when its token is there.

    Source: vLLM 0.32.0, ``v1/engine/core.py`` (``step_with_batch_queue``, 698), ``config/vllm.py``
    (``max_concurrent_batches``, 577), ``v1/core/sched/scheduler.py`` (which requests are skipped: 680, 756, 934) and,
    for the V2 model runner, ``v1/core/sched/async_scheduler.py`` (``next_decode_eligible_step``, 52).

    Attributes:
        sampled: for each of the latest plans, one fewer than there are stages, the slots that got a token; None without
            asynchronous scheduling.
        idle: a plan that only preempted; the next step reports its preemptions.
    """

    def __init__(self, steps: Steps, stages: int, *, ahead: bool) -> None:
        super().__init__(steps, stages)
        self.places += ahead
        steps.plans_on = ahead and steps.rule.traits.plans_past_stops
        self.sampled: deque[tuple[int, ...]] | None = deque(maxlen=stages - 1) if ahead else None
        self.idle: Plan | None = None

    def step(self, now: int) -> int:
        """Plan until a batch enters the pipeline or the queue is full; NO_STEP = nothing came of it."""
        batch = self.batch
        answer = NO_STEP
        if self.under_way and self.under_way[0].end_us < now:
            self._drain(now - 1)
            self._fill_with_empty()
        while True:
            self._release_late(now)
            self._drain(now)
            if not self.has_work:
                break
            if len(self.under_way) == self.places:
                self.want_step(now)
                break
            alone = not any(in_flight_batch.end_us for in_flight_batch in self.under_way)
            batch.paused = self._paused()
            plan = self.steps.plan(now, ahead=not alone)
            if plan is None:
                break
            if plan.chunks or plan.ghosts or batch.load.decode_requests:
                return self._send(plan, now)
            if plan.preempted:
                answer = IDLE
                if self.idle is not None:
                    plan.follow(self.idle)
                self.idle = plan
            elif alone and not batch.paused:
                raise batch.deadlock(self.index, now)
            self._note(_NOTHING, ())
        return answer

    def _release_late(self, now: int) -> None:
        """Free the slots and blocks of requests that end after their deadlines have passed."""
        batch = self.batch
        late = [request for request in batch.finishing.values() if 0 < request.deadline_us < now]
        if late:
            batch.look_back(now - 1)  # before the results of the batch that ends now
        for request in late:
            batch.release_finishing(request)

    def _paused(self) -> Collection[int]:
        """Return the slots of requests whose next token cannot be planned yet."""
        return (
            self.batch.in_flight_until if self.sampled is None else {slot for slots in self.sampled for slot in slots}
        )

    def _send(self, plan: Plan, now: int) -> int:
        if self.idle is not None:
            plan.follow(self.idle)
            self.idle = None
        batch, cohort = self.batch, self.batch.cohort
        decodes = cohort.members()
        token_us = {decode.index: cohort.last_token_us(decode) for decode in decodes}
        # The batch enters when all its input tokens are there, also those of requests that have left.
        self.pipe.enters_us = max(
            (*token_us.values(), *(ghost.request.joined_us for ghost in plan.ghosts)), default=now
        )
        slots = [decode.batch_slot for decode in decodes]
        slots += [c.request.batch_slot for c in plan.chunks if c.computed + c.new == c.request.target_tokens]
        upcoming = self._enter(plan, now)
        end = self.steps.free_us
        batch.input_unknown.update((index, end) for index, time_us in token_us.items() if time_us > now)
        self._note(self.under_way.pop(), tuple(slots))
        if self.has_work:
            self._schedule_entry(self._next_us(now, [in_flight_batch.end_us for in_flight_batch in self.under_way]))
        else:
            self._fill_with_empty()
        return upcoming

    def _fill_with_empty(self) -> None:
        """Fill the queue with empty plans, as the engine keeps planning without work while any batch is in flight."""
        if any(in_flight_batch.end_us for in_flight_batch in self.under_way):
            self.under_way += [_NOTHING] * (self.places - len(self.under_way))

    def _note(self, entry: InFlightBatch, sampled: tuple[int, ...]) -> None:
        self.under_way.append(entry)
        if self.sampled is not None:
            self.sampled.append(sampled)

    def want_step(self, now: int) -> None:
        """Schedule the next planning for when the oldest batch is over."""
        if self.has_work and not self.halted:
            self._schedule_entry(
                next(
                    (in_flight_batch.end_us for in_flight_batch in self.under_way if in_flight_batch.end_us >= now), now
                )
            )

    def _next_us(self, now: int, ends_us: list[int]) -> int:
        return ends_us[0] if len(ends_us) == self.places else now

    def abandon(self) -> None:
        """Stop at once; all requests have been taken out."""
        self.idle = None
        if self.sampled is not None:
            self.sampled.clear()
        super().abandon()

    def state(self) -> tuple[object, ...]:
        """Return the queue and what makes requests wait, as plain values (for digests)."""
        batch = self.batch
        waits = (batch.in_flight_until, batch.preempted_in_flight, batch.input_unknown)
        idle = () if self.idle is None else [preemption.victim.index for preemption in self.idle.preempted]
        return (*super().state(), *(sorted(wait.items()) for wait in waits), self.sampled and list(self.sampled), idle)
