"""The simulator written down a second time, as plainly as its rules can be said.

The engine advances whole batches in constant time; this file does the opposite on purpose: real token lists, real
block objects, every request and every token one by one, searches instead of indexes. It shares the description of
requests, the formats of results and the step-time models with the engine, and nothing that decides anything. Slow
is fine here; clever is not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from blis_tui.engine.latency.model import Chunk, StepLoad, create_latency
from blis_tui.engine.records import ChunkDone, StepFinished
from blis_tui.engine.request import Request, RequestState
from blis_tui.spec.model import SLO_CLASSES
from tests.builders import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.request import Segments
    from blis_tui.spec.model import Experiment

Token = tuple[str, int]

# What can happen, as (rank, order inside the rank): cluster events come before those of instances.
ARRIVAL, ADMISSION, ROUTING = 0, 1, 2
QUEUED, STEP, LEFT, TIMEOUT = 1, 2, 4, 5


class OracleStalledError(Exception):
    """A step found waiting requests and could do nothing at all."""


class OracleHangError(Exception):
    """More steps than any sensible schedule of this workload needs."""


@dataclass(eq=False)
class Block:
    """A place for ``block_size`` tokens; ``content`` is every token from the start of the prompt to its end."""

    references: int = 0
    content: tuple[Token, ...] | None = None
    filled: int = 0


class Pool:
    """All KV blocks of one instance; the free list is a list."""

    def __init__(self, blocks: int, block_size: int, *, caching: bool) -> None:
        self.size = block_size
        self.caching = caching
        self.blocks = [Block() for _ in range(blocks)]
        self.free = list(self.blocks)
        self.hits = 0
        self.misses = 0
        self._fills = 0

    def blocks_for(self, tokens: int) -> int:
        return ceil(tokens / self.size)

    def cached(self, tokens: Sequence[Token], limit: int) -> list[Block]:
        """The longest run of leading full blocks that is here, at most ``limit`` of them."""
        found: list[Block] = []
        while self.caching and len(found) < limit:
            content = tuple(tokens[: (len(found) + 1) * self.size])
            candidates = [block for block in self.blocks if block.content == content]
            if not candidates:
                break
            found.append(max(candidates, key=lambda block: block.filled))
        return found

    def pin(self, block: Block) -> None:
        if block.references == 0:
            self.free.remove(block)
        block.references += 1
        self.hits += 1

    def take(self) -> Block:
        block = self.free.pop(0)
        block.content = None
        block.references = 1
        self.misses += 1
        return block

    def fill(self, block: Block, content: Sequence[Token]) -> None:
        self._fills += 1
        block.filled = self._fills
        block.content = tuple(content)

    def release(self, table: list[Block]) -> None:
        for block in reversed(table):
            block.references -= 1
            if block.references == 0:
                self.free.append(block)
        table.clear()


def segment_tokens(segments: Segments) -> list[Token]:
    """Equal tokens for equal segments, as far as both go."""
    return [(f"segment {name}", position) for name, length in segments for position in range(length)]


class Books(NamedTuple):
    """What the ledger should say of a request (less the number of its group); -1 = never happened."""

    number: int
    arrival_us: int
    queued_us: int
    scheduled_us: int
    first_token_us: int
    completed_us: int
    ttft_us: int
    e2e_us: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    instance: int
    preemptions: int
    state: int
    length_capped: int


class Job:
    """A request's whole story; ``tokens`` are its prompt and everything it will ever say."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tokens = segment_tokens(request.segments)
        own = request.input_tokens + request.output_tokens - len(self.tokens)
        self.tokens += [(f"request {request.index}", position) for position in range(own)]
        self.state = RequestState.CREATED
        self.instance = -1
        self.queued_us = -1
        self.scheduled_us = -1
        self.first_token_us = -1
        self.last_token_us = -1
        self.completed_us = -1
        self.priority = 0
        self.cached_tokens = 0
        self.found_now = 0
        self.preemptions = 0
        self.wanted = 0
        self.capped = False
        self.target = request.input_tokens
        self.computed = 0
        self.generated = 0
        self.prefilling = True
        self.table: list[Block] = []

    @property
    def name(self) -> str:
        return self.request.request_id

    def books(self, latency: StepTimeModel) -> Books:
        """Where the request stands now."""
        ttft = e2e = -1
        per_token = latency.output_token_overhead_us
        if self.first_token_us >= 0:
            ttft = self.first_token_us - self.request.arrival_us + per_token
        if self.completed_us >= 0:
            e2e = self.completed_us - self.request.arrival_us + max(self.generated, 1) * per_token
            e2e += latency.post_decode_overhead_us if self.generated else 0
        return Books(
            number=self.request.index,
            arrival_us=self.request.arrival_us,
            queued_us=self.queued_us,
            scheduled_us=self.scheduled_us,
            first_token_us=self.first_token_us,
            completed_us=self.completed_us,
            ttft_us=ttft,
            e2e_us=e2e,
            input_tokens=self.request.input_tokens,
            output_tokens=self.generated,
            cached_tokens=self.cached_tokens,
            instance=self.instance,
            preemptions=self.preemptions,
            state=self.state,
            length_capped=self.capped,
        )


@dataclass
class Plan:
    """What one step does."""

    budget: int
    tokens: dict[Job, int] = field(default_factory=dict)
    filled: dict[Job, list[Block]] = field(default_factory=dict)
    admitted: list[Job] = field(default_factory=list)
    preempted: list[Job] = field(default_factory=list)


class Instance:
    """One engine: a waiting queue, a running list, a pool."""

    def __init__(self, number: int, experiment: Experiment, latency: StepTimeModel) -> None:
        self.number = number
        self.engine = experiment.pools[0].engine
        self.policy = experiment.policy
        self.rule = experiment.policy.batching.kind
        self.latency = latency
        self.pool = Pool(
            experiment.pools[0].engine.kv_blocks,
            experiment.pools[0].engine.block_size_tokens,
            caching=experiment.pools[0].engine.enable_prefix_caching,
        )
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.step_pending = False
        self.steps = 0
        self.busy_us = 0
        self.preemptions = 0
        self.itl_us: Counter[int] = Counter()
        self.threshold = self.engine.long_prefill_token_threshold
        if self.rule == "vllm-v1":
            settings = self.policy.batching
            self.watermark_blocks = int(number_of(settings, "watermark") * self.engine.kv_blocks)
            longest = self.engine.max_model_len
            if number_of(settings, "max_num_partial_prefills") > 1 and self.threshold == 0 and longest:
                self.threshold = longest * 4 // 100

    # The waiting queue.

    def is_unservable(self, job: Job) -> bool:
        request, longest = job.request, self.engine.max_model_len
        if longest is not None and request.input_tokens >= longest:
            return True
        declared = request.max_output_tokens
        if declared == 0:
            declared = request.output_tokens if longest is None else longest - request.input_tokens
        if longest is not None and request.input_tokens + declared > longest:
            return True
        job.wanted = min(declared, request.output_tokens)
        context = request.input_tokens + max(job.wanted, 1) - 1
        return self.pool.blocks_for(context) > len(self.pool.blocks)

    def enqueue(self, job: Job, *, at_front: bool = False) -> None:
        job.state = RequestState.WAITING
        self.waiting.insert(0 if at_front else len(self.waiting), job)
        kind = self.policy.scheduling.kind
        if kind == "priority-fcfs":
            self.waiting.sort(key=lambda job: (job.priority, *_seniority(job)))
        elif kind == "reverse-priority":
            self.waiting.sort(key=lambda job: (-job.priority, *_seniority(job)))
        elif kind == "sjf":
            self.waiting.sort(key=lambda job: (job.request.input_tokens, *_seniority(job)))

    # Who gets how many tokens.

    def schedule(self, now: int) -> Plan:
        plan = Plan(budget=self.engine.max_num_batched_tokens)
        for job in list(self.running):
            if plan.budget <= 0:
                break
            if job not in self.running:
                continue  # a victim of this very walk
            tokens = self._limited(job.target - job.computed, plan) if job.prefilling else 1
            if not self._make_room(plan, job, tokens):
                break
            self._grant(plan, job, tokens)
        if not plan.preempted:
            while self.waiting and len(self.running) < self.engine.max_num_seqs and plan.budget > 0:
                if not self._admit(plan, self.waiting[0], now):
                    break
        return plan

    def _limited(self, tokens: int, plan: Plan) -> int:
        if self.threshold > 0:
            tokens = min(tokens, self.threshold)
        return min(tokens, plan.budget)

    def _make_room(self, plan: Plan, job: Job, tokens: int) -> bool:
        """Preempt until the blocks for ``tokens`` more are free; False when ``job`` itself had to go."""
        while self.pool.blocks_for(job.computed + tokens) - len(job.table) > len(self.pool.free):
            victim = self.running[-1]
            if self.policy.preemption_victim == "priority":
                victim = max(reversed(self.running), key=lambda other: (other.priority, other.request.arrival_us))
            self._preempt(plan, victim)
            if victim is job:
                return False
        return True

    def _preempt(self, plan: Plan, job: Job) -> None:
        plan.budget += plan.tokens.pop(job, 0)
        for block in plan.filled.pop(job, []):
            block.content = None  # it would have been computed in this step
        plan.preempted.append(job)
        self.preemptions += 1
        self.pool.release(job.table)
        self.running.remove(job)
        job.preemptions += 1
        job.computed = 0
        job.prefilling = True
        if self.rule == "blis":
            job.generated = 0
        job.target = job.request.input_tokens + job.generated
        self.enqueue(job, at_front=True)

    def _admit(self, plan: Plan, job: Job, now: int) -> bool:
        """Move the head of the queue into the batch, if it fits."""
        pool = self.pool
        if self.rule == "blis":
            found = pool.cached(job.tokens, job.target // pool.size)
        else:
            found = pool.cached(job.tokens, (job.target - 1) // pool.size)
        start = len(found) * pool.size
        tokens = self._limited(job.target - start, plan)
        idle = len([block for block in found if block.references == 0])
        if self.rule == "blis":
            fits = pool.blocks_for(start + tokens) - len(found) + idle <= len(pool.free)
        else:
            settings = self.policy.batching
            wanted = job.target - start if self.threshold == 0 else min(job.target - start, self.threshold)
            if wanted > plan.budget and not bool(settings.settings["enable_chunked_prefill"]):
                return False
            whole = job.target if bool(settings.settings["reserve_full_input"]) else start + tokens
            reserve = self.watermark_blocks if self.running else 0
            fits = pool.blocks_for(whole) - len(found) <= len(pool.free) - idle - reserve
        if not fits:
            return False
        self.waiting.remove(job)
        self.running.append(job)
        for block in found:
            pool.pin(block)
        job.table = found
        job.computed = job.found_now = start
        if job.preemptions == 0:
            job.cached_tokens = start
        job.state = RequestState.RUNNING
        if job.scheduled_us < 0:
            job.scheduled_us = now
        plan.admitted.append(job)
        self._grant(plan, job, tokens)
        return True

    def _grant(self, plan: Plan, job: Job, tokens: int) -> None:
        """Give ``job`` its tokens of this step, and the blocks they need."""
        plan.budget -= tokens
        plan.tokens[job] = tokens
        size, end = self.pool.size, job.computed + tokens
        while len(job.table) < self.pool.blocks_for(end):
            job.table.append(self.pool.take())
        for number in range(job.computed // size, end // size):
            self.pool.fill(job.table[number], job.tokens[: (number + 1) * size])
            plan.filled.setdefault(job, []).append(job.table[number])

    # What a step costs and brings.

    def load(self, plan: Plan) -> StepLoad:
        chunks = [
            Chunk(
                request=job.request,
                computed=job.computed,
                new=tokens,
                prompt=job.target,
                cached=job.found_now if job in plan.admitted else 0,
            )
            for job, tokens in plan.tokens.items()
            if job.prefilling and tokens > 0
        ]
        decodes = [job for job in plan.tokens if not job.prefilling]
        return StepLoad(chunks, len(decodes), sum(job.computed for job in decodes))

    def advance(self, plan: Plan, end: int) -> tuple[list[Job], list[Job]]:
        """Compute the planned tokens; who got a first token, and who is done."""
        first: list[Job] = []
        for job in self.running:
            if job not in plan.tokens:
                continue
            job.computed += plan.tokens[job]
            if job.prefilling and job.computed < job.target:
                continue
            job.prefilling = False
            if self._emit(job, end):
                first.append(job)
        done = [job for job in self.running if not job.prefilling and self._is_done(job)]
        for job in done:
            job.completed_us = end
            job.state = RequestState.COMPLETED
            full = self.pool.blocks_for(job.computed + 1) > len(job.table)
            if self.rule == "blis" and job.generated > 0 and full and self.pool.free:
                job.table.append(self.pool.take())  # the last token's place
            self.pool.release(job.table)
            self.running.remove(job)
        return first, done

    def _emit(self, job: Job, end: int) -> bool:
        """A token leaves at ``end``; is it the (new) first one?"""
        if job.wanted > 0:
            job.generated += 1
        if job.generated > 1:
            self.itl_us[end - job.last_token_us] += 1
        job.last_token_us = end
        if job.generated > 1 or (self.rule == "vllm-v1" and job.first_token_us >= 0):
            return False
        job.first_token_us = end
        return True

    def _is_done(self, job: Job) -> bool:
        done = job.generated >= job.wanted
        job.capped = done and job.wanted < job.request.output_tokens
        return done


def _seniority(job: Job) -> tuple[int, str, int]:
    return (job.request.arrival_us, job.request.request_id, job.request.index)


class Bucket:
    """Token-bucket admission, starting full."""

    def __init__(self, capacity: float, refill_per_s: float) -> None:
        self.capacity = capacity
        self.refill_per_s = refill_per_s
        self.level = capacity
        self.filled_us = 0

    def admits(self, cost: int, now: int) -> bool:
        self.level = min(self.capacity, self.level + (now - self.filled_us) * self.refill_per_s / 1e6)
        self.filled_us = now
        if cost > self.level:
            return False
        self.level -= cost
        return True


class Oracle:
    """A cluster that runs to its end at once.

    ``now`` is the time of the last event that meant anything; ``steps`` are the records of all steps, in order.
    """

    def __init__(self, experiment: Experiment, requests: Sequence[Request], max_steps: int) -> None:
        self.experiment = experiment
        self.latency = create_latency(experiment.plugins, experiment.pools[0])
        self.instances = [Instance(number, experiment, self.latency) for number in range(experiment.pools[0].instances)]
        self.jobs = [Job(request) for request in requests]
        self.arrived: list[Job] = []
        self.steps: list[StepFinished] = []
        self.now = 0
        self.events = 0
        self._max_steps = max_steps
        self._routed = 0
        self._scheduled = 0
        self._pending: list[tuple[tuple[int, int, int, int, int], Job | Instance]] = []
        plug = experiment.policy.admission
        self._bucket: Bucket | None = None
        if plug.kind == "token-bucket":
            self._bucket = Bucket(number_of(plug, "capacity_tokens"), number_of(plug, "refill_tokens_per_s"))
        for job in self.jobs:
            self._plan_cluster(job.request.arrival_us, ARRIVAL, job)

    def books(self) -> list[Books]:
        return [job.books(self.latency) for job in sorted(self.arrived, key=lambda job: job.request.index)]

    def run(self) -> None:
        horizon = self.experiment.horizon_us
        while self._pending:
            (time, is_instance, _, kind, _), subject = heappop(self._pending)
            if horizon is not None and time > horizon:
                return
            if self._is_stale(is_instance, kind, subject):
                continue
            self.now = time
            self.events += 1
            if isinstance(subject, Instance):
                self._step(subject, time)
            elif is_instance:
                {QUEUED: self._queued, LEFT: self._has_left, TIMEOUT: self._timed_out}[kind](subject, time)
            else:
                {ARRIVAL: self._arrival, ADMISSION: self._admission, ROUTING: self._routing}[kind](subject, time)

    @staticmethod
    def _is_stale(is_instance: int, kind: int, subject: Job | Instance) -> bool:
        """Does the event come too late to mean anything? Such events do not even move the clock."""
        if isinstance(subject, Instance):
            if subject.running or subject.waiting:
                return False
            subject.step_pending = False
            return True
        ended = subject.state not in (RequestState.CREATED, RequestState.WAITING, RequestState.RUNNING)
        return bool(is_instance) and kind == TIMEOUT and ended

    def _plan_cluster(self, time: int, kind: int, job: Job) -> None:
        self._scheduled += 1
        heappush(self._pending, ((time, 0, kind, kind, self._scheduled), job))

    def _plan_instance(self, time: int, kind: int, instance: int, subject: Job | Instance) -> None:
        self._scheduled += 1
        heappush(self._pending, ((time, 1, instance, kind, self._scheduled), subject))

    # The way in.

    def _arrival(self, job: Job, now: int) -> None:
        self.arrived.append(job)
        self._plan_cluster(now + self.experiment.cluster.admission_latency_us, ADMISSION, job)

    def _admission(self, job: Job, now: int) -> None:
        kind = self.experiment.policy.admission.kind
        full = self._bucket is not None and not self._bucket.admits(job.request.input_tokens, now)
        if kind == "reject-all" or full:
            job.state = RequestState.REJECTED
            return
        self._plan_cluster(now + self.experiment.cluster.routing_latency_us, ROUTING, job)

    def _routing(self, job: Job, now: int) -> None:
        job.instance = self._routed % len(self.instances)
        self._routed += 1
        arrives = now + self.latency.queueing_time_us(job.request)
        self._plan_instance(arrives, QUEUED, job.instance, job)

    def _queued(self, job: Job, now: int) -> None:
        request, instance = job.request, self.instances[job.instance]
        job.queued_us = now
        job.priority = {
            "constant": 0,
            "slo-based": request.arrival_us,
            "inverted-slo": -request.arrival_us,
            "slo-class": SLO_CLASSES.index(request.slo_class),
        }[self.experiment.policy.priority.kind]
        if instance.is_unservable(job):
            job.state = RequestState.DROPPED_UNSERVABLE
        elif 0 < request.deadline_us <= now:
            job.state = RequestState.TIMED_OUT
        else:
            instance.enqueue(job)
            if request.deadline_us:
                self._plan_instance(request.deadline_us, TIMEOUT, instance.number, job)
            self._want_step(instance, now)

    # The way out.

    @staticmethod
    def _has_left(job: Job, now: int) -> None:
        """The books were closed when its last step was processed; this only moves the clock."""
        assert job.completed_us == now

    def _timed_out(self, job: Job, now: int) -> None:
        assert job.request.deadline_us == now
        instance = self.instances[job.instance]
        job.state = RequestState.TIMED_OUT
        (instance.waiting if job in instance.waiting else instance.running).remove(job)
        instance.pool.release(job.table)

    # In between.

    def _want_step(self, instance: Instance, time: int) -> None:
        if not instance.step_pending:
            instance.step_pending = True
            self._plan_instance(time, STEP, instance.number, instance)

    def _step(self, instance: Instance, now: int) -> None:
        instance.step_pending = False
        plan = instance.schedule(now)
        if not plan.tokens and not plan.preempted:
            raise OracleStalledError
        load = instance.load(plan)
        stalled = [job for job in instance.running if not job.prefilling and job not in plan.tokens]
        chunks = [ChunkDone(chunk.request.request_id, chunk.computed, chunk.new) for chunk in load.chunks]
        duration = self.latency.step_time_us(load)
        end = now + duration
        first, done = instance.advance(plan, end)
        for job in done:
            self._plan_instance(end, LEFT, instance.number, job)
        instance.busy_us += duration
        instance.steps += 1
        if sum(each.steps for each in self.instances) > self._max_steps:
            raise OracleHangError
        goes_on = bool(instance.running or instance.waiting)
        if goes_on:
            self._want_step(instance, end)
        self.steps.append(
            StepFinished(
                event=self.events,
                time_us=now,
                instance=instance.number,
                step=instance.steps,
                admitted=_names(plan.admitted),
                preempted=_names(plan.preempted),
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
                next_step_us=end if goes_on else -1,
            )
        )


def _names(jobs: Sequence[Job]) -> tuple[str, ...]:
    return tuple(job.name for job in jobs)
