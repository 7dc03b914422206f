"""What instances report about their KV caches together."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import UNLESS_ZERO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCounts:
    """The KV caches of instances together."""

    blocks: int
    """KV blocks that there are: the sum over the instances."""
    peak_used: int
    """KV blocks in use at the peak: the sum over the instances, each at its own peak. Blocks that only keep a cached
    prefix and that no request holds are free."""
    hit_rate: float
    """Hits per block, from 0 to 1: KV blocks that requests found in the prefix cache when they were scheduled, divided
    by those and all blocks newly taken, for decodes too. So it is not the cached share of prompt tokens, which is
    ``tokens.cached / tokens.input``."""
    preemptions: int
    """Preemptions: how often a running request lost its KV blocks or its place in the batch; one request can have
    many."""
    preempted_requests: int
    """Requests that were preempted at least once."""
    allocation_failures: int = field(default=0, metadata=UNLESS_ZERO)
    """Attempts to give a request KV blocks that failed: one for each victim that was preempted for them, and one for
    each step that left the next request of the queue waiting for blocks; left out of the file where there were none."""


def zero_where_left_out(metric: str) -> int | None:
    """The value of a metric that a report does not have: 0 where that is what its absence says."""
    return 0 if metric.endswith("kv.allocation_failures") else None


def kv_counts(instances: Sequence[Instance]) -> KvCounts:
    """The figures of these instances."""
    hits = misses = blocks = peak = preemptions = preempted = failures = 0
    for instance in instances:
        pool = instance.pool
        hits += pool.hits
        misses += pool.misses
        blocks += pool.total
        peak += pool.total - pool.min_free
        preemptions += instance.tallies.preemptions
        preempted += instance.tallies.preempted_requests
        failures += instance.tallies.allocation_failures
    return KvCounts(
        blocks=blocks,
        peak_used=peak,
        hit_rate=hits / (hits + misses) if hits + misses else 0.0,
        preemptions=preemptions,
        allocation_failures=failures,
        preempted_requests=preempted,
    )
