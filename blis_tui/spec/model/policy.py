"""Who is admitted, where requests go, in which order they run, and who gives way."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model.plugin_config import PluginConfig

SLO_CLASSES: Final = ("critical", "standard", "sheddable", "batch", "background")
"""Service classes from the most to the least urgent; a request without one counts as ``standard``."""

SLO_PRIORITIES: Final = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
"""What a class is worth to admission control and the gateway, as in llm-d: the negative ones may be shed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantBudgets:
    """How much of the cluster each tenant may use."""

    fractions: Mapping[str, float]
    """Tenant -> its share of all batch slots (instances x ``max_num_seqs``); others are unlimited."""
    checked: str
    """``before-admission`` or ``after-admission``."""
    shed_below_priority: int
    """Over its budget, a tenant's requests of classes below this priority are turned away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A queue in front of the router that holds requests back while the instances are saturated."""

    order: str
    """``fifo``, ``priority`` or ``slo-deadline``."""
    saturation: PluginConfig
    dispatch: str
    """``on-completion`` or ``tick``."""
    tick_us: int
    """Time between two dispatches by tick."""
    max_depth: int
    """Requests it holds at most; 0 = unlimited."""
    when_full: str
    """``reject``, ``shed-least-urgent`` or ``shed-sheddable``."""
    bands: bool
    """Whether each priority has a band of its own, served in order of priority."""
    per_band_capacity: int
    """Requests of one priority it holds at most; 0 = unlimited."""
    fairness: str
    """Whose turn it is within a band: ``global-strict``, ``round-robin`` or ``weighted``."""
    weights: Mapping[str, float]
    """Tenant -> its share under ``weighted``; 1 where a tenant has none."""
    request_ttl_us: int
    """How long a request may wait in it; 0 = for ever."""
    usage_limit: float
    """Saturation up to which the least urgent band is served; the most urgent one is up to 1."""
    slo_targets_us: Mapping[str, int]
    """Class -> time to its deadline, for ``slo-deadline``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Every decision that is not physics."""

    name: str
    admission: PluginConfig
    routing: PluginConfig
    scheduling: PluginConfig
    priority: PluginConfig
    batching: PluginConfig
    preemption_victim: str
    preemption_restore: str
    preemption_recompute: str | None = None
    """What a victim computes again: ``prompt`` or ``all``; None = as the batching rule says."""
    slo_priorities: Mapping[str, int] = field(default_factory=SLO_PRIORITIES.copy)
    """Class -> what it is worth; classes below 0 may be shed."""
    tenant_budgets: TenantBudgets | None = None
    deferral: str = "none"
    """``idle-only``: ``batch`` and ``background`` requests wait until the cluster is idle."""
    gateway: Gateway | None = None
