"""One instance, written as plainly as possible: its queue, its batch, its KV blocks.

The engine advances whole batches in constant time. This file deliberately does the opposite: real token lists, real
block objects, every request and every token one by one, searches instead of indexes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.request import Request, RequestState
from blis_tui.model import PluginConfig
from tests.builders import number_of

from .adapters import Shelf
from .drafts import Drafter
from .encoder import EncoderCache
from .gathering import Gathering
from .host import Host
from .other_rules import OTHERS
from .pipelines import BatchQueue
from .stops import Stop
from .tiers import Shelf as TierShelf
from .tiers import Shelves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.request import Segments
    from blis_tui.model import Policy, Setting
    from blis_tui.model import Pool as PoolSpec

Token = tuple[str, int]


NEVER: Final = 1 << 62


@dataclass(eq=False)
class Block:
    """A place for ``block_size`` tokens; ``content`` is every token from the start of the prompt to its end."""

    references: int = 0
    content: tuple[Token, ...] | None = None
    filled: int = 0
    listed: bool = False
    """Whether a request could still ask for it when none holds it."""
    computed_us: int = -1
    """When the step that computed the content ended; others see it after that."""
    unfinished: bool = False
    """Whether it holds part of an unfinished answer, which no request finds."""


class Pool:
    """All KV blocks of one instance; the free list is a list."""

    def __init__(self, blocks: int, block_size: int, *, caching: bool, vllm: bool) -> None:
        self.size = block_size
        self.ahead = 0
        """Tokens after a block that must be equal, too."""
        self.vllm = vllm
        self.caching = caching
        self.blocks = [Block() for _ in range(blocks)]
        self.free = list(self.blocks)
        self.hits = 0
        self.misses = 0
        self._fills = 0
        self._ended: tuple[int, list[Block]] = (-1, [])
        """When the latest step ends, and the blocks of requests that end in it."""
        self.tiers: Shelves | None = None

    def wipe(self) -> None:
        """Empty the pool."""
        self.blocks = [Block() for _ in self.blocks]
        self.free = list(self.blocks)

    def blocks_for(self, tokens: int) -> int:
        return ceil(tokens / self.size)

    def content(self, tokens: Sequence[Token], number: int) -> tuple[Token, ...]:
        """What the block with a number holds."""
        return tuple(tokens[: (number + 1) * self.size + self.ahead])

    def cached(self, tokens: Sequence[Token], limit: int) -> list[Block]:
        """The longest cached run of leading full blocks, at most ``limit`` of them."""
        found: list[Block] = []
        while self.caching and len(found) < limit:
            content = self.content(tokens, len(found))
            candidates = [block for block in self.blocks if block.content == content and not block.unfinished]
            if not candidates:
                break
            found.append((min if self.vllm else max)(candidates, key=lambda block: block.filled))
        return found

    def pin(self, block: Block) -> None:
        if block.references == 0:
            self.free.remove(block)
        block.references += 1
        self.hits += 1

    def take(self) -> Block:
        used = len(self.blocks) - len(self.free)
        block = self.free.pop(0)
        if self.tiers is not None and block.content is not None and block.listed:
            self.tiers.overwritten(block.content, used, len(self.blocks))
        block.content = None
        block.listed = False
        block.computed_us = -1
        block.unfinished = False
        block.references = 1
        self.misses += 1
        return block

    def fill(self, block: Block, content: Sequence[Token]) -> None:
        self._fills += 1
        block.filled = self._fills
        block.content = tuple(content)

    def visible(self, content: Sequence[Token], now: int) -> bool:
        """Whether others see at ``now`` that a block holds this: the step that computes it must have ended."""
        whole = tuple(content)
        return self.caching and any(
            block.content == whole and block.computed_us < now and not block.unfinished for block in self.blocks
        )

    def all_visible(self, now: int) -> set[tuple[Token, ...]]:
        """All contents that others see."""
        if not self.caching:
            return set()
        return {
            block.content for block in self.blocks if block.content and block.computed_us < now and not block.unfinished
        }

    def release(self, table: list[Block], shared: int = 0, *, findable: bool = False, end: int = -1) -> None:
        """Give up blocks; others may ask for the first ``shared`` of them, with ``findable`` for all.

        An answer is finished when the current step ends.
        """
        for number, block in enumerate(table):
            if block.unfinished:
                block.unfinished = False
                self._fills += 1
                block.filled = self._fills
                block.computed_us = max(block.computed_us, end)
            block.listed = block.listed or findable or number < shared
        if self.tiers is not None:
            kept = table if findable else table[:shared]
            self.tiers.given_up([block.content for block in reversed(kept) if block.content is not None])
        for block in reversed(table):
            block.references -= 1
            if block.references == 0:
                self.free.insert(0 if self.vllm and block.content is None else len(self.free), block)
        if end >= 0:
            self._ended = (end, [*(self._ended[1] if self._ended[0] == end else []), *reversed(table)])
        table.clear()

    def give_up(self, table: list[Block], shared: int, now: int) -> None:
        """Release blocks of a request whose deadline has passed: before those of requests that end in this step."""
        self.release(table, shared)
        end, ended = self._ended
        if self.vllm and now < end:
            for block in ended:
                if block in self.free and block.content is not None:
                    self.free.remove(block)
                    self.free.append(block)


def segment_tokens(segments: Segments) -> list[Token]:
    """Equal tokens for equal segments, as far as both go."""
    return [(f"segment {name}", position) for name, length in segments for position in range(length)]


class Books(NamedTuple):
    """The ledger's row of a request (without the number of its group); -1 = never happened."""

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
    first_answer_us: int
    ttfat_us: int


class Job:
    """The whole life of a request; ``tokens`` are its prompt and its whole answer."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.adapter = request.adapter
        self.tokens = [(f"{self.adapter}: {name}", at) for name, at in segment_tokens(request.segments)]
        own = request.input_tokens + request.output_tokens - len(self.tokens)
        self.tokens += [(f"request {request.index}", position) for position in range(own)]
        self.continued = False
        """Whether later prompts may contain its answer."""
        self.state = RequestState.CREATED
        self.instance = -1
        self.queued_us = -1
        self.scheduled_us = -1
        self.first_token_us = -1
        self.last_token_us = -1
        self.first_answer_us = self.ttfat_us = -1
        self.completed_us = -1
        self.gateway_us = -1
        self.priority = 0
        self.cached_tokens = 0
        self.found_now = 0
        self.preemptions = 0
        self.declared = 0
        """Longest answer that it may give, in tokens."""
        self.wanted = 0
        self.capped = False
        self.uncounted = 0
        self.target = request.input_tokens
        self.computed = 0
        self.generated = 0
        self.prefilling = True
        self.place = 0
        """Number of requests admitted to its instance's batch before it."""
        self.table: list[Block] = []
        self.counted: list[int] = []
        """The instances on which it is in flight."""
        self.first_latency: StepTimeModel | None = None
        """Step-time model of the instance that its first token comes from."""
        self.split = False
        self.parted = False
        """Whether its prompt was computed for another instance."""
        self.reserved = False
        """Whether it waits with the KV blocks of its prompt."""
        self.prefill_instance = -1
        self.decode_instance = -1
        self.transfer_start_us = -1
        self.last_step_us = 0
        """Duration of the step that completed its prompt."""
        self.flights: list[Flight] = []
        """Its decodes with drafts in steps whose results may be unknown."""
        self.void = False
        """Whether its first token comes from a decode without real drafts."""
        self.furthest = 0
        """The largest number of its tokens that were ever computed."""
        self.shared = 0
        """Blocks of its prompt that were in the cache of its decode instance when they were reserved."""

    def start_again(self) -> None:
        """Reset it to its state on arrival, except for what a retry keeps."""
        self.state = RequestState.CREATED
        self.instance = self.queued_us = self.scheduled_us = self.first_token_us = self.last_token_us = -1
        self.first_answer_us = self.ttfat_us = -1
        self.cached_tokens = self.preemptions = self.computed = self.generated = 0
        self.target = self.request.input_tokens
        self.prefilling = True
        self.first_latency = None

    @property
    def too_late(self) -> bool:
        """Whether its deadline passes in its last step: it has its answer, but is given up before the results."""
        return 0 < self.request.deadline_us < self.completed_us

    def shareable(self, pool: Pool) -> int:
        """Number of its leading blocks that others may ask for."""
        tokens = len(self.tokens) if self.continued else sum(length for _, length in self.request.segments)
        return max(tokens - pool.ahead, 0) // pool.size

    @property
    def name(self) -> str:
        return self.request.request_id

    @property
    def answer_tokens(self) -> int:
        return self.generated - self.uncounted

    def ttft_us(self) -> int:
        """TTFT as its client measures it; -1 before the first token."""
        if self.first_latency is None or self.first_token_us < 0:
            return -1
        return self.first_token_us - self.request.arrival_us + self.first_latency.output_token_overhead_us

    def e2e_us(self, latency: StepTimeModel) -> int:
        """Likewise the end-to-end latency; a split request pays the overhead for its decode steps alone."""
        if self.completed_us < 0:
            return -1
        tokens = max(self.generated - (1 if self.split else 0), 1)
        post = latency.post_decode_overhead_us if self.generated else 0
        return self.completed_us - self.request.arrival_us + tokens * latency.output_token_overhead_us + post

    def books(self, latency: StepTimeModel | None) -> Books:
        """Where the request stands now, on an instance with this step-time model."""
        return Books(
            number=self.request.index,
            arrival_us=self.request.arrival_us,
            queued_us=self.queued_us,
            scheduled_us=self.scheduled_us,
            first_token_us=self.first_token_us,
            completed_us=self.completed_us,
            ttft_us=self.ttft_us(),
            e2e_us=-1 if latency is None else self.e2e_us(latency),
            input_tokens=self.request.input_tokens,
            output_tokens=self.answer_tokens,
            cached_tokens=self.cached_tokens,
            instance=self.instance,
            preemptions=self.preemptions,
            state=self.state,
            length_capped=self.capped,
            first_answer_us=self.first_answer_us,
            ttfat_us=self.ttfat_us,
        )


class Flight(NamedTuple):
    """A decode with drafts."""

    end_us: int
    tokens: int
    gained: int
    certain: bool
    """Whether the last token was certain, if this decode brought it."""


class Preemption(NamedTuple):
    """What a victim lost, and for whom."""

    victim: Job
    beneficiary: Job
    tokens: int
    blocks: int


@dataclass
class Plan:
    """The plan of one step."""

    budget: int
    tokens: dict[Job, int] = field(default_factory=dict)
    filled: dict[Job, list[Block]] = field(default_factory=dict)
    requests: int = 0
    """Number of requests when it was made."""
    pads: bool = False
    """Whether requests that are admitted for one token ask for as many as decodes."""
    beside: tuple[int, int] = (0, 0)
    """Decoding requests at its start, and the sum of their contexts."""
    transfer_us: int = 0
    restored: list[tuple[Job, bool, int, int, int]] = field(default_factory=list)
    """Victims that might be swapped out: whether they were, their blocks, and the cost of both ways."""
    back: list[tuple[Job, int, int]] = field(default_factory=list)
    """Requests that came back from the host: tokens, and moved blocks."""
    admitted: list[Job] = field(default_factory=list)
    preempted: list[Preemption] = field(default_factory=list)
    stop: Stop | None = None
    """Why requests wait, if any do; for all rules but `llm-serving-sim`."""


def as_vllm(policy: Policy) -> Policy:
    """The rewritten LLMServingSim schedules like vLLM before 0.11, without planning ahead."""
    batching = policy.batching
    if batching.kind != "llm-serving-sim" or batching.settings.get("version") != "2026-08":
        return policy
    settings: dict[str, Setting] = {
        "version": "0.10",
        "async_scheduling": False,
        "watermark": 0.0,
        "max_num_partial_prefills": 1,
        "reserve_full_input": batching.settings["reserve_full_isl"],
        "enable_chunked_prefill": batching.settings["enable_chunked_prefill"],
    }
    return replace(policy, batching=PluginConfig(kind="vllm-v1", settings=settings))


class Instance:
    """One engine: a waiting queue, a running list, a pool."""

    def __init__(
        self,
        number: int,
        spec: PoolSpec,
        policy: Policy,
        latency: StepTimeModel,
        seed: int,
        common: TierShelf | None = None,
    ) -> None:
        self.number = number
        self.engine = spec.engine
        schedules_encoder = policy.batching.kind == "vllm-v1"
        self.policy = policy = as_vllm(policy)
        self.rule = policy.batching.kind
        self.latency = latency
        self.launching_us = 0
        """Time to launch the operators of a step; 0 = graphs are replayed, or it is unknown."""
        if spec.engine.enforce_eager and spec.latency.kind == "roofline":
            each = 10 if spec.tensor_parallel == 1 else 12
            self.launching_us = int((each * spec.model.num_hidden_layers + 4) * spec.hardware.launch_us)
        self.slowness = 1.0
        """Factor on its step times until it is warm."""
        self.vllm = self.rule == "vllm-v1"
        self.drafter: Drafter | None = None
        if spec.engine.speculative is not None:
            pads = self.vllm and policy.batching.settings["version"] != "0.10"
            self.drafter = Drafter(spec.engine.speculative, spec.engine, seed, pads=pads)
        self.blis = self.rule == "blis"
        self.pool = Pool(
            self.engine.kv_blocks,
            self.engine.block_size_tokens,
            caching=self.engine.enable_prefix_caching,
            vllm=self.vllm,
        )
        restore = policy.preemption_restore
        self.host = None if restore == "recompute" else Host(spec, restore)
        recompute = policy.preemption_recompute
        self.keeps_output = self.host is not None or (recompute == "all" if recompute else not self.blis)
        self.recomputed = 0
        if self.engine.kv_tiers is not None and self.pool.caching:
            size = self.engine.block_size_tokens
            self.pool.tiers = Shelves(self.engine.kv_tiers, size, number, lambda: self.free_us, common)
        self.shelf = None if spec.engine.lora is None else Shelf(spec, number, beside=self.blis)
        self.event = 0
        """The current event, for records of adapters."""
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.leaving: list[tuple[Job, int]] = []
        """Requests that finish in the current step, and how many blocks that frees."""
        self.ending: list[Job] = []
        """Finishing requests that still hold their slots and blocks."""
        self.gone: list[Job] = []
        """Requests that left without an answer, and hold their blocks until the current step ends."""
        self.planned: Plan | None = None
        self.places = 0
        self.free_us = 0
        """When the engine's latest step ends."""
        self.expected: list[Job] = []
        """Requests whose KV blocks are being transferred here."""
        self.routed = 0
        self.step_pending = False
        self.steps = 0
        self.busy_us = 0
        self.prefill_tokens = self.prefill_us = self.beside_prefill_us = self.full_budget_us = 0
        self.answering: list[Job] = []
        self.preemptions = 0
        self.itl_us: Counter[int] = Counter()
        self.threshold = self.engine.long_prefill_token_threshold
        self.max_running = self.engine.max_num_seqs
        self.watermark_blocks = 0
        self.plans_ahead = self.new = self.latest = self.early_transfers = self._overlaps = False
        self.stages = [0] * self.engine.pipeline_parallel
        """When each stage is free."""
        self.under_way: list[tuple[int, list[Job]]] = []
        """The batches in the pipeline: when they leave it, and their requests."""
        self.queue = BatchQueue(self) if self.vllm and len(self.stages) > 1 else None
        self.pass_us = -1
        """When the next batch may enter; earlier plans for that are void."""
        self.halted = False
        """Whether batches no longer enter, because the instance dies when those in flight are done."""
        if self.vllm:
            settings = self.policy.batching.settings
            self.plans_ahead = bool(settings["async_scheduling"]) and self.queue is None
            self.new = settings["version"] != "0.10"
            self.latest = settings["version"] == "0.33"
            self._overlaps = bool(settings["async_scheduling"])
            self.watermark_blocks = int(number_of(self.policy.batching, "watermark") * (self.engine.kv_blocks + 1))
            longest = self.engine.max_model_len
            if not self.new and settings["max_num_partial_prefills"] == 2 and self.threshold == 0 and longest:
                self.threshold = longest * 4 // 100
            if self.new and "max_num_active_seqs" in settings:
                self.max_running = min(self.max_running, int(number_of(self.policy.batching, "max_num_active_seqs")))
        self.encoder: EncoderCache | None = None
        self.passed: list[Job] = []
        self._shortages: list[tuple[int, int]] = []
        """What each request lacked that a plan passed over because the encoder had no room."""
        if schedules_encoder and self.engine.encoder is not None:
            self.encoder = EncoderCache(spec, latest=self.latest, ahead=self._overlaps)
        self.gathering: Gathering | None = None
        if self.rule == "tensorrt-llm":
            self.gathering = Gathering(self)
            self.plans_ahead = not self.policy.batching.settings["disable_overlap_scheduler"]

    # The waiting queue.

    def unservable(self, job: Job) -> str:
        """Why a request can never be served here; of a split one only the prompt is computed here."""
        request, longest = job.request, self.engine.max_model_len
        if self.encoder is not None and (reason := self.encoder.too_large(request)):
            return reason
        if longest is not None and request.input_tokens >= longest:
            return f"prompt of {request.input_tokens} tokens, max_model_len is {longest}"
        declared = request.max_output_tokens
        if declared == 0 and request.declared_tokens:
            declared = 1
            while self._fits(job, declared + 1):
                declared += 1
        if longest is not None and request.input_tokens + declared > longest:
            if not self.blis:
                declared = longest - request.input_tokens
            else:
                return f"prompt of {request.input_tokens} + {declared} output tokens, max_model_len is {longest}"
        job.declared = declared
        job.wanted = min(declared, request.output_tokens)
        context = self._context(job, declared)
        blocks = self.pool.blocks_for(context)
        if blocks > len(self.pool.blocks):
            return f"{context} tokens need {blocks} KV blocks, there are {len(self.pool.blocks)}"
        return ""

    def _fits(self, job: Job, answer: int) -> bool:
        longest, prompt = self.engine.max_model_len, job.request.input_tokens
        blocks = self.pool.blocks_for(
            prompt + answer - 1 if job.split and not job.parted else self._context(job, answer)
        )
        return (longest is None or prompt + answer <= longest) and blocks <= len(self.pool.blocks)

    def _context(self, job: Job, answer: int) -> int:
        """Number of tokens whose KV it needs room for in the end."""
        request, longest = job.request, self.engine.max_model_len
        context = request.input_tokens + (0 if job.split and not job.parted else max(answer, 1) - 1)
        if self.drafter is not None and context > request.input_tokens:
            context += self.drafter.most
            if self._overlaps and not self.keeps_output:
                context += self.drafter.most
            if longest is not None:
                context = min(context, longest - 1)
        if self.drafter is not None:
            context = self.drafter.slots(context)
        return context

    def reserve(self, job: Job, held: int) -> str:
        """Take blocks for a whole prompt that was computed elsewhere, new ones except for ``held`` leading ones.

        Returns the reason if that is impossible.
        """
        if reason := self.unservable(job):
            return reason
        found = self.pool.cached(job.tokens, held)
        new = self.pool.blocks_for(job.request.input_tokens) - len(found)
        if new + len([block for block in found if not block.references]) > len(self.pool.free):
            return f"its KV blocks do not fit: {len(self.pool.free)} are free"
        for block in found:
            self.pool.pin(block)
        job.shared = len(found)
        job.table = found + [self.pool.take() for _ in range(new)]
        job.reserved = True
        self.expected.append(job)
        return ""

    def adopt(self, job: Job, now: int) -> None:
        """The KV blocks of a prompt have arrived; only decoding is left, at least one step of it."""
        size = self.pool.size
        for number in range(job.shared, job.request.input_tokens // size):
            self.pool.fill(job.table[number], job.tokens[: (number + 1) * size])
        job.computed = job.target = job.request.input_tokens
        job.prefilling = False
        if job.generated >= job.wanted:
            job.generated -= 1
        job.last_token_us = min(job.first_token_us, now)

    def enqueue(self, job: Job, *, at_front: bool = False) -> None:
        job.state = RequestState.WAITING
        self.waiting.insert(0 if at_front else len(self.waiting), job)
        kind = self.policy.scheduling.kind
        if kind == "priority-fcfs":
            self.waiting.sort(key=lambda job: (job.priority, *self._seniority(job)))
        elif kind == "reverse-priority":
            self.waiting.sort(key=lambda job: (-job.priority, *self._seniority(job)))
        elif kind == "sjf":
            self.waiting.sort(key=lambda job: (job.request.input_tokens, *self._seniority(job)))

    def _seniority(self, job: Job) -> tuple[int, str, int]:
        return (job.request.arrival_us, job.request.request_id if self.blis else "", job.request.index)

    # Who gets how many tokens.

    def schedule(self, now: int, *, ahead: bool = False) -> Plan:
        if self.rule in OTHERS:
            return self._schedule_otherwise(now)
        plan = Plan(budget=self.engine.max_num_batched_tokens)
        if self.pool.tiers is not None:
            self.pool.tiers.begin(now)
        self.passed = []
        if self.gathering is not None:
            self.gathering.now = now
        if self.encoder is not None:
            self.encoder.begin(now)
        plan.requests = len(self.running) + len(self.ending) + len(self.waiting)
        if self.queue is not None:
            plan.requests += self.queue.through()
        decoding = [job for job in self.running if not job.prefilling]
        plan.beside = (len(decoding), sum(job.computed for job in decoding))
        for job in sorted(self.running + self.unsure(now), key=lambda job: job.place):
            if plan.budget <= 0:
                break
            if job not in self.running and job not in self.ending:
                continue  # a victim of this same pass
            if self.queue is not None and self.queue.pauses(job, now):
                continue
            tokens = self.limited(job.target - job.computed if job.prefilling else self._wanted(job, now), plan)
            if job.prefilling and self.encoder is not None:
                tokens = self.encoder.fit(job, job.computed, tokens, now)
            if tokens <= 0:
                continue
            if not self.make_room(plan, job, tokens, now):
                if self.policy.preemption_victim == "cheapest-recompute" or self.latest:
                    continue
                break
            self.grant(plan, job, tokens, now)
            if job.prefilling and self.encoder is not None:
                self.encoder.take(job, now)
        plan.pads = self._padded(plan)
        if plan.preempted:
            plan.stop = Stop("preempted")
        elif plan.budget <= 0:
            full = len(self.running) + len(self.ending) >= self.max_running
            plan.stop = Stop("tokens", 1, also="seqs" if full else "")
        if not plan.preempted:
            self._fill_up(plan, now)
            while not self.running and not self.expected and any(job.reserved for job in self.waiting):
                if ahead or self.awaits_adapter:
                    break
                self._dispossess(plan)
                self._fill_up(plan, now)
        return plan

    def _schedule_otherwise(self, now: int) -> Plan:
        lost: list[Preemption] = []
        while True:
            plan = Plan(budget=self.engine.max_num_batched_tokens)
            OTHERS[self.rule](self, plan, now)
            nobody = not (self.running or self.under_way or self.expected)
            plan.preempted[:0] = lost
            if not (nobody and any(job.reserved for job in self.waiting)) or (plan.preempted and not lost):
                return plan
            self._dispossess(plan)
            lost = plan.preempted

    def _dispossess(self, plan: Plan) -> None:
        """No request can be scheduled: the last in the queue that holds blocks must compute its prompt itself."""
        job = [job for job in self.waiting if job.reserved][-1]
        plan.preempted.append(Preemption(job, self.waiting[0], job.computed, len(job.table)))
        job.reserved = False
        self._recompute(job)

    def _fill_up(self, plan: Plan, now: int) -> None:
        """Schedule requests from the queue."""
        if self.gathering is not None and self.gathering.waits(plan):
            plan.stop = self.gathering.stop
            return
        while self.waiting and len(self.running) + len(self.ending) < self.max_running and plan.budget > 0:
            head = self._next(now)
            if head is None:
                plan.stop = Stop("late" if self.queue is not None else "adapter")
                if self.passed:
                    plan.stop = Stop("encoder", *self._shortages[0], self.passed[0].name)
                break
            holders = [] if self.running else [job for job in self.waiting if job.reserved]
            if holders and not self._passes(holders[0], now):
                holders = []
            if holders and (head.preemptions or self._has_adapter_before(holders[0], head)):
                head = holders[0]
            if not self._ready(head, now):
                plan.stop = Stop("adapter", name=head.name)
                break
            if self.admit(plan, head, now):
                continue
            if not holders or not self._ready(holders[0], now) or not self.admit(plan, holders[0], now):
                break
        else:
            if plan.stop is None and self.waiting:
                full = len(self.running) + len(self.ending) >= self.max_running
                plan.stop = Stop("seqs" if full else "tokens", 1)

    @property
    def awaits_adapter(self) -> bool:
        """Whether no request runs while an adapter is being loaded."""
        return not self.running and self.shelf is not None and self.shelf.coming is not None

    def _next(self, now: int) -> Job | None:
        """The first request in the queue whose adapter has a place; those before it are skipped."""
        for job in self.waiting:
            if (self.queue is not None and self.queue.is_late(job)) or job in self.passed:
                continue
            if self._passes(job, now):
                return job
            assert self.shelf is not None
            self.shelf.hold(job, "slots", now, self.event)
        return None

    def _passes(self, job: Job, now: int) -> bool:
        """Whether its adapter has a place."""
        unsure = [one for one in self.unsure(now) if self._wanted(one, now) > 0]
        return self.shelf is None or self.shelf.passes(job, self.ending if self.latest else unsure)

    def _has_adapter_before(self, job: Job, other: Job) -> bool:
        return self.shelf is not None and self.shelf.has(job) and not self.shelf.has(other)

    def _ready(self, job: Job, now: int) -> bool:
        return self.shelf is None or self.shelf.ready(job, now, self.event)

    def _wanted(self, job: Job, now: int) -> int:
        """Number of tokens that a decode asks for."""
        return 1 if self.drafter is None else self.drafter.wanted(self._expected(job, now))

    def _in_flight(self, job: Job, now: int) -> list[Flight]:
        """Its decodes with unknown results."""
        return [flight for flight in job.flights if flight.end_us > now] if self._overlaps else []

    def _expected(self, job: Job, now: int) -> int:
        """Number of its computed tokens if all drafts being verified are accepted."""
        return job.computed + sum(flight.tokens - flight.gained for flight in self._in_flight(job, now))

    def _slots(self, job: Job, tokens: int, now: int) -> int:
        """KV slots that it needs to compute a number of tokens."""
        slots = self._expected(job, now) + tokens
        return slots if self.drafter is None else self.drafter.slots(slots)

    def unsure(self, now: int) -> list[Job]:
        """Requests whose last token may be being computed."""
        return [job for job in self.ending if self._is_unsure(job, now)]

    def _is_unsure(self, job: Job, now: int) -> bool:
        """Whether its budget may exceed its answer, or it has its last token even if all drafts are rejected."""
        stops = job.request.output_tokens < job.declared and not (job.split and not job.parted)
        if stops and (self._overlaps or self.plans_ahead) and job.last_token_us > now:
            return True
        late = self._in_flight(job, now)
        return bool(late) and not late[-1].certain

    def _padded(self, plan: Plan) -> bool:
        """Whether requests admitted for one token ask for as many as decodes: unless any prompt continues."""
        return self.drafter is not None and self.drafter.pads and not any(job.prefilling for job in plan.tokens)

    def _pads(self, plan: Plan, job: Job, computed: int) -> bool:
        """The same for a request that has computed all tokens but one."""
        if self.drafter is None or not plan.pads or not job.wanted or (job.split and not job.parted):
            return False
        longest = self.engine.max_model_len
        room = longest is None or computed + 1 + self.drafter.most + 1 <= longest
        beside = any(other not in plan.admitted for other in plan.tokens)
        return room and (beside or computed > 0)

    def limited(self, tokens: int, plan: Plan) -> int:
        return min(tokens, self._threshold(plan) or tokens, plan.budget)

    def _threshold(self, plan: Plan) -> int:
        """The ``long_prefill_token_threshold`` of this step."""
        if not self.threshold or (self.new and plan.requests == 1):
            return 0
        if self.new and self.policy.batching.settings.get("long_prefill_token_threshold_adaptive"):
            return max(self.threshold, self.engine.max_num_batched_tokens // plan.requests)
        return self.threshold

    def make_room(self, plan: Plan, job: Job, tokens: int, now: int) -> bool:
        """Preempt until blocks for ``tokens`` more are free; False if ``job`` itself became a victim."""
        while self.pool.blocks_for(self._slots(job, tokens, now)) - len(job.table) > len(self.pool.free):
            victim = self._victim()
            self._preempt(plan, victim, job)
            if victim is job:
                return False
        return True

    def _victim(self) -> Job:
        there = self.running + self.ending
        if self.policy.preemption_victim == "priority":
            return max(there, key=lambda job: (job.priority, job.request.arrival_us, job.request.index))
        if self.policy.preemption_victim == "cheapest-recompute" and not self.ending and len(self.running) > 1:
            younger = {job: len(self.running) - 1 - place for place, job in enumerate(self.running)}
            return min(self.running[1:], key=lambda job: (self._lost(job) * (younger[job] + 2), -job.place))
        if self.policy.preemption_victim == "cheapest-recompute" and self.ending:
            there = self.ending
        return max(there, key=lambda job: job.place)

    def _kept(self, job: Job) -> int:
        """Number of its leading tokens in blocks that others also hold."""
        blocks = 0
        while blocks < len(job.table) and job.table[blocks].references > 1:
            blocks += 1
        return blocks * self.pool.size

    def _lost(self, job: Job) -> int:
        """Number of tokens it would have to recompute."""
        return job.computed - self._kept(job)

    def take_back(self, plan: Plan, job: Job) -> None:
        """Undo what it would have computed in this step, except with vLLM, which has already recorded it."""
        for block in plan.filled.pop(job, []):
            if not self.vllm:
                block.content = None

    def _preempt(self, plan: Plan, job: Job, beneficiary: Job) -> None:
        plan.budget += plan.tokens.pop(job, 0)
        self.take_back(plan, job)
        plan.preempted.append(Preemption(job, beneficiary, job.computed, len(job.table)))
        if self.encoder is not None:
            self.encoder.drop(job)
        if self.queue is not None:
            self.queue.lost(job)
        if job in self.ending:
            self.pool.release(job.table, job.shareable(self.pool))
            self.ending.remove(job)
            return
        self.running.remove(job)
        if self.shelf is not None:
            self.shelf.stop(job)
        if self.host is not None:
            self.host.take_out(plan, job, self._kept(job), self.latency, self.pool.size)
        self._recompute(job)
        self.enqueue(job, at_front=True)

    def _recompute(self, job: Job) -> None:
        """Take away its blocks, so that it has to recompute."""
        self.preemptions += 1
        self.pool.release(job.table, job.shareable(self.pool), findable=True)
        job.preemptions += 1
        job.computed = 0
        job.flights = []
        job.prefilling = True
        if not self.keeps_output:
            job.generated = 0
        job.target = job.request.input_tokens + job.generated

    def _below(self, job: Job, cached: int, limit: int) -> list[tuple[Token, ...]]:
        """Blocks in tiers that follow the cached ones."""
        tiers = self.pool.tiers
        contents: list[tuple[Token, ...]] = []
        if tiers is None:
            return contents
        for number in range(cached, limit):
            content = self.pool.content(job.tokens, number)
            if not tiers.has(content) or not (number < job.shareable(self.pool) or job.preemptions):
                break
            contents.append(content)
        return contents

    def _reload(self, found: list[Block], contents: list[tuple[Token, ...]]) -> None:
        """Load into free blocks; these are reused last, and after them only the idle ones of the same prompt."""
        pool = self.pool
        assert pool.tiers is not None
        pool.tiers.load(contents)
        idle = [block for block in found if not block.references]
        pool.free = [block for block in pool.free if block not in idle] + idle  # free, but not to be taken now
        new = [pool.take() for _ in contents]
        pool.free = [block for block in pool.free if block not in idle]
        for block, content in zip(new, contents, strict=True):
            pool.fill(block, content)
            block.references = 0
            block.listed = True
        pool.free += reversed(idle + new)

    def admit(self, plan: Plan, job: Job, now: int, *, again: bool = False) -> bool:
        """Move the head of the queue into the batch, if it fits."""
        pool = self.pool
        if job.reserved:
            job.void = self._pads(plan, job, job.computed)
            tokens = self._wanted(job, now) if job.void else 1
            if tokens > plan.budget:
                plan.stop = Stop("tokens", tokens, plan.budget, job.name)
                return False
            tokens = min(tokens, self._threshold(plan) or tokens)
            job.void = job.void and tokens > 1
            need = pool.blocks_for(self._slots(job, tokens, now)) - len(job.table)
            if need > len(pool.free):
                plan.stop = Stop("blocks", need, len(pool.free), job.name)
                return False
            job.reserved = False
            job.found_now = job.computed
            self._join(plan, job, now)
            self.grant(plan, job, tokens, now)
            return True
        if self.gathering is not None and not self.gathering.has_place(job):
            plan.stop = Stop("answers", self.gathering.needed(job), len(pool.free), job.name)
            return False
        swapped = 0 if self.host is None else self.host.tokens_of(job)
        limit = (swapped or job.target - (self.rule != "blis")) // pool.size
        all_found = found = pool.cached(job.tokens, limit)
        below = self._below(job, len(found), limit) if not swapped else []
        loads = below if pool.tiers is not None and pool.tiers.spec.kind == "offload" else []
        if self.drafter is not None and self.drafter.drops:
            found, loads = (found, loads[:-1]) if loads else (found[:-1], [])
        start = max(swapped, (len(found) + len(loads)) * pool.size)
        tokens = self.limited(job.target - start, plan)
        void = job.target - start == 1 and self._pads(plan, job, start)
        if void:
            assert self.drafter is not None
            tokens = 1 + self.drafter.most
            if tokens > plan.budget:
                plan.stop = Stop("tokens", tokens, plan.budget, job.name)
                return False
            tokens = min(tokens, self._threshold(plan) or tokens)
            void = tokens > 1
        idle = len([block for block in found if block.references == 0])
        slots = start + tokens if self.drafter is None else self.drafter.slots(start + tokens)
        reserve, whole = 0, slots
        if self.rule == "blis":
            fits = pool.blocks_for(slots) - len(found) + idle <= len(pool.free)
        else:
            settings = self.policy.batching
            wanted = min(job.target - start, self._threshold(plan) or job.target)
            if not void and wanted > plan.budget and not bool(settings.settings["enable_chunked_prefill"]):
                plan.stop = Stop("tokens", wanted, plan.budget, job.name)
                return False
            known = self.gathering is not None or bool(settings.settings["reserve_full_input"])
            whole = max(job.target, slots) if known else slots
            reserve = self.watermark_blocks if self.running or self.ending else 0
            if self.encoder is not None:
                fitting = self.encoder.fit(job, start, tokens, now)
                if not fitting:
                    return self._lacks_encoder(plan, job)
                if fitting < tokens:
                    tokens = fitting
                    slots = start + tokens if self.drafter is None else self.drafter.slots(start + tokens)
                    whole = max(job.target, slots) if known else slots
            fits = pool.blocks_for(whole) - len(found) <= len(pool.free) - idle - reserve
        if not fits:
            if self.encoder is not None:
                self.encoder.drop(job)
            room = len(pool.free) - len([block for block in all_found if block.references == 0])
            if again or loads or not below[:room] or pool.tiers is None or pool.tiers.spec.kind == "offload":
                need, free = pool.blocks_for(whole) - len(found) + idle, len(pool.free)
                cause = "blocks" if need > free else "watermark"
                plan.stop = Stop(cause, need + reserve, free, job.name, reserve)
                return False
            self._reload(all_found, below[:room])
            return self.admit(plan, job, now, again=True)
        for block in found:
            pool.pin(block)
        job.table = list(found)
        if self.host is not None and job in self.host.there:
            more = pool.blocks_for(start) - len(found)
            if more:
                self.host.bring_back(plan, job, more)
                plan.back.append((job, start, more))
                job.table += [pool.take() for _ in range(more)]
                plan.filled[job] = self._fill(job, start)
            else:
                del self.host.there[job]
        if loads:
            assert pool.tiers is not None
            pool.tiers.load(loads)
            job.table += [pool.take() for _ in loads]
            plan.filled[job] = self._fill(job, start)
        job.computed = start
        job.void = void
        job.prefilling = not void
        self._begin(plan, job, tokens, now)
        if self.encoder is not None:
            if void:
                self.encoder.drop(job)
            else:
                self.encoder.take(job, now)
        return True

    def _lacks_encoder(self, plan: Plan, job: Job) -> bool:
        """The encoder has no room for the next item of a prompt: whether another request may be tried."""
        assert self.encoder is not None
        short = self.encoder.short
        amounts = (0, 0) if short is None else short[1:]
        if self.latest:
            if not self.passed:
                self._shortages = []
            self.passed.append(job)
            self._shortages.append(amounts)
            return True
        plan.stop = Stop("encoder", *amounts, job.name)
        return False

    def sent(self, plan: Plan, end: int) -> None:
        """Carry out a step: its encoded items count, and are free when the results are known."""
        if self.encoder is None:
            return
        for job in plan.tokens:
            self.encoder.encoded += self.encoder.costs.pop(job, 0)
            self.encoder.found += self.encoder.finds.pop(job, 0)
        self.encoder.ran(end, sorted(plan.tokens, key=lambda job: job.place))

    def enter(self, plan: Plan, job: Job, found: list[Block], tokens: int, now: int) -> None:
        """Start to run a request with these cached blocks and a first chunk."""
        for block in found:
            self.pool.pin(block)
        job.table = found
        job.computed = len(found) * self.pool.size
        self._begin(plan, job, tokens, now)

    def _begin(self, plan: Plan, job: Job, tokens: int, now: int) -> None:
        job.found_now = job.computed
        if job.preemptions == 0:
            job.cached_tokens = job.computed
        self._join(plan, job, now)
        self.grant(plan, job, tokens, now)

    def _join(self, plan: Plan, job: Job, now: int) -> None:
        self.waiting.remove(job)
        self.running.append(job)
        if self.shelf is not None:
            self.shelf.admit(job, now)
        self.places += 1
        job.place = self.places
        job.state = RequestState.RUNNING
        if job.scheduled_us < 0:
            job.scheduled_us = now
        plan.admitted.append(job)

    def grant(self, plan: Plan, job: Job, tokens: int, now: int) -> None:
        """Give ``job`` its tokens of this step, and the blocks they need."""
        plan.budget -= tokens
        plan.tokens[job] = tokens
        end = job.computed + tokens
        while len(job.table) < self.pool.blocks_for(self._slots(job, tokens, now)):
            job.table.append(self.pool.take())
        known = end
        if self.plans_ahead or self.queue is not None:
            known = min(end, (job.target if job.prefilling else job.computed + 1) - (job.last_token_us > now))
        if self.drafter is not None and not job.prefilling:
            known = self._known(job, now)
        for block in self._fill(job, min(known, (job.target if job.prefilling else known) - self.pool.ahead)):
            block.computed_us = NEVER
            plan.filled.setdefault(job, []).append(block)

    def _known(self, job: Job, now: int) -> int:
        """Number of its known tokens, without those being sampled."""
        known = job.computed + 1 - sum(flight.gained for flight in self._in_flight(job, now))
        first_is_late = self._overlaps and job.last_token_us > now and not job.flights
        return known - first_is_late

    def _fill(self, job: Job, tokens: int) -> list[Block]:
        """Record the content of newly filled blocks; content is tokens, so these must be known."""
        size = self.pool.size
        new = [number for number in range(tokens // size) if job.table[number].content is None]
        for number in new:
            self.pool.fill(job.table[number], self.pool.content(job.tokens, number))
            end = (number + 1) * size + self.pool.ahead
            job.table[number].unfinished = job.continued and end > job.request.input_tokens
        return [job.table[number] for number in new]

    def take_results(self, now: int) -> None:
        """End the current step: its sampled tokens are known, and finished requests leave."""
        if self.queue is not None:
            return
        late = self.drafter is not None and not self._overlaps and not self.latest
        for job in () if late else (*self.running, *(one for one in self.ending if not one.too_late)):
            for block in self._fill(job, job.computed):
                block.computed_us = now
        if len(self.stages) > 1:
            self.under_way = [one for one in self.under_way if one[0] > now]
        self.free_gone()
        for job in sorted(self.ending, key=lambda one: not one.too_late):
            if not self.is_busy(job):
                self.let_go(job)

    def look_ahead(self) -> None:
        """Without a KV connector, the latest version tells blocks apart by the token that a drafter has read, too."""
        connected = self.engine.kv_tiers is not None
        if self.latest and self.drafter is not None and self.drafter.drops and self.pool.caching and not connected:
            self.pool.ahead, self.drafter.drops = 1, 0

    def free_gone(self) -> None:
        """Free the blocks of requests that left during the step that has ended."""
        for job in self.gone:
            self.pool.release(job.table, job.shareable(self.pool))
        self.gone.clear()

    def gains(self, job: Job, end_us: int) -> int:
        """Number of tokens a decode gets from the batch that ends then."""
        return next((flight.gained for flight in job.flights if flight.end_us == end_us), 1)

    def note_results(self, job: Job, tokens: int, now: int) -> None:
        """Note that a number of its tokens are known and in the cache."""
        for block in self._fill(job, tokens):
            block.computed_us = now

    def is_busy(self, job: Job) -> bool:
        """Whether it is in a batch in flight."""
        return any(job in jobs for _, jobs in self.under_way)

    def next_pass_us(self, now: int) -> int:
        """When another batch may enter the pipeline."""
        if self.queue is not None:
            return self.queue.next_us(now)
        full = len(self.under_way) == len(self.stages)
        return max(now, self.stages[0], min(end for end, _ in self.under_way) if full else 0)

    def through_us(self, whole_us: int, now: int) -> int:
        """Time of a batch through all stages."""
        stages, at = len(self.stages), now if self.queue is None else self.queue.enters_us(now)
        for number in range(stages):
            part = whole_us * (number + 1) // stages - whole_us * number // stages
            at = max(at, self.stages[number]) + part
            self.stages[number] = at
        return at - now

    def let_go(self, job: Job) -> None:
        """Its last token has been generated."""
        if not job.too_late:
            self._fill(job, job.computed)
        self.ending.remove(job)
        self.pool.release(job.table, job.shareable(self.pool))

    # What a step costs and brings.

    def load(self, plan: Plan) -> StepLoad:
        costs = {} if self.encoder is None else self.encoder.costs
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
        for chunk in chunks:
            chunk.encoded = next((tokens for job, tokens in costs.items() if job.request is chunk.request), 0)
        decodes = [job for job in plan.tokens if not job.prefilling]
        return StepLoad(chunks, len(decodes), sum(job.computed for job in decodes))

    def has_work(self, now: int) -> bool:
        """Whether requests wait or run, or a planned step computes something all the same."""
        return self.goes_on(now) or bool(self.planned is not None and self.planned.tokens)

    def goes_on(self, now: int) -> bool:
        """Whether requests wait or run, or may, as far as plans know."""
        return bool(self.running or self.waiting or self.unsure(now))

    def lapse(self, plan: Plan) -> None:
        """All requests of the plan have left: the content of their blocks counts as computed."""
        for blocks in plan.filled.values():
            for block in blocks:
                block.computed_us = -1

    def duration_us(self, load: StepLoad) -> int:
        """Time of a step: a captured graph is replayed with its batch size, or all operators are launched."""
        most = self.engine.max_num_seqs
        if self.rule == "nano" and not load.chunks and not self.engine.enforce_eager:
            sizes = [1, 2, 4, 8, *range(16, most, 16), most]
            padded = min((size for size in sizes if size >= load.decode_requests), default=load.decode_requests)
            load = StepLoad([], min(padded, most), load.decode_context_tokens)
        duration = self.latency.step_time_us(load)
        if load.chunks or load.decode_requests:
            duration = max(duration, self.launching_us)
        duration = int(duration * self.slowness)
        return duration if self.shelf is None else int(duration * self.shelf.factor())

    def advance(self, plan: Plan, end: int, duration_us: int) -> tuple[list[Job], list[Job]]:
        """Compute the planned tokens; return who got a first token, and who is done (here, if split)."""
        first: list[Job] = []
        self.answering = []
        for blocks in plan.filled.values():
            for block in blocks:
                block.computed_us = end
        for job in self.running:
            if job not in plan.tokens:
                continue
            tokens = plan.tokens[job]
            if self.drafter is not None and not job.prefilling:
                gained = self.drafter.verify(job, tokens, void=job.void)
                job.flights = [*job.flights[-1:], Flight(end, tokens, gained, job.generated + 1 >= job.wanted)]
                tokens = gained
                job.void = False
            self.recomputed += max(0, min(job.furthest, job.computed + tokens) - job.computed)
            job.computed += tokens
            if self.drafter is not None and self.blis:
                self._fill(job, job.computed)
            job.furthest = max(job.furthest, job.computed)
            if job.prefilling and job.computed < job.target:
                continue
            from_prefill, job.prefilling = job.prefilling, False
            if self._emit(job, end, from_prefill, 1 if from_prefill else tokens):
                first.append(job)
        done = [job for job in self.running if not job.prefilling and self._is_done(job)]
        if self.vllm:
            done.sort(key=lambda job: not 0 < job.request.deadline_us < end)
        for job in done:
            late = 0 < job.request.deadline_us < end
            if self.latest and self.drafter is not None and not self._overlaps and job.generated and not late:
                self._fill(job, job.computed)
            free = len(self.pool.free)
            if job.split and not job.parted and job.wanted:
                job.last_step_us = duration_us
                self._part(job)
            else:
                self._complete(job, end)
            self.running.remove(job)
            if self.shelf is not None:
                self.shelf.stop(job)
            self.leaving.append((job, len(self.pool.free) - free))
        return first, done

    def _free(self, job: Job, end: int = -1, *, at_once: bool = False) -> None:
        """Remove a request from the batch."""
        if (self.plans_ahead or len(self.stages) > 1) and not at_once:
            self.ending.append(job)
        else:
            self.pool.release(job.table, job.shareable(self.pool), end=end)

    def _complete(self, job: Job, end: int) -> None:
        job.completed_us = end
        job.state = RequestState.COMPLETED
        job.capped = job.wanted < job.request.output_tokens
        if self.blis and job.capped and job.request.declared_tokens < 0:
            job.uncounted = int(job.request.input_tokens + job.generated == self.engine.max_model_len)
        full = self.pool.blocks_for(job.computed + 1) > len(job.table)
        if self.rule == "blis" and job.generated > 0 and full and self.pool.free:
            job.table.append(self.pool.take())  # the last token's place
        self._free(job, end)

    def _part(self, job: Job) -> None:
        job.parted = True
        job.state = RequestState.CREATED
        shared = len(segment_tokens(job.request.segments)) // self.pool.size
        for block in job.table[shared:]:
            if not self.vllm:
                block.content = None  # no request will ask for it here
        self._free(job, at_once=self.early_transfers)

    def _emit(self, job: Job, end: int, from_prefill: bool, tokens: int) -> bool:
        """Tokens leave at ``end``; is the (new) first one among them?"""
        first = job.generated == 0 and (from_prefill or not job.split)
        before = job.generated
        if job.wanted > 0:
            job.generated += tokens
        if self.encoder is not None:
            self.encoder.samples(job, end, tokens)
        if not first:
            self.itl_us[end - job.last_token_us] += 1
        job.last_token_us = end
        if first:
            job.first_token_us = end
            job.first_latency = self.latency
        if (thought := job.request.reasoning) is not None and before <= thought.tokens < job.generated:
            overhead_us = self.latency.output_token_overhead_us
            if thought.tokens:
                self.answering.append(job)
                job.first_answer_us = end
                tokens_of_decodes = thought.tokens + (0 if job.split else 1)
                job.ttfat_us = end - job.request.arrival_us + tokens_of_decodes * overhead_us
            elif first:
                job.first_answer_us, job.ttfat_us = end, job.ttft_us()
        return first

    def _is_done(self, job: Job) -> bool:
        return job.generated >= job.wanted or (job.split and not job.parted)
