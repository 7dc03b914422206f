"""Where vLLM's versions differ in their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSIONS: Final = ("0.32", "0.10")
"""Those whose scheduler is known, the latest first."""
ONLY_IN: Final = {
    "max_num_active_seqs": "0.32",
    "long_prefill_token_threshold_adaptive": "0.32",
    "max_num_partial_prefills": "0.10",
}
"""The version that has a setting, where the other one has not."""


def foreign(version: object, setting: Callable[[str], object]) -> Iterator[tuple[str, str, str]]:
    """Settings that are given although that version does not have them: which, what is wrong, and what helps."""
    for name, only in ONLY_IN.items():
        if setting(name) and version != only:
            yield name, f"vLLM {version} has no `{name}`", f"leave it out, or set `version: '{only}'`"
