"""What instances report about their KV caches together."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.kv.capacity import kv_bytes_per_token
from blis_tui.metrics.stats import UNLESS_ZERO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.instance import Instance
    from blis_tui.spec.model import Pool


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


# What reports say of tiers below the KV cache, where there are any.


@dataclass(frozen=True, slots=True, kw_only=True)
class TierReport:
    """One tier of all instances together, in KV blocks."""

    offloaded: int
    """That came from the GPU, or from the tier above."""
    reloaded: int
    """That went back to the GPU: hits."""
    dropped: int
    """That had to make room."""
    held: int
    """There at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersReport:
    """The tiers of all instances. ``transfer_us``: of all transfers; ``added_us``: what they made steps longer."""

    offloaded: int
    """Blocks that left the GPU's cache for a tier, and those that sank from one tier to the next."""
    reloaded: int
    """Blocks that came back."""
    hit_rate: float
    """Blocks that came back, divided by all that the GPU's cache had or got when requests were scheduled."""
    thrashing: int
    """Blocks that came back at most a millisecond after they had gone."""
    bytes_moved: int
    """Both ways, over the links of all accelerators."""
    transfer_us: int
    added_us: int
    tiers: Mapping[str, TierReport]
    """By name."""


def tiers_report(instances: Sequence[Instance], pools: Sequence[Pool]) -> TiersReport | None:
    """The figures of these instances, each of its pool; None = none of them has tiers."""
    tiers: dict[str, list[int]] = {}
    offloaded = reloaded = thrashing = moved = transfer = added = taken = 0
    for instance, pool in zip(instances, pools, strict=True):
        found = instance.pool.tiers
        if found is None:
            continue
        block_bytes = kv_bytes_per_token(pool.model, pool.tensor_parallel) * pool.engine.block_size_tokens
        taken += instance.pool.hits + instance.pool.misses
        thrashing += found.thrashing
        transfer += found.transfer_us
        added += found.added_us
        for tier in found.tiers:
            counts = (tier.stored, tier.loaded, tier.dropped, len(tier.blocks))
            before = tiers.get(tier.name, [0] * len(counts))
            tiers[tier.name] = [one + other for one, other in zip(before, counts, strict=True)]
            offloaded += tier.stored
            reloaded += tier.loaded
            moved += (tier.stored + tier.loaded) * block_bytes * pool.tensor_parallel
    if not tiers:
        return None
    return TiersReport(
        offloaded=offloaded,
        reloaded=reloaded,
        hit_rate=reloaded / taken if taken else 0.0,
        thrashing=thrashing,
        bytes_moved=moved,
        transfer_us=transfer,
        added_us=added,
        tiers={
            name: TierReport(offloaded=stored, reloaded=loaded, dropped=dropped, held=held)
            for name, (stored, loaded, dropped, held) in tiers.items()
        },
    )
