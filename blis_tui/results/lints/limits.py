"""Checks of the limits that hold a cluster back: KV cache, token budget, batch size, prefix cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import percent_text, plural
from blis_tui.engine.latency.model import Chunk, StepLoad, is_pure
from blis_tui.engine.request import Request, RequestState
from blis_tui.model import SLO_CLASSES
from blis_tui.results.lints.finding import MIN_REQUESTS, Finding, budget_key, worst
from blis_tui.results.sections.offered_load import THRASHING
from blis_tui.results.stats import of_histogram, sums

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.profile import Limits
    from blis_tui.results.lints.finding import Group, LintContext


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
_WORTH_IT: Final = 5
"""Minimum gain in prompt tokens per second, in percent, for the advice to raise the token budget."""
_PROBE: Final = Request(-1, "", 0, 1, 0)
_RESERVING: Final = ("reserve_full_input", "reserve_full_isl")
"""Settings of batching rules that admit a prompt only if all its KV blocks are free."""
_AGAINST_THRASHING: Final[tuple[str, ...]] = ("engine.kv_blocks", "engine.max_num_seqs")


def kv_cache(seen: LintContext) -> Finding | str:
    """The KV cache is too small: requests wait for blocks for over 10 % of step time, or over 1 % are preempted."""
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
            f"The KV cache of {engine.kv_blocks:,} blocks ({_held_by(engine)})"
            f"{pool.of} is too small for this load: requests waited for blocks during"
            f" {percent_text(waited_us, busy_us)} of the step time, and "
            f"{_preempted_text(preempted, preemptions, arrived)}.{_as_full(engine)}"
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
            "Add KV blocks (engine.kv_blocks, engine.gpu_memory_utilization, cluster.tensor_parallel) or"
            f" instances{'; a lower engine.max_num_seqs trades preemptions for waiting' if preempted else ''}."
        ),
        keys=(
            "engine.kv_blocks",
            "engine.gpu_memory_utilization",
            "cluster.tensor_parallel",
            "cluster.instances",
            *(("engine.max_num_seqs",) if preempted else ()),
        ),
    )


def _held_by(engine: Limits) -> str:
    if engine.kv_groups is not None:
        return f"{engine.block_size_tokens} tokens each, for {engine.kv_groups.layers} layers"
    return f"{engine.kv_blocks * engine.block_size_tokens:,} tokens"


def _as_full(engine: Limits) -> str:
    if not engine.windows_count_as_full:
        return ""
    return f" (Layers of {engine.model} with a sliding window count as full attention here.)"


def _preempted_text(preempted: int, preemptions: int, arrived: int) -> str:
    if not preempted:
        return "none was preempted"
    verb, times = "was" if preempted == 1 else "were", plural(preemptions, "time")
    return f"{preempted:,} of {plural(arrived, 'request')} {verb} preempted ({times} in total)"


def priorities_apart(seen: LintContext) -> Finding | str:
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
        message=f"No request can be preempted by priority: the priorities of SLO classes differ by at most {most}, but "
        f"a running request is preempted only for one whose priority is higher by more than {threshold:,}.",
        figures={"priority_scheduling_preemption_threshold": threshold, "largest_difference": most},
        advice="Lower priority_scheduling_preemption_threshold (0: any difference counts); the queue is ordered by "
        "priority in any case.",
        keys=("policy.batching.priority_scheduling_preemption_threshold",),
    )


def thrashing(seen: LintContext) -> Finding | str:
    """Requests are preempted three times or more."""
    thrashed = seen.flow.thrashed
    if not thrashed:
        return ""
    most, number = seen.flow.worst
    name = seen.table.name(number)
    advice, keys = "add KV blocks or lower max_num_seqs", _AGAINST_THRASHING
    if "watermark" in seen.experiment.policy.batching.settings:
        advice = "add KV blocks, lower max_num_seqs, or set a watermark"
        keys = (*keys, "policy.batching.watermark")
    settings = seen.experiment.policy.batching.settings
    if reserving := next((name for name in _RESERVING if settings.get(name) is False), ""):
        advice = f"let a prompt in only when all of it fits (`{reserving}: true`), add KV blocks or lower max_num_seqs"
        keys = (f"policy.batching.{reserving}", *_AGAINST_THRASHING)
    if seen.total("outranked"):
        advice = "raise priority_scheduling_preemption_threshold or add instances"
        keys = ("policy.batching.priority_scheduling_preemption_threshold", "cluster.instances")
    again = "The same work is recomputed"
    if all(
        instance.batch.host is not None and not instance.batch.recomputed_tokens()
        for instance in seen.cluster.instances
    ):
        again = "The same KV blocks move to the host and back"
    return Finding(
        id="thrashing",
        message=(
            f"{plural(thrashed, 'request')} {'was' if thrashed == 1 else 'were'} preempted {THRASHING} times or more,"
            f" up to {plural(most, 'time')} ({name})."
        ),
        figures={"requests": thrashed, "most_preemptions": most},
        advice=f"{again} repeatedly: {advice}.",
        keys=keys,
        request=name,
    )


def host_link(seen: LintContext) -> Finding | str:
    """``engine.host_link`` is set, but no request is ever swapped to host memory."""
    cluster = seen.cluster
    described = [pool.engine.host_link for pool in cluster.pools if pool.engine.host_link is not None]
    if not described or any(instance.batch.host is not None for instance in cluster.instances):
        return ""
    restore = seen.experiment.policy.preemption_restore
    return Finding(
        id="host-link",
        message=f"engine.host_link has no effect: with `restore: {restore}`, nothing is swapped to host memory.",
        figures={"preemptions": seen.total("preemptions")},
        advice="Set policy.preemption.restore to swap or auto, or remove engine.host_link.",
        keys=("policy.preemption.restore", "engine.host_link"),
    )


def preempted_for_reserved(seen: LintContext) -> Finding | str:
    """Requests that run alone are preempted repeatedly because KV blocks are reserved for prompts in transfer."""
    counts = [instance.batch.preempted_for_reserved for instance in seen.cluster.instances]
    times = whole_sum(counts)
    if times < THRASHING:
        return ""
    instance = max(range(len(counts)), key=counts.__getitem__)
    return Finding(
        id="crowded-out",
        message=(
            f"A request that ran alone was preempted because the KV blocks it needed were reserved for prompts in "
            f"transfer,"
            f" {plural(times, 'time')} in total, most often on instance {instance}"
            f" ({plural(counts[instance], 'time')})."
        ),
        figures={"preemptions": times, "most_preemptions": counts[instance]},
        advice=(
            "It starts over and makes no progress until those prompts have arrived. More KV blocks or a faster "
            "transfer help; with `order: prefill-first`, blocks are allocated only on arrival."
        ),
        keys=(
            "engine.kv_blocks",
            "cluster.disaggregation.transfer.bandwidth_gb_per_s",
            "cluster.disaggregation.order",
        ),
        instance=instance,
    )


def token_budget(seen: LintContext) -> Finding | str:
    """For more than half of the step time of the busiest pool, steps use the whole ``max_num_batched_tokens``.

    A pool whose instances have time to spare, or whose requests then wait for a busier pool, is not the bottleneck.
    """
    if not seen.duration_us:
        return "nothing has happened yet"
    return _token_budget(max(seen.by_pool(), key=lambda pool: _busy_share(pool, seen)), seen)


def _busy_share(pool: Group, seen: LintContext) -> float:
    """Return the share of the run in which a pool's instances were busy, on average."""
    return pool.total("busy_us") / (len(pool.instances) * seen.duration_us)


def _token_budget(pool: Group, seen: LintContext) -> Finding | str:
    full_us, busy_us = pool.total("full_budget_us"), pool.total("busy_us")
    there_us = max(len(pool.instances) * seen.duration_us, busy_us)  # a last step may end after the run
    if 100 * full_us <= _FULL_SHARE * busy_us or 100 * busy_us < _BUSY_SHARE * there_us:
        return ""
    budget, cause = pool.limits.max_num_batched_tokens, "prefill is the bottleneck"
    advice, keys = _faster_prefill(pool, seen)
    if pool.decoded > pool.total("prefill_tokens"):
        key, cause = budget_key(pool.instances[0]), "most tokens are decoded, not prefilled"
        keys = ("cluster.instances", key, "engine.max_num_seqs")
        advice = f"Add instances, or raise {key} and engine.max_num_seqs together."
    return Finding(
        id="token-budget",
        message=(
            f"Steps that used the whole budget of {budget:,} tokens took {percent_text(full_us, busy_us)} of the step"
            f" time{pool.of}, and steps took {percent_text(busy_us, there_us)} of all time: {cause}."
        ),
        figures={
            "full_budget_us": full_us,
            "busy_us": busy_us,
            "instances_us": there_us,
            "max_num_batched_tokens": budget,
        },
        advice=advice,
        keys=keys,
    )


def _faster_prefill(pool: Group, seen: LintContext) -> tuple[str, tuple[str, ...]]:
    """Return the advice, and its keys, for computing more prompt tokens per second in a pool."""
    key, instances = budget_key(pool.instances[0]), "cluster.instances"
    gain = _gain_of_twice_the_budget(pool, seen)
    if gain is None:
        return f"Add instances, or try a larger {key}.", (instances, key)
    if 100 * gain < _WORTH_IT:
        more = "hardly more" if gain >= 0 else "fewer"
        advice = f"Add instances: with twice the budget ({key}), steps compute {more} prompt tokens per second."
        return advice, (instances,)
    advice = f"Raise {key} (twice as much: {100 * gain:.0f} % more prompt tokens per second), or add instances."
    return advice, (key, instances)


def _gain_of_twice_the_budget(pool: Group, seen: LintContext) -> float | None:
    """Return how many more prompt tokens per second full steps compute with twice the budget, as a share.

    Computed from the step-time model, with as many decodes beside the prompts as the run had on average. None: the
    model cannot be asked outside of a run.
    """
    instance, flow, prefill_us = pool.instances[0], seen.flow, pool.total("prefill_us")
    if not is_pure(instance.latency) or not prefill_us:
        return None
    budget = pool.limits.max_num_batched_tokens
    decodes = min(pool.total("beside_prefill_us") // prefill_us, budget // 2)
    if instance.batch.traits.prefills_apart:
        decodes = 0
    answers = flow.states[RequestState.COMPLETED]
    context = decodes * flow.input_tokens // max(flow.total, 1) + decodes * flow.answer_tokens // max(2 * answers, 1)

    def per_us(tokens: int) -> float:
        new = tokens - decodes
        whole, rest = divmod(new, budget)
        chunks = [Chunk(_PROBE, 0, size, size) for size in [budget] * whole + [rest] * (rest > 0)]
        return new / instance.latency.step_time_us(StepLoad(chunks, decodes, context))

    return per_us(2 * budget) / per_us(budget) - 1


def decode_tail(seen: LintContext) -> Finding | str:
    """The p99 of ITL is at least four times the median, and steps with prefill delay decodes."""
    gaps = seen.gaps_us
    itl = of_histogram(gaps)
    if itl.p50 is None or itl.p99 is None:
        return "no request has decoded yet"
    total_us = whole_sum([gap_us * count for gap_us, count in gaps.items()])
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
            f"The p99 inter-token latency of {itl.p99:,.1f} ms is {itl.p99 / itl.p50:,.1f} times the median of"
            f" {itl.p50:,.1f} ms: decodes spent {percent_text(beside_us, total_us)} of their time"
            f" {'waiting for steps that' if apart else 'in steps that also'} prefilled other requests."
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
        return f"Set {mix}, so that decodes and prefills share steps, and lower {budget}.", (mix, budget)
    if traits.prefills_apart:
        other = (
            "A step of this rule does either prefill or decode; others (policy.batching), such as `vllm-v1`, do both."
        )
        return other, ("policy.batching",)
    keys = (budget,) if traits.step_tokens_setting else (budget, "engine.long_prefill_token_threshold")
    shorten = "Smaller prefill chunks shorten those steps, at the cost of a higher TTFT: lower"
    return f"{shorten} {', or set '.join(keys)}.", keys


def max_num_seqs(seen: LintContext) -> Finding | str:
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
            f"During {percent_text(waited_us, busy_us)} of the step time{pool.of}, requests waited because"
            f" {engine.max_num_seqs:,} {'was' if engine.max_num_seqs == 1 else 'were'} already running (max_num_seqs),"
            " although token budget was left."
        ),
        figures={"seqs_wait_us": waited_us, "busy_us": busy_us, "max_num_seqs": engine.max_num_seqs},
        advice="Raise engine.max_num_seqs if the KV cache has room, or add instances.",
        keys=("engine.max_num_seqs", "cluster.instances"),
    )


def prefix_cache(seen: LintContext) -> Finding | str:
    """Prompts share prefixes, but the prefix cache has no hits."""
    workload = seen.experiment.workload
    if workload.trace is not None:
        return "a trace does not declare which requests share a prefix"
    size = min(instance.batch.limits.block_size_tokens for instance in seen.cluster.instances)
    prefixes = [client.prefix.tokens for client in workload.clients if client.prefix is not None]
    if not prefixes:
        return "no client has a prefix"
    if seen.flow.states[RequestState.COMPLETED] < MIN_REQUESTS:
        return "too few requests have completed so far"
    if seen.flow.cached_tokens:
        return ""
    longest = max(prefixes)
    why = f"; no prefix is as long as a block ({size} tokens)" if longest < size else ""
    advice = "Only whole blocks are shared, and only while they stay cached: longer prefixes or more KV blocks help."
    keys: tuple[str, ...] = ("workload.clients", "engine.block_size_tokens", "engine.kv_blocks")
    if not any(instance.pool.caching for instance in seen.cluster.instances):
        why, advice = ": prefix caching is off", "Set engine.enable_prefix_caching to true."
        keys = ("engine.enable_prefix_caching",)
    return Finding(
        id="prefix-cache",
        message=f"Prompts share prefixes of up to {longest:,} tokens, but the prefix cache had no hits{why}.",
        figures={"longest_prefix_tokens": longest, "block_size_tokens": size, "cached_tokens": 0},
        advice=advice,
        keys=keys,
    )


# Is there enough room for the LoRA adapters that requests ask for?

_MISSED: Final = 0.25
"""Minimum share of requests whose adapter had to evict another one for a warning; also of requests that were held."""


def adapter_places(seen: LintContext) -> Finding | str:
    """Instances keep reloading LoRA adapters, or requests wait for a slot for theirs."""
    parts = [instance.batch.adapters for instance in seen.cluster.instances if instance.batch.adapters is not None]
    counters = sums(parts, ("admitted", "evictions", "holds", "held_us", "load_us")).values()
    scheduled, evictions, held, held_us, load_us = counters
    loads = whole_sum([whole_sum(part.loads.values()) for part in parts])
    if max(evictions, held) <= _MISSED * scheduled or not evictions:
        return ""
    slots = max(batch.limits.max_loras for batch in (instance.batch for instance in seen.cluster.instances))
    adapters = len(dict.fromkeys(name for part in parts for name in part.loads_of))
    return Finding(
        id="adapter-places",
        message=f"{adapters:,} LoRA adapters share {slots:,} slots per instance: of {scheduled:,} requests with an "
        f"adapter, "
        f"{loads:,} had to load it, {evictions:,} of those by evicting another one; {held:,} were held.",
        figures={
            "adapters": adapters,
            "max_loras": slots,
            "loads": loads,
            "evictions": evictions,
            "load_us": load_us,
            "held": held,
            "held_us": held_us,
        },
        advice="Raise engine.lora.max_loras, or route requests to instances that hold their adapter (scorer "
        "lora-affinity).",
        keys=("engine.lora.max_loras", "policy.routing"),
    )


def adapters_without_cost(seen: LintContext) -> Finding | str:
    """Requests name LoRA adapters, but no instance has any."""
    if any(instance.batch.adapters is not None for instance in seen.cluster.instances):
        return ""
    named = len([row for row in seen.table.plain() if seen.table.adapter(row)]) if seen.table.has_adapters else 0
    if not named:
        return ""
    return Finding(
        id="adapters-without-cost",
        message=f"{named:,} requests name a LoRA adapter, but no instance has any: adapters cost nothing in this run.",
        figures={"requests": named},
        advice="Add engine.lora, such as `lora: {max_loras: 4}`.",
        keys=("engine.lora",),
    )
