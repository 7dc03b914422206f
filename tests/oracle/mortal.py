"""Instances that die at given times, as plainly as the rules can be said: who starts again, who is lost, who waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from blis_tui.cluster.lifecycle_records import InstanceChanged, InstanceStopped, Lost, Retried, Stranded
from blis_tui.engine.records import Rejected
from blis_tui.engine.request import RequestState

from .oracle import ARRIVAL, LEFT, LIFECYCLE, STEP, Event, Oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Experiment, Failure

    from .instance import Instance, Job

UP = "active"
_ENDED = (
    RequestState.COMPLETED,
    RequestState.TIMED_OUT,
    RequestState.DROPPED_UNSERVABLE,
    RequestState.REJECTED,
    RequestState.LOST,
)


class MortalOracle(Oracle):
    """Without disaggregation, gateway, deferral and budgets."""

    def __init__(self, experiment: Experiment, requests: Sequence[Request], max_steps: int) -> None:
        super().__init__(experiment, requests, max_steps)
        self.states = [UP for _ in self.instances]
        self.deaths: list[Failure | None] = [None for _ in self.instances]
        self.loaded_us = [-1 for _ in self.instances]
        self.pools = [pool.name for pool in experiment.pools for _ in range(pool.instances)]
        self.stranded: list[Job] = []
        self.hits: dict[Job, int] = {}
        lifecycle = self.settings.lifecycle
        self.loading_us = 0 if lifecycle is None else lifecycle.loading_delay_us
        for failure in self.settings.failures:
            assert failure.at_us is not None
            self._later(failure.at_us, partial(self._strike, failure))

    def _later(self, time_us: int, act: Callable[[int], bool]) -> None:
        self._plan(time_us, LIFECYCLE, None, act=act)

    def _is_stale(self, event: Event) -> bool:
        if event.act is None:
            return super()._is_stale(event)
        return self._over() if event.job is None else event.job not in self.stranded

    def _over(self) -> bool:
        """Nobody will come, and all who have come have ended, or wait for what will never be."""
        if any(event.kind == ARRIVAL and event.instance < 0 for event in self._pending):
            return False
        left = [job for job in self.arrived if job.state not in _ENDED]
        comes = any(
            state in (UP, "loading") or (state == "failed" and death is not None and death.repair_us is not None)
            for state, death in zip(self.states, self.deaths, strict=True)
        )
        return not left or (len(left) == len(self.stranded) and not comes)

    # Lives.

    def _strike(self, failure: Failure, now: int) -> bool:
        if failure.instance is not None:
            there = [failure.instance]
        else:
            there = [number for number, state in enumerate(self.states) if state in (UP, "loading")]
        for number in there:
            self._die(number, failure, now)
        return bool(there)

    def _die(self, number: int, failure: Failure, now: int) -> None:
        if self.states[number] == "failed":
            self._tell(number, "failed", "as planned, but it is failed", now)
            return
        self.deaths[number] = failure
        self._change(number, "failed", "failed, as planned", now)
        ends = [one.time_us for one in self._pending if one.instance == number and one.kind in (STEP, LEFT)]
        if max(ends, default=now) <= now:
            self._stop(number, now)
        else:
            self._later(max(ends), lambda now: self._stop(number, now))

    def _stop(self, number: int, now: int) -> bool:
        instance, failure = self.instances[number], self.deaths[number]
        assert failure is not None
        gone = [*instance.running, *instance.waiting]
        self.records.append(InstanceStopped(self.events, now, number, len(gone)))
        instance.running.clear()
        instance.waiting.clear()
        instance.planned = None
        for job in [*gone, *instance.ending]:
            job.table.clear()
        instance.ending.clear()
        for job in gone:
            self._end(job, number)
        for job in gone:
            self._decide_fate(job, number, failure, now)
        instance.pool.wipe()
        if instance.shelf is not None:
            instance.shelf.wipe()
        self.router.forget(number)
        if failure.repair_us is not None:
            self._later(now + failure.repair_us, lambda now: self._load(number, now))
        return True

    def _load(self, number: int, now: int) -> bool:
        if not self.loading_us:
            return self._come_up(number, "active, repaired", now)
        self.loaded_us[number] = now + self.loading_us
        self._change(number, "loading", "loading, repaired", now)
        self._later(now + self.loading_us, lambda now: self._loaded(number, now))
        return True

    def _loaded(self, number: int, now: int) -> bool:
        there = self.states[number] == "loading" and self.loaded_us[number] == now
        return there and self._come_up(number, "active, loaded", now)

    def _come_up(self, number: int, reason: str, now: int) -> bool:
        self._change(number, UP, reason, now)
        for job in self.stranded:
            self._plan_routing(job, now)
        self.stranded.clear()
        return True

    def _change(self, number: int, state: str, reason: str, now: int) -> None:
        before, self.states[number] = self.states[number], state
        self.router.members = [other for other, one in enumerate(self.states) if one == UP]
        self._tell(number, before, reason, now)

    def _tell(self, number: int, before: str, reason: str, now: int) -> None:
        pool, state = self.pools[number], self.states[number]
        self.records.append(InstanceChanged(self.events, now, number, pool, state, before, reason))

    # Requests.

    def _decide_fate(self, job: Job, number: int, failure: Failure, now: int) -> None:
        hits = self.hits.get(job, 0)
        if failure.requests == "retry":
            hits = self.hits[job] = hits + 1
        if failure.requests == "lose" or hits > failure.max_retries:
            reason = "its instance died" if failure.requests == "lose" else f"{hits} instances died under it"
            job.state = RequestState.LOST
            self.records.append(Lost(self.events, now, job.name, number, reason))
            return
        job.start_again()
        self.records.append(Retried(self.events, now, job.name, number, hits))
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
        if self.states[instance.number] == UP:
            super()._queued(job, instance, now)
            return
        self._end(job, instance.number)
        failure = self.deaths[instance.number]
        assert failure is not None
        self._decide_fate(job, instance.number, failure, now)
