"""What a batch-formation rule states about itself: its engine's versions, and what it cannot be combined with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBehavior:
    """What a rule states about itself; the engine follows it and explanations quote it."""

    keeps_output: bool = False
    """A preempted request keeps its generated tokens and prefills them again; otherwise it generates them again."""
    caches_whole_prompts: bool = False
    """A whole prompt, including its last token, may come from the cache; then no token of it is computed."""
    stores_last_token: bool = False
    """The last token of an answer is stored in the KV cache before the request's blocks are freed."""
    counts_to_limit: bool = True
    """An answer that ``max_model_len`` ends counts the token with which it gets there; otherwise only those before."""
    chunked_prefill: bool = True
    """A prompt that exceeds the rest of the token budget is split; otherwise it waits for a step that it fits into."""
    reserves_whole_prompt: bool = False
    """A request is admitted only when its whole prompt fits into the free blocks, not just its first chunk."""
    watermark: float = 0.0
    """Share of the KV blocks kept free when a request joins running ones."""
    null_block: bool = False
    """There is one block more than requests can use; shares of the KV blocks count it."""
    vllm_block_pool: bool = False
    """Content is recorded and blocks are evicted by the rules of vLLM's block pool: see ``BlockPool``."""
    plans_ahead: bool = False
    """A step is planned while the previous one runs (vLLM's asynchronous scheduling)."""
    plans_past_stops: bool = False
    """A step planned ahead knows which answers end because of their budget, but not which end earlier by themselves.
    For these it computes one wasted token."""
    prefill_interval: int = 0
    """While requests decode, prompts are computed every so many steps, which the rule counts; 0 = in each step."""
    busy_until_the_end: bool = False
    """A step keeps the engine busy until it ends, even if no request is left; requests that arrive meanwhile wait."""
    skips_empty_steps: bool = False
    """A step that only preempts takes no time."""
    ties_by_name: bool = True
    """Ties in a sorted queue are broken by name; otherwise by arrival."""
    running_first: bool = True
    """Running requests go first, the oldest first, so victims can be compared, swapped out and reloaded from tiers."""
    prefills_apart: bool = False
    """A step prefills or decodes, never both; prompts go first, and all decodes stall meanwhile."""
    limits_each_step: bool = False
    """``max_num_seqs`` limits how many requests a step serves, not how many hold KV blocks."""
    unlimited_seqs: bool = False
    """``max_num_seqs`` may be 0: no limit."""
    captured_sizes: bool = False
    """Decode steps replay captured CUDA graphs: see ``CapturedSizes``."""
    overtakes: bool | None = None
    """Whether a request that does not fit is skipped, so that those behind it may go first; otherwise nothing is
    scheduled before the queue head. None = unstated, and explanations do not mention it."""
    in_order_of_arrival: bool = False
    """Requests are served in order of arrival, whatever the scheduler says."""
    counts_cached_tokens: bool = False
    """The engine's reported prompt throughput counts cached tokens."""
    log_interval_us: int = 0
    """How often the engine prints the throughput of its latest iterations, which reports then include; 0 = never."""
    drafters: tuple[str, ...] = ()
    """Drafting methods that it supports (``engine.speculative.method``)."""
    pipelines: str = ""
    """When it forms further batches while others are in flight (``pipeline_parallel``): ``stage``, when the first
    stage is free; ``queue``, until a queue of batches is full, and again whenever one of them ends. Empty = never."""
    pipelined: bool = False
    """It has a pipeline, so batches overlap. The engine sets this for rules that support pipelines."""
    ranks: bool = False
    """Ranks that share a model's experts may step together (``engine.data_parallel``)."""
    sizes_pool: str = ""
    """How the number of KV blocks follows from the memory: see ``kv.capacity.kv_capacity``."""
    adapters: str = ""
    """How it loads LoRA adapters: ``beside`` steps (concurrently), or ``in-step``; empty = it does not support them."""
    encoder: str = ""
    """How it schedules the media encoder, with a budget and a cache: a request without room there blocks those behind
    it (``in-order``), or is skipped (``passes``); empty = it does not schedule the encoder."""
    whole_media_strictly: bool = False
    """Media that must not be split stay whole even if a step begins with them."""
    asks_for_more: str = ""
    """What it requires besides KV blocks and token budget before a request enters, as a sentence; empty = nothing."""
    fits_strictly: bool = False
    """A request enters only if its prompt, its declared output and one more block are smaller than the KV cache."""
    victims: str = ""
    """Which request it preempts, if the rule decides, such as "the youngest running request"; empty = the policy
    decides."""
    radix_tree: bool = False
    """A radix tree shares prompts (``kv.radix_pool``), and steps follow each other as in SGLang's event loops."""
    priorities: int = 0
    """Priority precedes the scheduler's order: 1 = the smallest goes first, -1 = the largest; 0 = it does not."""
    step_tokens: int = 0
    """Token budget of a step, if the rule has its own setting; 0 = ``max_num_batched_tokens``."""
    step_tokens_setting: str = ""
    """The name of that setting, such as ``chunked_prefill_size``; empty = none."""
    serves_behind_own_victim: bool = False
    """Requests behind one that preempts itself still get their tokens in the same step, under any victim rule."""
    ending_use_adapters: bool = False
    """A request whose last token is being computed still counts as using its LoRA adapter."""
    keeps_accepted_drafts: bool = False
    """Accepted drafts are cached once the step that verified them is over, not when their request is planned again."""
    hashes_lookahead: bool = False
    """Drafters that read hidden states: the cache finds a block only before the same next token. Otherwise the last
    cached block of a prompt is computed again."""
    cuts_output: bool = False
    """If prompt and declared output exceed ``max_model_len``, the output is cut; otherwise the request is dropped."""
    cuts_at_most: int | None = None
    """If they exceed it by more tokens than this, the request is dropped all the same; None = never."""

    @property
    def budget_name(self) -> str:
        """The name of the step's token budget: the rule's own setting, or ``max_num_batched_tokens``."""
        return self.step_tokens_setting or "max_num_batched_tokens"

    @property
    def prepares_handovers(self) -> bool:
        """Whether there must be room for a prompt where its answer is generated before it is computed elsewhere.

        Its KV blocks are then kept there until they are sent.
        """
        return self.radix_tree

    def spare_blocks(self, total: int) -> int:
        """The blocks that the watermark keeps free."""
        return int(self.watermark * (total + 1 if self.null_block else total))


def traits_of(
    traits: EngineBehavior, recompute: str | None, *, swaps: bool, pipelined: bool, eager: bool = False
) -> EngineBehavior:
    """Return a rule's traits on an instance; the policy decides whether victims keep their generated tokens.

    Args:
        traits: the rule's own traits.
        recompute: what victims recompute, ``prompt`` or ``all``; None = as the rule says.
        swaps: whether victims' KV blocks may be swapped out; then victims keep everything in any case.
        pipelined: whether the instance has a pipeline: a batch enters it as soon as it is planned.
        eager: whether its steps are launched without CUDA graphs.
    """
    if eager:
        traits = replace(traits, captured_sizes=False)
    if pipelined:
        traits = replace(traits, plans_ahead=False, pipelined=True)
    if not swaps and recompute is None:
        return traits
    return replace(traits, keeps_output=swaps or recompute == "all")


DEFAULT: Final = "0.32"
"""The version that most comparison runs with vLLM used."""
OLD: Final = "0.10"
VERSIONS: Final = ("0.33", DEFAULT, OLD)
"""The versions of vLLM whose scheduler is simulated, the latest first."""
ONLY_IN: Final = {
    "max_num_active_seqs": (DEFAULT, "0.33"),
    "long_prefill_token_threshold_adaptive": (DEFAULT, "0.33"),
    "prefill_schedule_interval": ("0.33",),
    "max_num_partial_prefills": (OLD,),
}
"""Settings that only some versions of vLLM have, with those versions."""
BY_ARRIVAL: Final = "1.1"
TWO_PHASES: Final = "2026-08"
LLM_SERVING_SIM: Final = (TWO_PHASES, BY_ARRIVAL)
"""Versions of LLMServingSim: the rewritten scheduler, named by its month, and the release, the latest first."""
SGLANG: Final = ("0.5.23",)
"""The versions of SGLang whose scheduler is simulated."""
RULES: Final = {
    "serves-behind-own-victim": ("0.33",),
    "ending-use-adapters": ("0.33",),
    "keeps-accepted-drafts": ("0.33",),
    "hashes-lookahead": ("0.33",),
    "passes-over-media": ("0.33",),
    "whole-media-strictly": ("0.33",),
    "lone-request-has-no-threshold": (DEFAULT, "0.33"),
    "pads-admissions": (DEFAULT, "0.33"),
}
"""Rules that only some versions follow, with those versions; ``docs/schedulers.md`` explains each."""
SIMULATED: Final = {
    "vllm-v1": ("vLLM", VERSIONS),
    "nano": ("nano-vLLM", ("commit bb823b3",)),
    "llm-serving-sim": ("LLMServingSim", LLM_SERVING_SIM),
    "tensorrt-llm": ("TensorRT-LLM", ("1.1",)),
    "sglang": ("SGLang", SGLANG),
}
"""The engine of each batching rule, and its simulated versions, the latest first."""


_COMMON_FEATURES: Final = ("pipeline_parallel", "speculative", "lora", "kv_tiers", "disaggregation", "data_parallel")
SUPPORTED_FEATURES: Final = {
    "sglang": (*_COMMON_FEATURES, "reuse_cached_blocks", "failures"),
    "tensorrt-llm": _COMMON_FEATURES,
}
"""Features that an engine has but its simulation lacks; refusals say so."""
_OF_KINDS: Final[dict[str, dict[str, tuple[object, ...]]]] = {
    "vllm-v1": {**dict.fromkeys(ONLY_IN, (None, False)), "prefill_schedule_interval": (None, 1)},
    "llm-serving-sim": {
        "prioritize_prefill": (None, False),
        "reserve_full_isl": (None, True),
        "enable_chunked_prefill": (None, True),
    },
}
"""Settings that not every version has, with the values that count as unset."""
_OF_RANKS: Final = ("prefill_schedule_interval", DEFAULT)
"""A setting that a version has for ranks that share experts only."""
_ONLY_IN: Final = {
    **ONLY_IN,
    "prioritize_prefill": (BY_ARRIVAL,),
    "reserve_full_isl": (TWO_PHASES,),
    "enable_chunked_prefill": (TWO_PHASES,),
}


def advice_for(kind: str, key: str, advice: str) -> str:
    """Return the advice for a refusal, stating whether the engine itself has the feature."""
    if key not in SUPPORTED_FEATURES.get(kind, ()):
        return advice
    return f"{SIMULATED[kind][0]} supports it, but it is not simulated with its batching rule: {advice}"


def unsupported_settings(
    kind: object, version: object, setting: Callable[[str], object]
) -> Iterator[tuple[str, str, str]]:
    """Yield the given settings that the version does not have: name, message and advice."""
    engine, _ = SIMULATED.get(str(kind), ("", ()))
    for name, usual in _OF_KINDS.get(str(kind), {}).items():
        only = _ONLY_IN[name]
        if setting(name) not in usual and version not in only:
            lack = "applies only to ranks that share experts" if (name, version) == _OF_RANKS else ""
            message = f"`{name}` of {engine} {version} {lack}" if lack else f"{engine} {version} has no `{name}`"
            yield name, message, f"remove it, or set `version: '{only[0]}'`"


_BY_PRIORITY: Final = ("fcfs", "lof")
"""Scheduling orders that SGLang accepts with ``enable_priority_scheduling`` (``arg_groups/validation_hook.py``)."""


class Refusal(NamedTuple):
    """An engine setting that the batching rule does not support."""

    key: str
    """Key of the engine."""
    message: str
    help: str


def unsupported_in_engine(
    kind: str, traits: EngineBehavior, stages: int, drafter: str, *, adapts: bool, budgets: Iterable[str] = ()
) -> Iterator[Refusal]:
    """Yield everything in an engine's settings that the batching rule does not support.

    Args:
        kind: the rule's name.
        traits: the rule's traits.
        stages: pipeline stages; 1 = there is no pipeline.
        drafter: the method of speculative decoding; "" = there is none.
        adapts: whether the engine serves LoRA adapters.
        budgets: keys of the encoder that set its budget per step and its cache size.
    """
    if not traits.encoder:
        for key in budgets:
            advice = "remove it, or use vllm-v1 batching"
            yield Refusal(
                f"encoder.{key}", f"`{kind}` batching does not support the encoder of multimodal prompts", advice
            )
    if stages > 1 and not traits.pipelines:
        advice = advice_for(
            kind, "pipeline_parallel", "remove it, or use batching that does (vllm-v1, llm-serving-sim)"
        )
        yield Refusal("pipeline_parallel", f"`{kind}` batching does not support pipeline_parallel", advice)
    if drafter:
        yield from _unsupported_drafters(kind, traits, stages, drafter)
    if adapts and not traits.adapters:
        advice = advice_for(kind, "lora", "remove it, or use blis, vllm-v1 or sglang batching")
        yield Refusal("lora", f"`{kind}` batching does not support LoRA adapters", advice)


class Splitting(NamedTuple):
    """How prompts are computed on one instance and answers generated on another."""

    order: str
    starts: str
    """When a transfer starts."""
    reuses: bool
    """Whether cached blocks are not transferred."""
    beside: tuple[str, ...]
    """Paths of other settings that not every rule supports at the same time, where they are used."""


MOVING: Final = ("lifecycle", "failures", "nodes", "autoscaler")
"""Keys of a cluster whose instances come and go."""


def unsupported_elsewhere(
    kind: str, traits: EngineBehavior, scheduling: str, victim: str, splitting: Splitting | None
) -> Iterator[Refusal]:
    """Yield unsupported settings outside the engine; ``key`` is a path.

    Args:
        kind: the rule's name.
        traits: the rule's traits.
        scheduling: the queue order.
        victim: the policy's victim rule.
        splitting: how prompts are computed on one instance and answers generated on another; None = they are not.
    """
    if scheduling == "lpm" and not traits.radix_tree:
        advice = "use `scheduling: fcfs`, or `batching: sglang`"
        yield Refusal("policy.scheduling.kind", f"`{kind}` batching has no radix tree, which `lpm` needs", advice)
    if traits.priorities and scheduling not in _BY_PRIORITY:
        message = f"priority scheduling of `{kind}` batching orders queues that are `fcfs` or `lof`, not `{scheduling}`"
        advice = "use `scheduling: fcfs`; the most urgent request goes first in any case"
        yield Refusal("policy.scheduling.kind", message, advice)
    if not traits.radix_tree:
        return
    if victim != "tail":
        message = f"`{kind}` batching chooses by itself which requests to retract: the victim `{victim}` has no effect"
        yield Refusal("policy.preemption.victim", message, "remove it")
    if splitting is not None and not traits.prepares_handovers:
        message = f"`{kind}` batching does not support computing prompts for other instances"
        advice = "remove `cluster.disaggregation`, or use blis or vllm-v1 batching"
        advice = advice_for(kind, "disaggregation", advice)
        yield Refusal("cluster.disaggregation", message, advice)
    elif splitting is not None:
        yield from _unsupported_splitting(kind, splitting)


def _unsupported_splitting(kind: str, splitting: Splitting) -> Iterator[Refusal]:
    """Yield what a rule that prepares for handovers does not support of them."""
    path = "cluster.disaggregation"
    if splitting.order != "decode-first":
        message = f"`{kind}` batching makes room where the answer is generated before the prompt is computed"
        yield Refusal(f"{path}.order", message, "set `order: decode-first`")
    if splitting.starts != "step-end":
        message = f"`{kind}` batching sends a prompt's KV blocks when the step that completes it is over"
        yield Refusal(f"{path}.transfer.starts", message, "set `starts: step-end`")
    if splitting.reuses:
        message = f"`{kind}` batching has no prefix cache where answers are generated"
        advice = advice_for(kind, "reuse_cached_blocks", "remove `reuse_cached_blocks`")
        yield Refusal(f"{path}.transfer.reuse_cached_blocks", message, advice)
    for key in splitting.beside:
        name = key.rpartition(".")[2]
        message = f"`{name}` with `cluster.disaggregation` is not simulated with `{kind}` batching"
        yield Refusal(key, message, f"remove `{name}`, or use vllm-v1 batching")


def _unsupported_drafters(kind: str, traits: EngineBehavior, stages: int, drafter: str) -> Iterator[Refusal]:
    """Yield drafters that a rule does not support at all or with its other settings."""
    drafters = ", ".join(traits.drafters)
    if not traits.drafters:
        advice = advice_for(kind, "speculative", "remove it, or use blis or vllm-v1 batching")
        yield Refusal("speculative", f"`{kind}` batching does not support speculative decoding", advice)
    elif drafter not in traits.drafters and traits.plans_ahead:
        advice = (
            "set `policy.batching.async_scheduling` to false, as vLLM does with drafters that are not on the GPU, or"
            f" `engine.speculative.method` to one that is: {drafters}"
        )
        message = f"`{kind}` batching does not support asynchronous scheduling with the drafter `{drafter}`"
        yield Refusal("speculative", message, advice)
    elif drafter not in traits.drafters:
        yield Refusal("speculative", f"`{kind}` batching does not support the drafter `{drafter}`", f"use {drafters}")
    elif stages > 1 and traits.pipelines and not traits.plans_ahead:
        # Without it, vLLM 0.32.0 plans the drafts of a batch whose tokens it has not read yet (core.py line 693).
        message = "with pipeline parallelism, vLLM verifies drafts only with asynchronous scheduling"
        advice = "set `async_scheduling: true` in policy.batching, or `pipeline_parallel: 1`"
        yield Refusal("pipeline_parallel", message, advice)
