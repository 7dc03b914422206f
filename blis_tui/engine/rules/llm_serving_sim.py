"""``llm-serving-sim``: LLMServingSim's schedulers, and the throughput log that it prints.

``llm-serving-sim``: LLMServingSim's schedulers, with one pass over all unfinished requests or vLLM's two phases.

Source: LLMServingSim 1.1, ``scheduler.py`` (``schedule_with_prefix``). What happens when no request can be served for
lack of KV blocks is our own addition (see ``OnePass``). The version of August 2026: ``serving/core/scheduler.py``
(``_schedule_running``, ``_schedule_waiting``), which its authors derived from vLLM 0.19.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass, mypyc_attr
from blis_tui.base.errors import PolicyError
from blis_tui.engine.options.handover import admit_prefilled
from blis_tui.engine.plan import Plan
from blis_tui.engine.rules.rule import BATCHING, Plain, RunningFirst
from blis_tui.engine.rules.traits import BY_ARRIVAL, LLM_SERVING_SIM, EngineBehavior, unsupported_settings
from blis_tui.engine.steps import Steps
from blis_tui.engine.stopped import BLOCKS, MAX_NUM_SEQS, PREEMPTED, TOKENS, Stopped
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.engine.rules.rule import BatchRule
    from blis_tui.engine.steps import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmServingSimSettings:
    """Settings under LLMServingSim's names."""

    version: str = setting(
        "The version of LLMServingSim whose scheduler it is: 1.1 makes one pass over all requests in order of arrival;"
        " since the rewrite of August 2026, running requests go first and waiting ones follow, as in vLLM.",
        default=BY_ARRIVAL,
        enum=list(LLM_SERVING_SIM),
    )
    prioritize_prefill: bool = setting(
        "Serve all prefills before all decodes; else both by arrival (1.1 only).", default=False
    )
    log_interval: float = setting(
        "The report has the throughput of prompts and of generation at intervals of so many seconds, as LLMServingSim"
        " prints it (`--log-interval`); 0 = it does not.",
        default=0.0,
        minimum=0.0,
        maximum=10**9,
    )
    reserve_full_isl: bool = setting(
        "Admit a waiting request only when its whole prompt fits into the free KV blocks (2026-08 only).", default=True
    )
    enable_chunked_prefill: bool = setting(
        "Split a prompt that exceeds the step's token budget, as 1.1 always does; off = it waits for a step it fits in"
        " (2026-08 only).",
        default=True,
    )


@BATCHING.plugin(
    "llm-serving-sim",
    "One pass over all requests in order of arrival; what does not fit is skipped.",
    LlmServingSimSettings,
)
def llm_serving_sim(settings: LlmServingSimSettings) -> BatchRule:
    """Create the rule of a version.

    Raises:
        PolicyError: that version does not have a setting.
    """
    for _, message, advice in unsupported_settings("llm-serving-sim", settings.version, partial(getattr, settings)):
        raise PolicyError(message, help=advice)
    return OnePass(settings) if settings.version == BY_ARRIVAL else TwoPhases(settings)


def _interval_us(settings: LlmServingSimSettings) -> int:
    """The log interval in microseconds, at least 1 if there is a log."""
    return math.ceil(settings.log_interval * 1e6)


class TwoPhases(RunningFirst):
    """Serves running requests first, preempting the youngest if blocks run out, then waiting ones from the queue head.

    A step that preempts admits no request, and the first request that does not fit ends the admissions.
    """

    def __init__(self, settings: LlmServingSimSettings) -> None:
        self._traits = EngineBehavior(
            keeps_output=True,
            chunked_prefill=settings.enable_chunked_prefill,
            reserves_whole_prompt=settings.reserve_full_isl,
            vllm_block_pool=True,
            busy_until_the_end=True,
            skips_empty_steps=True,
            ties_by_name=False,
            cuts_output=True,
            overtakes=False,
            in_order_of_arrival=True,
            counts_cached_tokens=True,
            log_interval_us=_interval_us(settings),
            pipelines="queue",
        )

    @property
    def traits(self) -> EngineBehavior:
        """Traits of its batches."""
        return self._traits


class OnePass(Plain):
    """Serves all unfinished requests in order of arrival, whether they wait, prefill or decode.

    A request gets the minimum of what it needs (the rest of its prompt, or one token), the threshold and the remaining
    token budget, if the blocks for it are free; otherwise it is skipped. The pass ends when the budget is used up or
    ``max_num_seqs`` requests are served.

    With ``pipeline_parallel``, requests of batches in flight are skipped but count towards ``max_num_seqs``.

    If no request can be served although some run and no batch is in flight, the running request that was admitted first
    gets its share: victims are preempted until its blocks are free. Then the pass continues with the requests that
    still run; none is admitted.
    """

    def __init__(self, settings: LlmServingSimSettings) -> None:
        self._prefills_first = settings.prioritize_prefill
        self.traits = EngineBehavior(
            keeps_output=True,
            running_first=False,
            busy_until_the_end=True,
            skips_empty_steps=True,
            ties_by_name=False,
            cuts_output=True,
            limits_each_step=True,
            unlimited_seqs=True,
            overtakes=True,
            in_order_of_arrival=True,
            counts_cached_tokens=True,
            log_interval_us=_interval_us(settings),
            pipelines="stage",
        )

    def plan(self, batch: Batch) -> Plan:
        """Plan one step."""
        step = _Pass(batch)
        batch.dissolve_cohort()
        step.serve_all(self._ordered((*batch.running.values(), *batch.waiting.ordered()), batch))
        if not step.served and batch.running and not batch.in_flight_until:
            step.make_room()
            step.serve_all(self._ordered(batch.running.values(), batch))
        batch.reform_cohort(step.decoding)
        if step.refused:
            batch.refused = (step.refused[0].index, batch.pool.epoch, step.budget)
        step.plan.stopped = step.skipped or (Stopped(PREEMPTED) if step.plan.preempted else step.ended)
        return step.plan

    def _ordered(self, requests: Iterable[Request], batch: Batch) -> list[Request]:
        """Sort requests by arrival, or prefills before decodes."""
        if not self._prefills_first:
            return sorted(requests, key=_arrival)
        prefills: list[Request] = []
        decodes: list[Request] = []
        for request in sorted(requests, key=_arrival):
            decodes_now = request.batch_slot in batch.stalled or request.index in batch.reserved
            (decodes if decodes_now else prefills).append(request)
        return prefills + decodes


class _Pass:
    """One pass and its progress.

    Attributes:
        plan: what it grants.
        budget: remaining tokens.
        served: slots of the requests that were served.
        decoding: those of them that decode, by slot.
        refused: queued requests whose blocks were not free.
        skipped: what the first of them lacked.
        ended: why the pass ended before it had examined all requests.
    """

    def __init__(self, batch: Batch) -> None:
        self.plan = Plan(batch.limits.long_prefill_token_threshold)
        self.budget = batch.limits.max_num_batched_tokens
        self.served: dict[int, None] = {}
        self.decoding: dict[int, Request] = {}
        self.refused: list[Request] = []
        self.skipped: Stopped | None = None
        self.ended: Stopped | None = None
        self._batch = batch

    def serve_all(self, requests: Iterable[Request]) -> None:
        """Serve the requests in this order, except those that a step in flight works on."""
        busy = self._batch.in_flight_until
        for request in requests:
            if self.budget <= 0 or len(self.served) + len(busy) >= self._batch.limits.max_num_seqs:
                self.ended = Stopped(TOKENS if self.budget <= 0 else MAX_NUM_SEQS, 1)
                break
            if request.batch_slot not in self.served and request.batch_slot not in busy:
                self._serve(request)

    def make_room(self) -> None:
        """Serve the running request that was admitted first, preempting others."""
        batch = self._batch
        running, pool = batch.running, batch.pool
        while running:
            first = next(iter(running.values()))
            tokens = self._wanted(first)
            while first.batch_slot >= 0 and pool.missing(first, first.computed_tokens + tokens) > pool.free:
                batch.preempt(self.plan, batch.choose_victim(), first)
            if first.batch_slot >= 0:
                self._serve(first)
                return

    def _wanted(self, request: Request) -> int:
        """Number of tokens that a running request can use in this step."""
        slot = request.batch_slot
        return self._chunk(request.target_tokens - request.computed_tokens) if slot in self._batch.prefills else 1

    def _chunk(self, tokens: int) -> int:
        tokens = min(tokens, self.budget)
        return min(tokens, self.plan.threshold) if self.plan.threshold else tokens

    def _serve(self, request: Request) -> None:
        tokens = self._admit(request) if request.batch_slot < 0 else self._go_on(request)
        if tokens:
            self.budget -= tokens
            self.served[request.batch_slot] = None

    def _go_on(self, request: Request) -> int:
        """Grant a running request its tokens and return how many; 0 = its blocks are not free."""
        batch, pool = self._batch, self._batch.pool
        slot, tokens = request.batch_slot, self._wanted(request)
        if pool.missing(request, request.computed_tokens + tokens) > pool.free:
            return 0
        if slot in batch.prefills:
            batch.grant(self.plan, request, tokens)
        else:
            pool.extend(request, request.computed_tokens + 1)
            self.decoding[slot] = request
        return tokens

    def _admit(self, request: Request) -> int:
        """Admit a waiting request and return its number of tokens; 0 = its blocks are not free."""
        batch, pool = self._batch, self._batch.pool
        size = pool.block_size_tokens
        if request.index in batch.reserved:
            if self._lacks_blocks(request, pool.missing(request, request.computed_tokens + 1)):
                return 0
            admit_prefilled(batch, self.plan, request)
            return 1
        cached = pool.cached_prefix(request, (request.target_tokens - 1) // size)
        tokens = self._chunk(request.target_tokens - cached * size)
        need = pool.missing(request, cached * size + tokens) - cached
        if self._lacks_blocks(request, need + pool.idle_among(request, cached)):
            return 0
        batch.admit(self.plan, request, cached, tokens)
        return tokens

    def _lacks_blocks(self, request: Request, need: int) -> bool:
        """Whether a waiting request is skipped because ``need`` KV blocks are not free."""
        free = self._batch.pool.free
        if need <= free:
            return False
        if not self.refused:
            self.skipped = Stopped(BLOCKS, need, free, request)
        self.refused.append(request)
        return True


def _arrival(request: Request) -> tuple[int, int]:
    return (request.arrival_us, request.index)


@mypyc_attr(allow_interpreted_subclasses=True)
class LoggedSteps(Steps):
    """Steps with totals per interval, by when they end; a step that ends with an interval belongs to it.

    Prompt tokens are counted as the engine does; those found in the cache count with the chunk that follows them.

    Source: LLMServingSim, ``main.py`` (``--log-interval``) and ``add_done`` of its schedulers. It checks the clock
    between iterations, so the iteration that ends after an interval still counts in it.

    Attributes:
        intervals: number of each interval in which any step ended -> steps, prompt tokens, generated tokens.
    """

    def __init__(self, index: int, batch: Batch, parts: Parts) -> None:
        super().__init__(index, batch, parts)
        self._interval_us = parts.rule.traits.log_interval_us
        self.intervals: dict[int, tuple[int, int, int]] = {}

    def take(self, latency: StepTimeModel) -> None:
        """Use this step-time model from now on, and run every step separately so that each is logged."""
        super().take(latency)
        self.timed = None

    def decode(self, now: int) -> int:
        """Run a plain decode and log it."""
        generated = self.batch.load.decode_requests
        end = super().decode(now)
        self._log(end, 0, generated)
        return end

    def run(self, plan: Plan, epoch: int, now: int) -> int:
        """Execute a plan and log it."""
        generated = self.batch.load.decode_requests if plan.decodes else 0
        end = super().run(plan, epoch, now)
        prompt = 0
        for chunk in plan.chunks:
            prompt += chunk.new + chunk.cached
            generated += chunk.request.joined_us == end and chunk.request.generated_tokens > 0
        self._log(end, prompt, generated)
        return end

    def _log(self, end: int, prompt: int, generated: int) -> None:
        number = max(0, end - 1) // self._interval_us
        before = self.intervals.get(number, (0, 0, 0))
        self.intervals[number] = (before[0] + 1, before[1] + prompt, before[2] + generated)
