"""What gateway, disaggregation, deferral and rejections come to."""

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
    from blis_tui.cluster.stages import OpenGateway
    from blis_tui.metrics.request_log import Row, Way
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferralReport:
    """Requests that were deferred until the cluster is idle."""

    deferred: int
    """Requests that were deferred; one that is deferred again counts again."""
    waiting: int
    """Requests that still are at the end, part of ``requests.still_queued``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """The queue in front of the router. ``offered`` is the sum of the next five."""

    offered: int
    """Admitted requests that reached it."""
    dispatched: int
    """Requests that it sent on to the router."""
    full: int
    """Requests that it rejected because it was full."""
    displaced: int
    """Requests turned out of its queue for more urgent ones."""
    expired: int
    """Requests rejected because they had waited for ``request_ttl_us``."""
    depth: int
    """Requests still in its queue at the end, part of ``requests.still_queued``."""
    peak_depth: int
    """The most requests in its queue at a time."""
    held: int
    """Dispatched requests that had to wait."""
    wait_ms: Distribution
    """How long the gateway held dispatched requests, those included that passed at once (0), without the warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregationReport:
    """Requests whose prefill and decode run on two instances."""

    split: int
    """Requests that were decided to be split."""
    prefilled: int
    """Requests of them whose prompt is computed."""
    completed: int
    """Requests of them whose answer was generated to its end."""
    dropped_at_decode: int
    """Requests whose KV blocks did not fit where they were to decode, part of ``requests.dropped_unservable``."""
    transfers: int
    """Transfers of KV blocks that were started."""
    transfers_under_way: int
    """KV transfers that had not ended at the end of the run."""
    peak_concurrent_transfers: int
    """The most KV transfers in progress at a time."""
    transferred_bytes: int
    """Bytes of all transfers that were started, those that broke off included."""
    transfer_ms: Distribution
    """How long KV transfers took from start to end, latency of the link included; one sample for each request, without
    the warm-up."""
    prefills_per_s: float
    """``prefilled`` per second of the whole run."""
    decodes_per_s: float
    """``completed`` per second of the whole run."""
    imbalance: float | None
    """The larger of ``prefills_per_s`` and ``decodes_per_s`` divided by the smaller: a ratio from 1 on, with None where
    one of them is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretReport:
    """The best score less that of the chosen instance: 0 = none was better, 1 = the most there can be.

    Of the decisions of policies that have scores; there is nothing to be regretted by those without.
    """

    seen: Distribution
    """By the instances as the router saw them; in score points, from 0 to 1."""
    true: Distribution
    """By the instances as they were, whatever the age of the router's view; in score points, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingReport:
    """Routing decisions, each weighed against its alternatives."""

    decisions: int
    """Routing decisions; a request that is split or starts again has several."""
    scored: int
    """Decisions of policies that have scores."""
    regretted: int
    """Decisions of these that the true state of the instances speaks against: another one had a higher score."""
    regret: RegretReport
    """What the scored decisions gave away."""


def routing_report(regrets: Regrets) -> RoutingReport:
    """Of the run as it stands."""
    scored = whole_sum(regrets.true.values())
    return RoutingReport(
        decisions=regrets.decisions,
        scored=scored,
        regretted=scored - regrets.true.get(0, 0),
        regret=RegretReport(seen=of_shares(regrets.seen), true=of_shares(regrets.true)),
    )


def rejections_of(experiment: Experiment, cluster: Cluster) -> dict[str, int]:
    """How many requests each cause turned away; those that could have and did not are 0."""
    policy = experiment.policy
    causes = [policy.admission.kind]
    causes += [] if policy.tenant_budgets is None else [BUDGET]
    causes += [] if policy.gateway is None else [FULL, DISPLACED, EXPIRED]
    return {**dict.fromkeys(causes, 0), **cluster.pipeline.rejections}


def deferral_report(cluster: Cluster) -> DeferralReport:
    """Of the run as it stands."""
    deferral = cluster.pipeline.deferral
    return DeferralReport(deferred=deferral.deferrals, waiting=len(deferral.waiting))


def gateway_report(
    gateway: OpenGateway, rejections: Mapping[str, int], rows: Sequence[tuple[Row, Way]], warm_up_us: int
) -> GatewayReport:
    """Of the run as it stands."""
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
    dispatcher: Dispatcher, rows: Sequence[tuple[Row, Way]], now_us: int, duration_us: int, warm_up_us: int
) -> DisaggregationReport:
    """Of the run as it stands."""
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
