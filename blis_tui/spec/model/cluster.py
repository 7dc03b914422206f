"""The way to the instances, what is known on it, and how instances come and go."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model.plugin_config import PluginConfig


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
