"""Ranks that take their steps together: data-parallel attention around experts that all of them share.

Each rank has a scheduler, a queue and a KV cache of its own. Its tokens meet those of the other ranks in every layer
with experts, so that no rank gets ahead: a step begins on all of them at once and lasts as long as the slowest takes. A
rank that has nothing to compute runs a dummy batch of one token. That is found out once in 32 steps alone: when the
last request has ended, dummy batches go on until then, and a request that comes meanwhile waits for the end of one.

Source: vLLM 0.32.0, ``v1/engine/core.py`` (``DPEngineCoreProc.run_busy_loop``, ``_has_global_unfinished_reqs``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.engine.events import instance_order
from blis_tui.engine.flow import STEP, Ahead, OneAtATime
from blis_tui.engine.latency.model import Around, StepLoad
from blis_tui.engine.plan import NO_PLAN, Planned
from blis_tui.engine.step_event import IDLE, NO_STEP, Step
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.events import EventQueue
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


class Lockstep(Kept):
    """A group of ranks, which has one step event for all of them.

    Attributes:
        index: of its first rank, an instance.
        ranks: how the steps of each are planned and carried out.
        free_us: when the latest step ends, or the dummy batches behind it as far as they are known of.
        steps: taken since all ranks paused, such dummy batches among them.
        taken: all steps so far.
        dummies: of these, for each rank, those in which it ran a dummy batch beside others that computed.
        alone_us: for each rank, what its own steps would have taken if it had not waited for others.
    """

    __slots__ = (
        "_events",
        "_idle_us",
        "_indices",
        "_order",
        "_paced",
        "alone_us",
        "dummies",
        "free_us",
        "index",
        "ranks",
        "steps",
        "taken",
    )

    def __init__(self, events: EventQueue, index: int) -> None:
        self.index = index
        self.ranks: list[Rank] = []
        self.free_us = self.steps = self.taken = 0
        self.dummies: list[int] = []
        self.alone_us: list[int] = []
        self._events = events
        self._paced: list[Paced] = []
        self._indices: dict[int, None] = {}
        self._order = 0
        self._idle_us = 0

    def join(self, steps: Steps) -> Rank:
        """One more rank, whose instance has the next number; returns how its steps follow one another."""
        paced = Paced(steps.latency)
        steps.keep_pace(paced)
        rank = AheadRank(steps, self) if steps.rule.traits.plans_ahead else OneAtATimeRank(steps, self)
        self.ranks.append(rank)
        self.dummies.append(0)
        self.alone_us.append(0)
        self._paced.append(paced)
        self._indices[steps.index] = None
        # All that happens on any rank at the same time comes before the step.
        self._order = instance_order(STEP, steps.index)
        return rank

    # ---- as the loop sees it ----

    @property
    def step_pending(self) -> bool:
        """Whether a step event stands in the queue."""
        return self.ranks[0].step_pending

    @step_pending.setter
    def step_pending(self, pending: bool) -> None:
        for rank in self.ranks:
            rank.step_pending = pending

    @property
    def has_work(self) -> bool:
        """Whether any rank has."""
        return any(rank.has_work for rank in self.ranks)

    def step(self, now: int) -> int:
        """Run a step of all ranks; returns when the next one starts, IDLE or NO_STEP."""
        plans = [rank.prepare(now) for rank in self.ranks]
        if not any(plans):
            return NO_STEP
        loads = [
            _computed(rank.steps, ready, dummy=_DUMMY_TOKENS) for rank, ready in zip(self.ranks, plans, strict=True)
        ]
        alone = self._alone_us(loads)
        lasting = max(alone)
        self.steps += 1
        self.taken += 1
        self.free_us = now + lasting
        for at, (rank, ready, paced) in enumerate(zip(self.ranks, plans, self._paced, strict=True)):
            if ready is None:
                self.dummies[at] += 1
                continue
            self.alone_us[at] += alone[at]
            paced.lasting_us = lasting
            rank.step(now)
            paced.lasting_us = 0
        watch = self.ranks[0].steps.seen.watch
        if watch is not None:
            watch.touched.update(self._indices)
        return self.free_us if self.has_work else IDLE

    def advance(self, now: int, bar: int, turn: int, most: int) -> tuple[int, int, int]:
        """See ``Flow``: steps of all ranks, up to when something else happens."""
        heap, done, latest = self._events.heap, 0, now
        while True:
            upcoming = self.step(now)
            if upcoming == NO_STEP:
                return done, latest, NO_STEP
            done, latest = done + 1, now
            if upcoming < 0:
                return done, latest, upcoming
            now = upcoming
            if heap and heap[0][0] < bar:
                bar = heap[0][0]
            if now >= bar or now >= turn or done >= most:
                return done, latest, now

    # ---- as its ranks see it ----

    def want_step(self, now: int) -> None:
        """A rank has work: there is a step to come, after the dummy batch that is under way, if one is."""
        if not self.step_pending:
            self.step_pending = True
            self._events.push_step(self._next_start(now), self._order, Step(self))

    def _next_start(self, now: int) -> int:
        """When a step may begin, where none is due: dummy batches have gone on, or the ranks have paused."""
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
        return [paced.model.step_time_us(load) for paced, load in zip(self._paced, loads, strict=True)]

    def state(self) -> tuple[object, ...]:
        """What the group remembers, as plain values (for digests)."""
        return (self.free_us, self.steps, self.taken, tuple(self.dummies), tuple(self.alone_us))


def _computed(steps: Steps, ready: Planned | None, *, dummy: int) -> StepLoad:
    """The load of a rank's step; where nothing is computed, that of a dummy batch."""
    load = StepLoad() if ready is None else steps.load_of(ready.plan or NO_PLAN)
    if not (load.chunks or load.decode_requests):
        load.decode_requests = dummy
    return load


def _tokens(load: StepLoad) -> int:
    tokens = load.decode_requests
    for chunk in load.chunks:
        tokens += chunk.new
    return tokens


class OneAtATimeRank(OneAtATime):
    """A rank whose steps are planned when they start.

    Attributes:
        group: the ranks it keeps pace with.
    """

    __slots__ = ("_prepared", "group")

    def __init__(self, steps: Steps, group: Lockstep) -> None:
        super().__init__(steps)
        self.group = group
        self._prepared: Planned | None = None

    def want_step(self, now: int) -> None:
        """There is a step to come as long as there is work."""
        if self.has_work:
            self.group.want_step(now)

    def prepare(self, now: int) -> Planned | None:
        """What this rank computes in the step that starts now; None = nothing."""
        batch = self.batch
        due = self._due_for_plain_decode()
        if due >= 0:
            if due:
                batch.pool.take(due)
            self._prepared = Planned(None, batch.pool.epoch)
            return self._prepared
        plan = self.steps.plan(now) if batch.has_requests else None
        if plan is not None and plan.computes_nothing and not batch.load.decode_requests:
            raise batch.deadlock(self.index, now)
        self._prepared = None if plan is None else Planned(plan, batch.pool.epoch)
        return self._prepared

    def step(self, now: int) -> int:
        """Do that; returns when the next step starts, IDLE or NO_STEP."""
        ready, self._prepared = self._prepared, None
        if ready is None:
            return NO_STEP
        batch, steps, plan = self.batch, self.steps, ready.plan
        end = steps.decode(now) if plan is None else steps.run(plan, ready.epoch, now)
        upcoming = end if batch.has_requests else IDLE
        if plan is None and batch.waiting.items:  # for want of a place
            steps.tallies.seqs_wait_us += end - now
        if steps.done is not None:
            steps.tell(plan or NO_PLAN, upcoming)
            if batch.waiting.items:
                steps.tell_stopped(plan, now)
        return upcoming

    def state(self) -> tuple[object, ...]:
        """Of the first rank, what the group remembers."""
        return _state_of(self, super().state())


class AheadRank(Ahead):
    """A rank whose steps are planned while the ones before them run.

    Attributes:
        group: the ranks it keeps pace with.
    """

    __slots__ = ("_prepared", "group")

    def __init__(self, steps: Steps, group: Lockstep) -> None:
        super().__init__(steps)
        self.group = group
        self._prepared: Planned | None = None

    def want_step(self, now: int) -> None:
        """There is a step to come as long as there is work."""
        if self.has_work:
            self.group.want_step(now)

    def prepare(self, now: int) -> Planned | None:
        """What this rank computes in the step that starts now; None = nothing."""
        self._prepared = super().ready(now)
        return self._prepared

    def ready(self, now: int) -> Planned | None:  # noqa: ARG002  (it was prepared then)
        """That step, when it is carried out."""
        ready, self._prepared = self._prepared, None
        return ready

    def state(self) -> tuple[object, ...]:
        """What is planned; of the first rank, what the group remembers, too."""
        return _state_of(self, super().state())


Rank = OneAtATimeRank | AheadRank


def _state_of(rank: Rank, own: tuple[object, ...]) -> tuple[object, ...]:
    return (*own, rank.group.state()) if rank.index == rank.group.index else own
