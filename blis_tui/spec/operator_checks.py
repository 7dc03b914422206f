"""Do the tables of measured operators cover what an experiment wants to know of them? Can its experts be spread?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.latency.operator_costs import OperatorCosts
from blis_tui.engine.latency.shape import check_expert_parallel
from blis_tui.errors import InputError, PolicyError
from blis_tui.spec.build import build_model_part, stack_of
from blis_tui.spec.diagnostics import about
from blis_tui.spec.operator_files import read_tables
from blis_tui.spec.pools import where
from blis_tui.spec.source import as_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import DataPath, Document


def check_operators(document: Document, owner: DataPath) -> Iterator[Diagnostic]:
    """Of what the instances of ``owner`` run with (a pool, or the experiment)."""
    stack = stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)
    latency = as_map(document.get(*where(document, owner, "latency")))
    split = stack.get("tensor_parallel")
    if latency.get("kind") != "operators" or not isinstance(split, int):
        return
    model = build_model_part(stack)
    try:
        OperatorCosts(read_tables(str(latency.get("tables"))), model, split)
    except (PolicyError, InputError) as error:
        hint = error.help or "take another step-time model, such as trained-physics"
        yield about(document, where(document, owner, "latency"), "BLIS2011", error.message, hint=hint)
    apart = latency.get("expert_parallel")
    try:
        check_expert_parallel(model, split, apart if isinstance(apart, int) else 1)
    except PolicyError as error:
        at = where(document, owner, "latency", "expert_parallel")
        yield about(document, at, "BLIS2030", error.message, hint=error.help)
