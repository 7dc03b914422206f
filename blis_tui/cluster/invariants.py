"""Invariants under disaggregation in addition to the general ones: INV-PD-1 to INV-PD-6.

The identifiers are those of the BLIS simulator. BLIS checks finished runs; these checks apply to every state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.invariants import INVARIANTS, Invariant
from blis_tui.engine.request import handover_of
from blis_tui.workload.source import awaits_answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Handover, Request


# Invariants of the control plane and of clients: INV-7 and INV-11 of the BLIS simulator.
#
# ``tests/determinism`` and the goldens check INV-6, the oracle's sessions and ``tests/workload`` check INV-10.


def _board_is_current(cluster: Cluster) -> str:
    return cluster.roster.board.audit(cluster.now) if cluster.roster.watched else ""


def _all_accounted_for(cluster: Cluster) -> str:
    source = cluster.source
    return source.audit() if awaits_answers(source) else ""


CONTROL_INVARIANTS: Final = (
    Invariant("INV-7", _board_is_current),
    Invariant("INV-11", _all_accounted_for),
)
"""The statements that must hold after every event."""


_PREFILL: Final = frozenset({"any", "prefill"})
_DECODE: Final = frozenset({"any", "decode"})


def _on_instances(cluster: Cluster) -> Iterator[tuple[int, Request, Handover]]:
    """Iterate over split requests in queues and batches."""
    for instance in cluster.instances:
        for request in (*instance.waiting.ordered(), *instance.batch.running.values()):
            if request.handover is not None:
                yield instance.index, request, request.handover


def _completeness(cluster: Cluster) -> str:
    for _, request, way in _on_instances(cluster):
        if way.prefilled and way.transfer_us < 0:
            return f"request {request.request_id} is decoded before its KV blocks have arrived"
    return ""


def _exclusivity(cluster: Cluster) -> str:
    for index, request, way in _on_instances(cluster):
        what, roles = ("decoded", _DECODE) if way.prefilled else ("prefilled", _PREFILL)
        role = cluster.pools[index].role
        if role not in roles:
            return f"request {request.request_id} is {what} on instance {index}, whose role is {role}"
    return ""


def _transfer_conservation(cluster: Cluster) -> str:
    dispatcher = cluster.dispatcher
    link, under_way = dispatcher.link, 0
    for passage in dispatcher.passages.values():
        way = handover_of(passage.request)
        under_way += way.transfer_start_us >= 0 and way.transfer_us < 0
    if under_way != link.active:
        return f"{link.active} transfers are counted as under way, {under_way} are"
    if link.started != dispatcher.arrived + dispatcher.broken_off + under_way:
        return (
            f"{link.started} transfers were started, but {dispatcher.arrived} have arrived, {dispatcher.broken_off} "
            f"were broken off and {under_way} are under way"
        )
    return ""


def _phases(cluster: Cluster) -> str:
    if not cluster.dispatcher.splits:
        return ""
    for request in cluster.dispatcher.transferring():
        if wrong := _timing_violation(request, request.first_token_us, cluster.now):
            return wrong
    for _, request, way in _on_instances(cluster):
        # After a preemption, a request that has arrived may have got another first token.
        if way.prefilled and (wrong := _timing_violation(request, request.queued_us, cluster.now)):
            return wrong
    return ""


def _timing_violation(request: Request, prefilled_us: int, now: int) -> str:
    """Return what is wrong with the times of a request whose prompt is computed."""
    way = handover_of(request)
    times = [request.arrival_us, request.queued_us, prefilled_us]
    early = 0 <= way.transfer_start_us < prefilled_us
    # A transfer that starts with the step completing the prefill may end before that step.
    times = times[:2] if early else times
    if way.transfer_start_us >= 0:
        times.append(way.transfer_start_us)
        if way.transfer_us >= 0:
            times.append(way.transfer_start_us + way.transfer_us)
        times.append(now)
    return f"request {request.request_id}: its phases are at {times}" if times != sorted(times) else ""


def _stability(cluster: Cluster) -> str:
    for index, (pool, instance) in enumerate(zip(cluster.pools, cluster.instances, strict=True)):
        if instance.index != index or instance.pool.total != pool.engine.kv_blocks:
            return f"instance {index} is no longer one of pool {pool.name}"
    for fleet, roles in cluster.roster.fleets:
        for index in fleet.members:
            role = cluster.pools[index].role
            if role not in roles:
                return f"instance {index}, whose role is {role}, may be chosen as one of {', '.join(sorted(roles))}"
    return ""


def _granularity(cluster: Cluster) -> str:
    if not cluster.dispatcher.splits:
        return ""
    there = [request for _, request, _ in _on_instances(cluster)] + cluster.in_transit()
    seen: dict[int, None] = {}
    for request in there:
        if request.index in seen:
            return f"request {request.request_id} is in two places"
        seen[request.index] = None
    for index, passage in cluster.dispatcher.passages.items():
        if passage.request.index != index:
            return f"request {passage.request.request_id} is kept as number {index}"
    return ""


SPLIT_INVARIANTS: Final = (
    Invariant("INV-PD-1", _completeness),
    Invariant("INV-PD-2", _exclusivity),
    Invariant("INV-PD-3", _transfer_conservation),
    Invariant("INV-PD-4", _phases),
    Invariant("INV-PD-5", _stability),
    Invariant("INV-PD-6", _granularity),
)
"""The statements that must hold after every event."""

CLUSTER_INVARIANTS: Final = (*CONTROL_INVARIANTS, *SPLIT_INVARIANTS)
"""The invariants besides ``INVARIANTS``, wherever they apply."""


def outcomes(cluster: Cluster, *, verify: bool) -> dict[str, str]:
    """Return a report's text for each invariant; those of clusters are listed only if violated."""
    if not verify:
        return {one.identifier: "not checked" for one in INVARIANTS}
    found = {one.identifier: one.verdict(cluster) or "ok" for one in INVARIANTS}
    return found | {one.identifier: wrong for one in CLUSTER_INVARIANTS if (wrong := one.verdict(cluster))}
