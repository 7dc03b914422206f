"""What should not happen: overtaking that priorities do not explain, and queues much longer than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.metrics.request_log import RequestTable, Row, Way
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomalies:
    """Counts of what should not happen, as BLIS defines it."""

    priority_inversions: int
    """Pairs of completed requests of one class on one instance of which the one that arrived first took more than twice
    as long; 0 where the queues do not follow priorities."""
    head_of_line_blocking: int
    """Instances whose queue of requests that have not run yet is, averaged over the run, more than twice as long as the
    mean of their pool."""


def anomalies_of(
    experiment: Experiment, cluster: Cluster, rows: Sequence[tuple[Row, Way]], table: RequestTable
) -> Anomalies:
    """Of the run as it stands."""
    policy = experiment.policy
    asks = "priority" in policy.scheduling.kind or cluster.instances[0].batch.traits.priorities != 0
    by_priority = asks and policy.priority.kind != "constant"
    return Anomalies(
        priority_inversions=_inversions(rows, table) if by_priority else 0,
        head_of_line_blocking=_blocked(cluster, rows),
    )


def _inversions(rows: Sequence[tuple[Row, Way]], table: RequestTable) -> int:
    groups: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row, _ in rows:
        if row.state == RequestState.COMPLETED:
            key = (table.group(row)[0], row.instance)
            groups.setdefault(key, []).append((row.number, row.e2e_us))
    count = 0
    for group in groups.values():
        count += doubled_pairs([e2e_us for _, e2e_us in sorted(group)])[0]
    return count


def doubled_pairs(values: Sequence[int]) -> tuple[int, list[int]]:
    """How many pairs there are of which the earlier value is more than twice the later one; and the values in order."""
    if len(values) < 2:
        return 0, [*values]
    half = len(values) // 2
    (left, early), (right, late) = doubled_pairs(values[:half]), doubled_pairs(values[half:])
    count, at = left + right, 0
    for value in early:
        while at < len(late) and value > 2 * late[at]:
            at += 1
        count += at
    return count, sorted((*early, *late))


def _blocked(cluster: Cluster, rows: Sequence[tuple[Row, Way]]) -> int:
    waited_us = [0] * len(cluster.instances)
    for row, way in rows:
        first = way.prefill_instance if way.split else row.instance
        if first >= 0 and row.queued_us >= 0:
            if row.scheduled_us >= 0:
                waited_us[first] += row.scheduled_us - row.queued_us
            elif row.state == RequestState.WAITING:
                waited_us[first] += cluster.now - row.queued_us
    pools: dict[str, list[int]] = {}
    for pool, waited in zip(cluster.pools, waited_us, strict=True):
        pools.setdefault(pool.name, []).append(waited)
    count = 0
    for waits in pools.values():
        total = 0
        for wait in waits:
            total += wait
        count += len([wait for wait in waits if wait * len(waits) > 2 * total])
    return count
