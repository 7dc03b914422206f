"""Admission to the cluster: the admission policy, and tenants' budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import Picklable
from blis_tui.cluster.policies.entry import AlwaysAdmit
from blis_tui.cluster.policy import ADMISSION
from blis_tui.cluster.signals import Context

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.base.streams import Streams
    from blis_tui.cluster.instance_registry import InstanceRegistry
    from blis_tui.cluster.signals import Fleet, IncomingRequest
    from blis_tui.engine.records import Observers
    from blis_tui.model import Experiment, TenantBudgets

BUDGET: Final = "tenant-budget"
"""Origin of rejections over a tenant's budget, in place of a policy's name."""


@mypyc_attr(allow_interpreted_subclasses=True)
class AdmissionControl(Picklable):
    """Decides once about each request.

    Args:
        experiment: names the policy, and sets the tenants' budgets.
        registry: the instances.
        fleet: the instances that the policy sees.
        streams: source of the policy's random stream.
        observers: receive the records that the policy emits.

    Attributes:
        name: the policy's name in specs.
        policy: the policy.
        reads_signals: whether the policy uses the instances' signals.
        asks: whether anything could ever be rejected.
    """

    def __init__(
        self, experiment: Experiment, registry: InstanceRegistry, fleet: Fleet, streams: Streams, observers: Observers
    ) -> None:
        policy = experiment.policy
        self.name = policy.admission.kind
        self.policy = experiment.plugins.create(ADMISSION, policy.admission.kind, policy.admission.settings)
        self.reads_signals: bool = getattr(self.policy, "reads_signals", True)
        self._registry = registry
        self._fleet = fleet
        self._context = Context(streams.stream("policy/admission"), policy.slo_priorities, observers)
        self._budgets = policy.tenant_budgets
        registry.counts_tenants = self._budgets is not None
        self.asks = self._budgets is not None or type(self.policy) is not AlwaysAdmit

    def priority(self, request: IncomingRequest) -> int:
        """Return the priority of the request's SLO class."""
        return self._context.priority(request)

    def refusal(self, request: IncomingRequest, now: int) -> tuple[str, str]:
        """Return what rejects ``request``, and why; two empty strings if it is admitted.

        Raises:
            SimulationError: the policy's answer is invalid.
        """
        context = self._context
        context.now_us = now
        asked: Callable[..., object] = self.policy.refusal  # a plug-in may answer anything
        budgets = self._budgets
        first = budgets is not None and budgets.checked == "before-admission"
        if budgets is not None and first and (over := self._over_budget(budgets, request)):
            return BUDGET, over
        reason = asked(request, self._fleet, context)
        if budgets is not None and not first and not reason and (over := self._over_budget(budgets, request)):
            return BUDGET, over
        if type(reason) is not str:
            raise SimulationError(
                f"the admission policy `{self.name}` answers {reason!r} for {request.request_id}",
                help="`refusal` returns why a request is rejected, as text; empty = it is admitted",
            )
        return (self.name, reason) if reason else ("", "")

    def state(self) -> tuple[object, ...]:
        """Return what it remembers, as plain values (for digests)."""
        return (self.policy.state(), self._context.stream.state())

    def _over_budget(self, budgets: TenantBudgets, request: IncomingRequest) -> str:
        tenant = request.tenant_id
        fraction = budgets.fractions.get(tenant)
        if fraction is None or self._context.priority(request) >= budgets.shed_below_priority:
            return ""
        there, limit = self._registry.of_tenants.get(tenant, 0), fraction * self._registry.slots
        return f"{there} in flight, the budget of {tenant} is {limit:g}" if there > limit else ""
