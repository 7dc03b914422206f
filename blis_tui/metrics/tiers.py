"""What reports say of tiers below the KV cache, where there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.kv.capacity import kv_bytes_per_token

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.instance import Instance
    from blis_tui.spec.model import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class TierReport:
    """One tier of all instances together, in KV blocks."""

    offloaded: int
    """KV blocks that came from the GPU, or from the tier above."""
    reloaded: int
    """KV blocks that went back to the GPU: hits."""
    dropped: int
    """KV blocks that had to make room."""
    held: int
    """KV blocks there at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersReport:
    """The tiers of all instances."""

    offloaded: int
    """KV blocks that left the GPU's cache for a tier, and those that sank from one tier to the next."""
    reloaded: int
    """KV blocks that came back to the GPU."""
    hit_rate: float
    """KV blocks that came back, as a share (0 to 1) of all that the GPU's cache had or newly took; ``kv.hit_rate`` has
    the hits on the GPU."""
    thrashing: int
    """KV blocks that came back at most a millisecond after they had gone."""
    bytes_moved: int
    """Bytes moved both ways, over the links of all GPUs."""
    transfer_us: int
    """The sum of the times of all transfers, whether steps waited for them or not."""
    added_us: int
    """By how much these transfers made steps longer."""
    tiers: Mapping[str, TierReport]
    """By name: each tier."""


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
