"""Ranks that step together, written as plainly as possible: dummy batches run one by one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import ModelWrapper, StepLoad

from . import draws as st
from .fleets import draw_fleet
from .oracle import QUEUED, STEP, Oracle
from .strategies import Asked, Scenario, vllm

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.model import Pool as PoolSpec
    from blis_tui.model.plug_ins import Registry

    from .draws import Draw
    from .instance import Instance, Job, Plan

_EVERY: Final = 32
"""Steps between two checks whether all ranks are done."""
_OTHERS_US: Final = 3


class Meeting(ModelWrapper):
    """A step-time model in which each token of another rank lengthens a step, and each prompt chunk twice as much."""

    __slots__ = ()

    def step_time_us(self, load: StepLoad) -> int:
        """The step time of the wrapped model, plus that."""
        return self.model.step_time_us(load) + _OTHERS_US * load.other_tokens + 2 * _OTHERS_US * load.other_chunks


def meeting(create: Callable[[Registry, PoolSpec], StepTimeModel]) -> Callable[[Registry, PoolSpec], StepTimeModel]:
    """Creates such models."""
    return lambda plugins, pool: Meeting(create(plugins, pool))


@dataclass(eq=False)
class _Group:
    members: list[Instance] = field(default_factory=list)
    start_us: int = -1
    free_us: int = 0
    steps: int = 0
    """Steps since they paused."""
    lasting_us: int = 0
    plans: dict[int, Plan] = field(default_factory=dict)
    """Plans of the current step, by rank that has yet to carry out its own."""
    dummies: int = 0
    taken: int = 0
    waited_us: int = 0


class WideOracle(Oracle):
    """All instances are ranks, ``data_parallel`` of them in a group."""

    @property
    def groups(self) -> list[_Group]:
        """Instances in the order of their ranks."""
        if not hasattr(self, "_groups"):
            self._groups: list[_Group] = []
            left = list(self.instances)
            for pool in self.experiment.pools:
                size = pool.engine.data_parallel
                for _ in range(pool.instances // size):
                    self._groups.append(_Group(left[:size]))
                    del left[:size]
        return self._groups

    def group_of(self, number: int) -> _Group:
        """The group of an instance."""
        return next(group for group in self.groups if any(member.number == number for member in group.members))

    def _create(self, pool: PoolSpec) -> Instance:
        instance = super()._create(pool)
        instance.latency = Meeting(instance.latency)
        return instance

    def _send(self, job: Job, number: int, now: int) -> None:
        """Requests reach all queues of a group before any of its ranks takes a step."""
        self._count(job, number)
        later = now + self.instances[number].latency.queueing_time_us(job.request)
        self._plan(later, QUEUED, job, self.group_of(number).members[0].number)

    def _queued(self, job: Job, instance: Instance, now: int) -> None:
        del instance
        super()._queued(job, self.instances[job.instance], now)

    def _next_step(self, instance: Instance, time: int) -> None:
        if instance.step_pending:
            return
        instance.step_pending = True
        group = self.group_of(instance.number)
        while group.free_us < time and group.steps % _EVERY:
            idle = [(member, StepLoad(decode_requests=1)) for member in group.members]
            group.free_us += max(_alone_us(idle))
            group.steps += 1
        if group.free_us < time:
            group.free_us, group.steps = time, 0
        self._plan(group.free_us, STEP, None, instance.number)

    def _step(self, instance: Instance, now: int) -> bool:
        instance.step_pending = False
        if not instance.has_work(now):
            return False
        group = self.group_of(instance.number)
        if group.start_us != now:
            self._begin(group, instance, now)
        plan = group.plans.pop(instance.number, None)
        if plan is None:
            return False
        self._execute(instance, plan, now)
        return True

    def _begin(self, group: _Group, first: Instance, now: int) -> None:
        """All ranks that have work form their batches, if the first of them can."""
        made = self._batch_of(first, now)
        if made is None:
            return
        plans = [made if member is first else self._batch_of(member, now) for member in group.members]
        loads = [
            StepLoad() if plan is None else member.load(plan) for member, plan in zip(group.members, plans, strict=True)
        ]
        for load in loads:
            if not load.chunks and not load.decode_requests:
                load.decode_requests = 1
        alone = _alone_us(list(zip(group.members, loads, strict=True)))
        group.start_us, group.lasting_us = now, max(alone)
        group.free_us = now + group.lasting_us
        group.steps += 1
        group.taken += 1
        for member, plan, own_us in zip(group.members, plans, alone, strict=True):
            if plan is None:
                group.dummies += 1
            else:
                group.plans[member.number] = plan
                group.waited_us += group.lasting_us - own_us

    def _batch_of(self, instance: Instance, now: int) -> Plan | None:
        if not instance.has_work(now):
            return None
        instance.take_results(now)
        plan = self._formed(instance, now)
        return None if isinstance(plan, bool) else plan

    def _computing_us(self, instance: Instance, plan: Plan, load: StepLoad) -> int:
        del plan, load
        return self.group_of(instance.number).lasting_us


def _alone_us(steps: list[tuple[Instance, StepLoad]]) -> list[int]:
    """The step time of each rank alone, given what the others compute."""
    found = []
    for at, (instance, load) in enumerate(steps):
        others = [other for place, (_, other) in enumerate(steps) if place != at]
        load.other_tokens = sum(other.decode_requests + sum(chunk.new for chunk in other.chunks) for other in others)
        load.other_chunks = sum(len(other.chunks) for other in others)
        found.append(instance.duration_us(load))
    return found


def draw_wide(draw: Draw) -> Scenario:
    """Any small cluster of one to three replicas, or as many of each role, with two to four ranks each."""
    scenario = draw_fleet(draw)
    made = scenario.experiment
    pools = tuple(_ranked(draw, pool) for pool in made.pools)
    policy = replace(made.policy, preemption_restore="recompute")
    if policy.batching.kind not in ("blis", "vllm-v1"):
        policy = replace(policy, batching=vllm(draw, watermark=0.0, enable_chunked_prefill=True))
    if policy.batching.kind == "blis":
        policy = replace(policy, preemption_recompute=None)
    # Some come when the ranks may have paused, others while dummy batches go on.
    slower = draw(st.sampled_from((1, 1, 3, 12)))
    asked = tuple(_later(one, slower) for one in scenario.asked)
    return Scenario(replace(made, pools=pools, policy=policy), asked)


def _ranked(draw: Draw, pool: PoolSpec) -> PoolSpec:
    """The same pool with a number of ranks."""
    ranks = draw(st.sampled_from((2, 2, 3, 4)))
    engine = replace(
        pool.engine,
        data_parallel=ranks,
        expert_parallel=True,
        pipeline_parallel=1,
        speculative=None,
        host_link=None,
        kv_tiers=None,
        lora=None,
    )
    return replace(pool, instances=ranks * draw(st.sampled_from((1, 1, 2, 3))), engine=engine)


def _later(one: Asked, times: int) -> Asked:
    """The same, that many times as late, and as patient."""
    more = one.arrival_us * (times - 1)
    return replace(one, arrival_us=one.arrival_us + more, deadline_us=one.deadline_us and one.deadline_us + more)
