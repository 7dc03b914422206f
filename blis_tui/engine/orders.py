"""The orders in which an instance's queue is served, and the priorities by which requests are ordered.

Priorities: lower is more urgent (vLLM's convention).

Priorities: one number per request, computed when it is queued; lower is more urgent (vLLM's convention).

No rule's order changes with time, so nothing is recomputed while a request waits: an age-based priority grows at the
same rate for all requests.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Final, Protocol, cast

from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import ValidatedPlugin, is_internal_class
from blis_tui.engine.queue import SCHEDULING, FcfsQueue, SortedQueue
from blis_tui.model import SLO_CLASSES
from blis_tui.model.plug_ins import PlugPoint, Stateless

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.queue import WaitingQueue
    from blis_tui.engine.request import Request
    from blis_tui.model.plug_ins import NoSettings


@SCHEDULING.plugin("fcfs", "First come, first served.")
def fcfs(settings: NoSettings) -> WaitingQueue:  # noqa: ARG001  (there are none)
    """First come, first served."""
    return FcfsQueue()


@SCHEDULING.plugin("priority-fcfs", "Highest priority first, then first come.")
def priority_fcfs(settings: NoSettings) -> WaitingQueue:  # noqa: ARG001  (there are none)
    """Sort by priority, then by arrival."""
    return SortedQueue(_by_priority, "The most urgent request goes first, then the oldest")


@SCHEDULING.plugin("sjf", "Shortest prompt first.")
def sjf(settings: NoSettings) -> WaitingQueue:  # noqa: ARG001  (there are none)
    """Sort by the length of the prompt, then by arrival."""
    return SortedQueue(_by_length, "The shortest prompt goes first")


@SCHEDULING.plugin("reverse-priority", "Lowest priority first: a deliberately bad baseline.", of_blis=True)
def reverse_priority(settings: NoSettings) -> WaitingQueue:  # noqa: ARG001  (there are none)
    """Sort by priority, the least urgent first, then by arrival."""
    return SortedQueue(_by_reversed_priority, "The least urgent request goes first, then the oldest")


def _by_priority(request: Request) -> int:
    return request.priority


def _by_reversed_priority(request: Request) -> int:
    return -request.priority


def _by_length(request: Request) -> int:
    return request.input_tokens


class PriorityRule(Protocol):
    """Computes a request's priority. It must not read the output length."""

    def priority(self, request: Request) -> int:
        """Return the request's priority; lower is more urgent."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""


PRIORITY: Final = PlugPoint[[], PriorityRule]("policy.priority", "priority rule", PriorityRule)


class _ValidatedRule(ValidatedPlugin):
    """A plug-in's rule, whose priorities are checked; ``kind`` is its name in documents."""

    def __init__(self, rule: PriorityRule, kind: str) -> None:
        super().__init__(rule)
        self._rule = rule
        self._kind = kind

    def priority(self, request: Request) -> int:
        """Return the plug-in's answer.

        Raises:
            SimulationError: it is not a whole number.
        """
        says: Callable[..., object] = self._rule.priority
        answer = says(request)
        try:
            return index(cast("int", answer))
        except TypeError:
            message = f"the priority rule `{self._kind}` answers {answer!r} for {request.request_id}"
            help_ = "`priority` returns a whole number; the smallest is the most urgent"
            raise SimulationError(message, help=help_) from None

    def state(self) -> tuple[object, ...]:
        """Return everything the plug-in remembers."""
        return self._rule.state()


def validated_rule(rule: PriorityRule, kind: str) -> PriorityRule:
    """Return the rule; that of a plug-in is wrapped so that its answers are checked."""
    return rule if is_internal_class(type(rule)) else _ValidatedRule(rule, kind)


class _Stateless(Stateless):
    """Base of all rules here, which have no settings and no memory."""


@PRIORITY.plugin("constant", "All requests have the same priority.")
class ConstantPriority(_Stateless):
    """Gives all requests the same priority."""

    def priority(self, request: Request) -> int:  # noqa: ARG002  (the protocol's signature)
        """Always 0."""
        return 0


@PRIORITY.plugin("slo-based", "Priority grows with age, regardless of the class.")
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


@PRIORITY.plugin("slo-class", "Priority follows the request's SLO class.")
class SloClassPriority(_Stateless):
    """``slo-class``: by SLO class, critical first."""

    def priority(self, request: Request) -> int:
        """Return the position of the class in ``SLO_CLASSES``."""
        return SLO_CLASSES.index(request.slo_class)
