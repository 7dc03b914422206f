"""Policies of admission, routing, scheduling and preemption."""

from __future__ import annotations

from dataclasses import field, fields, is_dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from blis_tui.base.classes import dataclass
from blis_tui.model.keys import (
    SMALLEST,
    DocumentKey,
    choice,
    document_key,
    entry,
    group_of,
    key,
    part,
    plug_in,
    variants,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


SLO_CLASSES: Final = ("critical", "standard", "sheddable", "batch", "background")
"""SLO classes from the most to the least urgent; a request without one counts as ``standard``."""

SLO_PRIORITIES: Final = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
"""Priority of each class for admission control and the gateway, as in llm-d; negative ones may be shed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantBudgets:
    """How much of the cluster each tenant may use."""

    fractions: Mapping[str, float] = key(
        "Tenant -> its share of all batch slots (instances x max_num_seqs). A tenant that is not listed is unlimited.",
        minProperties=1,
        maxProperties=10_000,
        additionalProperties={
            "description": "Share of all batch slots.",
            "type": "number",
            "minimum": 0,
            "maximum": 1,
        },
        examples=[{"acme": 0.5}],
    )
    checked: str = choice(
        "When the budget is checked.",
        {
            "before-admission": "Before the admission policy, which then sees only requests within budget.",
            "after-admission": "After the admission policy: a rejected request has cost it a decision.",
        },
        default="before-admission",
    )
    shed_below_priority: int = key(
        "Over its budget, a tenant's requests of classes below this priority are rejected.",
        default=0,
        minimum=-101,
        maximum=101,
    )


class Tick:
    """Settings of the gateway's ``dispatch: tick``."""

    interval_us = document_key(int, "Microseconds between two ticks.", default=1000, minimum=1, maximum=10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A queue in front of the router that holds requests back while the instances are saturated."""

    order: str = choice(
        "Which request is dispatched first.",
        {
            "fifo": "The request that has waited longest.",
            "priority": "The most urgent SLO class; within it, the request that has waited longest.",
            "slo-deadline": "Earliest deadline first (arrival at the gateway + the target of its class).",
        },
        default="fifo",
    )
    saturation: PluginConfig = plug_in(
        "policy.gateway.saturation",
        "How busy the instances are: requests are dispatched while it is below 1.",
        default={"kind": "never"},
    )
    dispatch: str = variants(
        "What triggers a dispatch.",
        {
            "on-completion": ("One request when one arrives, and one for each request that ends.", None),
            "tick": ("One request when one arrives, and one at every tick while any are waiting.", Tick),
        },
        default={"kind": "on-completion"},
    )
    tick_us: int
    """Time between two dispatches by tick."""
    max_depth: int = key("Maximum number of requests it holds; 0 = unlimited.", default=0, minimum=0, maximum=10**9)
    when_full: str = choice(
        "What happens when it is full.",
        {
            "reject": "The new request is rejected.",
            "shed-least-urgent": "The least urgent request goes, of equals the latest; the newcomer, unless it is more "
            "urgent.",
            "shed-sheddable": "Likewise, but only requests of classes below priority 0 may be displaced.",
        },
        default="reject",
    )
    bands: bool = key(
        "Whether each priority has a band of its own, served in order of priority.",
        default=False,
    )
    per_band_capacity: int = key(
        "Maximum number of requests of one priority it holds; 0 = unlimited.", default=0, minimum=0, maximum=10**9
    )
    fairness: str = choice(
        "Whose turn it is among the tenants of a band.",
        {
            "global-strict": "No turns: the order alone decides.",
            "round-robin": "Tenants with waiting requests take turns, by name.",
            "weighted": "Deficit round-robin: turns of prompt tokens in proportion to `weights`.",
        },
        default="global-strict",
    )
    weights: Mapping[str, float] = key(
        "Tenant -> its share under `weighted`; 1 where a tenant has none.",
        absent={},
        maxProperties=10_000,
        additionalProperties={
            "description": "Its share.",
            "type": "number",
            "minimum": 0.001,
            "maximum": 10**6,
        },
    )
    request_ttl_us: int = key(
        "How long a request may wait in it, in microseconds; 0 = for ever.", default=0, minimum=0, maximum=10**12
    )
    usage_limit: float = key(
        "Saturation up to which the least urgent band is served; the most urgent one is up to 1, those between at equal"
        " distances.",
        default=1.0,
        minimum=SMALLEST,
        maximum=1,
    )
    slo_targets_us: Mapping[str, int] = part(
        "Class -> time to its deadline in microseconds, for `slo-deadline`; classes without one come last.",
        {name: entry(int, f"Of `{name}`.", minimum=1, maximum=10**12) for name in SLO_CLASSES},
        absent={},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Admission, routing, scheduling, batching and preemption."""

    name: str
    admission: PluginConfig = plug_in(
        "policy.admission", "Which requests are admitted to the cluster.", default={"kind": "always-admit"}
    )
    routing: PluginConfig = plug_in(
        "policy.routing", "Which instance a request goes to.", default={"kind": "round-robin"}
    )
    scheduling: PluginConfig = plug_in(
        "policy.scheduling", "The order in which an instance's queue is served.", default={"kind": "fcfs"}
    )
    priority: PluginConfig = plug_in("policy.priority", "How urgent a request is.", default={"kind": "constant"})
    batching: PluginConfig = plug_in("policy.batching", "How an engine forms batches.", default={"kind": "vllm-v1"})
    preemption: ClassVar[DocumentKey] = group_of("What happens when the KV cache is full.", default={})
    preemption_victim: str = plug_in(
        "policy.preemption.victim",
        "Which running request is preempted.",
        default="tail",
        name="victim",
        group="preemption",
    )
    preemption_restore: str = plug_in(
        "policy.preemption.restore",
        "How a victim comes back.",
        default="recompute",
        name="restore",
        group="preemption",
    )
    preemption_recompute: str | None = choice(
        "What a victim computes again: its `prompt`, generating its answer anew, or `all`, the tokens it had generated"
        " included; left out = as the batching rule does (`blis`: prompt, `vllm-v1`: all). With `swap` and `auto` it is"
        " always all.",
        {"prompt": "Generated tokens are lost.", "all": "Generated tokens are kept."},
        absent=None,
        name="recompute",
        group="preemption",
    )
    slo_priorities: Mapping[str, int] = part(
        "Priority of each SLO class for admission control and the gateway; classes below 0 may be shed.",
        {
            name: entry(
                int,
                f"Of `{name}`; larger is more urgent.",
                default=SLO_PRIORITIES[name],
                minimum=-100,
                maximum=100,
            )
            for name in SLO_CLASSES
        },
        absent=SLO_PRIORITIES,
    )
    tenant_budgets: TenantBudgets | None = part(
        "How much of the cluster each tenant may use.", TenantBudgets, absent=None
    )
    deferral: str = variants(
        "Whether `batch` and `background` requests wait until the cluster is idle.",
        {
            "none": ("They are served like all others.", None),
            "idle-only": ("They wait until no instance has work, and then arrive all at once.", None),
        },
        absent="none",
    )
    gateway: Gateway | None = part(
        "A queue in front of the router that holds requests back while the instances are saturated. Off by default.",
        Gateway,
        absent=None,
    )


# Plug-ins named in a document.

Setting: TypeAlias = "bool | int | float | str | tuple[float, ...] | Mapping[str, float] | tuple[PluginConfig, ...]"
"""Type of a plug-in's setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """A plug-in's name and its settings in a document, with defaults filled in by the schema."""

    kind: str
    settings: Mapping[str, Setting] = field(default_factory=dict)


def named_in(record: object) -> Iterator[tuple[str, PluginConfig]]:
    """Yield every plug-in that a record or its nested records name: the plug point, and the configuration."""
    if isinstance(record, tuple):
        for one in record:
            yield from named_in(one)
    elif is_dataclass(record):
        for one in fields(record):
            held = getattr(record, one.name)
            point = one.metadata["key"].point if "key" in one.metadata else ""
            if not point:
                yield from named_in(held)
            elif held is not None:
                yield point, PluginConfig(kind=held) if isinstance(held, str) else held
