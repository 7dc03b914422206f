"""What documents say of preemption and of memory beyond the KV blocks, checked for sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.diagnostics import about
from blis_tui.spec.pools import stacks, where
from blis_tui.spec.source import as_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import Document


def check_memory(document: Document) -> Iterator[Diagnostic]:
    """Tiers need a cache to keep; what is swapped out is kept, so nothing of it can be generated anew."""
    preemption = as_map(document.get("policy", "preemption"))
    restore = preemption.get("restore")
    for owner in stacks(document):
        engine = where(document, owner, "engine")
        tiers = as_map(document.get(*engine, "kv_tiers"))
        if tiers and tiers.get("kind") != "none" and not document.get(*engine, "enable_prefix_caching"):
            message = "tiers keep what the prefix cache would lose, and there is none"
            hint = "set `enable_prefix_caching: true`, or leave `kv_tiers` out"
            yield about(document, (*engine, "kv_tiers"), "BLIS2026", message, key=True, hint=hint)
    if preemption.get("recompute") == "prompt" and restore != "recompute":
        message = f"`recompute: prompt` loses what is generated, `restore: {restore}` keeps it"
        at = ("policy", "preemption", "recompute")
        hint = "leave `recompute` out, or set `restore: recompute`"
        yield about(document, at, "BLIS2026", message, key=True, hint=hint)
