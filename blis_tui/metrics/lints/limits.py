"""Checks of the limits that hold a cluster back: KV cache, token budget, batch size, prefix cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.request import RequestState
from blis_tui.metrics.lints.finding import MANY, Finding, budget_key, worst
from blis_tui.metrics.load import THRASHING
from blis_tui.metrics.stats import of_histogram
from blis_tui.spec.model import SLO_CLASSES
from blis_tui.units import percent_text, plural

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.metrics.lints.finding import Group, Seen


_PREEMPTED_SHARE: Final = 1
"""Minimum percentage of preempted requests for a warning."""
_KV_SHARE: Final = 10
_SEQS_SHARE: Final = 10
_FULL_SHARE: Final = 50
"""Minimum percentage of the step time for a warning."""
_BUSY_SHARE: Final = 80
"""Minimum percentage of the run in which a pool's instances are busy, if the pool is to limit it."""
_TAIL: Final = 4
"""Minimum ratio of the 99th percentile to the median inter-token latency for a warning."""
_BESIDE_SHARE: Final = 20
"""Minimum percentage of the total inter-token latency in steps with prefill for prefill to be the cause."""
_AGAINST_THRASHING: Final[tuple[str, ...]] = ("engine.kv_blocks", "engine.max_num_seqs")


def kv_cache(seen: Seen) -> Finding | str:
    """The KV cache is too small: requests wait for blocks in more than 10 % of the step time, or 1 % are preempted."""
    return worst(map(_kv_cache, seen.by_pool()))


def _kv_cache(pool: Group) -> Finding | str:
    busy_us, waited_us = pool.total("busy_us"), pool.total("kv_wait_us")
    preemptions, preempted = pool.total("preemptions"), pool.total("preempted_requests")
    arrived = pool.arrived
    if 100 * waited_us <= _KV_SHARE * busy_us and 100 * preempted <= _PREEMPTED_SHARE * arrived:
        return ""
    if by_priority := pool.total("outranked"):  # preempted for a place in the batch
        preemptions -= by_priority
        preempted = min(preempted, preemptions)
        if 100 * waited_us <= _KV_SHARE * busy_us and 100 * preempted <= _PREEMPTED_SHARE * arrived:
            return ""
    engine = pool.limits
    return Finding(
        id="kv-cache",
        message=(
            f"The KV cache of {engine.kv_blocks:,} blocks ({engine.kv_blocks * engine.block_size_tokens:,} tokens)"
            f"{pool.of} is too small for this load: requests waited for blocks in {percent_text(waited_us, busy_us)}"
            f" of the step time, and {_preempted_text(preempted, preemptions, arrived)}."
        ),
        figures={
            "kv_blocks": engine.kv_blocks,
            "kv_wait_us": waited_us,
            "busy_us": busy_us,
            "preemptions": preemptions,
            "preempted_requests": preempted,
            "arrived": arrived,
        },
        advice=(
            "More KV blocks (engine.kv_blocks, engine.gpu_memory_utilization, cluster.tensor_parallel) or more"
            f" instances help{'; a lower engine.max_num_seqs trades preemptions for waiting' if preempted else ''}."
        ),
        keys=(
            "engine.kv_blocks",
            "engine.gpu_memory_utilization",
            "cluster.tensor_parallel",
            "cluster.instances",
            *(("engine.max_num_seqs",) if preempted else ()),
        ),
    )


def _preempted_text(preempted: int, preemptions: int, arrived: int) -> str:
    if not preempted:
        return "none was preempted"
    return f"{preempted:,} of {plural(arrived, 'request')} were preempted, {plural(preemptions, 'time')} in all"


def priorities_apart(seen: Seen) -> Finding | str:
    """SGLang's priority preemption is on, but the SLO classes are never far enough apart to trigger it."""
    policy = seen.experiment.policy
    settings = policy.batching.settings
    threshold = settings.get("priority_scheduling_preemption_threshold")
    if not settings.get("enable_priority_scheduling") or policy.priority.kind != "slo-class":
        return ""
    most = len(SLO_CLASSES) - 1
    if not isinstance(threshold, int) or threshold < most:
        return ""
    return Finding(
        id="priorities-apart",
        message=f"No request can be preempted by priority: service classes are at most {most} apart, and running"
        f" requests make way for those that are more urgent by more than {threshold:,}.",
        figures={"priority_scheduling_preemption_threshold": threshold, "largest_difference": most},
        advice="Lower priority_scheduling_preemption_threshold, to 0 for every difference; the queue is ordered by"
        " priority in any case.",
        keys=("policy.batching.priority_scheduling_preemption_threshold",),
    )


def thrashing(seen: Seen) -> Finding | str:
    """Requests are preempted three times or more."""
    thrashed = seen.flow.thrashed
    if not thrashed:
        return ""
    most, number = seen.flow.worst
    name = seen.table.name(number)
    advice, keys = "more KV blocks, or a lower max_num_seqs, help", _AGAINST_THRASHING
    if "watermark" in seen.experiment.policy.batching.settings:
        advice = "more KV blocks, a lower max_num_seqs, or a watermark help"
        keys = (*keys, "policy.batching.watermark")
    if seen.total("outranked"):
        advice = "a larger priority_scheduling_preemption_threshold, or more instances, help"
        keys = ("policy.batching.priority_scheduling_preemption_threshold", "cluster.instances")
    return Finding(
        id="thrashing",
        message=(
            f"{plural(thrashed, 'request')} {'was' if thrashed == 1 else 'were'} preempted {THRASHING} times or more,"
            f" up to {plural(most, 'time')} ({name})."
        ),
        figures={"requests": thrashed, "most_preemptions": most},
        advice=f"Work is recomputed repeatedly: {advice}.",
        keys=keys,
        request=name,
    )


def host_link(seen: Seen) -> Finding | str:
    """``engine.host_link`` is set, but no request is ever swapped to host memory."""
    cluster = seen.cluster
    described = [pool.engine.host_link for pool in cluster.pools if pool.engine.host_link is not None]
    if not described or any(instance.batch.host is not None for instance in cluster.instances):
        return ""
    restore = seen.experiment.policy.preemption_restore
    return Finding(
        id="host-link",
        message=f"engine.host_link has no effect: `restore: {restore}` swaps nothing to the host.",
        figures={"preemptions": seen.total("preemptions")},
        advice="Set policy.preemption.restore to swap or auto, or leave engine.host_link out.",
        keys=("policy.preemption.restore", "engine.host_link"),
    )


def crowded_out(seen: Seen) -> Finding | str:
    """Requests that run alone are preempted repeatedly because KV blocks are reserved for prompts in transfer."""
    counts = [one.batch.crowded_out for one in seen.cluster.instances]
    times = 0
    for count in counts:
        times += count
    if times < THRASHING:
        return ""
    instance = max(range(len(counts)), key=counts.__getitem__)
    return Finding(
        id="crowded-out",
        message=(
            f"{plural(times, 'time')} a request that ran alone was preempted because the KV blocks it lacked are"
            f" reserved for prompts on their way: most often on instance {instance}"
            f" ({plural(counts[instance], 'time')})."
        ),
        figures={"preemptions": times, "most_preemptions": counts[instance]},
        advice=(
            "It starts again and comes no further until they have arrived. More KV blocks or a faster transfer help;"
            " with `order: prefill-first` blocks are taken when they arrive."
        ),
        keys=(
            "engine.kv_blocks",
            "cluster.disaggregation.transfer.bandwidth_gb_per_s",
            "cluster.disaggregation.order",
        ),
        instance=instance,
    )


def token_budget(seen: Seen) -> Finding | str:
    """In more than half of the step time of the busiest pool, steps use up the whole ``max_num_batched_tokens``.

    A pool whose instances have time to spare, or whose requests then wait for a busier pool, is not the bottleneck.
    """
    if not seen.duration_us:
        return "nothing has happened yet"
    return _token_budget(max(seen.by_pool(), key=lambda pool: _busy_share(pool, seen)), seen)


def _busy_share(pool: Group, seen: Seen) -> float:
    """Return the share of the run in which a pool's instances were busy, on average."""
    return pool.total("busy_us") / (len(pool.instances) * seen.duration_us)


def _token_budget(pool: Group, seen: Seen) -> Finding | str:
    full_us, busy_us = pool.total("full_budget_us"), pool.total("busy_us")
    there_us = len(pool.instances) * seen.duration_us
    if 100 * full_us <= _FULL_SHARE * busy_us or 100 * busy_us < _BUSY_SHARE * there_us:
        return ""
    budget = pool.limits.max_num_batched_tokens
    return Finding(
        id="token-budget",
        message=(
            f"Steps that used up the whole budget of {budget:,} tokens took {percent_text(full_us, busy_us)} of the"
            f" step time{pool.of}, and steps {percent_text(busy_us, there_us)} of all time: prefill is what limits the"
            " run."
        ),
        figures={
            "full_budget_us": full_us,
            "busy_us": busy_us,
            "instances_us": there_us,
            "max_num_batched_tokens": budget,
        },
        advice=f"Raise {budget_key(pool.instances[0])}, or add instances.",
        keys=(budget_key(pool.instances[0]), "cluster.instances"),
    )


def decode_tail(seen: Seen) -> Finding | str:
    """The p99 of ITL is at least four times the median, and steps with prefill delay decodes."""
    gaps = seen.gaps_us
    itl = of_histogram(gaps)
    if itl.p50 is None or itl.p99 is None:
        return "no request has decoded yet"
    total_us = 0
    for gap_us, count in gaps.items():
        total_us += gap_us * count
    beside_us = seen.total("beside_prefill_us")
    if itl.p99 < _TAIL * itl.p50 or 100 * beside_us < _BESIDE_SHARE * total_us:
        return ""
    budget = seen.limits.max_num_batched_tokens
    instance = seen.cluster.instances[0]
    apart = instance.batch.traits.prefills_apart
    advice, keys = _shorter_tail(instance)
    return Finding(
        id="decode-tail",
        message=(
            f"The p99 of the inter-token latency, {itl.p99:,.1f} ms, is {itl.p99 / itl.p50:,.1f} times its median of"
            f" {itl.p50:,.1f} ms: decodes spent {percent_text(beside_us, total_us)} of their time"
            f" {'waiting for steps that' if apart else 'in steps that also'} computed prompts of other requests."
        ),
        figures={
            "itl_p50_ms": itl.p50,
            "itl_p99_ms": itl.p99,
            "beside_prefill_us": beside_us,
            "inter_token_us": total_us,
            "max_num_batched_tokens": budget,
        },
        advice=advice,
        keys=(*keys, "cluster.instances"),
    )


def _shorter_tail(instance: Instance) -> tuple[str, tuple[str, ...]]:
    """Return what makes decodes wait less for prompts: advice and keys."""
    traits, budget = instance.batch.traits, budget_key(instance)
    if traits.prefills_apart and traits.step_tokens_setting:
        mix = "policy.batching.enable_mixed_chunk"
        return f"Set {mix}, so that decodes go on beside prompts, and lower {budget}.", (mix, budget)
    if traits.prefills_apart:
        other = "The rule computes prompts or decodes; others (policy.batching), such as `vllm-v1`, do both in a step."
        return other, ("policy.batching",)
    keys = (budget,) if traits.step_tokens_setting else (budget, "engine.long_prefill_token_threshold")
    shorten = "Smaller prefill chunks shorten those steps, at the price of a later first token: lower"
    return f"{shorten} {', or set '.join(keys)}.", keys


def max_num_seqs(seen: Seen) -> Finding | str:
    """For more than 10 % of the step time, requests wait for a place in the batch although token budget is left."""
    return worst(map(_max_num_seqs, seen.by_pool()))


def _max_num_seqs(pool: Group) -> Finding | str:
    waited_us, busy_us = pool.total("seqs_wait_us"), pool.total("busy_us")
    engine = pool.limits
    if 100 * waited_us <= _SEQS_SHARE * busy_us or engine.max_num_seqs >= engine.max_num_batched_tokens:
        return ""
    return Finding(
        id="max-num-seqs",
        message=(
            f"Requests waited because {engine.max_num_seqs:,} already ran (max_num_seqs), though the token budget was"
            f" not used up, in {percent_text(waited_us, busy_us)} of the step time{pool.of}."
        ),
        figures={"seqs_wait_us": waited_us, "busy_us": busy_us, "max_num_seqs": engine.max_num_seqs},
        advice="Raise engine.max_num_seqs as long as the KV cache has room, or add instances.",
        keys=("engine.max_num_seqs", "cluster.instances"),
    )


def prefix_cache(seen: Seen) -> Finding | str:
    """Prompts share prefixes, but the prefix cache has no hits."""
    workload = seen.experiment.workload
    if workload.trace is not None:
        return "a trace does not say beforehand which requests share a prefix"
    size = min(instance.batch.limits.block_size_tokens for instance in seen.cluster.instances)
    prefixes = [client.prefix.tokens for client in workload.clients if client.prefix is not None]
    if not prefixes:
        return "no client has a prefix"
    if seen.flow.states[RequestState.COMPLETED] < MANY:
        return "too few requests have completed yet"
    if seen.flow.cached_tokens:
        return ""
    longest = max(prefixes)
    why = f"; none is as long as a block ({size} tokens)" if longest < size else ""
    advice = "Only whole blocks are shared, and only while they are kept: longer prefixes or more KV blocks help."
    keys: tuple[str, ...] = ("workload.clients", "engine.block_size_tokens", "engine.kv_blocks")
    if not any(instance.pool.caching for instance in seen.cluster.instances):
        why, advice = ": prefix caching is off", "Set engine.enable_prefix_caching to true."
        keys = ("engine.enable_prefix_caching",)
    return Finding(
        id="prefix-cache",
        message=f"Prompts share prefixes of up to {longest:,} tokens, but nothing was found in the cache{why}.",
        figures={"longest_prefix_tokens": longest, "block_size_tokens": size, "cached_tokens": 0},
        advice=advice,
        keys=keys,
    )


# Is there enough room for the LoRA adapters that requests ask for?

_MISSED: Final = 0.25
"""Minimum share of requests whose adapter had to evict another one for a warning; also of requests that were held."""


def adapter_places(seen: Seen) -> Finding | str:
    """Instances keep reloading LoRA adapters, or requests wait for a slot for theirs."""
    found = [one.batch.adapters for one in seen.cluster.instances if one.batch.adapters is not None]
    scheduled = evictions = held = loads = load_us = held_us = 0
    for one in found:
        scheduled += one.admitted
        evictions += one.evictions
        held += one.holds
        held_us += one.held_us
        load_us += one.load_us
        for count in one.loads.values():
            loads += count
    if max(evictions, held) <= _MISSED * scheduled or not evictions:
        return ""
    slots = max(one.limits.max_loras for one in (instance.batch for instance in seen.cluster.instances))
    adapters = len(dict.fromkeys(name for one in found for name in one.loads_of))
    return Finding(
        id="adapter-places",
        message=f"{adapters:,} LoRA adapters share {slots:,} places an instance: of {scheduled:,} requests with one, "
        f"{loads:,} had it loaded first, for {evictions:,} of them another one had to go; {held:,} were held.",
        figures={
            "adapters": adapters,
            "max_loras": slots,
            "loads": loads,
            "evictions": evictions,
            "load_us": load_us,
            "held": held,
            "held_us": held_us,
        },
        advice="Raise engine.lora.max_loras, or send requests where their adapter is (scorer lora-affinity).",
        keys=("engine.lora.max_loras", "policy.routing"),
    )


def adapters_without_cost(seen: Seen) -> Finding | str:
    """Requests name LoRA adapters, but no instance has any."""
    if any(one.batch.adapters is not None for one in seen.cluster.instances):
        return ""
    named = len([row for row in seen.table.plain() if seen.table.adapter(row)]) if seen.table.has_adapters else 0
    if not named:
        return ""
    return Finding(
        id="adapters-without-cost",
        message=f"{named:,} requests name a LoRA adapter, and no instance has any: they cost nothing here.",
        figures={"requests": named},
        advice="Add engine.lora, such as `lora: {max_loras: 4}`.",
        keys=("engine.lora",),
    )
