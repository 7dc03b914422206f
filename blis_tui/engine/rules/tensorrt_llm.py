"""``tensorrt-llm``: the scheduler of TensorRT-LLM's PyTorch backend.

Source: TensorRT-LLM 1.1, ``_torch/pyexecutor/py_executor.py`` (``_schedule``, ``_waiting_requests``, and
``_update_request_states_tp``: a request whose budget ends in the step in flight is not planned again, one that ends
early is), ``_torch/pyexecutor/scheduler.py`` and ``batch_manager/capacityScheduler.cpp``
(``GuaranteedNoEvictScheduler``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.plan import Plan
from blis_tui.engine.rules.rule import BATCHING, RunningFirst, serve_running
from blis_tui.engine.rules.traits import EngineBehavior
from blis_tui.engine.stopped import ANSWERS, GATHERING, Stopped
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.request import Request

_NO_EVICT: Final = "GUARANTEED_NO_EVICT"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtLlmSettings:
    """Settings under TensorRT-LLM's names."""

    capacity_scheduler_policy: str = setting(
        "GUARANTEED_NO_EVICT admits a request only when the KV blocks of all admitted prompts and their whole "
        "declared answers fit, so that there are no preemptions; MAX_UTILIZATION when those of its prompt do.",
        default=_NO_EVICT,
        enum=[_NO_EVICT, "MAX_UTILIZATION"],
    )
    enable_chunked_prefill: bool = setting(
        "Split a prompt that exceeds the step's token budget; off = it waits for a step it fits in.", default=False
    )
    disable_overlap_scheduler: bool = setting(
        "Plan a step when the previous one is over; off = while the previous one runs.", default=False
    )
    batch_wait_timeout_iters: int = setting(
        "While other requests decode, prompts wait up to this many steps for more prompts; 0 = they do not wait.",
        default=0,
        minimum=0,
        maximum=10**9,
    )
    batch_wait_max_tokens_ratio: float = setting(
        "They stop waiting once the step would have this share of max_num_batched_tokens; 0 = they do not wait.",
        default=0.0,
        minimum=0,
        maximum=1,
    )


@BATCHING.plugin(
    "tensorrt-llm", "TensorRT-LLM's scheduler: by default it never has to evict a request.", TensorRtLlmSettings
)
class TensorRtLlmBatching(RunningFirst):
    """Serves running requests first; prompts are computed whole, and may wait to be batched with others."""

    def __init__(self, settings: TensorRtLlmSettings) -> None:
        self._evicts = settings.capacity_scheduler_policy != _NO_EVICT
        self._longest_wait = settings.batch_wait_timeout_iters
        self._full = settings.batch_wait_max_tokens_ratio
        self._waited = 0
        self._traits = EngineBehavior(
            keeps_output=True,
            chunked_prefill=settings.enable_chunked_prefill,
            reserves_whole_prompt=True,
            plans_ahead=not settings.disable_overlap_scheduler,
            plans_past_stops=not settings.disable_overlap_scheduler,
            busy_until_the_end=True,
            skips_empty_steps=True,
            ties_by_name=False,
            cuts_output=True,
            overtakes=False,
            sizes_pool="free",
            asks_for_more=" ".join(self._asked_for()),
        )

    @property
    def traits(self) -> EngineBehavior:
        """Traits of its batches."""
        return self._traits

    def _asked_for(self) -> Iterator[str]:
        if not self._evicts:
            yield "The blocks of all admitted prompts and their whole declared answers must fit (GUARANTEED_NO_EVICT)."
        if self._longest_wait and self._full:
            yield (
                f"Prompts wait up to {self._longest_wait} steps for others, until a step would have"
                f" {100 * self._full:.0f} % of max_num_batched_tokens (batch_wait_timeout_iters)."
            )

    def state(self) -> tuple[object, ...]:
        """Return for how many steps prompts have waited for others."""
        return (self._waited,)

    def plan(self, batch: Batch) -> Plan:
        """Plan one step."""
        plan = Plan(self.threshold(batch))
        budget = serve_running(batch, plan, batch.limits.max_num_batched_tokens)
        if not batch.waiting.items:
            return plan
        if budget <= 0:
            plan.stop_untried()
        elif self._waits(batch, budget, decodes=bool(batch.load.decode_requests or plan.ghosts)):
            plan.stopped = Stopped(GATHERING, self._longest_wait, self._waited - 1)
        else:
            self.admit_waiting(batch, plan, budget)
        return plan

    def admits(self, batch: Batch, request: Request) -> bool:
        """Whether all running requests and this one can be completed without eviction."""
        alone = not (batch.running or batch.cohort.maybe_finished)
        return self._evicts or alone or self._needed(batch, request) <= batch.pool.free

    def why_not(self, batch: Batch, request: Request) -> Stopped:
        """Report the lack of blocks to complete them all."""
        return Stopped(ANSWERS, self._needed(batch, request), batch.pool.free, request, tried_us=batch.now)

    def _needed(self, batch: Batch, request: Request) -> int:
        """Number of KV blocks that all running requests and this one need in addition to those they hold."""
        size, cohort = batch.pool.block_size_tokens, batch.cohort
        need = _blocks(request, size)
        for other in (
            *batch.running.values(),
            *cohort.maybe_finished.values(),
        ):  # decodes of this step have taken their block
            held = other.held_blocks if other.joined_clock < 0 else -(-(cohort.context_tokens(other) + 1) // size)
            need += _blocks(other, size) - held
        return need

    def _waits(self, batch: Batch, budget: int, *, decodes: bool) -> bool:
        """Whether prompts that could be computed wait for others."""
        if not (self._longest_wait and self._full and decodes):
            return False
        places = batch.limits.max_num_seqs - len(batch.running) - len(batch.finishing)
        tokens = batch.limits.max_num_batched_tokens - budget
        prompts = [request.target_tokens for request in batch.waiting.ordered()[: max(0, places)]]
        if not prompts or not self.admits(batch, batch.waiting.head()):
            return False
        for prompt in prompts:
            if prompt > budget:
                break
            budget -= prompt
            tokens += prompt
        if self._waited >= self._longest_wait or tokens >= self._full * batch.limits.max_num_batched_tokens:
            self._waited = 0
            return False
        self._waited += 1
        return True


def _blocks(request: Request, size: int) -> int:
    """Number of KV blocks of a request that uses its whole output budget; its last token never enters the cache."""
    return -(-(request.input_tokens + max(request.max_output_tokens, 1) - 1) // size)
