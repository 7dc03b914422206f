"""How vLLM's engine core keeps a pipeline full, written as plainly as possible: each plan takes a place in a queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .instance import Instance, Job, Plan, Preemption


@dataclass(eq=False)
class _Entry:
    """A plan that was handed to the accelerators; an empty one ends at once."""

    end_us: int = 0
    jobs: list[Job] = field(default_factory=list)
    sampled: list[Job] = field(default_factory=list)
    """Requests that get a token from it."""


class BatchQueue:
    """The plans in flight, oldest first."""

    def __init__(self, instance: Instance) -> None:
        self._one = instance
        self._entries: list[_Entry] = []
        self._ahead = bool(instance.policy.batching.settings["async_scheduling"])
        self._places = len(instance.stages) + self._ahead
        self._plans: list[list[tuple[Job, int]]] = []
        """For every plan so far, the requests that got a token from it, and the position of the token."""
        self._late: list[tuple[Job, _Entry, bool]] = []
        """Requests preempted with a batch in flight, that batch, and whether their last token comes from it."""
        self._batch = _Entry()
        """The entry being dispatched."""
        self._lost: list[Preemption] = []
        """Preemptions by plans without work, which the next batch reports."""
        self._moving_us = 0
        self._late_us = 0
        """When the last token comes that the batch continues from."""

    def plan(self, now: int, tell: Callable[[Plan, int], None]) -> tuple[Plan | None, bool]:
        """The next batch, and whether anybody was preempted before it was found; None = none can be formed now."""
        instance = self._one
        has_preempted = False
        while self._entries and self._entries[0].end_us < now:  # nobody has been there since, and it went on planning
            self._take_results(self._entries[0].end_us)
            if any(entry.end_us for entry in self._entries):
                self._entries.append(_Entry())
        while instance.goes_on(now):
            for job in [job for job in instance.ending if 0 < job.request.deadline_us < now]:
                instance.let_go(job)
            self.take_all_results(now)
            if len(self._entries) == self._places:
                break
            computing = [entry for entry in self._entries if entry.end_us]
            plan = instance.schedule(now, ahead=bool(computing))
            if not plan.tokens and not plan.preempted and not computing and instance.expected:
                break
            tell(plan, now)
            if plan.tokens:
                got = plan.tokens.items()
                sampled = [job for job, tokens in got if not job.prefilling or job.computed + tokens == job.target]
                self._plans.append([(job, job.place) for job in sampled])
                self._batch = _Entry(0, [job for job in plan.tokens if job not in instance.ending], sampled)
                self._late_us = max((job.last_token_us for job in plan.tokens if not job.prefilling), default=now)
                plan.preempted[:0], plan.transfer_us = self._lost, plan.transfer_us + self._moving_us
                self._lost, self._moving_us = [], 0
                return plan, has_preempted
            if not plan.preempted and not computing and not self._paused():
                raise StuckError
            has_preempted = has_preempted or bool(plan.preempted)
            self._lost += plan.preempted
            self._moving_us += plan.transfer_us
            self._entries.append(_Entry())
            self._plans.append([])
        return None, has_preempted

    def _paused(self) -> list[tuple[Job, int]]:
        latest = self._plans[max(0, len(self._plans) - len(self._one.stages) + 1) :]
        return [one for plan in latest for one in plan] if self._ahead else []

    def pauses(self, job: Job, now: int) -> bool:
        """Whether it decodes, and may not be scheduled again yet."""
        if job.prefilling:
            return False
        return (job, job.place) in self._paused() if self._ahead else job.last_token_us > now

    def lost(self, job: Job) -> None:
        """Note that a request is preempted."""
        self._late += [(job, entry, job in self._one.ending) for entry in self._entries if job in entry.jobs]

    def is_late(self, job: Job) -> bool:
        """Whether a batch that was in flight when it was preempted still is."""
        return any(late is job and entry in self._entries for late, entry, _ in self._late)

    def enters_us(self, now: int) -> int:
        """When the tokens are known that the batch continues from."""
        return max(now, self._late_us)

    def sent(self, end_us: int) -> None:
        """Add the dispatched batch to the queue."""
        self._batch.end_us = end_us
        self._entries.append(self._batch)
        self._tell_instance()

    def go_round(self) -> None:
        """Plan on, although there are no requests left to plan for."""
        while len(self._entries) < self._places:
            self._entries.append(_Entry())

    def upcoming_us(self, now: int) -> int:
        """When the next batch is planned, provided that there is work."""
        return self._entries[0].end_us if len(self._entries) == self._places else now

    def next_us(self, now: int) -> int:
        """When a request that comes now is seen."""
        return min((entry.end_us for entry in self._entries if entry.end_us and entry.end_us >= now), default=now)

    def through(self) -> int:
        """Number of requests that lost their blocks while their last token is being computed."""
        return len({job.name for job, entry, last in self._late if last and entry in self._entries})

    def take_all_results(self, now: int) -> None:
        """Take the results that are there."""
        while self._entries and self._entries[0].end_us <= now:
            self._take_results(now)

    def _take_results(self, now: int) -> None:
        entry = self._entries.pop(0)
        self._tell_instance()
        instance = self._one
        for job in entry.sampled:
            if job in instance.running or job in instance.ending:
                on_the_way = sum(instance.gains(job, other.end_us) for other in self._entries if job in other.sampled)
                instance.note_results(job, job.computed - on_the_way, now)
        for job in list(instance.ending):
            if not instance.is_busy(job):
                instance.let_go(job)

    def _tell_instance(self) -> None:
        self._one.under_way = [(entry.end_us, entry.jobs) for entry in self._entries if entry.end_us]


class StuckError(Exception):
    """There is work, nothing is under way, and nothing can be planned."""
