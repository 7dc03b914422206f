"""The report's sections on the control plane, on instances that come and go, on preemption and saturation."""

from __future__ import annotations

from dataclasses import field
from itertools import accumulate, pairwise
from math import sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.cluster.admission_control import BUDGET
from blis_tui.cluster.stages import DISPLACED, EXPIRED, FULL, accelerators
from blis_tui.engine.request import RequestState
from blis_tui.results.request_log import is_split
from blis_tui.results.stats import OMITTED_IF_ABSENT, Distribution, of_samples, of_shares, sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.cluster.decisions import Regrets
    from blis_tui.cluster.pipeline import Dispatcher
    from blis_tui.cluster.stages import NoGateway
    from blis_tui.engine.instance import Instance
    from blis_tui.model import Experiment, Policy
    from blis_tui.results.request_log import RequestNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferralReport:
    """Requests that were deferred until the cluster is idle."""

    deferred: int
    """Requests that were deferred; one that is deferred again counts again."""
    waiting: int
    """Requests still deferred at the end, part of ``requests.still_queued``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """The queue in front of the router. ``offered`` is the sum of the next five fields."""

    offered: int
    """Admitted requests that reached it."""
    dispatched: int
    """Requests that it sent to the router."""
    full: int
    """Requests that it rejected because it was full."""
    displaced: int
    """Requests removed from the queue in favour of more urgent ones."""
    expired: int
    """Requests rejected because they had waited for ``request_ttl_us``."""
    depth: int
    """Requests still in its queue at the end, part of ``requests.still_queued``."""
    peak_depth: int
    """The most requests in its queue at one time."""
    held: int
    """Dispatched requests that had to wait."""
    wait_ms: Distribution
    """How long the gateway held dispatched requests, without the warm-up; requests that passed at once count as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregationReport:
    """Requests whose prefill and decode run on two instances."""

    split: int
    """Requests for which a split was decided."""
    prefilled: int
    """Split requests whose prompt is computed."""
    completed: int
    """Split requests that completed."""
    dropped_at_decode: int
    """Requests whose KV blocks did not fit on the decode instance, part of ``requests.dropped_unservable``."""
    transfers: int
    """KV transfers started."""
    transfers_under_way: int
    """KV transfers that had not ended at the end of the run."""
    peak_concurrent_transfers: int
    """The most KV transfers in progress at a time."""
    transferred_bytes: int
    """Bytes of all transfers that were started, including aborted ones."""
    transfer_ms: Distribution
    """Duration of KV transfers from start to end, including the latency of the link; one sample per request, without
    the warm-up."""
    prefills_per_s: float
    """``prefilled`` per second of the whole run."""
    decodes_per_s: float
    """``completed`` per second of the whole run."""
    imbalance: float | None
    """The larger of ``prefills_per_s`` and ``decodes_per_s`` divided by the smaller: a ratio of at least 1; None if one
    of them is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretReport:
    """Regret of routing decisions: the best score minus that of the chosen instance, from 0 (none was better) to 1.

    It covers decisions of policies that have scores; there is no regret for the others.
    """

    seen: Distribution
    """Based on the instances' state as the router saw it; in score points, from 0 to 1."""
    true: Distribution
    """Based on the instances' true state, however old the router's view was; in score points, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingReport:
    """Routing decisions, each compared with its alternatives."""

    decisions: int
    """Routing decisions; a request that is split or restarts has several."""
    scored: int
    """Decisions of policies that have scores."""
    regretted: int
    """Scored decisions for which, by the true state of the instances, another instance had a higher score."""
    regret: RegretReport
    """Regret of the scored decisions."""


def routing_report(regrets: Regrets) -> RoutingReport:
    """Return the section on routing for the run so far."""
    scored = whole_sum(regrets.true.values())
    return RoutingReport(
        decisions=regrets.decisions,
        scored=scored,
        regretted=scored - regrets.true.get(0, 0),
        regret=RegretReport(seen=of_shares(regrets.seen), true=of_shares(regrets.true)),
    )


def rejections_of(experiment: Experiment, cluster: Cluster) -> dict[str, int]:
    """Return how many requests each possible cause rejected; causes that rejected none are 0."""
    policy = experiment.policy
    causes = [policy.admission.kind]
    causes += [] if policy.tenant_budgets is None else [BUDGET]
    causes += [] if policy.gateway is None else [FULL, DISPLACED, EXPIRED]
    return {**dict.fromkeys(causes, 0), **cluster.pipeline.rejections}


def deferral_report(cluster: Cluster) -> DeferralReport:
    """Return the section on deferrals for the run so far."""
    deferral = cluster.pipeline.deferral
    return DeferralReport(deferred=deferral.deferrals, waiting=len(deferral.waiting))


def gateway_report(
    gateway: NoGateway,
    rejections: Mapping[str, int],
    rows: Sequence[RequestNumbers],
    warm_up_us: int,
) -> GatewayReport:
    """Return the section on the gateway for the run so far."""
    full, displaced, expired = (rejections.get(cause, 0) for cause in (FULL, DISPLACED, EXPIRED))
    depth = gateway.waiting
    waited = [row for row in rows if row.gateway_us >= 0]
    return GatewayReport(
        offered=gateway.dispatched + full + displaced + expired + depth,
        dispatched=gateway.dispatched,
        full=full,
        displaced=displaced,
        expired=expired,
        depth=depth,
        peak_depth=gateway.peak_depth,
        held=len([row for row in waited if row.gateway_us]),
        wait_ms=of_samples([row.gateway_us for row in waited if row.arrival_us >= warm_up_us]),
    )


def disaggregation_report(
    dispatcher: Dispatcher,
    rows: Sequence[RequestNumbers],
    now_us: int,
    duration_us: int,
    warm_up_us: int,
) -> DisaggregationReport:
    """Return the section on disaggregation for the run so far."""
    split = [row for row in rows if is_split(row)]
    prefilled = len([row for row in split if 0 <= row.first_token_us <= now_us])
    completed = len([row for row in split if row.state == RequestState.COMPLETED])
    rates = [count / (duration_us / 1e6) if duration_us else 0.0 for count in (prefilled, completed)]
    link = dispatcher.link
    return DisaggregationReport(
        split=dispatcher.split,
        prefilled=prefilled,
        completed=completed,
        dropped_at_decode=dispatcher.dropped,
        transfers=link.started,
        transfers_under_way=link.active,
        peak_concurrent_transfers=link.peak,
        transferred_bytes=link.bytes,
        transfer_ms=of_samples(
            [row.transfer_us for row in split if row.transfer_us >= 0 and row.arrival_us >= warm_up_us]
        ),
        prefills_per_s=rates[0],
        decodes_per_s=rates[1],
        imbalance=max(rates) / min(rates) if min(rates) else None if max(rates) else 1.0,
    )


_US_PER_HOUR: Final = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingEvent:
    """A decision of the autoscaler that took effect."""

    time_us: int
    """When it took effect."""
    pool: str
    """The pool that it concerns."""
    change: int
    """Number of instances added, or (negative) removed."""
    reason: str
    """The reason for the decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLife:
    """How an instance ended, and how long it held its accelerators."""

    instance: int
    """Its index in the cluster, from 0."""
    pool: str
    """The name of its pool."""
    state: str
    """``scheduling``, ``loading``, ``warming-up``, ``active``, ``draining``, ``terminated`` or ``failed``."""
    held_us: int
    """How long it held its GPUs: from its placement until it was terminated, failed for good, or the run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleReport:
    """Instances that came and went; left out where none can.

    An instance holds its accelerators from its placement until it is terminated or fails for good, including loading
    and repair.
    """

    failures: int
    """Failures of instances."""
    retries: int
    """How often requests had to leave their instance and restart."""
    transfers_broken_off: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """KV transfers aborted because one of their instances went away; left out without disaggregation."""
    stranded: int
    """Requests waiting for an instance at the end."""
    scaled_up: int
    """Instances that the autoscaler added."""
    scaled_down: int
    """Instances that the autoscaler removed."""
    instance_hours: float
    """Hours for which instances held their GPUs, summed over the instances."""
    gpu_hours: float
    """Hours for which GPUs were held: each instance's hours times the number of its GPUs."""
    cost: float | None
    """Price of the nodes' time, in the currency of ``cost_per_hour``: of each node from when it is ready until it is
    returned; None if no node has a price."""
    instances: tuple[InstanceLife, ...]
    """Every instance that ever existed, in order of index."""
    scaling: tuple[ScalingEvent, ...]
    """The autoscaler's actions, in order of time."""


def lifecycle_report(experiment: Experiment, cluster: Cluster, now_us: int) -> LifecycleReport | None:
    """Return the section on the lifecycle; None if instances neither come nor go."""
    if not experiment.cluster.varies:
        return None
    lifecycle, dispatcher = cluster.lifecycle, cluster.dispatcher
    lives = tuple(
        InstanceLife(
            instance=index,
            pool=cluster.pools[index].name,
            state=life.state,
            held_us=lifecycle.held_us(index, now_us),
        )
        for index, life in enumerate(lifecycle.lives)
    )
    up = down = 0
    held_us = whole_sum([life.held_us for life in lives])
    gpu_us = whole_sum([life.held_us * accelerators(cluster.pools[index]) for index, life in enumerate(lives)])
    for _, _, change, _ in lifecycle.scaled:
        up += max(change, 0)
        down += max(-change, 0)
    return LifecycleReport(
        failures=lifecycle.failed,
        retries=lifecycle.retried,
        transfers_broken_off=dispatcher.broken_off if dispatcher.splits else None,
        stranded=len(lifecycle.parked),
        scaled_up=up,
        scaled_down=down,
        instance_hours=held_us / _US_PER_HOUR,
        gpu_hours=gpu_us / _US_PER_HOUR,
        cost=_cost(experiment, lifecycle.node_us(now_us)),
        instances=lives,
        scaling=tuple(
            ScalingEvent(time_us=time_us, pool=pool, change=change, reason=reason)
            for time_us, pool, change, reason in lifecycle.scaled
        ),
    )


def _cost(experiment: Experiment, node_us: Sequence[int]) -> float | None:
    costs = [
        time_us / _US_PER_HOUR * pool.cost_per_hour
        for pool, time_us in zip(experiment.cluster.nodes, node_us, strict=True)
        if pool.cost_per_hour is not None
    ]
    total = 0.0
    for cost in costs:
        total += cost
    return total if costs else None


WINDOW_US: Final = 30_000_000
"""The label is the most frequent verdict in this last part of the run."""
LABELS: Final = ("stable", "backlogged", "overloaded")
"""From the least severe to the most severe; of equally frequent verdicts the more severe one is taken."""
_TREND: Final = 20
"""Minimum number of completed requests for a trend of latencies to count."""
_SURE: Final = 20
"""Number of arrivals from which the verdict is certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """The composite detector's verdict: do completions lag behind arrivals, and do latencies keep growing?

    After each completion, and each arrival of a request that was not rejected, it compares a score with the noise ``1 /
    sqrt(arrivals)``. The score is the larger of two values: the share of requests that have not completed, and the
    growth of the mean end-to-end latency from the first half of the completed requests to the second (at most 1). The
    growth counts only if the mean grows from quarter to quarter.
    """

    detector: str
    """Always ``composite``, the name of BLIS's detector."""
    label: str
    """``stable``, ``backlogged`` or ``overloaded``: the most frequent verdict of the run's last 30 s."""
    score: float
    """The score at the last arrival or completion, from 0 to 1; dimensionless."""
    confidence: float
    """From 0 to 1: arrivals / 20, at most 1."""


def composite(rows: Sequence[RequestNumbers]) -> Saturation:
    """Return the label of a run."""
    events = [(row.arrival_us, 0, row.number, 0) for row in rows if row.state != RequestState.REJECTED]
    events += [(row.completed_us, 1, row.number, row.e2e_us) for row in rows if row.state == RequestState.COMPLETED]
    events.sort()
    sums_us = [*accumulate([e2e_us for *_, kind, _, e2e_us in events if kind], initial=0)]
    counts = dict.fromkeys(LABELS, 0)
    arrived = done = 0
    score = 0.0
    last_us = events[-1][0] if events else 0
    for time_us, kind, _, _ in events:
        arrived += not kind
        done += kind
        if time_us > last_us - WINDOW_US:
            label, score = _verdict(arrived, done, sums_us)
            counts[label] += 1
    return Saturation(
        detector="composite",
        label=max(LABELS, key=lambda label: (counts[label], LABELS.index(label))) if events else LABELS[0],
        score=score,
        confidence=min(1.0, arrived / _SURE),
    )


def _verdict(arrived: int, done: int, sums_us: Sequence[int]) -> tuple[str, float]:
    """Return the verdict after some arrivals and completions; ``sums_us``: cumulative latencies by completion."""
    deficit = max(0.0, 1 - done / arrived) if arrived else 0.0
    trend = _growth(done, sums_us)
    score = max(deficit, min(trend, 1.0))
    floor = 1 / sqrt(arrived) if arrived else 1.0
    if score < floor:
        return LABELS[0], score
    return LABELS[2] if trend > floor else LABELS[1], score


def _growth(done: int, sums_us: Sequence[int]) -> float:
    """Return how much longer the second half of the completed requests took; 0 unless all quarters grow."""
    if done < _TREND:
        return 0.0
    quarter, half = done // 4, done // 2
    ends = (0, quarter, 2 * quarter, 3 * quarter, done)
    means = [(sums_us[end] - sums_us[start]) / (end - start) for start, end in pairwise(ends)]
    if not means[0] < means[1] < means[2] < means[3]:
        return 0.0
    first, second = sums_us[half] / half, (sums_us[done] - sums_us[half]) / (done - half)
    return max(0.0, (second - first) / first) if first else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionReport:
    """Preemption figures of all instances.

    The section is present unless the policy is ``victim: tail`` or ``priority`` with ``restore: recompute``.
    """

    recomputed_tokens: int
    """Tokens computed again, including generated ones."""
    swapped_out: int
    """Victims whose KV blocks moved to the host's memory."""
    swapped_in: int
    """Victims that were swapped back; victims that timed out on the host are excluded."""
    host_full: int
    """Victims that were recomputed instead of swapped because the host had no room."""
    swapped_out_blocks: int
    """KV blocks moved to the host."""
    swapped_in_blocks: int
    """KV blocks moved back; blocks that the GPU still held are not moved."""
    bytes_moved: int
    """Bytes moved in both directions, over the links of all GPUs."""
    transfer_us: int
    """The sum of the times of all transfers, whether steps waited for them or not."""
    added_us: int
    """By how much these transfers made steps longer: their whole time, or with ``overlap: true`` the part not hidden
    behind computation."""


def has_preemption_section(policy: Policy) -> bool:
    """Return whether reports under this policy have the section."""
    plain = policy.preemption_restore == "recompute" and policy.preemption_victim in {"tail", "priority"}
    return not plain or policy.preemption_recompute is not None


def preemption_report(instances: Sequence[Instance], tensor_parallel: Sequence[int]) -> PreemptionReport:
    """Return the figures of these instances; ``tensor_parallel`` gives the accelerators of each."""
    hosts = [
        (instance.batch.host, gpus)
        for instance, gpus in zip(instances, tensor_parallel, strict=True)
        if instance.batch.host
    ]
    total = sums(
        [host for host, _ in hosts],
        ("swapped_out", "swapped_in", "refused", "out_blocks", "in_blocks", "transfer_us", "added_us"),
    )
    return PreemptionReport(
        recomputed_tokens=whole_sum([instance.batch.recomputed_tokens() for instance in instances]),
        swapped_out=total["swapped_out"],
        swapped_in=total["swapped_in"],
        host_full=total["refused"],
        swapped_out_blocks=total["out_blocks"],
        swapped_in_blocks=total["in_blocks"],
        bytes_moved=whole_sum(
            [(host.out_blocks + host.in_blocks) * host.link.bytes_per_block * gpus for host, gpus in hosts]
        ),
        transfer_us=total["transfer_us"],
        added_us=total["added_us"],
    )
