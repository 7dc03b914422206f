"""What instances report about their KV caches together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCounts:
    """The KV caches of all instances together.

    ``blocks`` and ``peak_used`` are sums over instances (each at its own peak). ``hit_rate``: blocks found in the cache
    at admissions, divided by those and the blocks newly taken, decoding included.
    """

    blocks: int
    peak_used: int
    hit_rate: float
    preemptions: int
    preempted_requests: int


def kv_counts(instances: Sequence[Instance]) -> KvCounts:
    """The figures of these instances."""
    hits = misses = blocks = peak = preemptions = preempted = 0
    for instance in instances:
        pool = instance.pool
        hits += pool.hits
        misses += pool.misses
        blocks += pool.total
        peak += pool.total - pool.min_free
        preemptions += instance.tallies.preemptions
        preempted += instance.tallies.preempted_requests
    return KvCounts(
        blocks=blocks,
        peak_used=peak,
        hit_rate=hits / (hits + misses) if hits + misses else 0.0,
        preemptions=preemptions,
        preempted_requests=preempted,
    )
