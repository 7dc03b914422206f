"""Everything that one simulation needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from blis_tui.registry import builtin
from blis_tui.spec.model.cluster import Cluster
from blis_tui.spec.model.policy import SLO_PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.registry import Plugin, Registry
    from blis_tui.spec.model.encoder import Encoder
    from blis_tui.spec.model.lora import Lora
    from blis_tui.spec.model.machine import Hardware, Model
    from blis_tui.spec.model.memory import HostLink, KvTiers
    from blis_tui.spec.model.plugin_config import PluginConfig
    from blis_tui.spec.model.policy import Policy
    from blis_tui.spec.model.speculative import Speculative
    from blis_tui.spec.model.workload import Workload

_ANY_INSTANCE: Final = 1 << 15
"""More instances than there ever are in a run."""
_DECISIONS: Final = ("admission", "routing", "scheduling", "priority", "batching")


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
    speculative: Speculative | None = None
    lora: Lora | None = None
    encoder: Encoder | None = None
    """None = media become tokens at once."""

    @property
    def verify_width(self) -> int:
        """Tokens that a decode computes in a step: the one that is due, and the drafts behind it."""
        return 1 if self.speculative is None else 1 + self.speculative.draft_tokens


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
    ttfat_ms: float | None = None
    """Time to the first token of the answer itself, behind its reasoning."""


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

    def __repr__(self) -> str:
        """One line: ``document`` is all of it."""
        return f"<Experiment {self.name}, seed {self.seed}, sha256 {self.sha256[:12]}>"

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
            if client.reasoning is not None:
                named.append(("workload.clients.reasoning.ratio", client.reasoning.ratio.kind))
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
