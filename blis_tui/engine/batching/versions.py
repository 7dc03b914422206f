"""Which version of its engine a batching rule is, and where versions differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT: Final = "0.32"
"""The one that was compared with vLLM in most runs."""
OLD: Final = "0.10"
VERSIONS: Final = ("0.33", DEFAULT, OLD)
"""Those whose scheduler is known, the latest first."""
ONLY_IN: Final = {
    "max_num_active_seqs": (DEFAULT, "0.33"),
    "long_prefill_token_threshold_adaptive": (DEFAULT, "0.33"),
    "max_num_partial_prefills": (OLD,),
}
"""The versions that have a setting, where others have not."""
RULES: Final = {
    "serves-behind-own-victim": ("0.33",),
    "ending-use-adapters": ("0.33",),
    "passes-over-media": ("0.33",),
    "whole-media-strictly": ("0.33",),
    "lone-request-has-no-threshold": (DEFAULT, "0.33"),
    "pads-admissions": (DEFAULT, "0.33"),
}
"""The versions that follow a rule, where others do not; ``docs/schedulers.md`` says what each means."""
SIMULATED: Final = {
    "vllm-v1": ("vLLM", VERSIONS),
    "nano": ("nano-vLLM", ("commit bb823b3",)),
    "llm-serving-sim": ("LLMServingSim", ("1.1",)),
    "tensorrt-llm": ("TensorRT-LLM", ("1.1",)),
    "sglang": ("SGLang", ("0.5.23",)),
}
"""The engine of a batching rule, and the versions of it that are simulated, the latest first."""


def foreign(version: object, setting: Callable[[str], object]) -> Iterator[tuple[str, str, str]]:
    """Settings that are given although that version does not have them: which, what is wrong, and what helps."""
    for name, only in ONLY_IN.items():
        if setting(name) and version not in only:
            yield name, f"vLLM {version} has no `{name}`", f"leave it out, or set `version: '{only[0]}'`"
