"""Ranks that take their steps together, as plainly as that can be said: dummy batches run one by one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import Around, StepLoad

from . import draws as st
from .fleets import draw_fleet
from .oracle import STEP, Event, Oracle
from .strategies import Asked, Scenario, vllm

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.registry import Registry
    from blis_tui.spec.model import Pool as PoolSpec

    from .draws import Draw
    from .instance import Instance, Plan

_EVERY: Final = 32
"""Steps between two times that ranks ask each other whether they are all through."""
_OTHERS_US: Final = 3


class Meeting(Around):
    """Each token of another rank makes a step of any model so much longer, and each chunk of a prompt twice as much."""

    __slots__ = ()

    def step_time_us(self, load: StepLoad) -> int:
        """What the model says, and that."""
        return self.model.step_time_us(load) + _OTHERS_US * load.other_tokens + 2 * _OTHERS_US * load.other_chunks


def meeting(create: Callable[[Registry, PoolSpec], StepTimeModel]) -> Callable[[Registry, PoolSpec], StepTimeModel]:
    """Makes such models."""
    return lambda plugins, pool: Meeting(create(plugins, pool))


@dataclass(eq=False)
class _Group:
    members: list[Instance] = field(default_factory=list)
    free_us: int = 0
    steps: int = 0
    """Since they paused."""
    due: bool = False
    """Whether a step is to come."""
    lasting_us: int = 0
    dummies: int = 0
    taken: int = 0
    waited_us: int = 0


class WideOracle(Oracle):
    """All instances are ranks, ``data_parallel`` of them in a group."""

    def _step_of(self, one: Instance, load: StepLoad, others: int, chunks: int = 0) -> int:
        load.other_tokens, load.other_chunks = others, chunks
        return one.duration_us(load)

    @property
    def groups(self) -> list[_Group]:
        """In the order of their ranks."""
        if not hasattr(self, "_groups"):
            size = self.experiment.pools[0].engine.data_parallel
            self._groups = [
                _Group(self.instances[first : first + size]) for first in range(0, len(self.instances), size)
            ]
        return self._groups

    def _create(self, pool: PoolSpec) -> Instance:
        one = super()._create(pool)
        one.latency = Meeting(one.latency)
        return one

    def group_of(self, number: int) -> _Group:
        """Whose instance that is."""
        return self.groups[number // self.experiment.pools[0].engine.data_parallel]

    def _is_stale(self, event: Event) -> bool:
        if event.instance < 0 or event.kind != STEP:
            return super()._is_stale(event)
        group = self.group_of(event.instance)
        if any(one.has_work(event.time_us) for one in group.members):
            return False
        group.due = False
        return True

    def _next_step(self, instance: Instance, time: int) -> None:
        group = self.group_of(instance.number)
        if group.due:
            return
        group.due = True
        while group.free_us < time and group.steps % _EVERY:
            group.free_us += max(
                self._step_of(one, StepLoad(decode_requests=1), len(group.members) - 1) for one in group.members
            )
            group.steps += 1
        if group.free_us < time:
            group.free_us, group.steps = time, 0
        self._plan(group.free_us, STEP, None, group.members[-1].number)

    def _step(self, instance: Instance, now: int) -> bool:
        group = self.group_of(instance.number)
        group.due = False
        if not any(one.has_work(now) for one in group.members):
            return False
        group.due = True  # nobody asks for another one meanwhile
        plans: list[tuple[Instance, Plan | None]] = []
        for one in group.members:
            if one.has_work(now):
                one.take_results(now)
            one.event = self.events
            found = self._formed(one, now) if one.has_work(now) else False
            plans.append((one, None if isinstance(found, bool) else found))
        if all(plan is None for _, plan in plans):
            group.due = False
            return False
        tokens = [max(1, 0 if plan is None else sum(plan.tokens.values())) for _, plan in plans]
        loads = [StepLoad() if plan is None else one.load(plan) for one, plan in plans]
        for load in loads:
            if not load.chunks and not load.decode_requests:
                load.decode_requests = 1
        chunks = sum(len(load.chunks) for load in loads)
        alone = [
            self._step_of(one, load, sum(tokens) - own, chunks - len(load.chunks))
            for (one, _), load, own in zip(plans, loads, tokens, strict=True)
        ]
        group.lasting_us = max(alone)
        group.steps += 1
        group.taken += 1
        for (one, plan), own_us in zip(plans, alone, strict=True):
            if plan is None:
                group.dummies += 1
            else:
                group.waited_us += group.lasting_us - own_us
                self._execute(one, plan, now)
        group.free_us = now + group.lasting_us
        group.due = any(one.has_work(now) for one in group.members)
        if group.due:
            self._plan(group.free_us, STEP, None, instance.number)
        return True

    def _computing_us(self, instance: Instance, plan: Plan, load: StepLoad) -> int:
        del plan, load
        return self.group_of(instance.number).lasting_us


def draw_wide(draw: Draw) -> Scenario:
    """Any small cluster of one to three replicas with two to four ranks each."""
    scenario = draw_fleet(draw)
    made = scenario.experiment
    first = made.pools[0]
    ranks = draw(st.sampled_from((2, 2, 3, 4)))
    engine = replace(
        first.engine,
        data_parallel=ranks,
        expert_parallel=True,
        pipeline_parallel=1,
        speculative=None,
        host_link=None,
        kv_tiers=None,
        lora=None,
    )
    pool = replace(first, name="only", role="any", instances=ranks * draw(st.sampled_from((1, 1, 2, 3))), engine=engine)
    policy = replace(made.policy, preemption_restore="recompute")
    if policy.batching.kind not in ("blis", "vllm-v1"):
        policy = replace(policy, batching=vllm(draw, watermark=0.0, enable_chunked_prefill=True))
    if policy.batching.kind == "blis":
        policy = replace(policy, preemption_recompute=None)
    cluster = replace(made.cluster, disaggregation=None)
    # Some come when the ranks may have paused, others while dummy batches go on.
    slower = draw(st.sampled_from((1, 1, 3, 12)))
    asked = tuple(_later(one, slower) for one in scenario.asked)
    return Scenario(replace(made, pools=(pool,), policy=policy, cluster=cluster), asked)


def _later(one: Asked, times: int) -> Asked:
    """The same, that many times as late, and as patient."""
    more = one.arrival_us * (times - 1)
    return replace(one, arrival_us=one.arrival_us + more, deadline_us=one.deadline_us and one.deadline_us + more)
