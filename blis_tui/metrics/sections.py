"""The sections of a report that not every run has, of pools and models, and all of them put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.engine.request import RequestState
from blis_tui.metrics.adapters import AdaptersReport, adapters_report
from blis_tui.metrics.anomalies import Anomalies, anomalies_of
from blis_tui.metrics.control_plane import (
    DeferralReport,
    DisaggregationReport,
    GatewayReport,
    deferral_report,
    disaggregation_report,
    gateway_report,
    rejections_of,
)
from blis_tui.metrics.goodput import FitnessReport, SloReport, fitness_report, slo_report
from blis_tui.metrics.kv import KvCounts, kv_counts
from blis_tui.metrics.preemption import PreemptionReport, preemption_report, says_more
from blis_tui.metrics.reasoning import (
    MultimodalReport,
    ReasoningReport,
    is_multimodal,
    multimodal_report,
    reasoning_report,
    reasons,
)
from blis_tui.metrics.saturation import Saturation, composite
from blis_tui.metrics.sessions import SessionReport, session_report
from blis_tui.metrics.speculative import SpeculativeReport, speculative_report
from blis_tui.metrics.stats import Distribution, of_samples
from blis_tui.metrics.tiers import TiersReport, tiers_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.metrics.request_log import RequestTable, Row, Way
    from blis_tui.spec.model import Experiment

    Travelled = Sequence[tuple[Row, Way]]
    """All requests, each with its way."""


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
class Sections:
    """Parts of a report that it has only where they apply."""

    warm_up: WarmUp | None = None
    """Where the experiment has ``warm_up_us``."""
    prompt_throughput: PromptThroughput | None = None
    """Where the batching rule's engine counts so."""
    pipeline: PipelineReport | None = None
    """Where an instance has ``pipeline_parallel``."""
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
    preemption: PreemptionReport | None = None
    """Where the policy restores victims otherwise than by default."""
    kv_tiers: TiersReport | None = None
    """Where instances have tiers below their KV caches."""
    fitness: FitnessReport | None = None
    """Where the experiment has ``fitness``."""
    anomalies: Anomalies | None = None
    saturation: Saturation | None = None


def build_sections(experiment: Experiment, cluster: Cluster, table: RequestTable, duration_us: int) -> Sections:
    """The sections that apply."""
    several = len(experiment.pools) > 1
    full = experiment.report == "full" or not experiment.plain
    preempts = says_more(experiment.policy)
    tiers = tiers_report(cluster.instances, cluster.pools)
    speculative = speculative_report(cluster.instances)
    pipelines = any(pool.engine.pipeline_parallel > 1 for pool in experiment.pools)
    counts_cached = cluster.instances[0].rule.traits.counts_cached_tokens
    sessions = cluster.sessions
    adapts = any(pool.engine.lora is not None for pool in experiment.pools)
    thinks, media = reasons(experiment, cluster), is_multimodal(experiment, cluster)
    plain = not (several or full or preempts or tiers or speculative or counts_cached or pipelines or sessions)
    asked = adapts or thinks or media or experiment.slo_targets or experiment.fitness
    if plain and not (asked or experiment.warm_up_us):
        return Sections()
    rows = list(zip(table.plain(), table.ways(), strict=True))
    models = dict.fromkeys(pool.model.name for pool in experiment.pools)
    gateway, dispatcher = cluster.gateway, cluster.dispatcher
    return Sections(
        warm_up=_warm_up(experiment.warm_up_us, rows) if experiment.warm_up_us else None,
        prompt_throughput=_prompt_throughput(cluster, duration_us) if counts_cached else None,
        pipeline=_pipeline(cluster) if pipelines else None,
        speculative=speculative,
        adapters=_adapters(experiment, cluster, table) if adapts else None,
        pools=_pools(cluster, rows, duration_us) if several else None,
        models=tuple(_model(name, cluster, rows) for name in models) if len(models) > 1 else None,
        sessions=None if sessions is None else session_report(sessions, table, experiment.warm_up_us),
        reasoning=reasoning_report([*table.plain()], table, experiment.warm_up_us) if thinks else None,
        multimodal=multimodal_report([*table.plain()], table) if media else None,
        slo=slo_report(experiment.slo_targets, rows, table, duration_us) if experiment.slo_targets else None,
        fairness=_fairness(rows, table) if full else None,
        rejections=rejections_of(experiment, cluster) if full else None,
        deferrals=None if experiment.policy.deferral == "none" else deferral_report(cluster),
        gateway=gateway_report(gateway, cluster.pipeline.rejections, rows) if gateway.holds else None,
        disaggregation=disaggregation_report(dispatcher, rows, cluster.now, duration_us) if dispatcher.splits else None,
        preemption=_preemption(cluster) if preempts else None,
        kv_tiers=tiers,
        fitness=fitness_report(experiment.fitness, rows, duration_us) if experiment.fitness else None,
        anomalies=anomalies_of(experiment, cluster, rows, table) if full else None,
        saturation=composite(rows) if full else None,
    )


def _adapters(experiment: Experiment, cluster: Cluster, table: RequestTable) -> AdaptersReport | None:
    return adapters_report(cluster.instances, list(table.plain()), table, experiment.warm_up_us)


def _preemption(cluster: Cluster) -> PreemptionReport:
    return preemption_report(cluster.instances, [pool.tensor_parallel for pool in cluster.pools])


def _warm_up(until_us: int, rows: Travelled) -> WarmUp:
    return WarmUp(until_us=until_us, requests=len([row for row, _ in rows if row.arrival_us < until_us]))


def _prompt_throughput(cluster: Cluster, duration_us: int) -> PromptThroughput:
    computed = _total([one.tallies.prefill_tokens for one in cluster.instances])
    cached = _total([one.tallies.cached_tokens for one in cluster.instances])
    tokens_per_s = 1e6 * (computed + cached) / duration_us if duration_us else 0.0
    return PromptThroughput(computed_tokens=computed, cached_tokens=cached, tokens_per_s=tokens_per_s)


def _pipeline(cluster: Cluster) -> PipelineReport:
    active = busy = computing = stages = 0
    for instance, pool in zip(cluster.instances, cluster.pools, strict=True):
        if pool.engine.pipeline_parallel > 1:
            tallies = instance.tallies
            active += tallies.active_us
            stages += tallies.active_us * pool.engine.pipeline_parallel
            busy += tallies.busy_us
            computing += tallies.computing_us
    return PipelineReport(
        active_us=active,
        batches=busy / active if active else 0.0,
        bubble_share=1.0 - computing / stages if stages else 0.0,
    )


def _pools(cluster: Cluster, rows: Travelled, duration_us: int) -> dict[str, PoolReport]:
    completed, tokens, prefilled = ([0] * len(cluster.instances) for _ in range(3))
    for row, way in rows:
        if row.instance >= 0:
            completed[row.instance] += row.state == RequestState.COMPLETED
            tokens[row.instance] += row.output_tokens
        if way.transfer_start_us >= 0:
            prefilled[way.prefill_instance] += 1
    found: dict[str, PoolReport] = {}
    for pool in dict.fromkeys(one.name for one in cluster.pools):
        members = [index for index, one in enumerate(cluster.pools) if one.name == pool]
        what = cluster.pools[members[0]]
        instances = [cluster.instances[index] for index in members]
        busy_us = _total([one.tallies.busy_us for one in instances])
        found[pool] = PoolReport(
            role=what.role,
            model=what.model.name,
            hardware=what.hardware.name,
            tensor_parallel=what.tensor_parallel,
            instances=len(members),
            routed=_total([one.routed for one in instances]),
            prefilled=_total([prefilled[index] for index in members]),
            completed=_total([completed[index] for index in members]),
            steps=_total([one.tallies.steps for one in instances]),
            busy_us=busy_us,
            busy_share=busy_us / (duration_us * len(members) * what.engine.pipeline_parallel) if duration_us else 0.0,
            output_tokens=_total([tokens[index] for index in members]),
            peak_running=_total([one.tallies.peak_running for one in instances]),
            kv=kv_counts(instances),
        )
    return found


def _model(name: str, cluster: Cluster, rows: Travelled) -> ModelReport:
    instances = [at for at, pool in enumerate(cluster.pools) if pool.model.name == name]
    there = [row for row, _ in rows if row.instance in instances]
    return ModelReport(
        model=name,
        instances=len(instances),
        completed=len([row for row in there if row.state == RequestState.COMPLETED]),
        output_tokens=_total([row.output_tokens for row in there]),
        ttft_ms=of_samples([row.ttft_us for row in there if row.ttft_us >= 0]),
        e2e_ms=of_samples([row.e2e_us for row in there if row.e2e_us >= 0]),
    )


def _fairness(rows: Travelled, table: RequestTable) -> Fairness:
    tokens: dict[str, int] = {}
    for row, _ in rows:
        tenant = table.group(row)[1]
        if tenant:
            tokens[tenant] = tokens.get(tenant, 0) + row.output_tokens
    return Fairness(tenants=len(tokens), jain_index=jain_index([*tokens.values()]))


def jain_index(values: Sequence[int]) -> float:
    """(sum of x)^2 / (n * sum of x^2), after Jain, Chiu and Hawe (1984); 0 without values, 1 where all are 0."""
    squares = _total([value * value for value in values])
    if not squares:
        return 1.0 if values else 0.0
    total = _total(values)
    return total * total / (len(values) * squares)


def _total(values: Sequence[int]) -> int:
    total = 0
    for value in values:
        total += value
    return total
