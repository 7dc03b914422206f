"""Sums over everything a tape holds, kept up to date a slice of events at a time: what the warnings are made from.

A tally is a function of the tape alone; it is kept only because adding up a million events takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blis_tui.debugger.why.waits import limits_of, step_cause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.tape import EventRow, Happening, StepRow, Tape
    from blis_tui.debugger.why.waits import Limits
    from blis_tui.spec.model import Experiment

_KV_HIGH_PERCENT = 95


@dataclass(slots=True)
class InstanceTally:
    """What one instance did. Times in microseconds; those of steps are sums of their durations."""

    routed: int = 0
    steps: int = 0
    busy_us: int = 0
    present: int = 0
    """Requests in its queue or batch: what its latest step said, and who came and went since."""
    since_us: int = 0
    request_us: int = 0
    """Requests present, added up over time."""
    leaving: list[tuple[int, int]] = field(default_factory=list)
    """Ends of steps that lie ahead, and how many complete then."""
    blocked_steps: int = 0
    """Latest steps in a row that let nobody in for want of KV blocks while two or more waited."""

    def pass_time(self, now_us: int) -> None:
        """Count who was present until now."""
        self.request_us += self.present * (now_us - self.since_us)
        self.since_us = now_us


@dataclass(slots=True)
class Blocking:
    """The longest stretch of steps that let nobody in for want of KV blocks while two or more waited, and its end."""

    steps: int = 0
    event: int = 0


class Tally:
    """Sums over the first ``event`` events of a tape.

    Attributes:
        event: events counted so far.
        now_us: simulated time of the last of them.
        instances: by index.
        counts: events by kind.
        firsts: the first event of each kind.
        kv_high_us: time in steps that left at least 95 % of an instance's KV blocks in use.
        full_us: time in steps that spent the whole token budget.
        seqs_us: time in steps with the batch full while somebody waited.
        seqs_tokens: tokens of those steps.
        seqs_steps: their number.
        prefill_tokens: prompt tokens that steps computed.
        decode_tokens: decode tokens that steps computed.
        ended_prefill_tokens: the same by the requests that have ended.
        ended_decode_tokens: likewise.
        cached_tokens: tokens found in the cache when requests were first let in, of those that have ended.
        stayed_us: time from queue to end, added up over the requests that have ended.
        staying: requests in a queue or batch: number -> when they were queued.
        preemptions: preemptions so far.
        thrashed: requests that ended after three or more preemptions.
        worst: the most preemptions of a request that has ended, and its number.
        unsound: the first request whose chunks do not fit together, -1 when there is none.
        blocking: head-of-line blocking.
        last_arrival_us: the latest arrival.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.event = 0
        self.now_us = 0
        self.instances = tuple(InstanceTally() for _ in range(experiment.cluster.instances))
        self.counts: dict[str, int] = {}
        self.firsts: dict[str, int] = {}
        self.kv_high_us = 0
        self.full_us = 0
        self.seqs_us = 0
        self.seqs_tokens = 0
        self.seqs_steps = 0
        self.prefill_tokens = 0
        self.decode_tokens = 0
        self.ended_prefill_tokens = 0
        self.ended_decode_tokens = 0
        self.cached_tokens = 0
        self.stayed_us = 0
        self.staying: dict[int, int] = {}
        self.preemptions = 0
        self.thrashed = 0
        self.worst = (0, -1)
        self.unsound = -1
        self.blocking = Blocking()
        self.last_arrival_us = 0
        self._limits: Limits = limits_of(experiment)
        self._kv_high = -(-experiment.engine.kv_blocks * _KV_HIGH_PERCENT // 100)
        self._keeps_output = experiment.policy.batching.kind == "vllm-v1"

    def follow(self, tape: Tape, events: int) -> bool:
        """Count up to so many more events; returns whether it has them all."""
        last = min(self.event + events, len(tape))
        for event in range(self.event + 1, last + 1):
            row = tape.row(event)
            known = self.counts.get(row.kind, 0)
            self.counts[row.kind] = known + 1
            if not known:
                self.firsts[row.kind] = event
            if row.step >= 0:
                self._step(row, tape.step(row.step))
            else:
                self._about_request(tape, row)
        if last > self.event:
            self.event = last
            self.now_us = tape.time_us(last)
        return self.event >= len(tape)

    @property
    def busy_us(self) -> int:
        """Durations of all steps."""
        return sum(instance.busy_us for instance in self.instances)

    def present_us(self) -> int:
        """Requests in queues and batches as the steps count them, added up over time until now."""
        total = 0
        for instance in self.instances:
            total += instance.request_us + instance.present * (self.now_us - instance.since_us)
            total -= sum(count * (end_us - self.now_us) for end_us, count in instance.leaving if end_us > self.now_us)
        return total

    def stays_us(self) -> int:
        """The same from the requests' own times: from each one's queueing to its end or to now."""
        return self.stayed_us + sum(self.now_us - queued_us for queued_us in self.staying.values())

    # ---- steps ----

    def _step(self, row: EventRow, step: StepRow) -> None:
        instance = self.instances[row.instance]
        duration = step.duration_us
        instance.pass_time(row.time_us)
        instance.present = step.waiting + step.running
        instance.steps += 1
        instance.busy_us += duration
        if step.completed:
            instance.request_us += step.completed * duration
            instance.leaving = [one for one in instance.leaving if one[0] > row.time_us]
            instance.leaving.append((row.time_us + duration, step.completed))
        self.prefill_tokens += step.prefill_tokens
        self.decode_tokens += step.decode_requests
        self.preemptions += step.preempted
        if step.kv_used_blocks >= self._kv_high:
            self.kv_high_us += duration
        if step.batch_tokens >= self._limits.max_num_batched_tokens:
            self.full_us += duration
        cause = step_cause(step, self._limits) if step.waiting else ""
        if cause == "seqs":
            self.seqs_us += duration
            self.seqs_tokens += step.batch_tokens
            self.seqs_steps += 1
        if cause in ("blocks", "preempted") and step.waiting > 1 and not step.admitted:
            instance.blocked_steps += 1
            if instance.blocked_steps > self.blocking.steps:
                self.blocking = Blocking(instance.blocked_steps, row.event)
        else:
            instance.blocked_steps = 0

    # ---- requests ----

    def _about_request(self, tape: Tape, row: EventRow) -> None:
        if row.kind == "queued":
            instance = self.instances[row.instance]
            instance.pass_time(row.time_us)
            instance.present += 1
            self.staying[row.request] = row.time_us
        elif row.kind == "routed":
            self.instances[row.instance].routed += 1
        elif row.kind == "arrived":
            self.last_arrival_us = row.time_us
        elif row.kind in ("completed", "timed-out") and row.request in self.staying:
            self.stayed_us += row.time_us - self.staying.pop(row.request)
            if row.kind == "timed-out":
                instance = self.instances[row.instance]
                instance.pass_time(row.time_us)
                instance.present -= 1
            self._ended(row.request, tape.life(tape.name(row.request), row.event))

    def _ended(self, number: int, life: Sequence[Happening]) -> None:
        account = account_of(life, keeps_output=self._keeps_output)
        self.ended_prefill_tokens += account.prefill_tokens
        self.ended_decode_tokens += account.decode_tokens
        self.cached_tokens += account.cached_tokens
        self.thrashed += account.preemptions >= THRASHING
        if account.preemptions > self.worst[0]:
            self.worst = (account.preemptions, number)
        if not account.sound and self.unsound < 0:
            self.unsound = number


THRASHING = 3
"""Preemptions of one request from which on it is said to thrash."""


@dataclass(slots=True)
class Account:
    """What a request computed, by its own happenings."""

    preemptions: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    cached_tokens: int = 0
    """Found in the cache when it was first let in."""
    sound: bool = True
    """Its chunks follow each other without gaps or overlaps, and end where its prefill ends."""


def account_of(life: Sequence[Happening], *, keeps_output: bool) -> Account:
    """Add up what a request that has ended computed.

    A prefill that reaches its target of computed tokens gives a token; each decode computes one more. Where output is
    kept through a preemption, the next target is all that was known: what had been computed, and the latest token.
    """
    account = Account()
    prompt = target = life[0].first
    computed = 0
    for one in life:
        if one.what == "scheduled":
            computed = one.first
            if not account.preemptions:
                account.cached_tokens = one.first
        elif one.what == "chunk":
            account.sound = account.sound and one.first == computed and one.second > 0
            computed = one.first + one.second
            account.prefill_tokens += one.second
            account.sound = account.sound and computed <= target
        elif one.what == "preempted":
            account.preemptions += 1
            account.decode_tokens += max(0, one.first - target)
            account.sound = account.sound and one.first >= computed
            if keeps_output and one.first >= target:
                target = one.first + 1
            computed = 0
        elif one.what in ("completed", "timed-out"):
            account.decode_tokens += max(0, one.first - (target - prompt) - 1)
            account.sound = account.sound and (one.what == "timed-out" or computed == target)
    return account
