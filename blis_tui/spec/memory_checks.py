"""What documents say of preemption and of memory beyond the KV blocks, checked for sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.diagnostics import about
from blis_tui.spec.source import as_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import Document


def check_preemption(document: Document) -> Iterator[Diagnostic]:
    """What is swapped out is kept: nothing of it can be generated anew."""
    preemption = as_map(document.get("policy", "preemption"))
    restore = preemption.get("restore")
    if preemption.get("recompute") == "prompt" and restore != "recompute":
        message = f"`recompute: prompt` loses what is generated, `restore: {restore}` keeps it"
        at = ("policy", "preemption", "recompute")
        hint = "leave `recompute` out, or set `restore: recompute`"
        yield about(document, at, "BLIS2026", message, key=True, hint=hint)
