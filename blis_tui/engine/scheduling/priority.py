"""Priorities: one number per request, computed when it is queued; lower is more urgent (vLLM's convention).

No rule's order changes with time, so nothing is recomputed while a request waits: an age-based priority grows at the
same rate for all requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.registry import PlugPoint
from blis_tui.spec.model import SLO_CLASSES

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.registry import NoSettings


class PriorityRule(Protocol):
    """Computes a request's priority. It must not read the output length."""

    def priority(self, request: Request) -> int:
        """Return the request's priority; lower is more urgent."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""


PRIORITY: Final = PlugPoint[[], PriorityRule]("policy.priority", "priority rule", PriorityRule)


class _Stateless:
    """Base of all rules here, which have no settings and no memory."""

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


@PRIORITY.plugin("constant", "All requests alike.")
class ConstantPriority(_Stateless):
    """Gives all requests the same priority."""

    def priority(self, request: Request) -> int:  # noqa: ARG002  (the protocol's signature)
        """Always 0."""
        return 0


@PRIORITY.plugin("slo-based", "Priority grows with age, whatever the class.")
class AgePriority(_Stateless):
    """``slo-based`` as in BLIS (Go): older requests are more urgent. It ignores the SLO class."""

    def priority(self, request: Request) -> int:
        """Return the arrival time."""
        return request.arrival_us


@PRIORITY.plugin("inverted-slo", "Priority falls with age: a deliberately bad baseline.", of_blis=True)
class InvertedAgePriority(_Stateless):
    """``inverted-slo``: younger requests are more urgent; a deliberately unfair rule to study starvation with."""

    def priority(self, request: Request) -> int:
        """Return the negated arrival time."""
        return -request.arrival_us


@PRIORITY.plugin("slo-class", "Priority follows the request's service class.")
class SloClassPriority(_Stateless):
    """``slo-class``: by SLO class, critical first."""

    def priority(self, request: Request) -> int:
        """Return the position of the class in ``SLO_CLASSES``."""
        return SLO_CLASSES.index(request.slo_class)
