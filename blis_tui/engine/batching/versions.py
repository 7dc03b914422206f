"""The engine versions that batching rules simulate, and where versions differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
SUPPORTED_FEATURES: Final = {"sglang": _COMMON_FEATURES, "tensorrt-llm": _COMMON_FEATURES}
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
