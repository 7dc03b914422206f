"""What the batching rule of an experiment makes of its other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.batching_traits import batching_traits
from blis_tui.spec.diagnostics import about
from blis_tui.spec.pools import stacks, where
from blis_tui.spec.source import as_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.batching.traits import Traits
    from blis_tui.registry import Registry
    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import DataPath, Document


def check_batching(document: Document, plugins: Registry | None) -> Iterator[Diagnostic]:
    """Settings elsewhere that the batching rule has no use for."""
    traits = batching_traits(as_map(document.data), plugins)
    kind = document.get("policy", "batching", "kind")
    if traits.in_order_of_arrival and document.get("policy", "scheduling", "kind") != "fcfs":
        message = f"`{kind}` batching serves requests in order of arrival, whatever the scheduler says"
        hint = "set `scheduling: fcfs`, or take another batching rule"
        yield about(document, ("policy", "scheduling", "kind"), "BLIS2026", message, hint=hint)
    if not traits.running_first:
        yield from _check_victims(document, kind)
    for owner in stacks(document):
        engine = where(document, owner, "engine")
        tiers = (*engine, "kv_tiers", "kind")
        if document.get(*tiers) not in (None, "none") and not traits.running_first:
            message = f"`{kind}` batching does not look into tiers"
            yield about(document, tiers, "BLIS2026", message, hint="remove kv_tiers, or take blis or vllm-v1 batching")
        if document.get(*engine, "max_num_seqs") == 0 and not traits.unlimited_seqs:
            message = f"max_num_seqs 0 means any number, and `{kind}` batching needs a limit"
            yield about(document, (*engine, "max_num_seqs"), "BLIS2027", message, hint="give a number from 1 on")
        if (document.get(*engine, "pipeline_parallel") or 1) != 1 and not traits.pipelines:
            message = f"`{kind}` batching knows no pipeline_parallel"
            hint = "remove it, or take batching that does (vllm-v1, llm-serving-sim)"
            yield about(document, (*engine, "pipeline_parallel"), "BLIS2027", message, hint=hint)
        if document.get(*engine, "speculative") is not None:
            yield from _check_speculative(document, engine, traits, kind)
        if document.get(*engine, "long_prefill_token_threshold") and traits.prefills_apart:
            message = f"`{kind}` batching never splits a prompt, so that no threshold applies"
            path = (*engine, "long_prefill_token_threshold")
            yield about(document, path, "BLIS2026", message, hint="remove it")


def _check_speculative(document: Document, engine: DataPath, traits: Traits, kind: object) -> Iterator[Diagnostic]:
    """Drafters that a rule does not know, or not beside its other settings."""
    path, stages = (*engine, "speculative"), document.get(*engine, "pipeline_parallel") or 1
    method = document.get(*path, "method")
    if not traits.drafters:
        message = f"`{kind}` batching knows no speculative decoding"
        hint = "remove it, or take blis or vllm-v1 batching"
        yield about(document, path, "BLIS2027", message, key=True, hint=hint)
    elif method not in traits.drafters and traits.plans_ahead:
        message = f"`{kind}` batching does not schedule asynchronously beside the drafter `{method}`"
        hint = (
            "set `async_scheduling: false` in policy.batching, as vLLM does with drafters that are not on the GPU, or"
            f" `method` to one that is: {', '.join(traits.drafters)}"
        )
        yield about(document, path, "BLIS2027", message, key=True, hint=hint)
    elif method not in traits.drafters:
        message = f"`{kind}` batching knows no drafter `{method}`"
        yield about(document, path, "BLIS2027", message, key=True, hint=f"take {', '.join(traits.drafters)}")
    elif stages != 1 and traits.pipelines and not traits.plans_ahead:
        message = "in a pipeline, vLLM verifies drafts with asynchronous scheduling alone"
        hint = "set `async_scheduling: true` in policy.batching, or `pipeline_parallel: 1`"
        yield about(document, (*engine, "pipeline_parallel"), "BLIS2027", message, hint=hint)


def _check_victims(document: Document, kind: object) -> Iterator[Diagnostic]:
    """Ways to preempt that need a rule which serves running requests first."""
    for key, known in (("victim", ("tail", "priority")), ("restore", ("recompute",))):
        path = ("policy", "preemption", key)
        if (value := document.get(*path)) is not None and value not in known:
            message = f"`{kind}` batching knows no {key} `{value}`"
            yield about(document, path, "BLIS2026", message, hint=f"take {' or '.join(known)}, or other batching")
