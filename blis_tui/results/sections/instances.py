"""The report's sections on KV caches, LoRA adapters and encoders."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, fields
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.kv.capacity import kv_bytes_per_token
from blis_tui.engine.options.adapters import HOST, STORAGE
from blis_tui.engine.request import RequestState
from blis_tui.results.stats import OMITTED_IF_ZERO, Distribution, of_samples, sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.instance import Instance
    from blis_tui.engine.options.tiers import Tier, Tiers
    from blis_tui.model import Pool
    from blis_tui.results.request_log import RequestNumbers, RequestTable


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCounts:
    """The KV caches of instances together."""

    blocks: int
    """KV blocks in total: the sum over the instances."""
    peak_used: int
    """KV blocks in use at the peak: the sum over the instances, each at its own peak. Blocks that only hold a cached
    prefix, with no request using them, count as free."""
    hit_rate: float
    """Prefix cache hit rate as vLLM and SGLang log it, from 0 to 1: the share of prompt tokens that requests found
    cached when they were first scheduled. Lookups of preempted requests are counted separately."""
    preemptions: int
    """Preemptions: how often a running request lost its KV blocks or its place in the batch; one request can have
    many. Requests whose last token was already being computed do not count: they complete all the same."""
    preempted_requests: int
    """Requests that were preempted at least once."""
    block_hit_rate: float = field(default=0.0, metadata=OMITTED_IF_ZERO)
    """BLIS's cache hit rate, from 0 to 1: KV blocks that requests found in the prefix cache whenever they were
    scheduled, divided by those and all newly allocated blocks, including those for decodes; left out of the file if 0.
    """
    preempted_lookups: int = field(default=0, metadata=OMITTED_IF_ZERO)
    """How often preempted requests looked up their tokens in the prefix cache when they were rescheduled
    (``preempted_requests`` of vLLM's ``PrefixCacheStats``); left out of the file if 0."""
    preempted_queries: int = field(default=0, metadata=OMITTED_IF_ZERO)
    """Tokens that preempted requests looked up: the prompt, and the generated ones where victims keep them. Like vLLM,
    this is separate from the lookups of new requests, which are ``tokens.input``; left out of the file if 0."""
    preempted_hits: int = field(default=0, metadata=OMITTED_IF_ZERO)
    """Tokens of these lookups found in the GPU's cache, mostly the request's own earlier ones; part of
    ``block_hit_rate``, not of ``hit_rate`` and ``tokens.cached``; left out of the file if 0."""
    allocation_failures: int = field(default=0, metadata=OMITTED_IF_ZERO)
    """Failed attempts to allocate KV blocks for a request: one for each victim preempted for it, and one for each step
    that left the next request of the queue waiting for blocks; left out of the file if 0."""


_LEFT_OUT: Final = (
    *(f"kv.{declared.name}" for declared in fields(KvCounts) if declared.metadata == OMITTED_IF_ZERO),
    ".from_others",  # of a tier
)


def zero_if_omitted(metric: str) -> int | None:
    """Return the value of a metric that is absent from a report: 0 if absence means zero, otherwise None."""
    return 0 if metric.endswith(_LEFT_OUT) else None


def kv_counts(instances: Sequence[Instance]) -> KvCounts:
    """Return the KV cache figures of these instances."""
    pools = [instance.pool for instance in instances]
    counts = sums(pools, ("total", "min_free", "hits", "misses", "queried_tokens", "found_tokens"))
    blocks, hits, asked = counts["total"], counts["hits"], counts["queried_tokens"]
    return KvCounts(
        blocks=blocks,
        peak_used=blocks - counts["min_free"],
        hit_rate=counts["found_tokens"] / asked if asked else 0.0,
        block_hit_rate=hits / (hits + counts["misses"]) if hits else 0.0,
        **sums(
            [instance.tallies for instance in instances], ("preemptions", "preempted_requests", "allocation_failures")
        ),
        **sums(pools, ("preempted_lookups", "preempted_queries", "preempted_hits")),
    )


# The report's section on tiers below the KV cache.


@dataclass(frozen=True, slots=True, kw_only=True)
class TierReport:
    """One tier of all instances together, in KV blocks; a shared one is there once."""

    blocks: int
    """KV blocks that it has room for."""
    hit_rate: float
    """KV blocks that were reloaded from it, as a share (0 to 1) of all that the GPU's cache had or newly took: its part
    of ``kv_tiers.hit_rate``."""
    offloaded: int
    """KV blocks that arrived from the GPU, or from the tier above."""
    reloaded: int
    """KV blocks that were reloaded to the GPU: hits."""
    dropped: int
    """KV blocks evicted from the tier."""
    held: int
    """KV blocks in the tier at the end."""
    from_others: int = field(default=0, metadata=OMITTED_IF_ZERO)
    """KV blocks of ``reloaded`` that another instance had stored, in a shared tier; left out of the file if 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersReport:
    """The KV tiers of all instances."""

    offloaded: int
    """KV blocks that moved from the GPU's cache to a tier, or from one tier to the next lower one."""
    reloaded: int
    """KV blocks that were reloaded to the GPU."""
    hit_rate: float
    """KV blocks that were reloaded, as a share (0 to 1) of all that the GPU's cache had or newly took; ``kv.hit_rate``
    has the hits on the GPU."""
    thrashing: int
    """KV blocks that were reloaded at most a millisecond after they had left the GPU."""
    bytes_moved: int
    """Bytes moved in both directions, over the links of all GPUs."""
    transfer_us: int
    """The sum of the times of all transfers, whether steps waited for them or not."""
    added_us: int
    """By how much these transfers made steps longer."""
    tiers: Mapping[str, TierReport]
    """Each tier, by name."""


def tiers_report(instances: Sequence[Instance], pools: Sequence[Pool]) -> TiersReport | None:
    """Return the tier figures of these instances, each of its pool; None if none of them has tiers."""
    every = [instance.pool.tiers for instance in instances if instance.pool.tiers is not None]
    if not every:
        return None
    by_name: dict[str, list[Tier]] = {}
    for hierarchy in every:
        for tier in hierarchy.tiers:
            by_name.setdefault(tier.name, []).append(tier)
    tiers = {name: sums(of_name, ("stored", "loaded", "dropped", "from_others")) for name, of_name in by_name.items()}
    offloaded, reloaded = (whole_sum([counts[name] for counts in tiers.values()]) for name in ("stored", "loaded"))
    taken = whole_sum(
        [instance.pool.hits + instance.pool.misses for instance in instances if instance.pool.tiers is not None]
    )
    moved = whole_sum([_moved(instance.pool.tiers, pool) for instance, pool in zip(instances, pools, strict=True)])
    return TiersReport(
        offloaded=offloaded,
        reloaded=reloaded,
        hit_rate=reloaded / taken if taken else 0.0,
        bytes_moved=moved,
        **sums(every, ("thrashing", "transfer_us", "added_us")),
        tiers={
            name: TierReport(
                blocks=whole_sum(list({tier.place: tier.total for tier in by_name[name]}.values())),
                hit_rate=counts["loaded"] / taken if taken else 0.0,
                offloaded=counts["stored"],
                reloaded=counts["loaded"],
                dropped=counts["dropped"],
                held=_held(by_name[name]),
                from_others=counts["from_others"],
            )
            for name, counts in tiers.items()
        },
    )


def _held(tiers: Sequence[Tier]) -> int:
    """Return the blocks in these tiers, where those of one store count once."""
    return whole_sum(list({tier.place: tier.held for tier in tiers}.values()))


def _moved(tiers: Tiers | None, pool: Pool) -> int:
    """Return the bytes that moved over the links of an instance."""
    if tiers is None:
        return 0
    block_bytes = kv_bytes_per_token(pool.model, pool.tensor_parallel) * pool.engine.block_size_tokens
    return whole_sum([tier.stored + tier.loaded for tier in tiers.tiers]) * block_bytes * pool.tensor_parallel


_LISTED: Final = 20
"""Maximum number of adapters listed in a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterReport:
    """The requests of one LoRA adapter."""

    requests: int
    """Requests that use it."""
    completed: int
    """Requests for it that completed."""
    output_tokens: int
    """Output tokens of requests for it, including requests that did not complete."""
    loads: int
    """Loads of the adapter, onto any instance."""
    ttft_ms: Distribution
    """``latency.ttft_ms`` of the requests for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptersReport:
    """The LoRA adapters of all instances together."""

    adapters: int
    """Different adapters that were requested."""
    scheduled: int
    """Scheduled requests with an adapter; a preempted request counts again when it is rescheduled."""
    hit_rate: float
    """The share of ``scheduled``, from 0 to 1, whose adapter was on the GPUs when the request was scheduled."""
    loads: int
    """Loads of adapters onto instances, from host memory or storage."""
    loads_from_storage: int
    """Loads of adapters that were not in host memory; part of ``loads``."""
    evictions: int
    """Adapters evicted from the accelerators to make room for others."""
    load_us: int
    """The sum of the times of all loads, during which steps waited (``vllm-v1``) or went on (``blis``)."""
    holds: int
    """Requests that were passed over in the queue because there was no slot for their adapter, or that waited for its
    load beside steps; a preempted one counts again."""
    held_us: int
    """The sum of the times of these waits, for requests that were scheduled afterwards."""
    busiest: Mapping[str, AdapterReport]
    """The 20 most requested adapters, by name."""


def adapters_report(
    instances: Sequence[Instance], rows: Sequence[RequestNumbers], table: RequestTable, warm_up_us: int
) -> AdaptersReport | None:
    """Return the adapter figures of these instances; None if none of them has adapters.

    The TTFTs leave out requests that arrived before ``warm_up_us``.
    """
    parts = [instance.batch.adapters for instance in instances if instance.batch.adapters is not None]
    if not parts:
        return None
    by_name: dict[str, list[RequestNumbers]] = {}
    for row in rows:
        name = table.adapter(row)
        if name:
            by_name.setdefault(name, []).append(row)
    loads_of: Counter[str] = Counter()
    for part in parts:
        loads_of.update(part.loads_of)
    total = sums(parts, ("admitted", "hits", "evictions", "load_us", "holds", "held_us"))
    admitted, hits = total.pop("admitted"), total.pop("hits")
    storage, host = (whole_sum([part.loads[where] for part in parts]) for where in (STORAGE, HOST))
    busiest = sorted(by_name, key=lambda name: (-len(by_name[name]), name))[:_LISTED]
    return AdaptersReport(
        adapters=len(by_name),
        scheduled=admitted,
        hit_rate=hits / admitted if admitted else 0.0,
        loads=storage + host,
        loads_from_storage=storage,
        **total,
        busiest={name: _one(by_name[name], loads_of[name], warm_up_us) for name in busiest},
    )


def _one(rows: Sequence[RequestNumbers], loads: int, warm_up_us: int) -> AdapterReport:
    tokens = whole_sum([row.output_tokens for row in rows])
    first = [row.ttft_us for row in rows if row.ttft_us >= 0 and row.arrival_us >= warm_up_us]
    return AdapterReport(
        requests=len(rows),
        completed=len([row for row in rows if row.state == RequestState.COMPLETED]),
        output_tokens=tokens,
        loads=loads,
        ttft_ms=of_samples(first),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderReport:
    """The encoders of all instances together."""

    encoded_tokens: int
    """Media tokens that were encoded; those of a preempted request may be encoded again."""
    cached_tokens: int
    """Media tokens found in the encoder's cache when the prompt reached them."""
    hit_rate: float
    """The share (0 to 1) of media tokens found in the cache: cached, divided by encoded plus cached."""
    evicted_items: int
    """Media items evicted from the cache to make room for others."""
    holds: int
    """How often a prompt was computed only up to a media item, or not at all, because the encoder had no capacity for
    it."""
    held_us: int
    """The sum of the times until these prompts continued, in microseconds."""


def encoder_report(instances: Sequence[Instance]) -> EncoderReport | None:
    """Return the encoder figures of these instances; None if none of them schedules an encoder."""
    books = [instance.batch.encoder.books() for instance in instances if instance.batch.encoder is not None]
    if not books:
        return None
    encoded, cached, evicted, holds, held_us = map(whole_sum, zip(*books, strict=True))
    return EncoderReport(
        encoded_tokens=encoded,
        cached_tokens=cached,
        hit_rate=cached / (encoded + cached) if cached else 0.0,
        evicted_items=evicted,
        holds=holds,
        held_us=held_us,
    )
