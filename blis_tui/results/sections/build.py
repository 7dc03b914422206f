"""Builds the optional sections of a report; imported only if one of them applies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import RequestState
from blis_tui.results.sections.control import (
    PreemptionReport,
    composite,
    deferral_report,
    disaggregation_report,
    gateway_report,
    has_preemption_section,
    preemption_report,
    rejections_of,
    routing_report,
)
from blis_tui.results.sections.instances import AdaptersReport, adapters_report, kv_counts, tiers_report
from blis_tui.results.sections.quality import fitness_report, slo_report
from blis_tui.results.sections.request_kinds import (
    anomalies_of,
    is_multimodal,
    multimodal_report,
    reasoning_report,
    reasons,
    session_report,
    speculative_report,
)
from blis_tui.results.sections.types import (
    Fairness,
    IntervalThroughput,
    ModelReport,
    PipelineReport,
    PoolReport,
    PromptThroughput,
    RanksReport,
    Sections,
    WarmUp,
)
from blis_tui.results.stats import of_samples, sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestNumbers, RequestTable
    from blis_tui.results.sections.instances import EncoderReport


def build_sections(experiment: Experiment, cluster: Cluster, table: RequestTable, duration_us: int) -> Sections:
    """Return the sections that apply to a run that has any."""
    several = len(experiment.pools) > 1
    full = experiment.report == "full" or not experiment.plain
    preempts = has_preemption_section(experiment.policy)
    pipelines = any(pool.engine.pipeline_parallel > 1 for pool in experiment.pools)
    counts_cached = cluster.instances[0].batch.traits.counts_cached_tokens
    sessions = cluster.sessions
    adapts = any(pool.engine.lora is not None for pool in experiment.pools)
    thinks, media = reasons(experiment, cluster), is_multimodal(experiment, cluster)
    rows = list(table.plain())
    models = dict.fromkeys(pool.model.name for pool in experiment.pools)
    gateway, dispatcher, warm_up_us = cluster.gateway, cluster.dispatcher, experiment.warm_up_us
    return Sections(
        warm_up=_warm_up(warm_up_us, rows) if warm_up_us else None,
        prompt_throughput=_prompt_throughput(cluster, duration_us) if counts_cached else None,
        throughput_log=_throughput_log(cluster),
        pipeline=_pipeline(cluster) if pipelines else None,
        ranks=_ranks(cluster) if any(pool.lockstep for pool in experiment.pools) else None,
        speculative=speculative_report(cluster.instances),
        adapters=_adapters(experiment, cluster, table) if adapts else None,
        pools=_pools(cluster, rows, duration_us) if several else None,
        models=_models(models, cluster, rows, warm_up_us) if len(models) > 1 else None,
        sessions=None if sessions is None else session_report(sessions, table, warm_up_us),
        reasoning=reasoning_report([*table.plain()], table, warm_up_us) if thinks else None,
        multimodal=multimodal_report([*table.plain()], table) if media else None,
        encoder=_encoder(cluster) if any(pool.engine.encoder is not None for pool in experiment.pools) else None,
        slo=slo_report(experiment.slo_targets, rows, table, duration_us) if experiment.slo_targets else None,
        fairness=_fairness(rows, table) if full else None,
        rejections=rejections_of(experiment, cluster) if full else None,
        deferrals=None if experiment.policy.deferral == "none" else deferral_report(cluster),
        gateway=gateway_report(gateway, cluster.pipeline.rejections, rows, warm_up_us) if gateway.holds else None,
        disaggregation=disaggregation_report(dispatcher, rows, cluster.now, duration_us, warm_up_us)
        if dispatcher.splits
        else None,
        routing=None if dispatcher.regrets is None else routing_report(dispatcher.regrets),
        preemption=_preemption(cluster) if preempts else None,
        kv_tiers=tiers_report(cluster.instances, cluster.pools),
        fitness=fitness_report(experiment.fitness, rows, duration_us, warm_up_us) if experiment.fitness else None,
        anomalies=anomalies_of(experiment, cluster, rows, table) if full else None,
        saturation=composite(rows) if full else None,
    )


def _adapters(experiment: Experiment, cluster: Cluster, table: RequestTable) -> AdaptersReport | None:
    return adapters_report(cluster.instances, list(table.plain()), table, experiment.warm_up_us)


def _encoder(cluster: Cluster) -> EncoderReport | None:
    from blis_tui.results.sections.instances import encoder_report  # noqa: PLC0415  (most runs have none)

    return encoder_report(cluster.instances)


def _preemption(cluster: Cluster) -> PreemptionReport:
    return preemption_report(cluster.instances, [pool.tensor_parallel for pool in cluster.pools])


def _warm_up(until_us: int, rows: Sequence[RequestNumbers]) -> WarmUp:
    return WarmUp(until_us=until_us, requests=len([row for row in rows if row.arrival_us < until_us]))


def _prompt_throughput(cluster: Cluster, duration_us: int) -> PromptThroughput:
    computed, cached = sums(
        [instance.tallies for instance in cluster.instances], ("prefill_tokens", "cached_tokens")
    ).values()
    tokens_per_s = 1e6 * (computed + cached) / duration_us if duration_us else 0.0
    return PromptThroughput(computed_tokens=computed, cached_tokens=cached, tokens_per_s=tokens_per_s)


def _throughput_log(cluster: Cluster) -> tuple[IntervalThroughput, ...] | None:
    interval_us = cluster.instances[0].batch.traits.log_interval_us
    if not interval_us:
        return None
    from blis_tui.engine.rules.llm_serving_sim import LoggedSteps  # noqa: PLC0415  (few runs have a log)

    sums: dict[int, list[int]] = {}
    for steps in (instance.steps for instance in cluster.instances):
        if isinstance(steps, LoggedSteps):
            for number, counts in steps.intervals.items():
                before = sums.get(number, [0] * len(counts))
                sums[number] = [total + other for total, other in zip(before, counts, strict=True)]
    return tuple(
        IntervalThroughput(
            start_us=number * interval_us,
            iterations=iterations,
            prompt_tokens_per_s=1e6 * prompt / interval_us,
            generation_tokens_per_s=1e6 * generated / interval_us,
        )
        for number, (iterations, prompt, generated) in sorted(sums.items())
    )


def _pipeline(cluster: Cluster) -> PipelineReport:
    staged = [
        (instance.tallies, pool.engine.pipeline_parallel)
        for instance, pool in zip(cluster.instances, cluster.pools, strict=True)
        if pool.engine.pipeline_parallel > 1
    ]
    total = sums([tallies for tallies, _ in staged], ("active_us", "busy_us", "computing_us"))
    active = total["active_us"]
    stages = whole_sum([tallies.active_us * count for tallies, count in staged])
    return PipelineReport(
        active_us=active,
        batches=total["busy_us"] / active if active else 0.0,
        bubble_share=1.0 - total["computing_us"] / stages if stages else 0.0,
    )


def _ranks(cluster: Cluster) -> RanksReport:
    from blis_tui.engine.options.ranks import Rank  # noqa: PLC0415  (few runs have ranks)

    loops = [(instance, instance.loop) for instance in cluster.instances if isinstance(instance.loop, Rank)]
    ranks = [(instance, loop.group, loop.index - loop.group.index) for instance, loop in loops]
    firsts = [group for _, group, place in ranks if not place]
    batches = whole_sum([group.taken for _, group, _ in ranks])
    dummies = whole_sum([group.dummies[place] for _, group, place in ranks])
    busy = whole_sum([instance.tallies.busy_us for instance, _, _ in ranks])
    alone = whole_sum([group.alone_us[place] for _, group, place in ranks])
    return RanksReport(
        replicas=len(firsts),
        ranks=len(ranks),
        steps=whole_sum([rank_group.taken for rank_group in firsts]),
        dummy_batches=dummies,
        dummy_share=dummies / batches if batches else 0.0,
        waiting_us=busy - alone,
        waiting_share=1.0 - alone / busy if busy else 0.0,
    )


def _pools(cluster: Cluster, rows: Sequence[RequestNumbers], duration_us: int) -> dict[str, PoolReport]:
    completed, tokens, prefilled = ([0] * len(cluster.instances) for _ in range(3))
    for row in rows:
        if row.instance >= 0:
            completed[row.instance] += row.state == RequestState.COMPLETED
            tokens[row.instance] += row.output_tokens
        if row.transfer_start_us >= 0:
            prefilled[row.prefill_instance] += 1
    reports: dict[str, PoolReport] = {}
    for pool in dict.fromkeys(configured.name for configured in cluster.pools):
        members = [index for index, configured in enumerate(cluster.pools) if configured.name == pool]
        what = cluster.pools[members[0]]
        instances = [cluster.instances[index] for index in members]
        busy_us = whole_sum([instance.tallies.busy_us for instance in instances])
        reports[pool] = PoolReport(
            role=what.role,
            model=what.model.name,
            hardware=what.hardware.name,
            tensor_parallel=what.tensor_parallel,
            instances=len(members),
            routed=whole_sum([instance.routed for instance in instances]),
            prefilled=whole_sum([prefilled[index] for index in members]),
            completed=whole_sum([completed[index] for index in members]),
            steps=whole_sum([instance.tallies.steps for instance in instances]),
            busy_us=busy_us,
            busy_share=min(1.0, busy_us / (duration_us * len(members) * what.engine.pipeline_parallel))
            if duration_us
            else 0.0,
            output_tokens=whole_sum([tokens[index] for index in members]),
            peak_running=whole_sum([instance.tallies.peak_running for instance in instances]),
            kv=kv_counts(instances),
        )
    return reports


def _models(
    names: Iterable[str], cluster: Cluster, rows: Sequence[RequestNumbers], warm_up_us: int
) -> tuple[ModelReport, ...]:
    return tuple(_model(name, cluster, rows, warm_up_us) for name in names)


def _model(name: str, cluster: Cluster, rows: Sequence[RequestNumbers], warm_up_us: int) -> ModelReport:
    instances = [at for at, pool in enumerate(cluster.pools) if pool.model.name == name]
    there = [row for row in rows if row.instance in instances]
    timed = [row for row in there if row.arrival_us >= warm_up_us]
    return ModelReport(
        model=name,
        instances=len(instances),
        completed=len([row for row in there if row.state == RequestState.COMPLETED]),
        output_tokens=whole_sum([row.output_tokens for row in there]),
        ttft_ms=of_samples([row.ttft_us for row in timed if row.ttft_us >= 0]),
        e2e_ms=of_samples([row.e2e_us for row in timed if row.e2e_us >= 0]),
    )


def _fairness(rows: Sequence[RequestNumbers], table: RequestTable) -> Fairness:
    tokens: dict[str, int] = {}
    for row in rows:
        tenant = table.group(row)[1]
        if tenant:
            tokens[tenant] = tokens.get(tenant, 0) + row.output_tokens
    return Fairness(tenants=len(tokens), jain_index=jain_index([*tokens.values()]))


def jain_index(values: Sequence[int]) -> float:
    """Return Jain's index: (sum of x)^2 / (n * sum of x^2) (Jain, Chiu and Hawe, 1984).

    It is 0 without values, and 1 if all are 0.
    """
    squares = whole_sum([value * value for value in values])
    if not squares:
        return 1.0 if values else 0.0
    total = whole_sum(values)
    return total * total / (len(values) * squares)
