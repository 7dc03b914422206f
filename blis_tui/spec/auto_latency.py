"""Which step-time model `latency: auto` stands for: the first that covers model and GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.operator_costs import OperatorCosts
from blis_tui.errors import InputError, PolicyError
from blis_tui.spec.build import build_model_part
from blis_tui.spec.operator_files import read_tables, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.registry import Registry


def _operators_cover(stack: Mapping[str, object]) -> bool:
    """Whether operators were measured on the GPU, of the types that the model needs."""
    hardware, split = stack.get("hardware"), stack.get("tensor_parallel")
    metadata = hardware.get("metadata") if isinstance(hardware, dict) else None
    name = tables_of(str(metadata.get("name"))) if isinstance(metadata, dict) else None
    if name is None or not isinstance(split, int):
        return False
    try:
        OperatorCosts(read_tables(name), build_model_part(stack), split)
    except (PolicyError, InputError):  # a model that is not whole is told of where documents are checked
        return False
    return True


def _always(_stack: Mapping[str, object]) -> bool:
    return True


CHOICES: Final[tuple[tuple[str, Callable[[Mapping[str, object]], bool]], ...]] = (
    ("operators", _operators_cover),
    ("fitted", _always),
    ("trained-physics", _always),
)
"""Kinds in order of preference, and whether each covers a stack; a kind that is no plug-in is passed over."""


def chosen_kind(stack: Mapping[str, object], plugins: Registry) -> str:
    """The kind for what instances run with.

    Args:
        stack: model, hardware, engine and ``tensor_parallel``, as :func:`blis_tui.spec.build.stack_of` gives them.
        plugins: the kinds there are.
    """
    known = plugins.names("latency")
    return next(kind for kind, covers in CHOICES if kind in known and covers(stack))
