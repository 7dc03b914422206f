"""Checks of keys that are set and that nothing reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.metrics.lints.finding import Finding
from blis_tui.spec.model.policy import SLO_PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.metrics.lints.finding import Seen
    from blis_tui.spec.model import Policy

WITHOUT_PRIORITIES: Final = ("fcfs", "sjf", "lof", "lpm")
"""Orders of the queue that do not ask how urgent a request is."""
WITHOUT_CLASSES: Final = ("always-admit", "token-bucket", "reject-all")
"""Admission policies that do not ask what its class is worth."""


def unread_keys(seen: Seen) -> Finding | str:
    """Keys of the policy are set that nothing reads: priorities, what classes are worth, a gateway that holds nothing.

    Experiments with plug-ins are not looked at: these may read anything.
    """
    if seen.experiment.plugins.origins:
        return ""
    found = dict(_unread(seen.experiment.policy))
    if not found:
        return ""
    return Finding(
        id="unread-keys",
        message=" ".join(f"{key} has no effect: {why}." for key, why in found.items()),
        figures={"keys": len(found)},
        advice=f"Leave {' and '.join(found)} out, or name what reads it.",
        keys=tuple(found),
    )


def _unread(policy: Policy) -> Iterator[tuple[str, str]]:
    order, victim = policy.scheduling.kind, policy.preemption_victim
    if policy.priority.kind != "constant" and order in WITHOUT_PRIORITIES and victim != "priority":
        yield "policy.priority", f"neither `scheduling: {order}` nor `victim: {victim}` reads priorities"
    admission = policy.admission.kind
    if (
        dict(policy.slo_priorities) != dict(SLO_PRIORITIES)
        and admission in WITHOUT_CLASSES
        and policy.tenant_budgets is None
        and policy.gateway is None
    ):
        yield "policy.slo_priorities", f"there is no gateway, and `admission: {admission}` reads no classes"
    gateway = policy.gateway
    if gateway is not None and gateway.saturation.kind == "never" and gateway.dispatch == "on-completion":
        yield "policy.gateway", "with `saturation: never` it dispatches every request at once"
