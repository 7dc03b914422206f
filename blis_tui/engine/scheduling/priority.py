"""Priorities: one number a request, computed when it is queued; lower is more urgent (vLLM's convention).

Each rule's order never changes with time, so nothing is recomputed while a request waits: an age-based priority
grows at the same rate for everybody, and who is older stays older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.errors import PolicyError
from blis_tui.spec.model import SLO_CLASSES

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Plug


class PriorityRule(Protocol):
    """Computes a request's priority; must not read its output length."""

    def priority(self, request: Request) -> int:
        """The request's priority; lower is more urgent."""


class ConstantPriority:
    """Everybody is equal."""

    def priority(self, request: Request) -> int:  # noqa: ARG002  (the protocol's signature)
        """Always 0."""
        return 0


class AgePriority:
    """``slo-based`` as BLIS (Go) has it: the older the more urgent. It ignores the SLO class."""

    def priority(self, request: Request) -> int:
        """The arrival time."""
        return request.arrival_us


class InvertedAgePriority:
    """``inverted-slo``: the younger the more urgent; a deliberately unfair rule to study starvation with."""

    def priority(self, request: Request) -> int:
        """The negated arrival time."""
        return -request.arrival_us


class SloClassPriority:
    """``slo-class``: by service class, critical first."""

    def priority(self, request: Request) -> int:
        """Position of the class in ``SLO_CLASSES``."""
        return SLO_CLASSES.index(request.slo_class)


PRIORITIES: Final[dict[str, type[PriorityRule]]] = {
    "constant": ConstantPriority,
    "slo-based": AgePriority,
    "inverted-slo": InvertedAgePriority,
    "slo-class": SloClassPriority,
}


def create_priority(plug: Plug) -> PriorityRule:
    """The priority rule of that name. Raises PolicyError when there is none."""
    try:
        return PRIORITIES[plug.kind]()
    except KeyError:
        raise PolicyError(f"no priority rule `{plug.kind}`", help=f"known: {', '.join(PRIORITIES)}") from None
