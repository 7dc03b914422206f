"""The checks behind the warnings: each looks at a run as it stands and gives a warning, or says why it cannot yet.

Where nothing is wrong a check says ``""``. Thresholds are constants below, so that a reader can judge a warning.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import StepLoad
from blis_tui.engine.request import RequestState
from blis_tui.metrics.lints.finding import Finding
from blis_tui.metrics.load import THRASHING
from blis_tui.metrics.stats import of_histogram
from blis_tui.units import percent_text, plural, span_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.metrics.lints.finding import Group, Seen

_MANY: Final = 20
"""Requests below which nothing is said about trends and shares."""
_P99: Final = 100
"""Completed requests below which the 99th percentile is all but the maximum."""
_GROWN: Final = 8
"""Mean length of the queue from which on its growth is worth a warning."""
_UNFINISHED_SHARE: Final = 5
REJECTED_SHARE: Final = 5
_PREEMPTED_SHARE: Final = 1
"""Percent of all requests from which on a check speaks."""
_KV_SHARE: Final = 10
_SEQS_SHARE: Final = 10
_FULL_SHARE: Final = 50
"""Percent of the time of all steps from which on a check speaks."""
_TAIL: Final = 4
"""Times the median inter-token latency that the 99th percentile is worth a warning from."""
_BESIDE_SHARE: Final = 20
"""Percent of all inter-token latencies, added up, that fell into steps with prefill, from which on those cause it."""
_EDGES_SHARE: Final = 33
"""Percent of a run that its start and its drain may take."""
_UTILIZATION: Final = 70
"""Percent of what an instance can serve that the load may be before fewer instances are suggested."""
_DEFECT: Final = "This is a defect of the simulator: please report it with the experiment."


def _worst(found: Iterable[Finding | str]) -> Finding | str:
    """What is said of several pools: the first finding; if there is none, why one of them could not be checked."""
    said = [*found]
    reasons = [one for one in said if isinstance(one, str)]
    return next((one for one in said if isinstance(one, Finding)), max(reasons, default=""))


# ---- defects of the simulator ----


def littles_law(seen: Seen) -> Finding | str:
    """The mean number present, counted as requests come and go, must be arrival rate times mean stay."""
    if seen.flow.states[RequestState.TIMED_OUT]:
        return "it is not known when requests that timed out left"
    now = seen.cluster.now
    stays = seen.flow.present().total_us(now)
    if not now or not stays:
        return "no request has stayed in an instance for any time yet"
    present = seen.cluster.present_us()
    if 100 * abs(present - stays) <= stays:
        return ""
    mean, expected = present / now, stays / now
    return Finding(
        id="littles-law",
        severity="error",
        message=(
            f"On average {mean:,.2f} requests were in the instances, counted as they came and went,"
            f" but {expected:,.2f} by the requests' own times."
        ),
        figures={"mean_present": mean, "arrival_rate_times_mean_stay": expected, "residual": mean - expected},
        advice=f"Little's law does not hold. {_DEFECT}",
        keys=(),
    )


# ---- requests that were not served ----


def _lost(seen: Seen, state: RequestState) -> tuple[int, int, str, str]:
    """How many requests ended so, how many arrived, their share in words, and the first of them."""
    count, arrived = seen.flow.states[state], seen.flow.total
    first = seen.table.name(seen.flow.first[state]) if count else ""
    return count, arrived, percent_text(count, arrived), first


def dropped(seen: Seen) -> Finding | str:
    """Requests that no instance can ever serve."""
    count, arrived, share, first = _lost(seen, RequestState.DROPPED_UNSERVABLE)
    if not count:
        return ""
    return Finding(
        id="dropped",
        severity="error",
        message=f"{plural(count, 'request')} of {arrived:,} ({share}) can never be served; the first is {first}.",
        figures={"dropped": count, "arrived": arrived},
        advice="Raise engine.max_model_len or engine.kv_blocks, or shorten the prompts.",
        keys=("engine.max_model_len", "engine.kv_blocks"),
        request=first,
    )


def timed_out(seen: Seen) -> Finding | str:
    """Requests whose deadline passed."""
    count, arrived, share, first = _lost(seen, RequestState.TIMED_OUT)
    if not count:
        return ""
    return Finding(
        id="timed-out",
        message=f"{plural(count, 'request')} of {arrived:,} ({share}) timed out; the first was {first}.",
        figures={"timed_out": count, "arrived": arrived},
        advice="Lower the load, add instances, or allow clients more time (timeout_us); work on them is discarded.",
        keys=("workload.rate_per_s", "cluster.instances"),
        request=first,
    )


def rejected(seen: Seen) -> Finding | str:
    """Admission control, tenants' budgets and gateway turned more than 5 % of the requests away."""
    count, arrived, share, first = _lost(seen, RequestState.REJECTED)
    if 100 * count <= REJECTED_SHARE * arrived:
        return ""
    causes = seen.cluster.rejections
    by = [f"{number:,} by {cause}" for cause, number in causes.items()]
    alone = [*causes] == [seen.cluster.admission.name]
    what = f"{plural(count, 'request')} of {arrived:,} ({share})"
    return Finding(
        id="rejected",
        message=(
            f"Admission control rejected {what}; the first was {first}."
            if alone
            else f"{what} were turned away, {', '.join(by)}; the first was {first}."
        ),
        figures={"rejected": count, "arrived": arrived},
        advice=(
            "Latencies are those of the others. Lower the load, or let admission control admit more."
            if alone
            else "Latencies are those of the others. Lower the load, add instances, or turn fewer away."
        ),
        keys=("workload.rate_per_s", *(["policy.admission"] if alone else ["cluster.instances", "policy"])),
        request=first,
    )


def unfinished(seen: Seen) -> Finding | str:
    """When the horizon ended the run, more than 5 % of the requests were still waiting or running."""
    if not seen.done:
        return "the run has not ended yet"
    states, arrived = seen.flow.states, seen.flow.total
    queued = states[RequestState.WAITING] + states[RequestState.CREATED]
    running = states[RequestState.RUNNING]
    cut = seen.cluster.queue.heap  # else they wait for an instance that never came
    if not cut or 100 * (queued + running) <= _UNFINISHED_SHARE * arrived:
        return ""
    share = percent_text(queued + running, arrived)
    return Finding(
        id="unfinished",
        message=(
            f"When the horizon ended the run, {queued:,} of {plural(arrived, 'request')} still waited and {running:,}"
            f" ran ({share} together)."
        ),
        figures={"still_queued": queued, "still_running": running, "arrived": arrived},
        advice="End-to-end latencies are without them: raise horizon_us, or lower the load if the queue is long.",
        keys=("horizon_us", "workload.rate_per_s"),
    )


# ---- load ----


def overload(seen: Seen) -> Finding | str:
    """More arrives than is served: while requests arrive, the queue keeps growing.

    Its mean length rises from the second quarter of the arrivals to the third and the last: there to at least 8,
    and to twice that of the second quarter.
    """
    span = seen.flow.arrivals()
    if seen.flow.total < _MANY or span is None:
        return "too few requests have arrived yet"
    first, last = span
    if last - first < 4:
        return "all requests arrived at once"
    waiting = seen.flow.waiting()
    cuts = [first + (last - first) * quarter // 4 for quarter in range(5)]
    means = [waiting.mean(start, end) for start, end in pairwise(cuts)]
    if not (means[1] < means[2] < means[3] and means[3] >= _GROWN and means[3] >= 2 * means[1]):
        return ""
    steady = seen.flow.steady()
    arriving, completing = steady.offered_requests_per_s or 0.0, steady.requests_per_s or 0.0
    served = max(completing, 1e6 * seen.flow.states[RequestState.COMPLETED] / seen.duration_us)
    return Finding(
        id="overload",
        message=(
            f"The load is above the capacity: {arriving:,.1f} requests/s arrived, at most {served:,.1f} were completed,"
            f" and the queue kept growing, from {means[1]:,.1f} requests on average in the second quarter of the"
            f" arrivals to {means[3]:,.1f} in the last."
        ),
        figures={
            "offered_requests_per_s": arriving,
            "served_requests_per_s": served,
            "waiting_second_quarter": means[1],
            "waiting_third_quarter": means[2],
            "waiting_last_quarter": means[3],
        },
        advice=(
            "Latencies depend on how long the run is. Add instances (cluster.instances), lower workload.rate_per_s, or"
            " see what keeps requests waiting."
        ),
        keys=("cluster.instances", "workload.rate_per_s"),
    )


def few_requests(seen: Seen) -> Finding | str:
    """Fewer than 100 requests completed, so that p99 is that of the slowest one or two."""
    if not seen.done:
        return "the run has not ended yet"
    completed = seen.flow.states[RequestState.COMPLETED]
    if not 0 < completed < _P99:
        return ""
    return Finding(
        id="few-requests",
        message=f"Only {plural(completed, 'request')} completed: p99 is practically the slowest of them.",
        figures={"completed": completed, "needed": _P99},
        advice=f"Simulate at least {_P99} requests before reading p99, better {10 * _P99:,} (workload.requests).",
        keys=("workload.requests",),
    )


def edges(seen: Seen) -> Finding | str:
    """The start (the batch fills) and the drain (nothing arrives any more) are more than a third of the run.

    A batch has filled when requests leave it as fast as they enter, which takes about as long as a request runs.
    """
    if not seen.done:
        return "the run has not ended yet"
    span = seen.flow.arrivals()
    if seen.flow.total < _MANY or span is None:
        return "too few requests arrived, or all at once"
    if not isinstance(overload(seen), str):
        return "under overload there is no steady state"
    first, last = span
    running_us = seen.flow.mean_run_us(seen.cluster.now)
    start_us, drain_us, run_us = min(running_us, last - first), seen.duration_us - last, seen.duration_us - first
    if 100 * (start_us + drain_us) <= _EDGES_SHARE * run_us:
        return ""
    return Finding(
        id="start-and-drain",
        message=(
            f"{percent_text(start_us + drain_us, run_us)} of the run is start and drain: a request runs for"
            f" {span_text(running_us)} on average, about the time in which the batch fills, and after the last arrival"
            f" the rest took {span_text(drain_us)}."
        ),
        figures={"mean_running_us": running_us, "drain_us": drain_us, "run_us": run_us},
        advice=(
            "Throughput and latencies of the whole run say little about a steady load: simulate more requests"
            " (workload.requests), and compare `steady` with `offered`."
        ),
        keys=("workload.requests",),
    )


def imbalance(seen: Seen) -> Finding | str:
    """One instance is busy more than twice as long as the mean of its pool."""
    if seen.experiment.cluster.varies:
        return "instances may come and go"
    pools = [pool for pool in seen.by_pool() if len(pool.instances) >= 3]
    return _worst(map(_imbalance, pools)) if pools else "it needs at least three instances"


def _imbalance(pool: Group) -> Finding | str:
    instances, routed = pool.instances, pool.routed
    if routed < _MANY:
        return "too few requests have been routed yet"
    busiest = max(instances, key=lambda one: one.tallies.busy_us)
    busy_us, total = busiest.tallies.busy_us, pool.total("busy_us")
    if busy_us * len(instances) <= 2 * total:
        return ""
    ratio = busy_us * len(instances) / total
    return Finding(
        id="imbalance",
        message=(
            f"instance {busiest.index} was busy for {span_text(busy_us)}, {ratio:.1f} times the mean of all"
            f" {len(instances)} instances{pool.of}; it got {busiest.routed:,} of {routed:,} requests."
        ),
        figures={"busy_us": busy_us, "times_mean": ratio, "routed": busiest.routed, "routed_in_all": routed},
        advice="The router does not spread the work evenly: look at policy.routing.",
        keys=("policy.routing",),
        instance=busiest.index,
    )


def unused_capacity(seen: Seen) -> Finding | str:
    """Fewer instances would serve the load.

    What a request costs an instance at full batches: its share of the steps with prefill, as observed, and of the
    decode steps of the largest batch that ``max_num_seqs`` and the KV cache allow, by the step-time model. Under more
    load prompts share steps, so that an instance serves rather more than this.
    """
    cluster, flow, engine = seen.cluster, seen.flow, seen.limits
    instances = len(cluster.instances)
    if instances < 2:
        return "there is one instance"
    if seen.experiment.cluster.varies or engine.max_loras:
        return "LoRA adapters need places" if engine.max_loras else "instances may come and go"
    if len(seen.experiment.pools) > 1:
        return "the instances are not alike"
    if cluster.gateway is not None:
        return "the gateway decides how much the instances get"
    if not seen.done:
        return "the run has not ended yet"
    completed = flow.states[RequestState.COMPLETED]
    rate = flow.offered(0).requests_per_s
    if completed < _P99 or rate is None:
        return "too few requests completed, or all arrived at once"
    running, used = seen.total("peak_running"), 0
    for instance in cluster.instances:
        used += instance.pool.total - instance.pool.min_free
    batch = max(1, min(engine.max_num_seqs, engine.kv_blocks * running // used))
    answers = flow.answer_tokens
    context = batch * (2 * flow.input_tokens * completed + answers * flow.total) // (2 * flow.total * completed)
    step_us = cluster.instances[0].latency.step_time_us(StepLoad([], batch, context))
    capacity = 1e6 * completed * batch / (seen.total("prefill_us") * batch + answers * step_us)
    needed = max(
        ceil(100 * rate / (_UTILIZATION * capacity)), -(-running // engine.max_num_seqs), -(-used // engine.kv_blocks)
    )
    if needed >= instances:
        return ""
    return Finding(
        id="unused-capacity",
        message=(
            f"{plural(needed, 'instance')} instead of {instances} would be enough: {rate:,.1f} requests/s were offered,"
            f" one instance can serve at least about {capacity:,.1f}, and the peaks of all add up to"
            f" {plural(running, 'running request')} and {percent_text(used, engine.kv_blocks)} of one KV cache."
        ),
        figures={
            "instances": instances,
            "instances_needed": needed,
            "offered_requests_per_s": rate,
            "one_serves_requests_per_s": capacity,
            "peak_running": running,
            "peak_kv_blocks": used,
        },
        advice=f"Try cluster.instances={needed}, and look at the latencies: larger batches make slower steps.",
        keys=("cluster.instances",),
    )


# ---- limits ----


def kv_cache(seen: Seen) -> Finding | str:
    """The KV cache is too small: requests wait for blocks in more than 10 % of the step time, or 1 % are preempted."""
    return _worst(map(_kv_cache, seen.by_pool()))


def _kv_cache(pool: Group) -> Finding | str:
    busy_us, waited_us = pool.total("busy_us"), pool.total("kv_wait_us")
    preemptions, preempted = pool.total("preemptions"), pool.total("preempted_requests")
    arrived = pool.arrived
    if 100 * waited_us <= _KV_SHARE * busy_us and 100 * preempted <= _PREEMPTED_SHARE * arrived:
        return ""
    engine = pool.limits
    return Finding(
        id="kv-cache",
        message=(
            f"The KV cache of {engine.kv_blocks:,} blocks ({engine.kv_blocks * engine.block_size_tokens:,} tokens)"
            f"{pool.of} is too small for this load: requests waited for blocks in {percent_text(waited_us, busy_us)}"
            f" of the step time, and {preempted:,} of {plural(arrived, 'request')} were preempted,"
            f" {preemptions:,} times in all."
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
            " instances help; a lower engine.max_num_seqs trades preemptions for waiting."
        ),
        keys=(
            "engine.kv_blocks",
            "engine.gpu_memory_utilization",
            "cluster.tensor_parallel",
            "cluster.instances",
            "engine.max_num_seqs",
        ),
    )


def thrashing(seen: Seen) -> Finding | str:
    """Requests are preempted three times or more."""
    thrashed = seen.flow.thrashed
    if not thrashed:
        return ""
    most, number = seen.flow.worst
    name = seen.table.name(number)
    return Finding(
        id="thrashing",
        message=(
            f"{plural(thrashed, 'request')} {'was' if thrashed == 1 else 'were'} preempted {THRASHING} times or more,"
            f" up to {most:,} times ({name})."
        ),
        figures={"requests": thrashed, "most_preemptions": most},
        advice="Work is recomputed repeatedly: more KV blocks, a lower max_num_seqs, or a watermark (vllm-v1) help.",
        keys=("engine.kv_blocks", "engine.max_num_seqs", "policy.batching.watermark"),
        request=name,
    )


def token_budget(seen: Seen) -> Finding | str:
    """In more than half of the step time, steps use up the whole ``max_num_batched_tokens``."""
    return _worst(map(_token_budget, seen.by_pool()))


def _token_budget(pool: Group) -> Finding | str:
    full_us, busy_us = pool.total("full_budget_us"), pool.total("busy_us")
    if 100 * full_us <= _FULL_SHARE * busy_us:
        return ""
    budget = pool.limits.max_num_batched_tokens
    return Finding(
        id="token-budget",
        message=(
            f"Steps that used up the whole budget of {budget:,} tokens took {percent_text(full_us, busy_us)} of the"
            f" step time{pool.of}: prefill is what limits the run."
        ),
        figures={"full_budget_us": full_us, "busy_us": busy_us, "max_num_batched_tokens": budget},
        advice="Raise engine.max_num_batched_tokens, or add instances.",
        keys=("engine.max_num_batched_tokens", "cluster.instances"),
    )


def decode_tail(seen: Seen) -> Finding | str:
    """The 99th percentile of ITL is four times the median, and steps that carry prefill hold the decodes up."""
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
    return Finding(
        id="decode-tail",
        message=(
            f"The p99 of the inter-token latency, {itl.p99:,.1f} ms, is {itl.p99 / itl.p50:,.1f} times its median of"
            f" {itl.p50:,.1f} ms: decodes spent {percent_text(beside_us, total_us)} of their time in steps that also"
            " computed prompts of other requests."
        ),
        figures={
            "itl_p50_ms": itl.p50,
            "itl_p99_ms": itl.p99,
            "beside_prefill_us": beside_us,
            "inter_token_us": total_us,
            "max_num_batched_tokens": budget,
        },
        advice=(
            "Smaller prefill chunks shorten those steps, at the price of a later first token: lower"
            " engine.max_num_batched_tokens, or set engine.long_prefill_token_threshold."
        ),
        keys=("engine.max_num_batched_tokens", "engine.long_prefill_token_threshold", "cluster.instances"),
    )


def max_num_seqs(seen: Seen) -> Finding | str:
    """In more than 10 % of the step time, requests wait for a place in the batch though tokens are left."""
    return _worst(map(_max_num_seqs, seen.by_pool()))


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
    """Prompts share prefixes, but nothing is found in the cache."""
    workload = seen.experiment.workload
    if workload.trace is not None:
        return "a trace does not say beforehand which requests share a prefix"
    size = min(instance.batch.limits.block_size_tokens for instance in seen.cluster.instances)
    prefixes = [client.prefix.tokens for client in workload.clients if client.prefix is not None]
    if not prefixes:
        return "no client has a prefix"
    if seen.flow.states[RequestState.COMPLETED] < _MANY:
        return "too few requests have completed yet"
    if seen.flow.cached_tokens:
        return ""
    longest = max(prefixes)
    why = f"; none is as long as a block ({size} tokens)" if longest < size else ""
    return Finding(
        id="prefix-cache",
        message=f"Prompts share prefixes of up to {longest:,} tokens, but nothing was found in the cache{why}.",
        figures={"longest_prefix_tokens": longest, "block_size_tokens": size, "cached_tokens": 0},
        advice="Only whole blocks are shared, and only while they are kept: longer prefixes or more KV blocks help.",
        keys=("workload.clients", "engine.block_size_tokens", "engine.kv_blocks"),
    )
