"""The figures behind the warnings, counted from the events of a debugger's tape: another way than the engine's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blis_tui.engine import stopped
from blis_tui.engine.records import Arrived, StepFinished, TimedOut
from blis_tui.runs.simulation import Simulation
from tests.builders import profiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.event_store import EventRow, EventStore, RequestEvent, StepRow, StopRow
    from blis_tui.model import Experiment


_FOR_BLOCKS = (stopped.BLOCKS, stopped.WATERMARK, stopped.ANSWERS, stopped.ROOM)


@dataclass(slots=True)
class InstanceTally:
    """What one instance did. Times in microseconds; those of steps are sums of their durations."""

    present: int = 0
    """Requests in its queue or batch: what its latest step said, and who came and went since."""
    since_us: int = 0
    request_us: int = 0
    """Requests present, added up over time."""
    leaving: list[tuple[int, int]] = field(default_factory=list)
    """Ends of steps that lie ahead, and how many complete then."""
    before: tuple[EventRow, StepRow] | None = None
    """The latest step, where steps are planned ahead."""

    def pass_time(self, now_us: int) -> None:
        """Count who was present until now."""
        self.request_us += self.present * (now_us - self.since_us)
        self.since_us = now_us


class Tally:
    """Sums over the first ``event`` events of a tape.

    Attributes:
        event: events counted so far.
        now_us: simulated time of the last of them.
        instances: by index.
        counts: events by kind.
        prefill_us: durations of the steps that computed prompt tokens.
        beside_prefill_us: the same, once for each request that decoded in them, or that they kept from decoding.
        full_budget_us: those of steps that used up the token budget.
        kv_wait_us: those of steps that left somebody waiting for want of KV blocks. Where steps are planned ahead, this
            and ``seqs_wait_us`` go by the plan that is made when the step starts, for the one after it.
        allocation_failures: attempts to give a request KV blocks that failed: victims, and steps that left somebody
            waiting for blocks and preempted nobody.
        seqs_wait_us: those of steps that left somebody waiting because the batch was full, with tokens left.
        prefill_tokens: prompt tokens that steps computed.
        decode_tokens: decode tokens that steps computed.
        ended_prefill_tokens: the same by the requests that have ended.
        ended_decode_tokens: likewise.
        stayed_us: time from queue to end, added up over the requests that have ended.
        staying: requests in a queue or batch: number -> when they were queued.
        unsound: the first request whose chunks do not fit together, -1 when there is none.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.event = 0
        self.now_us = 0
        self.instances = tuple(InstanceTally() for _ in range(experiment.instances))
        self.counts: dict[str, int] = {}
        self.prefill_us = self.beside_prefill_us = self.full_budget_us = self.kv_wait_us = self.seqs_wait_us = 0
        self.allocation_failures = 0
        self.prefill_tokens = 0
        self.decode_tokens = 0
        self.ended_prefill_tokens = 0
        self.ended_decode_tokens = 0
        self.stayed_us = 0
        self.staying: dict[int, int] = {}
        self.unsound = -1
        self._profile = profiles(experiment)[0]
        self._keeps_output = self._profile.traits.keeps_output
        self._plans_ahead = self._profile.traits.plans_ahead

    def follow(self, tape: EventStore, events: int) -> bool:
        """Count up to so many more events; returns whether it has them all."""
        last = min(self.event + events, len(tape))
        for event in range(self.event + 1, last + 1):
            row = tape.row(event)
            self.counts[row.kind] = self.counts.get(row.kind, 0) + 1
            if row.step >= 0:
                self._step(tape, row, tape.step(row.step))
            else:
                self._about_request(tape, row)
        if last > self.event:
            self.event = last
            self.now_us = tape.time_us(last)
        return self.event >= len(tape)

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

    def _step(self, tape: EventStore, row: EventRow, step: StepRow) -> None:
        instance = self.instances[row.instance]
        duration = step.duration_us
        instance.pass_time(row.time_us)
        self.allocation_failures += step.preempted
        instance.present = step.waiting + step.running
        if step.completed:
            instance.request_us += step.completed * duration
            instance.leaving = [one for one in instance.leaving if one[0] > row.time_us]
            instance.leaving.append((row.time_us + duration, step.completed))
        self.prefill_tokens += step.prefill_tokens
        self.decode_tokens += step.decode_requests
        full = step.batch_tokens >= self._profile.limits.max_num_batched_tokens
        self.full_budget_us += duration if full else 0
        self.prefill_us += duration if step.prefill_tokens else 0
        apart = self._profile.traits.prefills_apart
        decoding = step.decode_requests + (step.stalled if apart else 0)
        self.beside_prefill_us += duration * decoding if step.prefill_tokens else 0
        if not self._plans_ahead:
            if step.waiting:
                self._wait(tape.stop(row.event, step.number), step, duration, full=full)
            return
        # Whoever waits during a step was left out by the plan for the step after it.
        before, instance.before = instance.before, (row, step)
        if before is not None:
            of, by = before
            made = step.planned == of.event
            if by.waiting + step.preempted - (step.admitted if made else 0) > 0:
                self._wait(tape.stop(of.event, by.number + 1), step, by.duration_us, full=full and made)

    def _wait(self, stop: StopRow | None, planned: StepRow, duration: int, *, full: bool) -> None:
        cause = "" if stop is None else stop.cause
        if planned.preempted or (cause in _FOR_BLOCKS and not full):
            self.kv_wait_us += duration
        self.allocation_failures += not planned.preempted and cause in _FOR_BLOCKS and not full
        self.seqs_wait_us += duration if cause == stopped.MAX_NUM_SEQS and not full else 0

    # ---- requests ----

    def _about_request(self, tape: EventStore, row: EventRow) -> None:
        if row.kind == "queued":
            instance = self.instances[row.instance]
            instance.pass_time(row.time_us)
            instance.present += 1
            self.staying[row.request] = row.time_us
        elif row.kind in ("completed", "timed-out") and row.request in self.staying:
            self.stayed_us += row.time_us - self.staying.pop(row.request)
            if row.kind == "timed-out":
                instance = self.instances[row.instance]
                instance.pass_time(row.time_us)
                instance.present -= 1
            self._ended(row.request, tape.life(tape.name(row.request), row.event))

    def _ended(self, number: int, life: Sequence[RequestEvent]) -> None:
        account = account_of(life, keeps_output=self._keeps_output)
        self.ended_prefill_tokens += account.prefill_tokens
        self.ended_decode_tokens += account.decode_tokens
        if not account.sound and self.unsound < 0:
            self.unsound = number


class ForNobody:
    """What steps compute for requests that had timed out since the step was planned, from the records of a run.

    Steps count decodes and do not name them: of those whose requests are still there, each runs, has its prefill behind
    it and did not stall.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.prefill_tokens = self.decode_tokens = 0
        self._known: dict[str, int] = {}
        """Tokens of each request's prompt and answer so far."""
        self._prefilling: dict[str, bool] = {}
        """Who runs, and whether its prefill is not over."""
        self._gone: dict[str, None] = {}
        simulation = Simulation(experiment)
        simulation.subscribe(Arrived, lambda one: self._known.update({one.request_id: one.input_tokens}))
        simulation.subscribe(TimedOut, self._end)
        simulation.subscribe(StepFinished, self._step)
        simulation.run()

    def _end(self, record: TimedOut) -> None:
        self._gone[record.request_id] = None
        self._prefilling.pop(record.request_id, None)

    def _step(self, record: StepFinished) -> None:
        for name in record.preempted:
            self._prefilling.pop(name, None)
        decoding = [name for name, prefills in self._prefilling.items() if not prefills and name not in record.stalled]
        self.decode_tokens += record.decode_requests - len(decoding)
        self._prefilling |= {name: True for name in record.admitted if name not in self._gone}
        for chunk in record.chunks:
            name = chunk.request_id
            if name in self._gone:
                self.prefill_tokens += chunk.new_tokens
            elif chunk.computed_tokens + chunk.new_tokens == self._known[name]:
                self._prefilling[name] = False
                self._known[name] += 1
        for name in decoding:
            self._known[name] += 1
        for name in record.completed:
            self._prefilling.pop(name, None)


@dataclass(slots=True)
class Account:
    """What a request computed, by its own entries."""

    prefill_tokens: int = 0
    decode_tokens: int = 0
    sound: bool = True
    """Its chunks follow each other without gaps or overlaps, and end where its prefill ends."""


def account_of(life: Sequence[RequestEvent], *, keeps_output: bool) -> Account:
    """Add up what a request that has ended computed.

    A prefill that reaches its target of computed tokens gives a token; each decode computes one more. Where output is
    kept through a preemption, the next target is all that was known: what had been computed, and the latest token.
    """
    account = Account()
    prompt = target = life[0].first
    computed = 0
    for event in life:
        if event.what == "scheduled":
            computed = event.first
        elif event.what == "chunk":
            account.sound = account.sound and event.first == computed and event.second > 0
            computed = event.first + event.second
            account.prefill_tokens += event.second
            account.sound = account.sound and computed <= target
        elif event.what == "preempted":
            account.decode_tokens += max(0, event.first - target)
            account.sound = account.sound and event.first >= computed
            if keeps_output and event.first >= target:
                target = event.first + 1
            computed = 0
        elif event.what in ("completed", "timed-out"):
            account.decode_tokens += max(0, event.first - (target - prompt) - 1)
            account.sound = account.sound and (event.what == "timed-out" or computed == target)
    return account
