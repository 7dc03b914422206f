"""The simulator written a second time, as plainly as possible.

It shares the description of requests, the result formats, the step-time models and the random streams with the engine,
but nothing that makes decisions. Slow is fine here; clever is not.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Self

from blis_tui.cluster.records import (
    Deferred,
    Dispatched,
    GatewayTick,
    Held,
    Resumed,
    Split,
    TransferFinished,
    TransferStarted,
)
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.records import (
    AdapterLoad,
    Admitted,
    AnswerBegun,
    Arrived,
    ChunkDone,
    Completed,
    DraftDone,
    DraftsVerified,
    Dropped,
    FirstToken,
    Preempted,
    Prefilled,
    PromptMedia,
    Queued,
    Rejected,
    RestoreChosen,
    Routed,
    Scheduled,
    StepFinished,
    SwappedBack,
    TimedOut,
)
from blis_tui.engine.request import Request, RequestState
from blis_tui.model import SLO_CLASSES

from .control import Admission, Board, Router, saturation
from .encoder import WithEncoder
from .gateway import GatewayQueue, Ticket
from .instance import Books, Instance, Job
from .pipelines import StuckError
from .tiers import Shelf
from .transfers import Decider, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.model import Pool as PoolSpec

    from .instance import Plan
    from .pipelines import BatchQueue
    from .stops import Stop
    from .strategies import Scenario

# Order of events in the same microsecond; events of the cluster come before those of instances.
ARRIVAL, ADMISSION, ROUTING, LIFECYCLE = 0, 1, 2, 3
PREFILL_ROUTING, TRANSFER_START, TRANSFER_END, DECODE_ROUTING = 4, 5, 6, 7
EXPIRY, TICK = 8, 9
ADAPTER, QUEUED, STEP, LEFT, TIMEOUT = 0, 1, 2, 4, 5


_ALIVE = (RequestState.CREATED, RequestState.WAITING, RequestState.RUNNING)


class OracleStalledError(Exception):
    """A step found waiting requests and could do nothing at all."""


class OracleHangError(Exception):
    """More steps than any sensible schedule of this workload needs."""


class Event(NamedTuple):
    """A future event; events sort in order of execution."""

    time_us: int
    instance: int
    """-1 = the cluster."""
    kind: int
    number: int
    job: Job | None
    ticket: Ticket | None = None
    parts: bool = False
    """Whether only the prompt of a leaving request was computed."""
    act: Callable[[int], bool] | None = None
    """An event in the life of an instance; returns whether anything happened."""


class Oracle:
    """A cluster that runs to its end in one go.

    ``now`` is the time of the last event with an effect; ``records`` are those of all events, in order.
    """

    def __init__(self, experiment: Experiment, requests: Sequence[Request], max_steps: int, users: int = 0) -> None:
        self.experiment = experiment
        self.policy = policy = experiment.policy
        self.settings = experiment.cluster
        self.instances: list[Instance] = []
        self.stores: dict[str, Shelf] = {}
        """Tiers that instances share, by name."""
        roles: list[str] = []
        for pool in experiment.pools:
            for _ in range(pool.instances):
                self._create(pool)
                roles.append(pool.role)
        self.jobs = [Job(request) for request in requests]
        self.arrived: list[Job] = []
        self.records: list[Record] = []
        self.stops: list[tuple[int, int, Stop]] = []
        """Instance, number of the step, and why its plan left requests in the queue."""
        self.now = 0
        self.events = 0
        self._max_steps = max_steps
        self._scheduled = 0
        self._pending: list[Event] = []
        self._ended_now = 0
        self._deferred: list[Job] = []
        self.board = Board(self.settings.signals, self.instances, self.jobs)
        self.admission = Admission(experiment, self.board, self.jobs)
        everybody = range(len(self.instances))
        prefilling = [number for number in everybody if roles[number] in {"any", "prefill"}]
        decoding = [number for number in everybody if roles[number] in {"any", "decode"}]
        self.split = split = self.settings.disaggregation
        whole = list(everybody) if split is None or split.undisaggregated == "all" else decoding
        size, seed = experiment.pools[0].engine.block_size_tokens, experiment.seed
        self.router = Router(policy.routing, whole, self.board, seed=seed, path="policy/routing", size=size)
        if split is not None:
            self.prefill_router, self.decode_router = (
                Router(config, members, self.board, seed=seed, path=f"policy/{role}-routing", size=size)
                for role, config, members in (
                    ("prefill", split.prefill_routing, prefilling),
                    ("decode", split.decode_routing, decoding),
                )
            )
            self.decider = Decider(split.decider, self.board, size)
            self.link = Link(split.transfer, size)
        self.layers = experiment.pools[0].model.num_hidden_layers
        self._shared_end: tuple[int, Job] | None = None
        self.gateway = None if policy.gateway is None else GatewayQueue(policy.gateway, policy)
        self._tick_pending = False
        self._seen_saturation = 0.0
        self._unsent = list(self.jobs) if users else []
        self._unanswered: list[Job] = []
        for _ in range(users):
            self._plan(0, ARRIVAL, None)
        for job in self.jobs:
            if not users:
                self._plan(job.request.arrival_us, ARRIVAL, job)

    @classmethod
    def of(cls, scenario: Scenario, max_steps: int) -> Self:
        """Create the oracle of a scenario."""
        return cls(scenario.experiment, scenario.requests(), max_steps)

    def _create(self, pool: PoolSpec) -> Instance:
        """Add an instance that is not announced yet."""
        latency = create_latency(self.experiment.plugins, pool)
        if pool.engine.encoder is not None:
            scheduled = self.policy.batching.kind == "vllm-v1"
            latency = WithEncoder(latency, pool.engine.encoder.token_us, scheduled=scheduled)
        tiers, common = pool.engine.kv_tiers, None
        if tiers is not None and tiers.tiers[-1].shared:
            common = self.stores.setdefault(tiers.tiers[-1].name, Shelf(tiers.tiers[-1].blocks))
        one = Instance(len(self.instances), pool, self.policy, latency, self.experiment.seed, common)
        split = self.settings.disaggregation
        one.early_transfers = split is not None and split.transfer.starts == "step-start"
        if split is None:
            one.look_ahead()
        self.instances.append(one)
        return one

    def _new_instance(self, pool: PoolSpec) -> int:
        """Add an empty instance that cannot be routed to yet; return its number."""
        one = self._create(pool)
        self.board.add(one)
        return one.number

    @property
    def steps(self) -> list[StepFinished]:
        return [record for record in self.records if isinstance(record, StepFinished)]

    def books(self) -> list[Books]:
        return [
            job.books(self.instances[job.instance].latency if job.instance >= 0 else None)
            for job in sorted(self.arrived, key=lambda job: job.request.index)
        ]

    # Time.

    def run(self) -> None:
        horizon = self.experiment.horizon_us
        handlers = {
            ARRIVAL: self._arrival,
            ADMISSION: self._admission,
            ROUTING: self._routing,
            PREFILL_ROUTING: self._prefill_routing,
            TRANSFER_START: self._transfer_start,
            TRANSFER_END: self._transfer_end,
            DECODE_ROUTING: self._decode_routing,
        }
        at_instance = {QUEUED: self._queued, TIMEOUT: self._timed_out}
        while self._pending:
            event = heappop(self._pending)
            now = event.time_us
            if horizon is not None and now > horizon:
                return
            if self._is_stale(event):
                continue
            before, self.now = self.now, now
            self.events += 1
            self._ended_now = 0
            if event.instance >= 0:
                if event.act is not None:
                    if not event.act(now):
                        self.now = before
                        self.events -= 1
                        continue
                elif event.job is None:
                    if not self._step(self.instances[event.instance], now):
                        self.now = before  # it did not happen
                        self.events -= 1
                        continue
                elif event.kind == LEFT:
                    self._leave(event.job, self.instances[event.instance], now, parts=event.parts)
                else:
                    at_instance[event.kind](event.job, self.instances[event.instance], now)
            elif event.act is not None:
                if not event.act(now):
                    self.now = before
                    self.events -= 1
                    continue
            elif event.kind == EXPIRY:
                assert event.ticket is not None
                self._expiry(event.ticket, now)
            elif event.kind == TICK:
                self._tick(now)
            elif event.kind == ARRIVAL and event.job is None:
                self._send_next(now)
            else:
                assert event.job is not None
                handlers[event.kind](event.job, now)
            self._after(now)
            self._answer(now)

    def _send_next(self, now: int) -> None:
        """A user sends the next prompt."""
        job = self._unsent.pop(0)
        request = job.request
        if request.deadline_us:
            request.deadline_us = max(1, request.deadline_us + now - request.arrival_us)
        request.arrival_us = now
        self._unanswered.append(job)
        self._arrival(job, now)

    def _answer(self, now: int) -> None:
        """The user of a finished request sends another one, at once after an answer or without patience."""
        ended = [job for job in self._unanswered if job.state not in _ALIVE]
        self._unanswered = [job for job in self._unanswered if job.state in _ALIVE]
        for job in ended:
            if job.state is RequestState.COMPLETED:
                latency = self.instances[job.instance].latency
                self._plan(max(now, job.request.arrival_us + job.e2e_us(latency)), ARRIVAL, None)
            else:
                patient = job.state is not RequestState.TIMED_OUT
                self._plan(now + (1_000_000 if patient else 0), ARRIVAL, None)

    def _is_stale(self, event: Event) -> bool:
        """Whether the event comes too late to have an effect; such events do not even advance the clock."""
        job = event.job
        if event.kind == ARRIVAL and event.instance < 0:
            return job is None and not self._unsent
        if event.instance >= 0:
            if event.act is not None:
                return False
            if job is None:
                instance = self.instances[event.instance]
                if instance.has_work(event.time_us):
                    return False
                instance.step_pending = False
                instance.pass_us = -1
                if instance.queue is not None and instance.has_work(event.time_us - 1):
                    instance.queue.take_all_results(event.time_us)  # it wanted to plan on, as far as it knew until now
                instance.free_gone()
                return True
            alive = job.state in (RequestState.WAITING, RequestState.RUNNING) and job.instance == event.instance
            return event.kind == TIMEOUT and not alive
        if event.kind == EXPIRY:
            assert self.gateway is not None
            return event.ticket not in self.gateway.tickets
        if event.kind == TRANSFER_END and self.split is not None and self.split.transfer.contention == "fair-share":
            return (event.time_us, job) != self._shared_end
        return False

    def _plan(
        self,
        time: int,
        kind: int,
        job: Job | None,
        instance: int = -1,
        *,
        ticket: Ticket | None = None,
        parts: bool = False,
        act: Callable[[int], bool] | None = None,
    ) -> None:
        self._scheduled += 1
        heappush(self._pending, Event(time, instance, kind, self._scheduled, job, ticket, parts, act))

    def _after(self, now: int) -> None:
        """Handle the consequences of requests that left instances in an event."""
        if not self._ended_now:
            return
        if self.gateway is not None and self.gateway.settings.dispatch == "on-completion":
            for _ in range(self._ended_now):
                if not self._dispatch(now):
                    break
        if not any(job.counted for job in self.jobs):
            for job in self._deferred:
                self.records.append(Resumed(self.events, now, job.name))
                self._plan(now + self.settings.admission_latency_us, ADMISSION, job)
            self._deferred.clear()

    # The way in.

    def _arrival(self, job: Job, now: int) -> None:
        request = job.request
        self.arrived.append(job)
        self._plan(now + self.settings.admission_latency_us, ADMISSION, job)
        self.records.append(
            Arrived(
                self.events,
                now,
                job.name,
                request.input_tokens,
                request.max_output_tokens,
                request.slo_class,
                request.tenant,
            )
        )
        if request.media != (0, 0, 0):
            self.records.append(PromptMedia(self.events, now, job.name, *request.media))

    def _admission(self, job: Job, now: int) -> None:
        there = sum(len(other.counted) for other in self.jobs)
        if self.policy.deferral == "idle-only" and job.request.slo_class in {"batch", "background"} and there:
            self._deferred.append(job)
            self.records.append(Deferred(self.events, now, job.name, there))
            return
        self.board.read(now)
        who, reason = self.admission.refusal(job, now)
        if reason:
            self._reject(job, who, reason, now)
            return
        self.records.append(Admitted(self.events, now, job.name, self.policy.admission.kind))
        if self.gateway is None:
            self._on_to_router(job, now)
        else:
            self._hold(job, now)

    def _reject(self, job: Job, who: str, reason: str, now: int) -> None:
        job.state = RequestState.REJECTED
        self.records.append(Rejected(self.events, now, job.name, who, reason))

    # The gateway.

    def _hold(self, job: Job, now: int) -> None:
        assert self.gateway is not None
        settings = self.gateway.settings
        ticket, victim = self.gateway.offer(job, now)
        if victim is not None:
            reason = f"displaced by {job.name} after {now - victim.since_us} us in the queue"
            self._reject(victim.job, "gateway", reason, now)
        if ticket is None:
            self._reject(job, "gateway", self.gateway.full(job), now)
            return
        self.records.append(Held(self.events, now, job.name, ticket.priority, len(self.gateway.tickets)))
        if settings.request_ttl_us:
            self._plan(now + settings.request_ttl_us, EXPIRY, None, ticket=ticket)
        self._dispatch(now)
        self._want_tick(now)

    def _dispatch(self, now: int) -> bool:
        assert self.gateway is not None
        if not self.gateway.tickets:
            return False
        self.board.read(now)
        level = self._seen_saturation = saturation(self.gateway.settings.saturation, self.board.seen)
        ticket = self.gateway.next(level)
        if ticket is None:
            return False
        waited = ticket.job.gateway_us = now - ticket.since_us
        left = len(self.gateway.tickets)
        self.records.append(Dispatched(self.events, now, ticket.job.name, waited, left, int(level * 1_000_000)))
        self._on_to_router(ticket.job, now)
        return True

    def _want_tick(self, now: int) -> None:
        assert self.gateway is not None
        if self.gateway.settings.dispatch == "tick" and self.gateway.tickets and not self._tick_pending:
            self._tick_pending = True
            self._plan(now + self.gateway.settings.tick_us, TICK, None)

    def _tick(self, now: int) -> None:
        assert self.gateway is not None
        self._tick_pending = False
        self.board.read(now)
        self._dispatch(now)
        self._want_tick(now)
        level = saturation(self.gateway.settings.saturation, self.board.seen)
        self.records.append(GatewayTick(self.events, now, len(self.gateway.tickets), int(level * 1_000_000)))

    def _expiry(self, ticket: Ticket, now: int) -> None:
        assert self.gateway is not None
        self.gateway.remove(ticket)
        self._reject(ticket.job, "gateway", f"expired after {now - ticket.since_us} us in the queue", now)

    # The router.

    def _on_to_router(self, job: Job, now: int) -> None:
        later = now + self.settings.routing_latency_us
        if self.split is not None and self.split.order == "prefill-first" and self._decide(job, now):
            self._plan(later, PREFILL_ROUTING, job)
        else:
            self._plan_routing(job, later)

    def _plan_routing(self, job: Job, time: int) -> None:
        self._plan(time, ROUTING, job)

    def _decide(self, job: Job, now: int) -> bool:
        job.split, reason = self.decider.split(job, job.decode_instance)
        self.records.append(Split(self.events, now, job.name, "split" if job.split else "whole", reason))
        return job.split

    def _choose(self, job: Job, router: Router, now: int) -> int:
        number, reason = router.choose(job)
        self.records.append(Routed(self.events, now, job.name, number, router.kind, reason))
        return number

    def _routing(self, job: Job, now: int) -> None:
        self.board.read(now)
        if self.split is None:
            self._send(job, self._choose(job, self.router, now), now)
        elif self.split.order == "prefill-first":
            self.decider.sent(job)
            self._send(job, self._choose(job, self.router, now), now)
        else:
            job.decode_instance = self._choose(job, self.decode_router, now)
            if self._decide(job, now):
                self._plan(now, PREFILL_ROUTING, job)
            else:
                self.decider.sent(job)
                self._send(job, job.decode_instance, now)

    def _prefill_routing(self, job: Job, now: int) -> None:
        self.board.read(now)
        self.decider.sent(job)
        job.prefill_instance = self._choose(job, self.prefill_router, now)
        self._send(job, job.prefill_instance, now)

    def _count(self, job: Job, number: int) -> None:
        """Count a request as in flight on that instance."""
        job.counted.append(number)
        job.instance = number
        self.instances[number].routed += 1

    def _end(self, job: Job, number: int) -> None:
        """Stop counting it as in flight."""
        job.counted.remove(number)
        self._ended_now += 1

    def _send(self, job: Job, number: int, now: int) -> None:
        self._count(job, number)
        self._plan(now + self.instances[number].latency.queueing_time_us(job.request), QUEUED, job, number)

    # From prefill to decode.

    def _transfer_start(self, job: Job, now: int) -> None:
        assert self.split is not None
        job.transfer_start_us = now
        if job.decode_instance >= 0 and (reason := self._reserve(job)):
            self._turn_down(job, reason, now)
            return
        end = self.link.start(job, now, self.layers)
        self.records.append(
            TransferStarted(
                self.events,
                now,
                job.name,
                job.prefill_instance,
                job.decode_instance,
                self.link.amount(job),
                len(self.link.ways),
            )
        )
        if end is None:
            self._plan_shared_end(now)
        else:
            self._plan(end, TRANSFER_END, job)

    def _plan_shared_end(self, now: int) -> None:
        self._shared_end = self.link.next_end(now)
        if self._shared_end is not None:
            self._plan(self._shared_end[0], TRANSFER_END, self._shared_end[1])

    def _transfer_end(self, job: Job, now: int) -> None:
        assert self.split is not None
        self.link.end(job, now)
        self.records.append(TransferFinished(self.events, now, job.name, now - job.transfer_start_us))
        if job.decode_instance >= 0:
            self._enqueue_for_decode(job, now)
        else:
            self._plan(now, DECODE_ROUTING, job)
        if self.split.transfer.contention == "fair-share":
            self._plan_shared_end(now)

    def _decode_routing(self, job: Job, now: int) -> None:
        self.board.read(now)
        job.decode_instance = self._choose(job, self.decode_router, now)
        if reason := self._reserve(job):
            self._turn_down(job, reason, now)
        else:
            self._enqueue_for_decode(job, now)

    def _reserve(self, job: Job) -> str:
        assert self.split is not None
        reuses = self.split.transfer.reuse_cached_blocks
        held = self.board.cached_now(job.decode_instance, job, self.now) if reuses else 0
        return self.instances[job.decode_instance].reserve(job, held)

    def _turn_down(self, job: Job, reason: str, now: int) -> None:
        instance = self.instances[job.decode_instance]
        self._count(job, instance.number)
        self._end(job, instance.number)
        job.state = RequestState.DROPPED_UNSERVABLE
        self.records.append(Dropped(self.events, now, job.name, instance.number, reason))

    def _enqueue_for_decode(self, job: Job, now: int) -> None:
        instance = self.instances[job.decode_instance]
        self._count(job, instance.number)
        instance.expected.remove(job)
        if 0 < job.request.deadline_us <= now:
            self._expire(job, instance, now, was_running=False)
        else:
            instance.adopt(job, now)
            self._wait(job, instance, now)

    # On an instance.

    def _queued(self, job: Job, instance: Instance, now: int) -> None:
        job.queued_us = now
        reason = instance.unservable(job)
        if reason:
            job.state = RequestState.DROPPED_UNSERVABLE
            self._end(job, instance.number)
            self.records.append(Dropped(self.events, now, job.name, instance.number, reason))
        elif 0 < job.request.deadline_us <= now:
            self._expire(job, instance, now, was_running=False)
        else:
            self._wait(job, instance, now)

    def _wait(self, job: Job, instance: Instance, now: int) -> None:
        request = job.request
        job.priority = {
            "constant": 0,
            "slo-based": request.arrival_us,
            "inverted-slo": -request.arrival_us,
            "slo-class": SLO_CLASSES.index(request.slo_class),
        }[self.policy.priority.kind]
        instance.enqueue(job)
        if request.deadline_us:
            self._plan(request.deadline_us, TIMEOUT, job, instance.number)
        self._want_step(instance, now)
        position = instance.waiting.index(job)
        self.records.append(Queued(self.events, now, job.name, instance.number, position))

    def _leave(self, job: Job, instance: Instance, now: int, *, parts: bool) -> None:
        """The last step of this request here has ended."""
        if job in instance.ending:
            instance.let_go(job)
        del instance.leaving[[other for other, _ in instance.leaving].index(job)]
        if not self.board.early:
            self._end(job, instance.number)
        if parts:
            self.records.append(Prefilled(self.events, now, job.name, instance.number))
            if self.split is not None and self.split.transfer.starts == "step-end":
                self._plan(now, TRANSFER_START, job)
            return
        assert job.completed_us == now
        e2e = job.e2e_us(instance.latency)
        self.records.append(
            Completed(self.events, now, job.name, instance.number, job.answer_tokens, job.ttft_us(), e2e, job.capped)
        )

    def _timed_out(self, job: Job, instance: Instance, now: int) -> None:
        was_running = job in instance.running
        (instance.running if was_running else instance.waiting).remove(job)
        if instance.shelf is not None:
            (instance.shelf.stop if was_running else instance.shelf.forget)(job)
        if instance.encoder is not None:
            instance.encoder.forget(job)
        if instance.planned is not None:
            if not instance.vllm:
                instance.take_back(instance.planned, job)
            if not instance.has_work(now):
                instance.lapse(instance.planned)
        if was_running and instance.plans_ahead and instance.free_us > now:
            instance.gone.append(job)
        self._expire(job, instance, now, was_running=was_running)

    def _expire(self, job: Job, instance: Instance, now: int, *, was_running: bool) -> None:
        job.state = RequestState.TIMED_OUT
        if was_running and job not in instance.gone:
            instance.pool.give_up(job.table, job.shareable(instance.pool), now)
        elif job not in instance.gone:
            instance.pool.release(job.table, job.shareable(instance.pool))
        if instance.host is not None:
            instance.host.there.pop(job, None)
        self._end(job, instance.number)
        if instance.waiting:
            self._want_step(instance, now)  # others may fit now if it was waiting for KV blocks
        self.records.append(TimedOut(self.events, now, job.name, instance.number, was_running, job.generated))

    def _pass(self, instance: Instance, time: int) -> None:
        """Schedule a pass, unless there is an earlier one."""
        if not instance.halted and not 0 <= instance.pass_us <= time:
            instance.pass_us = time
            self._plan(time, STEP, None, instance.number)

    def _want_step(self, instance: Instance, time: int) -> None:
        if not instance.awaits_adapter:
            self._next_step(instance, time)

    def _next_step(self, instance: Instance, time: int) -> None:
        if len(instance.stages) > 1:
            self._pass(instance, instance.next_pass_us(time))
            return
        if not instance.step_pending:
            instance.step_pending = True
            self._plan(time if instance.blis else max(time, instance.free_us), STEP, None, instance.number)

    def _step(self, instance: Instance, now: int) -> bool:
        """Start the step that is due; return whether there was anything to do before KV blocks in transfer arrive."""
        piped = len(instance.stages) > 1
        if piped and instance.pass_us != now:
            return False  # it came earlier
        instance.step_pending = False
        instance.pass_us = -1
        if not instance.has_work(now):
            return False
        instance.take_results(now)
        instance.event = self.events
        if instance.queue is not None:
            return self._queue_step(instance, instance.queue, now)
        if len(instance.under_way) == len(instance.stages) and piped:
            self._pass(instance, instance.next_pass_us(now))
            return False
        plan = self._formed(instance, now)
        if isinstance(plan, bool):
            return plan
        self._execute(instance, plan, now)
        return True

    def _formed(self, instance: Instance, now: int) -> Plan | bool:
        """The plan of the step that starts now; if there is none, whether anything happened."""
        plan = instance.planned
        if (plan is None or not plan.tokens) and not (instance.running or instance.waiting):
            return False
        if plan is None or not plan.tokens:
            before = [] if plan is None else plan.preempted
            if plan is not None:
                instance.lapse(plan)
            moving_us = 0 if plan is None else plan.transfer_us
            plan = instance.schedule(now)
            if instance.plans_ahead and (plan.tokens or plan.preempted):
                self._tell_stop(instance, plan)
            if not plan.tokens and not plan.preempted and instance.under_way:
                self._pass(instance, instance.under_way[0][0])
                return False
            if not plan.tokens and not plan.preempted and instance.awaits_adapter:
                return self._tell_adapters(instance, now)
            if not plan.tokens and not plan.preempted and instance.expected:
                return False
            self._tell_plan(instance, plan, now)
            if not plan.tokens and not plan.preempted:
                raise OracleStalledError
            plan.preempted[:0] = before
            plan.transfer_us += moving_us
        return plan

    def _queue_step(self, instance: Instance, queue: BatchQueue, now: int) -> bool:
        try:
            plan, has_preempted = queue.plan(now, lambda plan, time: self._tell_plan(instance, plan, time))
        except StuckError:
            raise OracleStalledError from None
        if plan is not None:
            self._execute(instance, plan, now)
        elif instance.goes_on(now) and instance.under_way:
            self._pass(instance, queue.next_us(now))
        return has_preempted or plan is not None

    def _execute(self, instance: Instance, plan: Plan, now: int) -> None:
        piped = len(instance.stages) > 1
        load = instance.load(plan)
        stalled = [
            job
            for job in instance.running
            if not job.prefilling and job not in plan.tokens and not instance.is_busy(job)
        ]
        chunks = [ChunkDone(chunk.request.request_id, chunk.computed, chunk.new) for chunk in load.chunks]
        duration = self._computing_us(instance, plan, load)
        if instance.drafter is not None:
            duration += instance.drafter.drafting_us(plan)
        if instance.host is not None and plan.transfer_us:
            duration = instance.host.step_us(duration, plan.transfer_us)
        if instance.pool.tiers is not None:
            duration = instance.pool.tiers.step_us(now, duration)
        if instance.shelf is not None:
            duration += instance.shelf.start(plan.admitted, now, self.events)
            self._tell_adapters(instance, now)
        if plan.tokens and piped:
            duration = instance.through_us(duration, now)
        end = instance.free_us = now + duration
        instance.sent(plan, end)
        if instance.queue is not None:
            instance.queue.sent(end)
        elif piped:
            instance.under_way.append((end, list(plan.tokens)))
        first, done = instance.advance(plan, end, duration)
        for job in done:
            parts = job.state is RequestState.CREATED
            self._plan(end, LEFT, job, instance.number, parts=parts)
            if self.board.early:
                self._end(job, instance.number)
            if parts and self.split is not None and self.split.transfer.starts == "step-start":
                self._plan(now, TRANSFER_START, job)
        instance.busy_us += duration
        instance.steps += 1
        if load.chunks:
            instance.prefill_tokens += sum(chunk.new for chunk in load.chunks)
            instance.prefill_us += duration
            held = len(stalled) if instance.rule == "nano" else 0
            instance.beside_prefill_us += duration * (load.decode_requests + held)
        if sum(plan.tokens.values()) >= instance.engine.max_num_batched_tokens:
            instance.full_budget_us += duration
        if sum(each.steps for each in self.instances) > self._max_steps:
            raise OracleHangError
        goes_on = instance.goes_on(now)
        upcoming = end if goes_on else -1
        if goes_on and piped:
            upcoming = instance.next_pass_us(now) if instance.queue is None else instance.queue.upcoming_us(now)
        if goes_on and instance.queue is not None:
            self._pass(instance, upcoming)
        elif instance.queue is not None:
            instance.queue.go_round()
        elif goes_on:
            self._next_step(instance, upcoming)
        self.records.append(
            StepFinished(
                event=self.events,
                time_us=now,
                instance=instance.number,
                step=instance.steps,
                admitted=_names(plan.admitted),
                preempted=tuple(preemption.victim.name for preemption in plan.preempted),
                chunks=tuple(chunks),
                decode_requests=load.decode_requests,
                decode_context_tokens=load.decode_context_tokens,
                stalled=_names(stalled),
                duration_us=duration,
                first_tokens=_names(first),
                completed=_names(done),
                waiting=len(instance.waiting),
                running=len(instance.running),
                kv_used_blocks=len(instance.pool.blocks) - len(instance.pool.free),
                next_step_us=upcoming,
            )
        )
        for job in first:
            ttft = end - job.request.arrival_us + instance.latency.output_token_overhead_us
            self.records.append(FirstToken(self.events, now, job.name, instance.number, end, ttft))
        for job in instance.answering:
            assert job.request.reasoning is not None
            thought = job.request.reasoning.tokens
            self.records.append(AnswerBegun(self.events, now, job.name, instance.number, end, job.ttfat_us, thought))
        if instance.drafter is not None:
            self._tell_drafts(instance, now)
        instance.planned = None
        if not instance.plans_ahead:
            self._tell_stop(instance, plan, of=instance.steps)
        elif goes_on:
            instance.planned = instance.schedule(now, ahead=True)
            self._tell_plan(instance, instance.planned, now)
            self._tell_stop(instance, instance.planned)

    def _computing_us(self, instance: Instance, plan: Plan, load: StepLoad) -> int:
        """Compute time of a step."""
        return 0 if not instance.blis and not plan.tokens else instance.duration_us(load)

    def _tell_stop(self, instance: Instance, plan: Plan, of: int = 0) -> None:
        """Record why requests wait; ``of``: the number of the step, if not the next."""
        if instance.waiting and plan.stop is not None:
            self.stops.append((instance.number, of or instance.steps + 1, plan.stop))

    def _tell_drafts(self, instance: Instance, now: int) -> None:
        assert instance.drafter is not None
        done = [DraftDone(job.name, *drafts) for job, *drafts in instance.drafter.latest]
        if done:
            drafted, accepted = sum(one.draft_tokens for one in done), sum(one.accepted_tokens for one in done)
            gained = sum(one.output_tokens for one in done)
            self.records.append(
                DraftsVerified(self.events, now, instance.number, drafted, accepted, gained, tuple(done))
            )
        instance.drafter.latest.clear()

    def _tell_adapters(self, instance: Instance, now: int) -> bool:
        """Whether there were records; schedules the end of a load that has begun."""
        shelf = instance.shelf
        if shelf is None or not shelf.news:
            return False
        coming = shelf.coming
        if coming is not None and any(isinstance(new, AdapterLoad) for new in shelf.news):

            def arrive(time: int) -> bool:
                if shelf.coming is not coming:
                    return False
                shelf.arrive(time, self.events, time - now)
                self._tell_adapters(instance, time)
                if instance.waiting or instance.running:
                    self._want_step(instance, time)
                return True

            self._plan(coming[1], ADAPTER, None, instance.number, act=arrive)
        self.records += shelf.news
        shelf.news.clear()
        return True

    def _tell_plan(self, instance: Instance, plan: Plan, now: int) -> None:
        self._tell_adapters(instance, now)
        for victim, beneficiary, tokens, blocks in plan.preempted:
            self.records.append(
                Preempted(self.events, now, victim.name, instance.number, beneficiary.name, tokens, blocks)
            )
        for job, swaps, blocks, swap_us, again_us in plan.restored:
            choice = "swap" if swaps else "recompute"
            self.records.append(
                RestoreChosen(self.events, now, job.name, instance.number, choice, blocks, swap_us, again_us)
            )
        for job in plan.admitted:
            new = plan.tokens[job] if job.prefilling else 0
            waited = now - job.request.arrival_us
            self.records.append(Scheduled(self.events, now, job.name, instance.number, job.computed, new, waited))
        for job, tokens, blocks in plan.back:
            assert instance.host is not None
            took = instance.host.us(blocks)
            self.records.append(SwappedBack(self.events, now, job.name, instance.number, tokens, blocks, took))


def _names(jobs: Sequence[Job]) -> tuple[str, ...]:
    return tuple(job.name for job in jobs)
