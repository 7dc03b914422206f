"""The sections of a report that not every run has, those of pools and models among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.metrics.preemption import says_more
from blis_tui.metrics.reasoning import is_multimodal, reasons

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.metrics.adapters import AdaptersReport
    from blis_tui.metrics.control_plane import DeferralReport, DisaggregationReport, GatewayReport, RoutingReport
    from blis_tui.metrics.encoder import EncoderReport
    from blis_tui.metrics.goodput import FitnessReport, SloReport
    from blis_tui.metrics.kv import KvCounts, TiersReport
    from blis_tui.metrics.optional import Anomalies, SessionReport, SpeculativeReport
    from blis_tui.metrics.preemption import PreemptionReport
    from blis_tui.metrics.reasoning import MultimodalReport, ReasoningReport
    from blis_tui.metrics.saturation import Saturation
    from blis_tui.metrics.stats import Distribution
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """The instances of one pool together."""

    role: str
    """``prefill``, ``decode``, or ``any``: both."""
    model: str
    hardware: str
    tensor_parallel: int
    instances: int
    routed: int
    """Requests sent there; a request that is split counts in both its pools."""
    prefilled: int
    """Prompts computed there for another instance."""
    completed: int
    steps: int
    busy_us: int
    busy_share: float
    """Of the time of all its instances (under ``pipeline_parallel`` of as many at once as there are stages), that in
    steps."""
    output_tokens: int
    """Of the requests that it served last, first tokens computed elsewhere included."""
    peak_running: int
    """Sum over its instances, each at its own peak."""
    kv: KvCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """The requests that one model served."""

    model: str
    instances: int
    completed: int
    output_tokens: int
    ttft_ms: Distribution
    e2e_ms: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """How evenly tenants are served."""

    tenants: int
    jain_index: float
    """Jain's index of their output tokens: 1 = all got the same, 1 / tenants = one got everything, 0 = no tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What the latencies leave out."""

    until_us: int
    """Requests that arrived earlier are left out, and gaps between tokens of steps that began earlier."""
    requests: int
    """How many that are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptThroughput:
    """What engines report as prompt throughput that count cached tokens, too.

    A prompt of 1,000 tokens of which 600 are cached costs 400 and counts 1,000. What a preempted request prefills again
    counts again.
    """

    computed_tokens: int
    cached_tokens: int
    tokens_per_s: float
    """Both, per simulated second of the whole run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """How well batches fill the stages of pipelined instances, all of these together."""

    active_us: int
    """During which a batch was under way, added up over the instances."""
    batches: float
    """Under way at the same time while any was: the mean."""
    bubble_share: float
    """Of the time of all stages while any batch was under way, that in which they idled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksReport:
    """How well the ranks of model replicas keep each other busy that take their steps together, all replicas as one."""

    replicas: int
    ranks: int
    """Of all replicas."""
    steps: int
    """A step of a replica counts once, however many of its ranks compute in it."""
    dummy_batches: int
    """In these steps, of ranks that had no request to compute for."""
    dummy_share: float
    """Of the batches that ranks ran in these steps."""
    waiting_us: int
    """In steps that ranks computed in, until the slowest rank was done too, added up over the ranks."""
    waiting_share: float
    """Of the time of these steps, added up likewise (the ``busy_us`` of their instances)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """Parts of a report that it has only where they apply."""

    warm_up: WarmUp | None = None
    """Where the experiment has ``warm_up_us``."""
    prompt_throughput: PromptThroughput | None = None
    """Where the batching rule's engine counts so."""
    pipeline: PipelineReport | None = None
    """Where an instance has ``pipeline_parallel``."""
    ranks: RanksReport | None = None
    """Where ranks of ``data_parallel`` share experts."""
    speculative: SpeculativeReport | None = None
    """Where an instance verifies drafts."""
    adapters: AdaptersReport | None = None
    """Where instances have LoRA adapters."""
    pools: Mapping[str, PoolReport] | None = None
    """By name, where there is more than one."""
    models: tuple[ModelReport, ...] | None = None
    """Where there is more than one."""
    sessions: SessionReport | None = None
    """Where clients hold sessions."""
    reasoning: ReasoningReport | None = None
    """Where clients or the trace say what of answers is reasoning."""
    multimodal: MultimodalReport | None = None
    """Where clients or the trace say what of prompts is no text."""
    encoder: EncoderReport | None = None
    """Where steps schedule the encoder of media (`engine.encoder` beside `vllm-v1`)."""
    slo: SloReport | None = None
    """Where the experiment has ``slo_targets``."""
    fairness: Fairness | None = None
    """Where the cluster is more than one pool behind two policies, or with ``report: full``; likewise ``rejections``,
    ``anomalies`` and ``saturation``."""
    rejections: Mapping[str, int] | None = None
    """Requests turned away by whom: the admission policy's name, ``tenant-budget``, ``gateway-full``, ..."""
    deferrals: DeferralReport | None = None
    """Where the policy has ``deferral``."""
    gateway: GatewayReport | None = None
    """Where the policy has one."""
    disaggregation: DisaggregationReport | None = None
    """Where the cluster has it."""
    routing: RoutingReport | None = None
    """Where the experiment has ``counterfactual``."""
    preemption: PreemptionReport | None = None
    """Where the policy restores victims otherwise than by default."""
    kv_tiers: TiersReport | None = None
    """Where instances have tiers below their KV caches."""
    fitness: FitnessReport | None = None
    """Where the experiment has ``fitness``."""
    anomalies: Anomalies | None = None
    saturation: Saturation | None = None


def sections_apply(experiment: Experiment, cluster: Cluster) -> bool:
    """Whether a report on this run has any; what makes them is imported only then."""
    instances = cluster.instances
    return (
        len(experiment.pools) > 1
        or experiment.report == "full"
        or not experiment.plain
        or says_more(experiment.policy)
        or bool(experiment.warm_up_us or experiment.slo_targets or experiment.fitness or experiment.counterfactual)
        or cluster.sessions is not None
        or instances[0].batch.traits.counts_cached_tokens
        or any(
            pool.engine.pipeline_parallel > 1 or pool.engine.lora is not None or pool.lockstep
            for pool in experiment.pools
        )
        or any(one.pool.tiers is not None or one.batch.speculative is not None for one in instances)
        or reasons(experiment, cluster)
        or is_multimodal(experiment, cluster)
    )
