"""Ranks that step together: data-parallel attention with experts shared by all ranks.

Each rank has its own scheduler, queue and KV cache. In every MoE layer its tokens meet those of the other ranks, so
no rank gets ahead: a step starts on all of them at once and lasts as long as on the slowest rank. A rank with nothing
to compute runs a dummy batch of one token. The ranks check only once in 32 steps whether any of them has requests
left. After the last request has ended, dummy batches go on until that check, and a request that arrives meanwhile
waits for the current dummy batch to end.

Source: vLLM 0.32.0, ``v1/engine/core.py`` (``DPEngineCoreProc.run_busy_loop``, ``_has_global_unfinished_reqs``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.events import IDLE, NO_STEP
from blis_tui.engine.latency.model import ModelWrapper, StepLoad
from blis_tui.engine.plan import NO_PLAN, Planned
from blis_tui.engine.step_loop import Ahead, OneAtATime, StepLoop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.steps import Steps

SYNC_STEPS: Final = 32
"""Number of steps after which ranks check whether any of them has requests left."""
_DUMMY_TOKENS: Final = 1


class GroupPacedModel(ModelWrapper):
    """Wraps a step-time model so that the step in flight lasts as long as the group's.

    Attributes:
        lasting_us: the group's step duration; 0 = no step is being executed.
    """

    paces: ClassVar[bool] = True

    def __init__(self, model: StepTimeModel) -> None:
        super().__init__(model)
        self.lasting_us = 0

    @property
    def pure(self) -> bool:
        """False: the answer depends on the other ranks."""
        return False

    def step_time_us(self, load: StepLoad) -> int:
        """Return the group's duration if a step is being executed, otherwise the wrapped model's answer."""
        return self.lasting_us or self.model.step_time_us(load)


class RankGroup(Picklable):
    """A group of ranks that step together.

    When the first rank comes to a step, all of them plan theirs, which determines its duration. Each rank executes
    its own part in an event of its own.

    Attributes:
        index: of its first rank, an instance.
        ranks: the loop of each rank.
        start_us: when the latest step started; -1 = there was none.
        lasting_us: duration of the latest step.
        free_us: when that step ends, or the dummy batches that are known to follow it.
        steps: steps since all ranks last paused, dummy batches after the last request included.
        taken: number of all steps in which any rank computed.
        dummies: for each rank, how many of these it spent on a dummy batch.
        alone_us: for each rank, how long its own steps would have taken without waiting for others.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.ranks: list[Rank] = []
        self.start_us = -1
        self.lasting_us = self.free_us = self.steps = self.taken = 0
        self.dummies: list[int] = []
        self.alone_us: list[int] = []
        self._indices: dict[int, None] = {}
        self._idle_us = 0

    def join(self, steps: Steps) -> Rank:
        """Add a rank, whose instance has the next number; return its loop."""
        paced = GroupPacedModel(steps.latency)
        steps.keep_pace(paced)
        kind = AheadRank if steps.rule.traits.plans_ahead else OneAtATimeRank
        rank = kind(steps, self, paced)
        self.ranks.append(rank)
        self.dummies.append(0)
        self.alone_us.append(0)
        self._indices[steps.index] = None
        return rank

    def begin(self, first: Rank, now: int) -> None:
        """Plan the step that starts now on all ranks, unless that is done or the first rank has nothing to compute."""
        if self.start_us == now or first.prepare(now) is None:
            return
        plans = [rank.prepared if rank is first else rank.prepare(now) for rank in self.ranks]
        loads = [_computed(rank.steps, ready) for rank, ready in zip(self.ranks, plans, strict=True)]
        alone = self._alone_us(loads)
        self.start_us, self.lasting_us = now, max(alone)
        self.free_us = now + self.lasting_us
        self.steps += 1
        self.taken += 1
        for at, ready in enumerate(plans):
            if ready is None:
                self.dummies[at] += 1
            else:
                self.alone_us[at] += alone[at]
        watch = self.ranks[0].steps.seen.watch
        if watch is not None:
            watch.touched.update(self._indices)

    def next_start(self, now: int) -> int:
        """Return when a rank that got work may start, after dummy batches or a pause."""
        if now > self.free_us:
            if not self._idle_us:
                self._idle_us = max(self._alone_us([StepLoad(decode_requests=_DUMMY_TOKENS) for _ in self.ranks]))
            batches = -(-(now - self.free_us) // self._idle_us)
            if batches > -self.steps % SYNC_STEPS:  # the ranks have paused
                self.steps, self.free_us = 0, now
            else:
                self.steps += batches
                self.free_us += batches * self._idle_us
        return self.free_us

    def _alone_us(self, loads: Sequence[StepLoad]) -> list[int]:
        """Step time of each rank without waiting for others, given that the experts process the tokens of all ranks."""
        tokens = [_tokens(load) for load in loads]
        total = whole_sum([count for load, count in zip(loads, tokens, strict=True)])
        chunks = whole_sum([len(load.chunks) for load, count in zip(loads, tokens, strict=True)])
        for load, count in zip(loads, tokens, strict=True):
            load.other_tokens, load.other_chunks = total - count, chunks - len(load.chunks)
        return [rank.paced.model.step_time_us(load) for rank, load in zip(self.ranks, loads, strict=True)]

    def state(self) -> tuple[object, ...]:
        """Return the group's state as plain values (for digests)."""
        times = (self.start_us, self.lasting_us, self.free_us)
        return (*times, self.steps, self.taken, tuple(self.dummies), tuple(self.alone_us))


def _computed(steps: Steps, ready: Planned | None) -> StepLoad:
    """Return the load of a rank's step, or that of a dummy batch if it computes nothing."""
    load = StepLoad() if ready is None else steps.load_of(ready.plan or NO_PLAN)
    if not (load.chunks or load.decode_requests):
        load.decode_requests = _DUMMY_TOKENS
    return load


def _tokens(load: StepLoad) -> int:
    tokens = load.decode_requests
    for chunk in load.chunks:
        tokens += chunk.new
    return tokens


class Rank(StepLoop):
    """An instance that steps together with others; the other base class says how its own steps follow one another.

    Attributes:
        group: the ranks it steps together with.
        paced: its step times.
        prepared: its part of the step that has begun and that it has yet to execute.
    """

    def __init__(self, steps: Steps, group: RankGroup, paced: GroupPacedModel) -> None:
        super().__init__(steps)
        self.group = group
        self.paced = paced
        self.prepared: Planned | None = None

    def defer_departures(self) -> None:
        """Do nothing: a step of this rank may end without the next one starting."""

    def want_step(self, now: int) -> None:
        """Schedule a step at the group's next start if there is work and none is pending."""
        if self.has_work and not self.step_pending:
            self.step_pending = True
            self.steps.events.push_step(self.group.next_start(now), self.order, self.event)

    def prepare(self, now: int) -> Planned | None:
        """Plan this rank's part of the step that starts now; None = nothing to compute."""
        raise NotImplementedError

    def advance(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """Run a single step, as no rank may get ahead of the others."""
        return StepLoop.advance(self, now, bar, most)

    def advance_deferring(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """Run a single step, as in ``advance``."""
        return StepLoop.advance_deferring(self, now, bar, most)

    def state(self) -> tuple[object, ...]:
        """Return what is planned but not executed; the first rank adds its group's state (for digests)."""
        ready = self.prepared
        chunks = [] if ready is None or ready.plan is None else ready.plan.chunks
        prepared = (ready is not None, [(chunk.request.index, chunk.computed, chunk.new) for chunk in chunks])
        return (*super().state(), prepared, *((self.group.state(),) if self.index == self.group.index else ()))


class OneAtATimeRank(Rank, OneAtATime):
    """A rank that plans a step when it starts."""

    def prepare(self, now: int) -> Planned | None:
        """Plan this rank's part of the step that starts now; None = nothing to compute."""
        batch = self.batch
        due = self._due_for_plain_decode()
        plan = None
        if due > 0:
            batch.pool.take(due)
        elif due < 0:
            plan = self.steps.plan(now) if batch.has_requests else None
            if plan is None:
                return None
            if plan.computes_nothing and not batch.load.decode_requests:
                raise batch.deadlock(self.index, now)
        batch.pool.planned()
        batch.cohort.ahead = int(batch.load.decode_requests > 0 and (plan is None or plan.decodes))
        self.prepared = Planned(plan, batch.pool.epoch)
        return self.prepared

    def step(self, now: int) -> int:
        """Execute the prepared step; return when the next one starts, IDLE or NO_STEP."""
        if self.has_work:
            self.group.begin(self, now)
        ready, self.prepared = self.prepared, None
        if ready is None:
            return NO_STEP
        batch, steps, plan = self.batch, self.steps, ready.plan
        self.paced.lasting_us = self.group.lasting_us
        end = steps.decode(now) if plan is None else steps.run(plan, ready.epoch, now)
        self.paced.lasting_us = 0
        upcoming = end if batch.has_requests else IDLE
        if plan is None and batch.waiting.items:  # for lack of a free place in the batch
            steps.tallies.seqs_wait_us += end - now
        if steps.done is not None:
            steps.tell(plan or NO_PLAN, upcoming)
            if batch.waiting.items:
                steps.report_stopped(plan, now)
        return upcoming


class AheadRank(Rank, Ahead):
    """A rank that plans a step while the previous one runs."""

    def prepare(self, now: int) -> Planned | None:
        """Plan this rank's part of the step that starts now; None = nothing to compute."""
        self.prepared = super().ready(now)
        if self.prepared is not None:
            self.batch.planned = self.prepared
        return self.prepared

    def ready(self, now: int) -> Planned | None:  # noqa: ARG002  (it was prepared for that time)
        """Return the prepared step for execution."""
        ready, self.prepared = self.prepared, None
        return None if ready is None else self.batch.planned

    def step(self, now: int) -> int:
        """Execute the prepared step and plan the next one; return when that starts, IDLE or NO_STEP."""
        if self.has_work:
            self.group.begin(self, now)
        self.paced.lasting_us = self.group.lasting_us
        upcoming = super().step(now)
        self.paced.lasting_us = 0
        return upcoming
