"""``vllm-v1``: the scheduler of vLLM's V1 engine, batch for batch; and ``blis``, which is modelled on it.

Source: vLLM 0.32.0, ``v1/core/sched/scheduler.py``, ``v1/core/sched/async_scheduler.py``, ``v1/engine/core.py``; where
0.33 differs, 0.33.0, ``v1/core/sched/scheduler.py`` lines 982 to 993 and 1038 to 1047.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.rules.rule import BATCHING, RunningFirst
from blis_tui.engine.rules.traits import DEFAULT, OLD, RULES, VERSIONS, EngineBehavior, unsupported_settings
from blis_tui.engine.stopped import ADAPTER, CADENCE, LATE, Stopped
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request
    from blis_tui.model import Engine
    from blis_tui.model.plug_ins import NoSettings


_ON_THE_GPU: Final = ("ngram_gpu", "eagle", "mtp")
"""Drafters with which steps can be planned ahead. Source: vLLM 0.32.0, ``config/vllm.py`` line 1558."""
PARTIAL_PREFILL_SHARE_PERCENT = 4
"""With several partial prefills allowed, a prefill is "long" from this share of ``max_model_len`` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """Settings under vLLM's names."""

    version: str = setting(
        "The vLLM version whose scheduler is simulated. docs/schedulers.md lists the rules and settings in which "
        "versions differ.",
        default=DEFAULT,
        enum=list(VERSIONS),
    )
    async_scheduling: bool = setting(
        "Plan a step while the previous one runs: the engine never waits for the scheduler, and requests that arrive "
        "during a step are seen one step later.",
        default=True,
    )
    watermark: float = setting(
        "Share of the KV blocks kept free when a waiting request is admitted, 0 to 1.",
        default=0.0,
        minimum=0,
        maximum=1,
    )
    reserve_full_input: bool = setting(
        "Admit a waiting request only when its whole prompt fits into the free KV blocks.", default=True
    )
    enable_chunked_prefill: bool = setting(
        "Split a prompt that exceeds the step's token budget; off = it waits for a step it fits in.", default=True
    )
    max_num_active_seqs: int | None = setting(
        "Maximum number of requests running at the same time, if less than max_num_seqs.",
        default=None,
        minimum=1,
        maximum=10**6,
    )
    long_prefill_token_threshold_adaptive: bool = setting(
        "Never let long_prefill_token_threshold be less than max_num_batched_tokens / requests waiting or running.",
        default=False,
    )
    prefill_schedule_interval: int | None = setting(
        "While requests decode, compute prompts only every so many steps, further chunks of a prompt included; but in"
        " each step for as long as the queue cannot be emptied (version 0.33). Default: 1, in each step.",
        default=None,
        minimum=1,
        maximum=10**6,
    )
    max_num_partial_prefills: int | None = setting(
        "Maximum number of partly processed prompts at the same time (version 0.10 only).",
        default=None,
        minimum=1,
        maximum=10**6,
    )


class VllmV1Batching(RunningFirst):
    """Lets computed tokens catch up with known tokens (prompt + generated); there is no prefill or decode phase.

    Waiting requests are admitted only if nothing was preempted in this step, and subject to two conditions: the
    watermark, and (``reserve_full_input``) room for the whole known sequence, not just its first chunk. The whole
    prompt never counts as cached: a step must still compute the last token. A preempted request keeps its generated
    tokens and recomputes prompt and output.
    """

    def __init__(self, settings: VllmSettings) -> None:
        version = settings.version
        self._spares_lone = version in RULES["lone-request-has-no-threshold"]
        self._pads = version in RULES["pads-admissions"]
        for _, message, advice in unsupported_settings("vllm-v1", settings.version, partial(getattr, settings)):
            raise PolicyError(message, help=advice)
        self._adaptive = settings.long_prefill_token_threshold_adaptive
        self._partial_prefills = settings.max_num_partial_prefills or 1
        self._max_running = settings.max_num_active_seqs
        self._traits = EngineBehavior(
            keeps_output=True,
            chunked_prefill=settings.enable_chunked_prefill,
            reserves_whole_prompt=settings.reserve_full_input,
            watermark=settings.watermark,
            null_block=True,
            vllm_block_pool=True,
            sizes_pool="profiled" if version == OLD else "profiled-with-graphs",
            plans_ahead=settings.async_scheduling,
            plans_past_stops=settings.async_scheduling,
            drafters=_ON_THE_GPU if settings.async_scheduling else ("ngram", *_ON_THE_GPU),
            busy_until_the_end=True,
            skips_empty_steps=True,
            ties_by_name=False,
            adapters="in-step",
            encoder="passes" if version in RULES["passes-over-media"] else "in-order",
            whole_media_strictly=version in RULES["whole-media-strictly"],
            pipelines="queue",
            ranks=True,
            cuts_output=True,
            overtakes=False,
            serves_behind_own_victim=version in RULES["serves-behind-own-victim"],
            ending_use_adapters=version in RULES["ending-use-adapters"],
            keeps_accepted_drafts=version in RULES["keeps-accepted-drafts"],
            hashes_lookahead=version in RULES["hashes-lookahead"],
        )

    @property
    def traits(self) -> EngineBehavior:
        """Traits of its batches."""
        return self._traits

    def padded_tokens(self, batch: Batch) -> int:
        """Return the tokens per decode, because a batch of decodes alone replays a captured CUDA graph; 0 = no padding.

        Source: vLLM 0.32.0, ``v1/core/sched/scheduler.py`` line 1090.
        """
        return (
            1 + batch.speculative.acceptance_sampler.draft_tokens if self._pads and batch.speculative is not None else 0
        )

    def max_running(self, engine: Engine) -> int:
        """Return the smaller of ``max_num_active_seqs`` (if set) and ``max_num_seqs``."""
        return engine.max_num_seqs if self._max_running is None else min(self._max_running, engine.max_num_seqs)

    def prefill_threshold(self, engine: Engine) -> int:
        """Return the configured threshold; if off with several partial prefills allowed, 4 % of ``max_model_len``."""
        threshold = engine.long_prefill_token_threshold
        if self._partial_prefills > 1 and threshold == 0 and engine.max_model_len is not None:
            return engine.max_model_len * PARTIAL_PREFILL_SHARE_PERCENT // 100
        return threshold

    def threshold(self, batch: Batch) -> int:
        """Return the threshold in force; none applies to a request alone on the instance, as it delays no other."""
        threshold = batch.limits.long_prefill_token_threshold
        if not threshold or not self._spares_lone:
            return threshold
        requests = (
            len(batch.running)
            + len(batch.finishing)
            + len(batch.waiting.items)
            + whole_sum([through for through, _ in batch.preempted_in_flight.values()])
        )
        if requests == 1:
            return 0
        return max(threshold, batch.limits.max_num_batched_tokens // requests) if self._adaptive else threshold


class VllmWithCadence(VllmV1Batching):
    """Computes no prompt for some steps after one that did, unless nothing decodes or the queue could not be emptied.

    That applies to new requests and to further chunks of prompts. A request that needs only its last token computed
    enters in any step. Source: vLLM 0.33.0, ``v1/core/sched/scheduler.py`` lines 748 to 791, 822, 1290, 1612 to 1629.
    """

    def __init__(self, settings: VllmSettings) -> None:
        super().__init__(settings)
        self._interval = settings.prefill_schedule_interval or 1
        self._traits = replace(
            self._traits,
            prefill_interval=self._interval,
            asks_for_more=f"While requests decode, prompts are computed every {self._interval} steps"
            " (prefill_schedule_interval), unless requests had to stay in the queue the last time.",
        )
        self._since = self._interval
        """Steps since the latest one with a prompt."""
        self._crowded = False
        """Whether requests stayed in the queue the last time that prompts could be computed."""
        self._passed: dict[int, None] = {}
        """Those who do not count, as they were passed over since they got there, by their index."""
        self._holds = False
        """Whether the step being planned computes no prompts."""

    def state(self) -> tuple[object, ...]:
        """Return the steps since the latest prompt, and which requests stayed in the queue."""
        return (self._since, self._crowded, tuple(self._passed))

    def plan(self, batch: Batch) -> Plan:
        """Plan one step."""
        decodes = len(batch.running) + len(batch.finishing) > len(batch.prefills)
        self._holds = decodes and not self._crowded and self._since + 1 < self._interval
        plan = self._serve(batch, prompts=not self._holds)
        if self._holds:
            batch.refused = None  # the next step may admit what this one does not
        if not plan.preempted:
            self._note_passed(batch, plan)
            if not self._holds:
                self._crowded = len(batch.waiting.items) > len(self._passed)
        self._since += bool(batch.load.decode_requests or plan.chunks or plan.ghosts)
        if _computes_prompts(plan):
            self._since = 0
        return plan

    def _note_passed(self, batch: Batch, plan: Plan) -> None:
        """Note who was passed over in this plan, and forget who has left the queue."""
        stopped = plan.stopped
        if batch.preempted_in_flight and (
            stopped is None or stopped.request is not None or stopped.cause in {LATE, ADAPTER}
        ):
            self._pass_late(batch, None if stopped is None else stopped.request)
        full = () if batch.admission is None else batch.admission.passed_over()
        adapters, before, self._passed = batch.adapters, self._passed, {}
        for request in batch.waiting.ordered() if batch.waiting.items else ():
            held = adapters is not None and adapters.held_since_us(request) >= 0
            if request.index in before or request.index in full or held:
                self._passed[request.index] = None

    def _pass_late(self, batch: Batch, until: Request | None) -> None:
        """Note that those before a request were passed over whose last step is not over; None = all of them."""
        for request in batch.waiting.ordered():
            if request is until:
                break
            if request.index in batch.preempted_in_flight:
                self._passed[request.index] = None

    def admits(self, batch: Batch, request: Request) -> bool:
        """Whether prompts are computed in this step, or all of this one but its last token is there already."""
        if batch.preempted_in_flight:
            self._pass_late(batch, request)
        if not self._holds or batch.admission is None:
            return True
        return request.target_tokens - batch.admission.head_start(request) <= 1

    def why_not(self, batch: Batch, request: Request) -> Stopped:  # noqa: ARG002  (the rule looks at its steps)
        """Report the interval, and the number of this step since the latest prompt."""
        return Stopped(CADENCE, self._interval, self._since + 1, request)


def _computes_prompts(plan: Plan) -> bool:
    """Whether a plan continues a prompt, or begins one of which more than the last token is missing."""
    new = {request.index for request in plan.admitted}
    return any(chunk.request.index not in new or chunk.computed + 1 < chunk.prompt for chunk in plan.chunks)


@BATCHING.plugin("vllm-v1", "vLLM's V1 scheduler.", VllmSettings)
def vllm_v1(settings: VllmSettings) -> VllmV1Batching:
    """Create the rule."""
    return VllmWithCadence(settings) if (settings.prefill_schedule_interval or 1) > 1 else VllmV1Batching(settings)


@BATCHING.plugin(
    "blis", "Running requests first, then waiting ones while the token budget lasts; preempts from the tail."
)
class BlisBatching(RunningFirst):
    """Discards generated tokens on preemption.

    A prompt that is cached as a whole pins its blocks, schedules no token, and gets its first token at the end of that
    step. A preempted request recomputes its prompt and generates its output again.
    """

    traits = EngineBehavior(
        caches_whole_prompts=True,
        stores_last_token=True,
        counts_to_limit=False,
        overtakes=False,
        drafters=("ngram",),
        adapters="beside",
        ranks=True,
    )

    def __init__(self, settings: NoSettings) -> None:
        """Take the settings, of which there are none."""
