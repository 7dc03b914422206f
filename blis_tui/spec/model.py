"""The resolved experiment: frozen records, every default filled in, every reference followed.

Standard library only, and the bottom of the package's arrows: engine, cluster and workload know these records and
nothing of YAML, schemas or files. Units are in the names; ``None`` means "off" or "unlimited". See ``schemas/``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.registry import builtin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.registry import Plugin, Registry
    from blis_tui.spec.memory import HostLink, KvTiers

SLO_CLASSES: Final = ("critical", "standard", "sheddable", "batch", "background")
"""Service classes from the most to the least urgent; a request without one counts as ``standard``."""

SLO_PRIORITIES: Final = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
"""What a class is worth to admission control and the gateway, as in llm-d: the negative ones may be shed."""

_ANY_INSTANCE: Final = 1 << 15
"""More instances than there ever are in a run."""
_DECISIONS: Final = ("admission", "routing", "scheduling", "priority", "batching")

Setting: TypeAlias = "bool | int | float | str | tuple[float, ...] | Mapping[str, float] | tuple[PluginConfig, ...]"
"""What a setting of a plug-in may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer's shape, derived from its Hugging Face ``config.json`` fields."""

    name: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    activation_bytes: float
    """Bytes of one activation (from ``torch_dtype``)."""
    kv_cache_bytes: float
    """Bytes of one KV-cache element (from ``engine.kv_cache_dtype``, else the activation's)."""
    weight_bytes: float
    """Bytes of one weight (from ``quantization_config``, else the activation's)."""
    max_position_embeddings: int
    """Longest context in tokens, rotary scaling already applied."""
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    num_experts: int = 0
    """Routed experts per MoE layer; 0 = dense."""
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    """Width of one routed expert; 0 = ``intermediate_size``."""
    shared_expert_intermediate_size: int = 0
    """Width of all always-active experts of a layer together; 0 = none."""
    interleave_moe_layer_step: int = 0
    """Every (step+1)-th layer is MoE; 0 = all of them (when there are experts)."""
    dense_intermediate_size: int = 0
    """Width of the dense layers of an interleaved MoE model; 0 = ``intermediate_size``."""
    first_k_dense_replace: int = 0
    """The first k layers are dense although the model has experts."""
    kv_lora_rank: int = 0
    """Rank of the compressed KV cache (multi-head latent attention); 0 = ordinary KV heads."""
    qk_rope_head_dim: int = 0
    fp8_scales: str = ""
    """Of FP8 weights: one scale per ``block`` or per ``channel``; empty = weights of another type."""
    expert_weight_bytes: float = 0.0
    """Bytes of one weight of a routed expert; 0 = ``weight_bytes``."""
    sliding_window: int = 0
    """Tokens that layers with a sliding window see; 0 = there are none."""
    sliding_window_layers: int = 0
    """How many layers have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator's datasheet figures and measured utilisation."""

    name: str
    memory_gib: float
    peak_tflops_bf16: float
    peak_tflops_fp8: float
    """0 = the accelerator has no FP8 units."""
    memory_bandwidth_tb_per_s: float
    mfu_prefill: float
    mfu_decode: float
    peak_tflops_fp4: float = 0.0
    """0 = the accelerator has no units for 4 bits."""
    host_link_gb_per_s: float = 32.0  # of one accelerator, in one direction
    interconnect_gb_per_s: float = 64.0
    """Between the accelerators of a node, both directions together; without such a link, that to the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """What a spec says at a plug point: a plug-in's name and its settings, defaults filled in by the schema."""

    kind: str
    settings: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prompt prefix shared by all requests of ``group``."""

    group: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A client's connection."""

    rtt_ms: float
    bandwidth_mbps: float | None
    """None = unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One stream of generated requests."""

    id: str
    share: float
    arrivals: PluginConfig
    input_tokens: PluginConfig
    output_tokens: PluginConfig
    prefix: Prefix | None = None
    slo_class: str = "standard"
    tenant: str = ""
    model: str = ""
    """Name of the model that its requests ask for; empty = any."""
    timeout_us: int | None = None
    network: Network | None = None
    repeated_prompts: int = 0
    """It sends so many prompts again and again; 0 = every prompt is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A rate for some time."""

    rate_per_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded workload. ``path`` is absolute; ``sha256`` of the content stands for it in the digest."""

    path: str
    format: str
    sha256: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """What is said -> the column that says it, where its name does not."""
    time_unit: str = ""
    """Unit of the arrivals, ``s``, ``ms``, ``us`` or ``ns``; empty = the file tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Generated (``clients``) or recorded (``trace``); exactly one of the two is set."""

    name: str
    requests: int | None = None
    """How many requests of all clients together; ``None`` = until the horizon (or all of the trace)."""
    rate_per_s: float = 0.0
    stages: tuple[Stage, ...] = ()
    """Instead of one rate: one after the other; requests end with the last one."""
    exact_stage_counts: bool = False
    """Whether each stage gets exactly rate x duration requests, as far as they are whole."""
    clients: tuple[Client, ...] = ()
    trace: Trace | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """How fresh the figures are that admission, gateway and router see."""

    results: str = "step-end"
    """When the results of a step are seen: at its end, or (as in BLIS) from its start, ``step-start``."""
    refresh_interval_us: int = 0
    """Age at which queue, batch and KV figures are renewed; 0 = always fresh. In-flight counts always are."""
    cache_signal_delay_us: int = 0
    """The same for what is in the prefix caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The link over which prefilled KV blocks reach the decode instance."""

    bandwidth_gb_per_s: float
    base_latency_us: int
    bytes_per_token: int | None
    """None = as each prefill instance's model and tensor parallelism say."""
    starts: str
    """At the ``step-end`` of the step that completes the prefill, or (as in BLIS) at its ``step-start``."""
    contention: str
    """``none``, ``fair-share`` of the bandwidth at any time, or ``fixed-at-start``: the share when it starts."""
    overlap: str = "none"
    """``layer-wise``: the KV blocks of a layer go while later ones of the prefill's last step are computed."""
    reuse_cached_blocks: bool = False
    """Blocks of a prompt that the decode instance has in its prefix cache are not transferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregation:
    """Prefill on some instances, decode on others."""

    decider: PluginConfig
    """Which requests are split."""
    order: str
    """``prefill-first``: the decode instance is chosen when the KV blocks have arrived; ``decode-first``: before."""
    undisaggregated: str
    """Where requests go that are not split: ``decode-pool`` or ``all``."""
    transfer: Transfer
    prefill_routing: PluginConfig
    decode_routing: PluginConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """How an instance comes, and how it goes."""

    loading_delay_us: int = 0
    """From its placement until its weights are loaded; the instances of the start are there at once."""
    warm_up_requests: int = 0
    """So many requests leave it before it is warm."""
    warm_up_factor: float = 1.0
    """How many times as long its steps take until then."""
    drain: str = "wait"
    """What becomes of the requests of an instance that goes: ``wait``, ``redirect`` or ``immediate``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """When which instances die, and what becomes of their requests."""

    instance: int | None
    """The index of the only one; None = all of a pool."""
    pool: str | None
    """Whose instances; None = all, or the one named."""
    at_us: int | None
    """Once, then; None = at random."""
    mean_time_between_us: int | None
    """Of the exponential distribution of times from an instance's start to its failure."""
    repair_us: int | None
    """From its end until it loads again; None = it never does."""
    requests: str = "retry"
    """``retry``: they are routed again and start from the beginning; ``lose``: they are lost."""
    max_retries: int = 3
    """A request that is hit more often is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A time that varies: normally distributed, never below 0. In microseconds."""

    mean_us: int = 0
    std_dev_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Equal machines that instances are placed on."""

    name: str
    gpu: str
    """The hardware of the instances that they can host."""
    gpus_per_node: int
    initial: int
    min: int
    """An empty node is given back as long as more than these are left."""
    max: int
    provisioning_delay: Delay
    cost_per_hour: float | None
    """Of one node; None = not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """Adds and removes instances by what they hold and what waits."""

    interval_us: int
    bounds: Mapping[str, tuple[int, int]]
    """Pool -> the least and the most instances it may have."""
    kv_utilization_threshold: float
    """Share of an instance's KV cache that counts as supply."""
    scale_up_threshold: float
    """More is needed when demand is above this share of the supply."""
    scale_down_boundary: float
    """Less is enough when demand is below this share of the supply."""
    avg_input_tokens: int
    """KV tokens that a waiting request counts for."""
    scale_up_window_us: int
    """How long more must be needed before it acts; likewise below."""
    scale_down_window_us: int
    scrape_delay: Delay
    """From a decision to what it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What the way to the instances costs, what is known on the way, and how instances come and go."""

    admission_latency_us: int
    routing_latency_us: int
    signals: Signals = field(default_factory=Signals)
    disaggregation: Disaggregation | None = None
    lifecycle: Lifecycle | None = None
    failures: tuple[Failure, ...] = ()
    nodes: tuple[NodePool, ...] = ()
    autoscaler: Autoscaler | None = None

    @property
    def varies(self) -> bool:
        """Whether instances may come or go during a run."""
        return bool(self.lifecycle or self.failures or self.nodes or self.autoscaler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One instance's limits, under vLLM's names; every ``auto`` already resolved."""

    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    """0 = off."""
    max_model_len: int | None
    block_size_tokens: int
    kv_blocks: int
    enable_prefix_caching: bool = True
    host_link: HostLink | None = None
    kv_tiers: KvTiers | None = None
    pipeline_parallel: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Equal instances: what they run, on what, and how fast."""

    name: str
    instances: int
    model: Model
    hardware: Hardware
    tensor_parallel: int
    engine: Engine
    latency: PluginConfig
    operators: Mapping[str, object] | None = None
    """Tables of measured operator times, where the step-time model asks for them."""
    role: str = "any"
    """Under disaggregation: ``prefill``, ``decode``, ``any`` (both), or ``whole``: requests that are not split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One ``expect:`` entry: a metric of the report (dotted path) and what it must be."""

    metric: str
    min: float | None = None
    max: float | None = None
    equals: float | str | bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloTarget:
    """What a request of an SLO class must keep to, in milliseconds; None = nothing."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    """Mean time between two of its tokens."""
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Everything a simulation needs, and nothing it has to look up."""

    name: str
    description: str
    seed: int
    workload: Workload
    policy: Policy
    cluster: Cluster
    pools: tuple[Pool, ...]
    """The instances of the first pool have the lowest indices, and so on."""
    horizon_us: int | None
    warm_up_us: int = 0
    """Requests that arrive before are left out of the report's latencies; 0 = none."""
    expect: tuple[Expectation, ...]
    sha256: str
    """Digest of the resolved document: equal digests and seeds mean equal bytes."""
    document: Mapping[str, object] = field(repr=False, compare=False)
    """The resolved document as plain data (what ``spec resolve`` prints)."""
    plugins: Registry = field(default_factory=builtin, repr=False, compare=False)
    """What its names may refer to."""
    slo_targets: Mapping[str, SloTarget] = field(default_factory=dict)
    """Class -> what makes a request of it count as good."""
    fitness: Mapping[str, float] = field(default_factory=dict)
    """Component of the report's fitness -> its weight."""
    report: str = "auto"
    """``full``: with the sections that make sense for any cluster; ``auto``: where it is not plain."""

    @property
    def has_detours(self) -> bool:
        """Whether a gateway may hold requests, or two instances may share one."""
        return self.policy.gateway is not None or self.cluster.disaggregation is not None

    @property
    def request_facts(self) -> tuple[str, ...]:
        """What tables of requests say beyond the usual: their model where there are several, retries where possible."""
        models = dict.fromkeys(pool.model.name for pool in self.pools)
        return (*(("model",) if len(models) > 1 else ()), *(("retries",) if self.cluster.varies else ()))

    @property
    def plain(self) -> bool:
        """Whether the cluster is one pool behind an admission and a routing policy, and nothing else."""
        cluster, policy = self.cluster, self.policy
        latencies = {name: getattr(cluster, name) for name in ("admission_latency_us", "routing_latency_us")}
        bare = replace(policy, slo_priorities=SLO_PRIORITIES, tenant_budgets=None, deferral="none", gateway=None)
        return len(self.pools) == 1 and cluster == Cluster(**latencies) and policy == bare

    def plugins_used(self) -> tuple[Plugin, ...]:
        """The plug-ins of users that it names, in a fixed order."""
        policy = self.policy
        named = [(f"policy.{name}", getattr(policy, name).kind) for name in _DECISIONS]
        named += [(f"policy.preemption.{one}", getattr(policy, f"preemption_{one}")) for one in ("victim", "restore")]
        named += [("latency", pool.latency.kind) for pool in self.pools]
        for client in self.workload.clients:
            named.append(("workload.clients.arrivals", client.arrivals.kind))
            named += [("workload.clients.lengths", one.kind) for one in (client.input_tokens, client.output_tokens)]
        if self.workload.trace is not None:
            named.append(("workload.trace.format", self.workload.trace.format))
        found = (self.plugins.find(path, name) for path, name in dict.fromkeys(named))
        return tuple(plugin for plugin in found if plugin.origin is not None)

    @property
    def instances(self) -> int:
        """How many instances of all pools there are at the start."""
        count = 0
        for pool in self.pools:
            count += pool.instances
        return count

    @property
    def instance_numbers(self) -> int:
        """Instances have numbers below this one; who comes later gets the next one, so an autoscaler may need any."""
        return self.instances if self.cluster.autoscaler is None else _ANY_INSTANCE
