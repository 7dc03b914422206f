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
    """The name of the model that its instances serve."""
    hardware: str
    """The name of their GPU."""
    tensor_parallel: int
    """GPUs that each layer is split over (of each pipeline stage)."""
    instances: int
    """Instances of the pool, those that have gone included."""
    routed: int
    """Requests sent there; one that is split counts in both its pools, and one that is sent again counts again."""
    prefilled: int
    """Requests whose prompt was computed there for another instance."""
    completed: int
    """Completed requests that it served last: those that are split count where they decode."""
    steps: int
    """Steps of its instances."""
    busy_us: int
    """The sum of the durations of its instances' steps."""
    busy_share: float
    """From 0 to 1: ``busy_us`` as a share of ``duration_us`` times its instances (under ``pipeline_parallel`` also
    times the stages, since as many steps can be under way at a time). The time before an instance came and after it
    went counts as idle."""
    output_tokens: int
    """Output tokens of the requests that it served last, first tokens computed elsewhere included."""
    peak_running: int
    """The most requests in a batch at a time: the sum over its instances, each at its own peak."""
    kv: KvCounts
    """The KV caches of its instances together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """The requests that the instances of one model served."""

    model: str
    """The name of the model."""
    instances: int
    """Instances that serve it, those that have gone included."""
    completed: int
    """Completed requests that these served last."""
    output_tokens: int
    """Output tokens of all requests that these served last."""
    ttft_ms: Distribution
    """``latency.ttft_ms`` of these requests."""
    e2e_ms: Distribution
    """``latency.e2e_ms`` of these requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """How evenly tenants are served."""

    tenants: int
    """Tenants that sent any request."""
    jain_index: float
    """Jain's index of the output tokens of tenants, from 1 / tenants (one got everything) to 1 (all got the same); 0
    where there are no tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What the latencies leave out."""

    until_us: int
    """Requests that arrived earlier are left out, and gaps between tokens of steps that began earlier: the experiment's
    ``warm_up_us``."""
    requests: int
    """Requests that are left out for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptThroughput:
    """What engines report as prompt throughput that count cached tokens, too.

    A prompt of 1,000 tokens of which 600 are cached costs 400 and counts 1,000. What a preempted request prefills again
    counts again.
    """

    computed_tokens: int
    """Prompt tokens computed in steps."""
    cached_tokens: int
    """Prompt tokens found in the cache when a step scheduled their request."""
    tokens_per_s: float
    """Both, per second of the whole run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalThroughput:
    """The iterations of all instances that ended in one interval of the engine's log."""

    start_us: int
    """When the interval begins; intervals in which no iteration ended are left out."""
    iterations: int
    """Steps that ended in it; one that ends with it counts here."""
    prompt_tokens_per_s: float
    """Prompt tokens of these steps, cached ones included, per second of the interval."""
    generation_tokens_per_s: float
    """Tokens that they generated, per second of the interval; the last interval counts as a whole one, as the others
    do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """How well batches fill the stages of pipelined instances, all of these together."""

    active_us: int
    """Time during which any batch was in progress, added up over the instances."""
    batches: float
    """The mean number of batches in progress at the same time, while any was: at most the number of stages."""
    bubble_share: float
    """From 0 to 1: of the time of all stages while any batch was in progress, the share in which they idled (the
    pipeline bubble)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksReport:
    """How well the ranks of model replicas keep each other busy that take their steps together, all replicas as one."""

    replicas: int
    """Replicas whose ranks take their steps together."""
    ranks: int
    """Ranks of all these replicas."""
    steps: int
    """Steps of replicas in which any rank computed; each counts once, however many of its ranks did."""
    dummy_batches: int
    """Batches of one token that ranks ran in these steps because they had no request to compute for."""
    dummy_share: float
    """``dummy_batches`` as a share, from 0 to 1, of all batches that ranks ran in these steps."""
    waiting_us: int
    """Time that ranks which computed waited for the slowest one of their step, added up over the ranks."""
    waiting_share: float
    """``waiting_us`` as a share, from 0 to 1, of the time of these steps, added up likewise (the ``busy_us`` of their
    instances)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """Parts of a report that it has only where they apply."""

    warm_up: WarmUp | None = None
    """What the latencies leave out; where the experiment has ``warm_up_us``."""
    prompt_throughput: PromptThroughput | None = None
    """Prompt tokens per second, cached ones included; where the batching rule's engine counts so."""
    throughput_log: tuple[IntervalThroughput, ...] | None = None
    """Throughput of prompts and of generation, interval by interval; where the batching rule has ``log_interval``."""
    pipeline: PipelineReport | None = None
    """How well batches fill the stages; where an instance has ``pipeline_parallel``."""
    ranks: RanksReport | None = None
    """How well ranks that step together keep each other busy; where ranks of ``data_parallel`` share experts."""
    speculative: SpeculativeReport | None = None
    """Drafts and their outcome; where an instance verifies drafts."""
    adapters: AdaptersReport | None = None
    """LoRA adapters, how often they were loaded, and who waited; where instances have any."""
    pools: Mapping[str, PoolReport] | None = None
    """By name: the instances of each pool, where there is more than one."""
    models: tuple[ModelReport, ...] | None = None
    """The requests of each model, where there is more than one."""
    sessions: SessionReport | None = None
    """Sessions by outcome; where clients hold any."""
    reasoning: ReasoningReport | None = None
    """Reasoning and answers apart; where clients or the trace say which part of answers is reasoning."""
    multimodal: MultimodalReport | None = None
    """What prompts consist of; where clients or the trace say which part of prompts is not text."""
    encoder: EncoderReport | None = None
    """What the encoder of media did; where steps schedule it (``engine.encoder`` beside ``vllm-v1``)."""
    slo: SloReport | None = None
    """Goodput: requests that kept to the targets of their class; where the experiment has ``slo_targets``."""
    fairness: Fairness | None = None
    """How evenly tenants are served; where the cluster is more than one pool behind two policies, or with ``report:
    full``."""
    rejections: Mapping[str, int] | None = None
    """Rejected requests, by cause: the admission policy's name, ``tenant-budget``, ``gateway-full``, ...; where
    ``fairness`` is."""
    deferrals: DeferralReport | None = None
    """Requests deferred until the cluster is idle; where the policy has ``deferral``."""
    gateway: GatewayReport | None = None
    """The queue in front of the router; where the policy has one."""
    disaggregation: DisaggregationReport | None = None
    """Requests whose prefill and decode run on two instances; where the cluster has it."""
    routing: RoutingReport | None = None
    """Routing decisions, each weighed against its alternatives; where the experiment has ``counterfactual``."""
    preemption: PreemptionReport | None = None
    """What preemptions cost and moved; where the policy restores victims otherwise than by default."""
    kv_tiers: TiersReport | None = None
    """Tiers below the KV caches; where instances have any."""
    fitness: FitnessReport | None = None
    """How good the run is by given weights; where the experiment has ``fitness``."""
    anomalies: Anomalies | None = None
    """Counts of what should not happen; where ``fairness`` is."""
    saturation: Saturation | None = None
    """Whether the load was too much, by BLIS's detector; where ``fairness`` is."""


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
