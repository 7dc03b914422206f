"""What a batching rule cannot be combined with. Documents are checked for it before instances are created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.engine.batching.versions import advice_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.engine.batching.traits import Traits

_BY_PRIORITY: Final = ("fcfs", "lof")
"""Scheduling orders that SGLang accepts with ``enable_priority_scheduling`` (``arg_groups/validation_hook.py``)."""


class Refusal(NamedTuple):
    """An engine setting that the batching rule does not support."""

    key: str
    """Key of the engine."""
    message: str
    help: str


def unsupported_in_engine(
    kind: str, traits: Traits, stages: int, drafter: str, *, adapts: bool, budgets: Iterable[str] = ()
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


def unsupported_elsewhere(
    kind: str, traits: Traits, scheduling: str, victim: str, *, splits: bool
) -> Iterator[Refusal]:
    """Yield unsupported settings outside the engine; ``key`` is a path.

    Args:
        kind: the rule's name.
        traits: the rule's traits.
        scheduling: the queue order.
        victim: the policy's victim rule.
        splits: whether prompts are computed on one instance and answers generated on another.
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
    if splits:
        message = f"`{kind}` batching does not support computing prompts for other instances"
        advice = "remove `cluster.disaggregation`, or use blis or vllm-v1 batching"
        advice = advice_for(kind, "disaggregation", advice)
        yield Refusal("cluster.disaggregation", message, advice)


def _unsupported_drafters(kind: str, traits: Traits, stages: int, drafter: str) -> Iterator[Refusal]:
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
