"""Ranks that take their steps together: data-parallel attention around experts that all of them share.

Each rank has a scheduler, a queue and a KV cache of its own. Its tokens meet those of the other ranks in every layer
with experts, so that no rank gets ahead: a step begins on all of them at once and lasts as long as the slowest takes. A
rank that has nothing to compute runs a dummy batch of one token. Whether any rank has requests left they find out once
in 32 steps: when the last request has ended, dummy batches go on until then, and a request that comes meanwhile waits
for the end of one.

Source: vLLM 0.32.0, ``v1/engine/core.py`` (``DPEngineCoreProc.run_busy_loop``, ``_has_global_unfinished_reqs``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.engine.events import IDLE, NO_STEP
from blis_tui.engine.flow import Ahead, Flow, OneAtATime
from blis_tui.engine.latency.model import Around, StepLoad
from blis_tui.engine.plan import NO_PLAN, Planned
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.steps import Steps

SYNC_STEPS: Final = 32
"""Ranks ask each other once in so many steps whether any of them has requests left."""
_DUMMY_TOKENS: Final = 1


class Paced(Around):
    """Asks another model, except for the step under way: that one lasts as long as the group's.

    Attributes:
        lasting_us: how long that is; 0 = no step is being carried out.
    """

    __slots__ = ("lasting_us",)

    paces: ClassVar[bool] = True

    def __init__(self, model: StepTimeModel) -> None:
        super().__init__(model)
        self.lasting_us = 0

    @property
    def pure(self) -> bool:
        """The answer depends on the other ranks."""
        return False

    def step_time_us(self, load: StepLoad) -> int:
        """What the group says, or the other model."""
        return self.lasting_us or self.model.step_time_us(load)


class RankGroup(Kept):
    """Ranks that keep pace.

    When the first of them comes to a step, all of them plan theirs, so that it is known how long it lasts; each carries
    out its own in an event of its own.

    Attributes:
        index: of its first rank, an instance.
        ranks: how the steps of each are planned and carried out.
        start_us: when the latest step started; -1 = there was none.
        lasting_us: how long that takes.
        free_us: when it ends, or the dummy batches behind it as far as they are known of.
        steps: taken since all ranks paused, such dummy batches among them.
        taken: all steps so far in which any rank computed.
        dummies: of these, for each rank, those in which it ran a dummy batch.
        alone_us: for each rank, what its own steps would have taken if it had not waited for others.
    """

    __slots__ = (
        "_idle_us",
        "_indices",
        "alone_us",
        "dummies",
        "free_us",
        "index",
        "lasting_us",
        "ranks",
        "start_us",
        "steps",
        "taken",
    )

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
        """One more rank, whose instance has the next number; returns how its steps follow one another."""
        paced = Paced(steps.latency)
        steps.keep_pace(paced)
        kind = AheadRank if steps.rule.traits.plans_ahead else OneAtATimeRank
        rank = kind(steps, self, paced)
        self.ranks.append(rank)
        self.dummies.append(0)
        self.alone_us.append(0)
        self._indices[steps.index] = None
        return rank

    def begin(self, first: Rank, now: int) -> None:
        """All ranks plan the step that starts now, unless they have, or the first one has nothing to compute."""
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
        """When a rank that has got work may start: dummy batches have gone on, or the ranks have paused."""
        if now > self.free_us:
            if not self._idle_us:
                self._idle_us = max(self._alone_us([StepLoad(decode_requests=_DUMMY_TOKENS) for _ in self.ranks]))
            batches = -(-(now - self.free_us) // self._idle_us)
            if batches > -self.steps % SYNC_STEPS:  # they have paused
                self.steps, self.free_us = 0, now
            else:
                self.steps += batches
                self.free_us += batches * self._idle_us
        return self.free_us

    def _alone_us(self, loads: Sequence[StepLoad]) -> list[int]:
        """What the step takes on each rank if none waits for another, except that experts have the tokens of all."""
        tokens = [_tokens(load) for load in loads]
        total = chunks = 0
        for load, count in zip(loads, tokens, strict=True):
            total += count
            chunks += len(load.chunks)
        for load, count in zip(loads, tokens, strict=True):
            load.other_tokens, load.other_chunks = total - count, chunks - len(load.chunks)
        return [rank.paced.model.step_time_us(load) for rank, load in zip(self.ranks, loads, strict=True)]

    def state(self) -> tuple[object, ...]:
        """What the group remembers, as plain values (for digests)."""
        times = (self.start_us, self.lasting_us, self.free_us)
        return (*times, self.steps, self.taken, tuple(self.dummies), tuple(self.alone_us))


def _computed(steps: Steps, ready: Planned | None) -> StepLoad:
    """The load of a rank's step; where nothing is computed, that of a dummy batch."""
    load = StepLoad() if ready is None else steps.load_of(ready.plan or NO_PLAN)
    if not (load.chunks or load.decode_requests):
        load.decode_requests = _DUMMY_TOKENS
    return load


def _tokens(load: StepLoad) -> int:
    tokens = load.decode_requests
    for chunk in load.chunks:
        tokens += chunk.new
    return tokens


class Rank(Flow):
    """An instance that keeps pace with others, however its own steps follow one another (the other base class).

    Attributes:
        group: the ranks it keeps pace with.
        paced: its step times.
        prepared: its part of the step that has begun and that it has yet to carry out.
    """

    def __init__(self, steps: Steps, group: RankGroup, paced: Paced) -> None:
        super().__init__(steps)
        self.group = group
        self.paced = paced
        self.prepared: Planned | None = None

    def want_step(self, now: int) -> None:
        """There is a step to come as long as there is work: when the group takes its next one."""
        if self.has_work and not self.step_pending:
            self.step_pending = True
            self.steps.events.push_step(self.group.next_start(now), self.order, self.event)

    def prepare(self, now: int) -> Planned | None:
        """What this rank computes in the step that starts now; None = nothing."""
        raise NotImplementedError

    def advance(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """One step, as others may not be ahead."""
        return Flow.advance(self, now, bar, most)

    def advance_deferring(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """The same."""
        return Flow.advance_deferring(self, now, bar, most)

    def state(self) -> tuple[object, ...]:
        """What is planned and not carried out, and of the first rank what its group remembers (for digests)."""
        ready = self.prepared
        chunks = [] if ready is None or ready.plan is None else ready.plan.chunks
        prepared = (ready is not None, [(chunk.request.index, chunk.computed, chunk.new) for chunk in chunks])
        return (*super().state(), prepared, *((self.group.state(),) if self.index == self.group.index else ()))


class OneAtATimeRank(Rank, OneAtATime):
    """A rank whose steps are planned when they start."""

    def prepare(self, now: int) -> Planned | None:
        """What this rank computes in the step that starts now; None = nothing."""
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
        """Carry it out; returns when the next step starts, IDLE or NO_STEP."""
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
        if plan is None and batch.waiting.items:  # for want of a place
            steps.tallies.seqs_wait_us += end - now
        if steps.done is not None:
            steps.tell(plan or NO_PLAN, upcoming)
            if batch.waiting.items:
                steps.tell_stopped(plan, now)
        return upcoming


class AheadRank(Rank, Ahead):
    """A rank whose steps are planned while the ones before them run."""

    def prepare(self, now: int) -> Planned | None:
        """What this rank computes in the step that starts now; None = nothing."""
        self.prepared = super().ready(now)
        if self.prepared is not None:
            self.batch.planned = self.prepared
        return self.prepared

    def ready(self, now: int) -> Planned | None:  # noqa: ARG002  (it was prepared then)
        """That, when it is carried out."""
        ready, self.prepared = self.prepared, None
        return None if ready is None else self.batch.planned

    def step(self, now: int) -> int:
        """Carry it out, and plan the next one; returns when that starts, IDLE or NO_STEP."""
        if self.has_work:
            self.group.begin(self, now)
        self.paced.lasting_us = self.group.lasting_us
        upcoming = super().step(now)
        self.paced.lasting_us = 0
        return upcoming
