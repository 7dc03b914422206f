"""Where vLLM's versions differ in their settings."""

from __future__ import annotations

from typing import Final

VERSIONS: Final = ("0.32", "0.10")
"""Those whose scheduler is known, the latest first."""
ONLY_IN: Final = {
    "max_num_active_seqs": "0.32",
    "long_prefill_token_threshold_adaptive": "0.32",
    "max_num_partial_prefills": "0.10",
}
"""The version that has a setting, where the other one has not."""
