"""The optional sections of a report, including those of pools and models, and that on step times."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.results.sections.control import has_preemption_section
from blis_tui.results.sections.request_kinds import is_multimodal, reasons
from blis_tui.results.stats import OMITTED_IF_ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.model import Experiment
    from blis_tui.results.expected_error import Expectation, ExpectedError
    from blis_tui.results.sections.control import (
        DeferralReport,
        DisaggregationReport,
        GatewayReport,
        PreemptionReport,
        RoutingReport,
        Saturation,
    )
    from blis_tui.results.sections.instances import AdaptersReport, EncoderReport, KvCounts, TiersReport
    from blis_tui.results.sections.quality import FitnessReport, SloReport
    from blis_tui.results.sections.request_kinds import (
        Anomalies,
        MultimodalReport,
        ReasoningReport,
        SessionReport,
        SpeculativeReport,
    )
    from blis_tui.results.stats import Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """The instances of one pool together."""

    role: str
    """``prefill``, ``decode``, ``any`` (both), or ``whole`` (only requests that are not split)."""
    model: str
    """The name of the model that its instances serve."""
    hardware: str
    """The name of their GPU."""
    tensor_parallel: int
    """GPUs that each layer is split over (of each pipeline stage)."""
    instances: int
    """Instances of the pool, including those that have gone."""
    routed: int
    """Requests sent to the pool; a split request counts in both of its pools, and a retried one again."""
    prefilled: int
    """Requests whose prompt the pool computed for another instance."""
    completed: int
    """Completed requests whose last instance was in the pool; split requests count where they decode."""
    steps: int
    """Steps of its instances."""
    busy_us: int
    """The sum of the durations of its instances' steps."""
    busy_share: float
    """``busy_us`` divided by ``duration_us`` times the number of instances, from 0 to 1. Under ``pipeline_parallel`` it
    is also divided by the number of stages, since as many steps can run at a time. The time before an instance came and
    after it went counts as idle. Never more than 1, although ``busy_us`` has all of a step that the horizon cuts
    off."""
    output_tokens: int
    """Output tokens of the requests whose last instance was in the pool, including first tokens computed elsewhere."""
    peak_running: int
    """The most requests in a batch at one time: the sum over the instances, each at its own peak."""
    kv: KvCounts
    """The KV caches of its instances together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """The requests that the instances of one model served."""

    model: str
    """The name of the model."""
    instances: int
    """Instances that serve it, including those that have gone."""
    completed: int
    """Completed requests that these instances served last."""
    output_tokens: int
    """Output tokens of all requests that these instances served last."""
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
    """Jain's index of the tenants' output tokens, from 1 / tenants (one got everything) to 1 (all got the same); 0 if
    there are no tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What the latencies exclude."""

    until_us: int
    """The experiment's ``warm_up_us``: requests that arrived earlier are excluded, and token gaps of steps that began
    earlier."""
    requests: int
    """Number of excluded requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptThroughput:
    """Prompt throughput as reported by engines that count cached tokens.

    A prompt of 1,000 tokens of which 600 are cached costs 400 and counts 1,000. Tokens that a preempted request
    prefills again count again.
    """

    computed_tokens: int
    """Prompt tokens computed in steps."""
    cached_tokens: int
    """Prompt tokens found in the cache when a step scheduled their request."""
    tokens_per_s: float
    """Computed and cached tokens per second of the whole run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalThroughput:
    """The iterations of all instances that ended in one interval of the engine's log."""

    start_us: int
    """Start of the interval; intervals in which no iteration ended are left out."""
    iterations: int
    """Steps that ended in the interval; one that ends exactly at its end is included."""
    prompt_tokens_per_s: float
    """Prompt tokens of these steps, including cached ones, per second of the interval."""
    generation_tokens_per_s: float
    """Tokens generated by these steps, per second of the interval; the last interval counts in full, like the others.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """How well batches fill the stages of pipelined instances, over all of these instances."""

    active_us: int
    """Time during which any batch was in progress, added up over the instances."""
    batches: float
    """The mean number of batches in progress at the same time, while any was: at most the number of stages."""
    bubble_share: float
    """From 0 to 1: of the time of all stages while any batch was in progress, the share in which they idled (the
    pipeline bubble)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksReport:
    """How well the ranks of replicas that step together keep each other busy, over all replicas."""

    replicas: int
    """Replicas whose ranks step together."""
    ranks: int
    """Ranks of all these replicas."""
    steps: int
    """Steps of replicas in which at least one rank computed; each counts once."""
    dummy_batches: int
    """Batches of one token that ranks ran in these steps because they had no request to compute."""
    dummy_share: float
    """``dummy_batches`` as a share, from 0 to 1, of all batches that ranks ran in these steps."""
    waiting_us: int
    """Time that ranks which computed waited for the slowest rank of their step, summed over the ranks."""
    waiting_share: float
    """``waiting_us`` as a share, from 0 to 1, of the time of these steps, also summed over the ranks (the ``busy_us``
    of their instances)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """Optional parts of a report, each present only if it applies."""

    warm_up: WarmUp | None = None
    """What the latencies exclude; if the experiment has ``warm_up_us``."""
    prompt_throughput: PromptThroughput | None = None
    """Prompt tokens per second, including cached ones; if the batching rule's engine counts them."""
    throughput_log: tuple[IntervalThroughput, ...] | None = None
    """Prompt and generation throughput, interval by interval; if the batching rule has ``log_interval``."""
    pipeline: PipelineReport | None = None
    """How well batches fill the stages; if an instance has ``pipeline_parallel``."""
    ranks: RanksReport | None = None
    """How well ranks that step together keep each other busy; if ranks of ``data_parallel`` share experts."""
    speculative: SpeculativeReport | None = None
    """Drafts and their outcome; where an instance verifies drafts."""
    adapters: AdaptersReport | None = None
    """LoRA adapters, their loads, and the requests that waited; if instances have any."""
    pools: Mapping[str, PoolReport] | None = None
    """By name: the instances of each pool, if there is more than one."""
    models: tuple[ModelReport, ...] | None = None
    """The requests of each model, if there is more than one."""
    sessions: SessionReport | None = None
    """Sessions by outcome; where clients hold any."""
    reasoning: ReasoningReport | None = None
    """Reasoning and answers apart; where clients or the trace say which part of answers is reasoning."""
    multimodal: MultimodalReport | None = None
    """What prompts consist of; where clients or the trace say which part of prompts is not text."""
    encoder: EncoderReport | None = None
    """Work of the media encoder; if steps schedule it (``engine.encoder`` with ``vllm-v1``)."""
    slo: SloReport | None = None
    """Goodput: requests that met the targets of their class; if the experiment has ``slo_targets``."""
    fairness: Fairness | None = None
    """How evenly tenants are served; if the cluster is more than one pool with two policies, or with ``report: full``.
    """
    rejections: Mapping[str, int] | None = None
    """Rejected requests, by cause: the admission policy's name, ``tenant-budget``, ``gateway-full``, ...; where
    ``fairness`` is."""
    deferrals: DeferralReport | None = None
    """Requests deferred until the cluster is idle; where the policy has ``deferral``."""
    gateway: GatewayReport | None = None
    """The queue in front of the router; if the policy has a gateway."""
    disaggregation: DisaggregationReport | None = None
    """Requests whose prefill and decode run on two instances; if the cluster has disaggregation."""
    routing: RoutingReport | None = None
    """Routing decisions, each compared with its alternatives; if the experiment has ``counterfactual``."""
    preemption: PreemptionReport | None = None
    """Cost of preemptions; if the policy restores victims in other than the default way."""
    kv_tiers: TiersReport | None = None
    """Tiers below the KV caches; if instances have any."""
    fitness: FitnessReport | None = None
    """The run's score by given weights; if the experiment has ``fitness``."""
    anomalies: Anomalies | None = None
    """Counts of anomalies; present together with ``fairness``."""
    saturation: Saturation | None = None
    """Whether the load was too high, by BLIS's detector; present together with ``fairness``."""


def sections_apply(experiment: Experiment, cluster: Cluster) -> bool:
    """Return whether a report on this run has any optional section; only then the code for them is imported."""
    instances = cluster.instances
    return (
        len(experiment.pools) > 1
        or experiment.report == "full"
        or not experiment.plain
        or has_preemption_section(experiment.policy)
        or bool(experiment.warm_up_us or experiment.slo_targets or experiment.fitness or experiment.counterfactual)
        or cluster.sessions is not None
        or instances[0].batch.traits.counts_cached_tokens
        or any(
            pool.engine.pipeline_parallel > 1 or pool.engine.lora is not None or pool.lockstep
            for pool in experiment.pools
        )
        or any(instance.pool.tiers is not None or instance.batch.speculative is not None for instance in instances)
        or reasons(experiment, cluster)
        or is_multimodal(experiment, cluster)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The configuration of a pool's instances, and the source of their step times."""

    model: str
    """The name of the model."""
    hardware: str
    """The name of the GPU."""
    tensor_parallel: int
    """GPUs that each layer is split over (of each pipeline stage)."""
    pipeline_parallel: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Stages that the layers are spread over; left out if there is one."""
    data_parallel: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Ranks of a replica, each an instance; left out if there is one."""
    expert_parallel: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """GPUs over which whole experts are spread; left out if experts are split like other layers."""
    kind: str
    """The step-time model, also if the experiment says ``auto``."""
    expected_error_percent: ExpectedError | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Expected error of the means, from measurements of similar servers with the same coefficients. Only with ``report:
    full``, because later versions may change it while no other result depends on it."""
    not_measured: Mapping[str, str] | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Metric -> why its error is not known; with ``report: full``, if there is any such metric."""


def step_times(experiment: Experiment, expected: Mapping[str, Expectation] | None = None) -> dict[str, StepTime]:
    """Return the configuration of each pool, by name, and its expected errors if they are to be reported."""
    return {
        pool.name: StepTime(
            model=pool.model.name,
            hardware=pool.hardware.name,
            tensor_parallel=pool.tensor_parallel,
            pipeline_parallel=stages if (stages := pool.engine.pipeline_parallel) > 1 else None,
            data_parallel=ranks if (ranks := pool.engine.data_parallel) > 1 else None,
            expert_parallel=ranks * pool.tensor_parallel if pool.engine.expert_parallel else None,
            kind=pool.latency.kind,
            expected_error_percent=None if expected is None else expected[pool.name].error,
            not_measured=None if expected is None else expected[pool.name].reasons or None,
        )
        for pool in experiment.pools
    }
