"""The resolved experiment: frozen records, every default filled in, every reference followed.

Standard library only, and the bottom of the package's arrows: the engine, the cluster and the workload know
these records and nothing of YAML, schemas or files. Units are in the names; ``None`` means "off" or
"unlimited". Descriptions, defaults and ranges of each field live in ``schemas/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from blis_tui.registry import builtin

if TYPE_CHECKING:
    from blis_tui.registry import Plugin, Registry

SLO_CLASSES: Final = ("critical", "standard", "sheddable", "batch", "background")
"""Service classes from the most to the least urgent; a request without one counts as ``standard``."""

_DECISIONS: Final = ("admission", "routing", "scheduling", "priority", "batching")

Setting = bool | int | float | str | tuple[float, ...] | Mapping[str, float]
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
    timeout_us: int | None = None


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
    clients: tuple[Client, ...] = ()
    trace: Trace | None = None


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
    """``tail`` (youngest running request) or ``priority`` (least urgent, of equals the youngest)."""
    preemption_restore: str
    """``recompute``: a victim loses its KV blocks and prefills again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What the way to the instances costs."""

    admission_latency_us: int
    routing_latency_us: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One ``expect:`` entry: a metric of the report (dotted path) and what it must be."""

    metric: str
    min: float | None = None
    max: float | None = None
    equals: float | str | bool | None = None


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
    expect: tuple[Expectation, ...]
    sha256: str
    """Digest of the resolved document: equal digests and seeds mean equal bytes."""
    document: Mapping[str, object] = field(repr=False, compare=False)
    """The resolved document as plain data (what ``spec resolve`` prints)."""
    plugins: Registry = field(default_factory=builtin, repr=False, compare=False)
    """What its names may refer to."""

    def plugins_used(self) -> tuple[Plugin, ...]:
        """The plug-ins of users that it names, in a fixed order."""
        policy = self.policy
        named = [(f"policy.{name}", getattr(policy, name).kind) for name in _DECISIONS]
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
