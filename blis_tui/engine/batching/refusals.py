"""What a batching rule cannot be combined with: documents are checked for it, and instances are not made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from blis_tui.engine.batching.traits import Traits


class Refusal(NamedTuple):
    """A setting of an engine that the batching rule has no use for."""

    key: str
    """Of the engine."""
    message: str
    help: str


def refusals(kind: str, traits: Traits, *, stages: int, beside: Collection[str]) -> Iterator[Refusal]:
    """Everything that is wrong with an engine's settings, as the batching rule has it.

    Args:
        kind: the rule's name.
        traits: what it says about itself.
        stages: of the pipeline; 1 = there is none.
        beside: those of ``speculative`` and ``lora`` that the engine has.
    """
    if stages > 1 and not traits.pipelines:
        advice = "remove it, or take batching that does (vllm-v1, llm-serving-sim)"
        yield Refusal("pipeline_parallel", f"`{kind}` batching knows no pipeline_parallel", advice)
    elif stages > 1:
        for key in (one for one in ("speculative", "lora") if one in beside):
            advice = f"remove `{key}`, or set `pipeline_parallel: 1`"
            yield Refusal("pipeline_parallel", f"pipeline_parallel with `{key}` is not simulated", advice)
    if "speculative" in beside and not traits.speculates:
        yield _undrafted(kind, traits)
    if "lora" in beside and not traits.adapters:
        advice = "remove it, or take blis or vllm-v1 batching"
        yield Refusal("lora", f"`{kind}` batching knows no LoRA adapters", advice)


def _undrafted(kind: str, traits: Traits) -> Refusal:
    """Decodes that verify drafts need a rule which plans each step when the one before it is over."""
    if traits.plans_ahead:
        return Refusal(
            "speculative",
            f"`{kind}` batching plans steps ahead, before it is known how many drafted tokens were accepted",
            "set `async_scheduling: false` in policy.batching, as vLLM itself does with the drafters that are simulated"
            " (n-gram, suffix), or leave `speculative` out",
        )
    advice = "remove it, or take blis or vllm-v1 batching"
    return Refusal("speculative", f"`{kind}` batching knows no speculative decoding", advice)
