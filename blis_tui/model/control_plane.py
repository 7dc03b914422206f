"""Policies, the control plane in front of the instances, the signals that it sees, and the lifecycle of instances."""

from __future__ import annotations

from dataclasses import field, fields, is_dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from blis_tui.base.classes import dataclass
from blis_tui.model.keys import (
    SMALLEST,
    DocumentKey,
    amount,
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

_MOST_INSTANCES: Final = 10_000
_MOST_GPUS: Final = 1_000_000
_LONGEST_US: Final = 10**12
NAME: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Pattern of names that records and reports show."""
_ROUTING: Final = "policy.schema.json#/$defs/document/properties/routing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """How fresh the figures are that admission, gateway and router see."""

    results: str = choice(
        "When the results of a step (which requests have left the batch, what is in the cache) become visible.",
        {
            "step-end": "At its end.",
            "step-start": "From its start, as in the BLIS simulator: the step's outcome is known before it has run.",
        },
        default="step-end",
    )
    refresh_interval_us: int = key(
        "Age in microseconds at which queue, batch and KV signals are refreshed; 0 = always fresh. Requests in flight "
        "are always known.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    cache_signal_delay_us: int = key(
        "Age in microseconds at which the view of the prefix caches is refreshed; 0 = always fresh.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The link over which prefilled KV blocks reach the decode instance."""

    bandwidth_gb_per_s: float = key(
        "Bandwidth in 10^9 bytes per second.", default=25.0, minimum=SMALLEST, maximum=10**6
    )
    base_latency_us: int = key("Latency of every transfer in microseconds.", default=50, minimum=0, maximum=10**9)
    bytes_per_token: int | None = amount(
        "Bytes of a token's keys and values on one accelerator; `model` = as the model and the tensor parallelism of"
        " each prefill instance say.",
        ["model"],
        default="model",
        minimum=1,
        maximum=10**9,
    )
    starts: str = choice(
        "When a transfer starts.",
        {
            "step-end": "At the end of the step that completes the prefill.",
            "step-start": "At its start, as in the BLIS simulator.",
        },
        default="step-end",
    )
    contention: str = choice(
        "How concurrent transfers share the bandwidth.",
        {
            "none": "Each has the full bandwidth.",
            "fair-share": "All active transfers have equal shares at any time.",
            "fixed-at-start": "Each keeps the equal share that it has when it starts, as in the BLIS simulator.",
        },
        default="none",
    )
    overlap: str = choice(
        "Whether the transfer of a prompt's KV blocks overlaps with the last step of its prefill. Default: `none`.",
        {
            "none": "The transfer starts when the step is over.",
            "layer-wise": "The blocks of a layer are sent while later layers are computed; only the rest is left after "
            "the step.",
        },
        absent="none",
    )
    reuse_cached_blocks: bool = key(
        "Do not transfer blocks of a prompt that the decode instance has in its prefix cache. It needs"
        " `order: decode-first`.",
        absent=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregation:
    """Prefill on some instances, decode on others."""

    prefill_instances: ClassVar[DocumentKey] = document_key(
        int,
        "Number of instances that only prefill: the first ones. Not needed if pools have roles.",
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    decode_instances: ClassVar[DocumentKey] = document_key(
        int,
        "Number of instances that decode: those after them. Not needed if pools have roles.",
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    decider: PluginConfig = plug_in(
        "cluster.disaggregation.decider", "Which requests are split.", default={"kind": "always"}
    )
    order: str = choice(
        "When the decode instance is chosen.",
        {
            "prefill-first": "When the transfer ends; its KV blocks are allocated then.",
            "decode-first": "Before the prefill; its KV blocks are reserved when the transfer starts.",
        },
        default="prefill-first",
    )
    undisaggregated: str = choice(
        "Where requests that are not split go; with `order: decode-first` always to a decode instance.",
        {"decode-pool": "To a decode instance.", "all": "To any instance."},
        default="decode-pool",
    )
    prefill_routing: PluginConfig = plug_in(
        "policy.routing",
        "How the prefill instance is chosen. Default: by `policy.routing`.",
        ref=_ROUTING,
        optional=True,
    )
    decode_routing: PluginConfig = plug_in(
        "policy.routing",
        "How the decode instance is chosen. Default: by `policy.routing`.",
        ref=_ROUTING,
        optional=True,
    )
    transfer: Transfer = part("The link between prefill and decode instances.", Transfer, default={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """How an instance comes, and how it goes."""

    loading_delay_us: int = key(
        "Time in microseconds for which an instance loads its weights before it receives requests.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
        examples=[60_000_000],
    )
    warm_up_requests: int = key(
        "Number of requests that leave an instance before it is warm.", default=0, minimum=0, maximum=10**9
    )
    warm_up_factor: float = key(
        "Factor by which its steps take longer until then.", default=1.0, minimum=1, maximum=1000
    )
    drain: str = choice(
        "What happens to the requests of an instance that the autoscaler removes.",
        {
            "wait": "It serves them to completion.",
            "redirect": "It serves running requests to completion; waiting ones are routed again.",
            "immediate": "It stops after its current step; its requests are lost.",
        },
        default="wait",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """When which instances die. Give `at_us` or `mean_time_between_us`."""

    instance: int | None = key(
        "Index of the instance that fails, from 0. Default: all (or those of `pool`).",
        absent=None,
        minimum=0,
        maximum=10**6,
    )
    pool: str | None = key("The pool whose instances fail.", absent=None, minLength=1)
    at_us: int | None = key(
        "Time of the failure, in microseconds.", absent=None, minimum=0, maximum=10**15, examples=[5_000_000]
    )
    mean_time_between_us: int | None = key(
        "Mean time in microseconds from an instance's start to its failure, which is random (exponential).",
        absent=None,
        minimum=1,
        maximum=10**15,
        examples=[3_600_000_000],
    )
    repair_us: int | None = amount(
        "Time in microseconds from its failure until it loads again; `none` = it never comes back.",
        ["none"],
        default="none",
        minimum=0,
        maximum=_LONGEST_US,
    )
    requests: str = choice(
        "What happens to its requests.",
        {
            "retry": "They are routed again and start from the beginning; their arrival time stays.",
            "lose": "They are lost.",
        },
        default="retry",
    )
    max_retries: int = key(
        "A request whose instances have failed more often than this is lost.", default=3, minimum=0, maximum=10**6
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A time that varies: normally distributed, never below 0."""

    mean_us: int = key("Mean in microseconds.", name="mean", default=0, minimum=0, maximum=_LONGEST_US)
    std_dev_us: int = key(
        "Standard deviation in microseconds; times below 0 count as 0.",
        name="std_dev",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A pool of equal machines."""

    name: str = key("Name of its nodes in records and reports, followed by a number.", pattern=NAME)
    gpu: str = key("Name of the hardware of the instances that they can host.", minLength=1, examples=["h100"])
    gpus_per_node: int = key("Accelerators per node.", minimum=1, maximum=1024, examples=[8])
    initial: int = key("Nodes that are ready from the start.", default=1, minimum=0, maximum=10_000)
    min: int = key("Minimum number of nodes; empty nodes above it are released.", default=0, minimum=0, maximum=10_000)
    max: int = key("Maximum number of nodes.", default=10_000, minimum=1, maximum=10_000)
    provisioning_delay: Delay = part(
        "Time from requesting a node until it is ready.", Delay, name="provisioning_delay_us", default={}
    )
    cost_per_hour: float | None = key(
        "What a node costs per hour, in any currency.", absent=None, minimum=0, maximum=1e9, examples=[98.32]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """Adds and removes instances by what they hold and what waits."""

    interval_us: int = key(
        "Time in microseconds between two evaluations.", default=15_000_000, minimum=1000, maximum=_LONGEST_US
    )
    min_instances: ClassVar[DocumentKey] = document_key(
        int,
        "Minimum instances of each pool that does not set its own; 0 = scale to zero.",
        default=1,
        minimum=0,
        maximum=_MOST_INSTANCES,
    )
    max_instances: ClassVar[DocumentKey] = document_key(
        int,
        "Maximum instances of each pool that does not set its own.",
        required=True,
        minimum=1,
        maximum=_MOST_INSTANCES,
        examples=[8],
    )
    bounds: Mapping[str, tuple[int, int]]
    """Pool -> minimum and maximum number of instances."""
    max_gpus: int | None = key(
        "Maximum number of GPUs that all pools hold together. Default: no limit but those of the pools.",
        absent=None,
        minimum=1,
        maximum=_MOST_GPUS,
        examples=[16],
    )
    kv_utilization_threshold: float = key(
        "Share of an instance's KV cache that counts as supply.", default=0.8, minimum=SMALLEST, maximum=1
    )
    scale_up_threshold: float = key(
        "More instances are needed when demand is above this share of the supply.",
        default=0.8,
        minimum=SMALLEST,
        maximum=1,
    )
    scale_down_boundary: float = key(
        "Fewer are enough when demand is below this share of the supply.",
        default=0.4,
        minimum=SMALLEST,
        maximum=1,
    )
    avg_input_tokens: int = key("KV tokens that each waiting request counts as.", default=512, minimum=1, maximum=10**9)
    scale_up_window_us: int = key(
        "Time in microseconds for which more instances must be needed before any are added.",
        name="scale_up_stabilization_window_us",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    scale_down_window_us: int = key(
        "Time in microseconds for which fewer instances must be enough before any are removed.",
        name="scale_down_stabilization_window_us",
        default=300_000_000,
        minimum=0,
        maximum=_LONGEST_US,
    )
    scrape_delay: Delay = part("Delay from a decision to its effect.", Delay, name="scrape_delay_us", default={})
    rule: PluginConfig | None = plug_in(
        "cluster.autoscaler.rule",
        "How many instances there should be. Default: by KV tokens, with the thresholds here.",
        absent=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The instances, and what the way to them costs."""

    instances: ClassVar[DocumentKey] = document_key(
        int,
        "Number of engine instances (data-parallel replicas); with `pools` their sum, with"
        " `disaggregation.prefill_instances` and `decode_instances` at least theirs. With `engine.data_parallel` each"
        " is a model replica of so many ranks.",
        default=1,
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    tensor_parallel: ClassVar[DocumentKey] = document_key(
        int, "Accelerators that each layer of an instance is split over.", default=1, minimum=1, maximum=1024
    )
    admission_latency_us: int = key(
        "Time between a request's arrival and its admission, in microseconds.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    routing_latency_us: int = key(
        "Time between a request's admission and its arrival at an instance, in microseconds.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    signals: Signals = part(
        "How fresh the signals are that admission, gateway and router see. Default: always fresh.",
        Signals,
        filled=True,
    )
    disaggregation: Disaggregation | None = part(
        "Prefill on some instances and decode on others, with a transfer of KV blocks between them. Off by default.",
        Disaggregation,
        absent=None,
    )
    pools: ClassVar[DocumentKey] = document_key(
        ("#/$defs/pool",),
        "Groups of identical instances. `cluster.instances` is their sum and may be omitted; a pool inherits what it "
        "does not set from the experiment.",
        minItems=1,
        maxItems=100,
    )
    lifecycle: Lifecycle | None = part(
        "How instances are started and stopped. Those present at the start are loaded and warm.", Lifecycle, absent=None
    )
    nodes: tuple[NodePool, ...] = part(
        "The nodes that instances are placed on: each on the first node with enough free accelerators of its hardware. "
        "Default: there is always room.",
        (NodePool,),
        absent=(),
        minItems=1,
        maxItems=100,
    )
    failures: tuple[Failure, ...] = part("Failures of instances.", (Failure,), absent=(), minItems=1, maxItems=1000)
    autoscaler: Autoscaler | None = part(
        "Adds and removes instances by demand. Off by default.", Autoscaler, absent=None
    )

    @property
    def varies(self) -> bool:
        """Whether instances may come or go during a run."""
        return bool(self.lifecycle or self.failures or self.nodes or self.autoscaler)


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
        for element in record:
            yield from named_in(element)
    elif is_dataclass(record):
        for declared in fields(record):
            held = getattr(record, declared.name)
            point = declared.metadata["key"].point if "key" in declared.metadata else ""
            if not point:
                yield from named_in(held)
            elif held is not None:
                yield point, PluginConfig(kind=held) if isinstance(held, str) else held
