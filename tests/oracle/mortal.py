"""Instances that come and go, written as plainly as possible: which requests restart, are lost, or wait."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from blis_tui.base.streams import Stream, stream_key
from blis_tui.cluster.records import InstanceChanged, InstanceStopped, Lost, Retried, Stranded
from blis_tui.engine.records import Rejected
from blis_tui.engine.request import RequestState
from blis_tui.model import Lifecycle

from .nodes import Nodes
from .oracle import ARRIVAL, LEFT, LIFECYCLE, STEP, TIMEOUT, Event, Oracle
from .pipelines import BatchQueue
from .scaling import COMING, UP, Scaler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment, Failure
    from blis_tui.model import Pool as PoolSpec

    from .instance import Instance, Job

_MORTAL = ("loading", *UP, "draining")
_ENDED = (
    RequestState.COMPLETED,
    RequestState.TIMED_OUT,
    RequestState.DROPPED_UNSERVABLE,
    RequestState.REJECTED,
    RequestState.LOST,
)


class MortalOracle(Oracle):
    """A cluster without disaggregation, gateway, deferral and budgets."""

    def __init__(self, experiment: Experiment, requests: Sequence[Request], max_steps: int) -> None:
        super().__init__(experiment, requests, max_steps)
        self.homes = [at for at, pool in enumerate(experiment.pools) for _ in range(pool.instances)]
        self.states = ["active" for _ in self.instances]
        self.deaths: list[Failure | None] = [None for _ in self.instances]
        self.loaded_us = [-1 for _ in self.instances]
        self.served = [0 for _ in self.instances]
        self.stranded: list[Job] = []
        self.hits: dict[Job, int] = {}
        self.lives = self.settings.lifecycle or Lifecycle()
        self.acceptance_sampler: dict[tuple[int, int], Stream] = {}
        self.strikes: dict[tuple[int, int], int] = {}
        """Entry and instance -> when the instance dies of that random failure, as last drawn."""
        self.by_chance: dict[int, tuple[int, int, int]] = {}
        """Event number -> entry, instance and time, for random failures."""
        self._left: list[tuple[Job, int]] = []
        self.nodes: Nodes | None = None
        if self.settings.nodes:
            self.nodes = Nodes(self, self.settings.nodes, self._placed)
            self.states = [
                "active" if self.nodes.find_room(instance.number) else "scheduling" for instance in self.instances
            ]
            self.router.members = [number for number, state in enumerate(self.states) if state in UP]
        for number, state in enumerate(self.states):
            if state in UP:
                self._draw_death(number, 0)
        if self.nodes is not None:
            self.nodes.order(0)
        for failure in self.settings.failures:
            if failure.at_us is not None:
                self.later(failure.at_us, partial(self._strike, failure))
        self.scaler: Scaler | None = None
        if self.settings.autoscaler is not None:
            self.scaler = Scaler(self, self.settings.autoscaler)
            self.later(self.settings.autoscaler.interval_us, self.scaler.look)

    def later(self, time_us: int, act: Callable[[int], bool]) -> None:
        self._plan(time_us, LIFECYCLE, None, act=act)

    def pool_of(self, number: int) -> PoolSpec:
        return self.experiment.pools[self.homes[number]]

    def returns(self, number: int) -> bool:
        """Whether it is down and will be repaired."""
        death = self.deaths[number]
        return self.states[number] == "failed" and death is not None and death.repair_us is not None

    def _is_stale(self, event: Event) -> bool:
        if event.act is None or event.instance >= 0:
            return super()._is_stale(event)
        if event.job is not None:
            return event.job not in self.stranded
        return self._over() or self._is_void(event)

    def _is_void(self, event: Event) -> bool:
        """Whether it is a random failure that will not happen."""
        entry, number, time = self.by_chance.get(event.number, (-1, -1, -1))
        return entry >= 0 and (self.states[number] not in _MORTAL or self.strikes[entry, number] != time)

    def anything_to_come(self) -> bool:
        """Whether any event is still known to come."""
        return any(self._matters(event) for event in self._pending)

    def _matters(self, event: Event) -> bool:
        if event.act is not None and event.instance < 0:
            return not self._is_stale(event)
        if event.instance < 0 or event.job is None:
            there = event.instance < 0 or self.instances[event.instance]
            return there is True or bool(there.running or there.waiting)
        return event.kind != TIMEOUT or not super()._is_stale(event)

    def _over(self) -> bool:
        """Whether no request will come, and all that came have ended, or wait for what will never happen."""
        if any(event.kind == ARRIVAL and event.instance < 0 for event in self._pending):
            return False
        left = [job for job in self.arrived if job.state not in _ENDED]
        if not left:
            return True
        comes = any(self._comes(number) for number in range(len(self.instances)))
        return len(left) == len(self.stranded) and not comes and not (self.scaler and self.scaler.may_help())

    def _comes(self, number: int) -> bool:
        state = self.states[number]
        if state != "scheduling":
            return state in (*UP, "loading") or self.returns(number)
        if self.nodes is not None and self.nodes.expects(self.pool_of(number)):
            return True
        return self.scaler is None and any(self._may_die_for_good(other) for other in range(len(self.instances)))

    def _may_die_for_good(self, number: int) -> bool:
        return self.states[number] in _MORTAL and any(
            failure.repair_us is None
            and self._concerns(failure, number)
            and (failure.at_us is None or failure.at_us >= self.now)
            for failure in self.settings.failures
        )

    def _concerns(self, failure: Failure, number: int) -> bool:
        if failure.instance is not None:
            return failure.instance == number
        return failure.pool in (None, self.pool_of(number).name)

    # Coming.

    def add(self, pool: int, now: int) -> None:
        """The autoscaler adds an instance."""
        number = self._new_instance(self.experiment.pools[pool])
        self.homes.append(pool)
        self.states.append("scheduling")
        self.deaths.append(None)
        self.loaded_us.append(-1)
        self.served.append(0)
        self._tell(number, "", "scheduled, scaled up", now)
        if self.nodes is None or self.nodes.find_room(number):
            self._placed(number, now)
        else:
            self.nodes.order(now)

    def _placed(self, number: int, now: int) -> None:
        self._load(number, "placed", now)

    def _load(self, number: int, why: str, now: int) -> bool:
        if not self.lives.loading_delay_us:
            return self._come_up(number, why, now)
        self.loaded_us[number] = now + self.lives.loading_delay_us
        self._change(number, "loading", f"loading, {why}", now)
        self.later(self.loaded_us[number], lambda now: self._loaded(number, now))
        return True

    def _loaded(self, number: int, now: int) -> bool:
        there = self.states[number] == "loading" and self.loaded_us[number] == now
        return there and self._come_up(number, "loaded", now)

    def _come_up(self, number: int, why: str, now: int) -> bool:
        if self.lives.warm_up_requests and self.lives.warm_up_factor > 1:
            self.served[number] = 0
            self.instances[number].slowness = self.lives.warm_up_factor
            self._change(number, "warming-up", f"warming up, {why}", now)
        else:
            self._change(number, "active", f"active, {why}", now)
        self._draw_death(number, now)
        for job in self.stranded:
            self._plan_routing(job, now)
        self.stranded.clear()
        return True

    def _draw_death(self, number: int, now: int) -> None:
        for entry, failure in enumerate(self.settings.failures):
            if failure.mean_time_between_us is None or not self._concerns(failure, number):
                continue
            fresh = Stream(stream_key(self.experiment.seed, f"failures/{entry}/{number}"))
            stream = self.acceptance_sampler.setdefault((entry, number), fresh)
            time = now + max(1, int(stream.exponential() * failure.mean_time_between_us))
            self.strikes[entry, number] = time
            self.later(time, partial(self._die_by_chance, number, failure))
            self.by_chance[self._scheduled] = (entry, number, time)

    # Going.

    def _strike(self, failure: Failure, now: int) -> bool:
        if failure.instance is not None:
            there = [failure.instance] if failure.instance < len(self.states) else []
        else:
            there = [number for number, state in enumerate(self.states) if state in _MORTAL]
        there = [number for number in there if failure.instance is not None or self._concerns(failure, number)]
        for number in there:
            self._die(number, failure, "as planned", now)
        return bool(there)

    def _die_by_chance(self, number: int, failure: Failure, now: int) -> bool:
        self._die(number, failure, "at random", now)
        return True

    def _die(self, number: int, failure: Failure, why: str, now: int) -> None:
        if self.states[number] not in _MORTAL:
            self._tell(number, self.states[number], f"cannot fail {why}: it is {self.states[number]}", now)
            return
        leaves = self.states[number] == "draining"
        self.deaths[number] = replace(failure, repair_us=None) if leaves else failure
        self._change(number, "failed", f"failed, {why}", now)
        self._stop_after_step(number, now)

    def drain(self, number: int, now: int) -> None:
        """The autoscaler removes an instance."""
        if self.states[number] in COMING:
            self._terminate(number, "scaled down", now)
            return
        self._change(number, "draining", "draining, scaled down", now)
        if self.lives.drain == "immediate":
            self._stop_after_step(number, now)
            return
        instance = self.instances[number]
        if self.lives.drain == "redirect":
            gone = list(instance.waiting)
            instance.waiting.clear()
            for job in gone:
                self._forget_waiting(job, instance)
                self._end(job, number)
                self._send_again(job, number, now)
        self._terminate_if_empty(number, now)

    def _forget_waiting(self, job: Job, instance: Instance) -> None:
        """Remove a request from the queue unanswered."""
        instance.pool.release(job.table, job.shareable(instance.pool))
        if instance.shelf is not None:
            instance.shelf.forget(job)
        if instance.encoder is not None:
            instance.encoder.forget(job)

    def _terminate_if_empty(self, number: int, now: int) -> None:
        if self.states[number] == "draining" and not self.board.in_flight(number):
            self._terminate(number, "drained", now)

    def _terminate(self, number: int, why: str, now: int) -> None:
        self._change(number, "terminated", f"terminated, {why}", now)
        self.router.forget(number)
        self._free(number, now)

    def _free(self, number: int, now: int) -> None:
        if self.nodes is not None:
            self.nodes.leave(number, now)

    def _stop_after_step(self, number: int, now: int) -> None:
        instance = self.instances[number]
        kinds: tuple[int, ...] = (STEP, LEFT)
        if len(instance.stages) > 1:  # batches in the pipeline complete, and none enters
            instance.halted, instance.pass_us, kinds = True, -1, (LEFT,)
        ends = [one.time_us for one in self._pending if one.instance == number and one.kind in kinds]
        ends += [end for end, _ in instance.under_way]
        if max(ends, default=now) <= now:
            self._stop(number, now)
        else:
            self.later(max(ends), lambda now: self._stop(number, now))

    def _stop(self, number: int, now: int) -> bool:
        instance = self.instances[number]
        gone = [*instance.running, *instance.waiting]
        self.records.append(InstanceStopped(self.events, now, number, len(gone)))
        instance.running.clear()
        instance.waiting.clear()
        instance.planned = None
        instance.halted, instance.under_way = False, []
        if instance.queue is not None:
            instance.queue = BatchQueue(instance)
        for job in [*gone, *instance.ending, *instance.gone]:
            job.table.clear()
        instance.ending.clear()
        instance.gone.clear()
        for job in gone:
            self._end(job, number)
            self._decide_fate(job, number, now)
        instance.pool.wipe()
        if instance.pool.tiers is not None:
            instance.pool.tiers.wipe(now)
        if instance.shelf is not None:
            instance.shelf.wipe()
        if instance.encoder is not None:
            instance.encoder.wipe()
        self.router.forget(number)
        instance.slowness = 1.0
        death = self.deaths[number]
        if self.returns(number) and death is not None and death.repair_us is not None:
            self.later(now + death.repair_us, lambda now: self._load(number, "repaired", now))
        elif self.states[number] == "failed":
            self._free(number, now)
        else:
            self._terminate_if_empty(number, now)
        return True

    def _change(self, number: int, state: str, reason: str, now: int) -> None:
        before, self.states[number] = self.states[number], state
        self.router.members = [other for other, one in enumerate(self.states) if one in UP]
        self._tell(number, before, reason, now)

    def _tell(self, number: int, before: str, reason: str, now: int) -> None:
        pool, state = self.pool_of(number).name, self.states[number]
        self.records.append(InstanceChanged(self.events, now, number, pool, state, before, reason))

    def _end(self, job: Job, number: int) -> None:
        super()._end(job, number)
        self._left.append((job, number))

    def _after(self, now: int) -> None:
        left, self._left = self._left, []
        for job, number in left:
            if job.instance != number or self.states[number] != "warming-up":
                continue  # requests that restart do not count
            self.served[number] += 1
            if self.served[number] >= self.lives.warm_up_requests:
                self.instances[number].slowness = 1.0
                self._change(number, "active", f"active, warm after {self.served[number]} requests", now)
        for job, number in left:
            if job.instance == number:
                self._terminate_if_empty(number, now)
        super()._after(now)

    # Requests.

    def _decide_fate(self, job: Job, number: int, now: int) -> None:
        hits, failure = self.hits.get(job, 0), self.deaths[number]
        if self.states[number] == "draining" or failure is None:
            self._lose(job, number, "its instance had to go at once", now)
            return
        if failure.requests == "retry":
            hits = self.hits[job] = hits + 1
        if failure.requests == "lose" or hits > failure.max_retries:
            reason = (
                "its instance died"
                if failure.requests == "lose"
                else f"{hits} instance{'s' * (hits > 1)} died under it"
            )
            self._lose(job, number, reason, now)
            return
        self._send_again(job, number, now)

    def _lose(self, job: Job, number: int, reason: str, now: int) -> None:
        job.state = RequestState.LOST
        self.records.append(Lost(self.events, now, job.name, number, reason))

    def _send_again(self, job: Job, number: int, now: int) -> None:
        job.start_again()
        self.records.append(Retried(self.events, now, job.name, number, self.hits.get(job, 0)))
        self._plan_routing(job, now + self.settings.routing_latency_us)

    def _routing(self, job: Job, now: int) -> None:
        if self.router.members:
            super()._routing(job, now)
            return
        self.board.read(now)
        self.stranded.append(job)
        self.records.append(Stranded(self.events, now, job.name, len(self.stranded)))
        if job.request.deadline_us:
            self._plan(max(now, job.request.deadline_us), LIFECYCLE, job, act=lambda now: self._give_up(job, now))

    def _give_up(self, job: Job, now: int) -> bool:
        self.stranded.remove(job)
        job.state = RequestState.REJECTED
        reason = "no instance came up before its deadline"
        self.records.append(Rejected(self.events, now, job.name, "lifecycle", reason))
        return True

    def _queued(self, job: Job, instance: Instance, now: int) -> None:
        number = instance.number
        state, how = self.states[number], self.lives.drain
        if state in UP or (state == "draining" and how == "wait"):
            super()._queued(job, instance, now)
            return
        self._end(job, number)
        if state == "draining" and how == "redirect":
            self._send_again(job, number, now)
        else:
            self._decide_fate(job, number, now)
        self._terminate_if_empty(number, now)
