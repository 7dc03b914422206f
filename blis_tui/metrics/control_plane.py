"""The report's sections on gateway, disaggregation, deferral and rejections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.admission_control import BUDGET
from blis_tui.cluster.stages import DISPLACED, EXPIRED, FULL
from blis_tui.engine.request import RequestState
from blis_tui.metrics.stats import Distribution, of_samples, of_shares, whole_sum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.cluster.decisions import Regrets
    from blis_tui.cluster.pipeline import Dispatcher
    from blis_tui.cluster.stages import NoGateway
    from blis_tui.metrics.request_log import Detour, Row
    from blis_tui.spec.model import Experiment


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
    gateway: NoGateway, rejections: Mapping[str, int], rows: Sequence[tuple[Row, Detour]], warm_up_us: int
) -> GatewayReport:
    """Return the section on the gateway for the run so far."""
    full, displaced, expired = (rejections.get(cause, 0) for cause in (FULL, DISPLACED, EXPIRED))
    depth = gateway.waiting
    waited = [(row, way.gateway_us) for row, way in rows if way.gateway_us >= 0]
    return GatewayReport(
        offered=gateway.dispatched + full + displaced + expired + depth,
        dispatched=gateway.dispatched,
        full=full,
        displaced=displaced,
        expired=expired,
        depth=depth,
        peak_depth=gateway.peak_depth,
        held=len([wait for _, wait in waited if wait]),
        wait_ms=of_samples([wait for row, wait in waited if row.arrival_us >= warm_up_us]),
    )


def disaggregation_report(
    dispatcher: Dispatcher, rows: Sequence[tuple[Row, Detour]], now_us: int, duration_us: int, warm_up_us: int
) -> DisaggregationReport:
    """Return the section on disaggregation for the run so far."""
    split = [(row, way) for row, way in rows if way.split]
    prefilled = len([row for row, _ in split if 0 <= row.first_token_us <= now_us])
    completed = len([row for row, _ in split if row.state == RequestState.COMPLETED])
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
            [way.transfer_us for row, way in split if way.transfer_us >= 0 and row.arrival_us >= warm_up_us]
        ),
        prefills_per_s=rates[0],
        decodes_per_s=rates[1],
        imbalance=max(rates) / min(rates) if min(rates) else None if max(rates) else 1.0,
    )
