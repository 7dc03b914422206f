"""Priorities: one number a request, computed when it is queued; lower is more urgent (vLLM's convention).

Each rule's order never changes with time, so nothing is recomputed while a request waits: an age-based priority
grows at the same rate for all, and who is older stays older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.registry import PlugPoint
from blis_tui.spec.model import SLO_CLASSES

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.registry import NoSettings


class PriorityRule(Protocol):
    """Computes a request's priority; must not read its output length."""

    def priority(self, request: Request) -> int:
        """The request's priority; lower is more urgent."""

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""


PRIORITY: Final = PlugPoint[[], PriorityRule]("policy.priority", "priority rule", PriorityRule)


class _Stateless:
    """The part all rules here share: no settings, nothing to remember."""

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()


@PRIORITY.plugin("constant", "All requests have the same priority.")
class ConstantPriority(_Stateless):
    """All requests are equal."""

    def priority(self, request: Request) -> int:  # noqa: ARG002  (the protocol's signature)
        """Always 0."""
        return 0


@PRIORITY.plugin("slo-based", "Priority grows with age, regardless of the class.")
class AgePriority(_Stateless):
    """``slo-based`` as BLIS (Go) has it: the older the more urgent. It ignores the SLO class."""

    def priority(self, request: Request) -> int:
        """The arrival time."""
        return request.arrival_us


@PRIORITY.plugin("inverted-slo", "Priority falls with age: a deliberately bad baseline.", of_blis=True)
class InvertedAgePriority(_Stateless):
    """``inverted-slo``: the younger the more urgent; a deliberately unfair rule to study starvation with."""

    def priority(self, request: Request) -> int:
        """The negated arrival time."""
        return -request.arrival_us


@PRIORITY.plugin("slo-class", "Priority follows the request's SLO class.")
class SloClassPriority(_Stateless):
    """``slo-class``: by service class, critical first."""

    def priority(self, request: Request) -> int:
        """Position of the class in ``SLO_CLASSES``."""
        return SLO_CLASSES.index(request.slo_class)
