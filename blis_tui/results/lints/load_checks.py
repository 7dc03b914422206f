"""Checks of the load (too high, too low, unevenly spread, too short to judge) and of what was not served."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import in_words, percent_text, plural, span_text
from blis_tui.cluster.stages import CANDIDATES
from blis_tui.engine.latency.model import StepLoad
from blis_tui.engine.request import RequestState
from blis_tui.results.lints.finding import MIN_REQUESTS, Finding, load_keys, longer_keys, worst
from blis_tui.results.lints.limits import kv_cache, max_num_seqs
from blis_tui.results.lints.overload import overload
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.model import Client
    from blis_tui.results.lints.finding import Group, LintContext


_IN_STEP_USERS: Final = 4
"""Minimum number of users for a warning about users in step."""
_P99: Final = 100
"""With fewer completed requests, the 99th percentile is practically the maximum."""
_EDGES_SHARE: Final = 33
"""Maximum percentage of a run for its ramp-up and its drain."""
_CACHED_SHARE: Final = 5
"""Maximum percentage of prompt tokens from the prefix cache at which fewer instances are suggested that could not hold
what is in it."""
_UTILIZATION: Final = 70
"""Maximum load, as a percentage of what an instance can serve, at which fewer instances are suggested."""


def few_requests(seen: LintContext) -> Finding | str:
    """Fewer than 100 requests completed, so the p99 comes from the slowest one or two.

    Requests that arrived in the warm-up (``warm_up_us``) do not count, as latencies leave them out.
    """
    if not seen.done:
        return "the run has not ended yet"
    if not seen.flow.total:
        return _none_arrived(seen)
    completed, behind = seen.flow.states[RequestState.COMPLETED], ""
    if (warm_up_us := seen.experiment.warm_up_us) and completed:
        ends = ((row.state, row.arrival_us) for row in seen.table.plain())
        completed = len([1 for state, at in ends if state == RequestState.COMPLETED and at >= warm_up_us])
        behind = " that arrived after the warm-up (warm_up_us)"
    if completed >= _P99:
        return ""
    if not (completed or behind):
        return "no request completed"
    longer = longer_keys(seen)
    advice = f"Simulate at least {_P99} requests, better {10 * _P99:,}, before relying on p99 ({longer[0]})."
    message = f"Only {plural(completed, 'request')}{behind} completed: p99 is practically the slowest of them."
    if not completed:
        message = f"No request{behind} completed: there are no end-to-end latencies."
        advice, longer = f"Lower warm_up_us, or simulate longer ({longer[0]}).", ("warm_up_us", *longer)
    return Finding(
        id="few-requests",
        message=message,
        figures={"completed": completed, "needed": _P99},
        advice=advice,
        keys=longer,
    )


def _none_arrived(seen: LintContext) -> Finding:
    keys = longer_keys(seen)
    return Finding(
        id="few-requests",
        message=f"No request arrived within {span_text(seen.duration_us)}: the figures of this run say nothing.",
        figures={"completed": 0, "needed": _P99},
        advice=f"Simulate longer, so that requests arrive ({keys[0]}).",
        keys=keys,
    )


def edges(seen: LintContext) -> Finding | str:
    """Ramp-up (the batch fills) and drain (no more arrivals) are more than a third of the run.

    A batch has filled when requests leave it as fast as they enter it, which takes about as long as a request runs.
    """
    if not seen.done:
        return "the run has not ended yet"
    span = seen.flow.arrivals()
    if seen.flow.total < MIN_REQUESTS or span is None:
        return "too few requests arrived, or all at once"
    if not isinstance(overload(seen), str):
        return "under overload there is no steady state"
    first, last = span
    running_us = seen.flow.mean_run_us(seen.cluster.now)
    start_us, drain_us, run_us = min(running_us, last - first), seen.duration_us - last, seen.duration_us - first
    if 100 * (start_us + drain_us) <= _EDGES_SHARE * run_us:
        return ""
    longer = longer_keys(seen)
    return Finding(
        id="start-and-drain",
        message=(
            f"{percent_text(start_us + drain_us, run_us)} of the run is ramp-up and drain: a request runs for"
            f" {span_text(running_us)} on average, which is about how long the batch takes to fill, and the remaining"
            f" requests took {span_text(drain_us)} after the last arrival."
        ),
        figures={"mean_running_us": running_us, "drain_us": drain_us, "run_us": run_us},
        advice=(
            "Throughput and latencies of the whole run say little about the steady state: simulate more requests"
            f" ({longer[0]}) and compare `steady` with `offered`."
        ),
        keys=longer,
    )


def users_in_step(seen: LintContext) -> Finding | str:
    """Users of a closed loop request answers of one length, and most answers end at the same moment as others.

    Their next prompts then arrive together as well and wait for each other, over and over.
    """
    clients = [client for client in seen.experiment.workload.clients if _stays_in_step(client)]
    users = max((int(str(client.arrivals.settings["users"])) for client in clients), default=0)
    if users < _IN_STEP_USERS:
        return ""
    ends: dict[tuple[int, int], int] = {}
    for row in seen.table.plain():
        if row.completed_us >= 0:
            ends[row.instance, row.completed_us] = ends.get((row.instance, row.completed_us), 0) + 1
    completed, together = 0, 0
    for count in ends.values():
        completed += count
        together += count if count > 1 else 0
    if completed < 2 * users:
        return "too few requests completed"
    if 2 * together <= completed:
        return ""
    return Finding(
        id="users-in-step",
        message=(
            f"{together:,} of {completed:,} answers ended at the same moment as others: the users of {clients[0].id} "
            f"all"
            " request answers of the same length, so they stay in lockstep and their prompts wait for each other."
        ),
        figures={"ended_together": together, "completed": completed, "users": users},
        advice=(
            "Answers of measured servers differ in length, and a difference of 1 % is enough to avoid this: set"
            " output_tokens to the measured lengths, as `{kind: uniform, min, max}`, or, if the load did not set"
            " `ignore_eos`, as `{kind: until-eos, max}`."
            + ("" if _has_front_end(seen) else " An API server accepts requests one by one: `engine.front_end: {}`.")
        ),
        keys=("workload.clients", *(() if _has_front_end(seen) else ("engine.front_end",))),
    )


def _has_front_end(seen: LintContext) -> bool:
    return all(instance.front_end is not None for instance in seen.cluster.instances)


def _stays_in_step(client: Client) -> bool:
    length = client.output_tokens
    fixed = length.kind == "constant" or (
        length.kind == "uniform" and length.settings.get("min") == length.settings.get("max")
    )
    return client.arrivals.kind == CLOSED_LOOP and client.session is None and fixed


def imbalance(seen: LintContext) -> Finding | str:
    """One instance is busy more than twice as long as the mean of its pool."""
    if seen.experiment.cluster.varies:
        return "instances may come and go"
    pools = [pool for pool in seen.by_pool() if len(pool.instances) >= 3]
    return worst(map(_imbalance, pools)) if pools else "this needs at least three instances in a pool"


def _imbalance(pool: Group) -> Finding | str:
    instances, routed = pool.instances, pool.routed
    if routed < MIN_REQUESTS:
        return "too few requests have been routed so far"
    busiest = max(instances, key=lambda instance: instance.tallies.busy_us)
    busy_us, total = busiest.tallies.busy_us, pool.total("busy_us")
    if busy_us * len(instances) <= 2 * total:
        return ""
    ratio = busy_us * len(instances) / total
    return Finding(
        id="imbalance",
        message=(
            f"Instance {busiest.index} was busy for {span_text(busy_us)}, {ratio:.1f} times the mean of all"
            f" {len(instances)} instances{pool.of}; it received {busiest.routed:,} of {routed:,} requests."
        ),
        figures={"busy_us": busy_us, "times_mean": ratio, "routed": busiest.routed, "routed_in_all": routed},
        advice="The router does not distribute the work evenly: review policy.routing.",
        keys=("policy.routing",),
        instance=busiest.index,
    )


def unused_capacity(seen: LintContext) -> Finding | str:
    """Fewer instances would serve the load.

    The estimate is the cost of a request at full batches: its share of the observed steps with prefill, plus its share
    of the decode steps, by the step-time model, of the largest batch that ``max_num_seqs`` and the KV cache allow.
    Under more load prompts share steps, so an instance serves somewhat more than estimated.
    """
    cluster, flow, engine = seen.cluster, seen.flow, seen.limits
    instances = len(cluster.instances)
    if instances < 2:
        return "there is only one instance"
    if seen.experiment.cluster.varies or engine.max_loras:
        return "LoRA adapters need slots" if engine.max_loras else "instances may come and go"
    if len(seen.experiment.pools) > 1:
        return "the instances differ"
    if seen.experiment.pools[0].engine.data_parallel > 1:
        return "the number of data-parallel ranks is part of the engine's configuration"
    if cluster.gateway.holds:
        return "the gateway limits what the instances receive"
    if not seen.done:
        return "the run has not ended yet"
    if any(isinstance(check(seen), Finding) for check in (overload, kv_cache, max_num_seqs)):
        return "requests have to wait"
    completed = flow.states[RequestState.COMPLETED]
    rate = flow.offered(0).requests_per_s
    if completed < _P99 or rate is None:
        return "too few requests completed, or all arrived at once"
    running = seen.total("peak_running")
    used = whole_sum([instance.pool.total - instance.pool.min_free for instance in cluster.instances])
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
    held = whole_sum([instance.pool.total - instance.pool.blank for instance in cluster.instances])
    if 100 * flow.cached_tokens > _CACHED_SHARE * flow.input_tokens and held > needed * engine.kv_blocks:
        return "prompt tokens come from the prefix cache, of which fewer instances hold less"
    return Finding(
        id="unused-capacity",
        message=(
            f"{plural(needed, 'instance')} instead of {instances} would serve the load, each at no more than"
            f" {_UTILIZATION} % of its capacity: {rate:,.1f} requests/s were offered, one instance can serve at least"
            f" about {capacity:,.1f}, and the peaks of all instances add up to {plural(running, 'running request')} and"
            f" {percent_text(used, engine.kv_blocks)} of one KV cache."
        ),
        figures={
            "instances": instances,
            "instances_needed": needed,
            "offered_requests_per_s": rate,
            "one_serves_requests_per_s": capacity,
            "peak_running": running,
            "peak_kv_blocks": used,
        },
        advice=f"Try cluster.instances={needed} and check the latencies: larger batches make steps slower.",
        keys=("cluster.instances",),
    )


# Checks of the simulator itself.

_DEFECT: Final = "This is a defect of the simulator: please report it with the experiment."


def littles_law(seen: LintContext) -> Finding | str:
    """The mean number of requests present must equal arrival rate times mean stay."""
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


_UNFINISHED_SHARE: Final = 5
REJECTED_SHARE: Final = 5
"""Minimum percentage of all requests for a warning."""
_LIMITS: Final = {
    "max_model_len": "engine.max_model_len",
    "kv_blocks": "engine.kv_blocks",
    "max_num_encoder_input_tokens": "engine.encoder.max_num_encoder_input_tokens",
    "encoder_cache_size": "engine.encoder.encoder_cache_size",
    "max_num_batched_tokens": "engine.max_num_batched_tokens",
}
"""Limit that a request may exceed -> the key to raise."""


def _lost(seen: LintContext, state: RequestState) -> tuple[int, int, str, str]:
    """Return how many requests ended in a state, how many arrived, the share as text, and the first such request."""
    count, arrived = seen.flow.states[state], seen.flow.total
    first = seen.table.name(seen.flow.first[state]) if count else ""
    return count, arrived, percent_text(count, arrived), first


def dropped(seen: LintContext) -> Finding | str:
    """Requests that the instance to which they were sent can never serve, or has no KV blocks free for at decode."""
    count, arrived, share, first = _lost(seen, RequestState.DROPPED_UNSERVABLE)
    if not count:
        return ""
    # Another pool may have room for them, and on a decode instance they may only have come at a bad time.
    never = "can never be served"
    if len(seen.experiment.pools) > 1:
        pools = zip(seen.cluster.instances, seen.cluster.pools, strict=True)
        names = list(dict.fromkeys(pool.name for instance, pool in pools if instance.turned_down))
        where = f"pool {names[0]}" if len(names) == 1 else f"pools {in_words(names)}"
        never = f"could not be served where they were sent, in {where}"
    exceeded = [_exceeded(instance, limit) for instance in seen.cluster.instances for limit in instance.turned_down]
    keys = tuple([key for limit, key in _LIMITS.items() if limit in exceeded])
    return Finding(
        id="dropped",
        severity="error",
        message=f"{plural(count, 'request')} of {arrived:,} ({share}) {never}; the first is {first}.",
        figures={"dropped": count, "arrived": arrived},
        advice=f"Raise {' and '.join(keys)}, or shorten the prompts.",
        keys=keys,
        request=first,
    )


def _exceeded(instance: Instance, limit: str) -> str:
    """Return the limit to raise: with ``max_model_len: auto`` that is the KV cache, from which it is derived."""
    limits = instance.batch.limits
    if limit == "max_model_len" and (limits.max_model_len or 0) >= instance.pool.most_tokens():
        return "kv_blocks"
    return limit


def timed_out(seen: LintContext) -> Finding | str:
    """Requests whose deadline passed."""
    count, arrived, share, first = _lost(seen, RequestState.TIMED_OUT)
    if not count:
        return ""
    prompt = _started_at_once(seen)
    ran = 2 * prompt > count
    message = f"{plural(count, 'request')} of {arrived:,} ({share}) timed out; the first was {first}."
    advice = "Lower the load, add instances, or raise timeout_us; work done for timed-out requests is discarded."
    if ran:
        message = f"{message} {prompt:,} of them started within a tenth of their time and did not finish in the rest."
        advice = "A shorter queue does not help these: raise timeout_us, or make answers shorter or steps faster."
    return Finding(
        id="timed-out",
        message=message,
        figures={"timed_out": count, "arrived": arrived, "started_at_once": prompt},
        advice=advice,
        keys=("cluster.tensor_parallel",) if ran else (*load_keys(seen.experiment), "cluster.instances"),
        request=first,
    )


def _started_at_once(seen: LintContext) -> int:
    """Return the number of timed-out requests that were scheduled within the first tenth of their time."""
    count = 0
    for columns in seen.table.in_columns(("state", "arrival_us", "scheduled_us", "deadline_us")):
        for state, arrival_us, scheduled_us, deadline_us in zip(*columns, strict=True):
            if state == "timed-out" and isinstance(scheduled_us, int):
                arrival, deadline = cast("int", arrival_us), cast("int", deadline_us)
                count += 10 * (scheduled_us - arrival) <= deadline - arrival
    return count


def rejected(seen: LintContext) -> Finding | str:
    """Admission control, tenant budgets and the gateway rejected more than 5 % of the requests."""
    count, arrived, share, first = _lost(seen, RequestState.REJECTED)
    if 100 * count <= REJECTED_SHARE * arrived:
        return ""
    causes = seen.cluster.pipeline.rejections
    by = [f"{number:,} by {cause}" for cause, number in causes.items()]
    alone = [*causes] == [seen.experiment.policy.admission.kind]
    what = f"{plural(count, 'request')} of {arrived:,} ({share})"
    return Finding(
        id="rejected",
        message=(
            f"Admission control rejected {what}; the first was {first}."
            if alone
            else f"{what} were rejected, {', '.join(by)}; the first was {first}."
        ),
        figures={"rejected": count, "arrived": arrived},
        advice=(
            "Latencies cover only the other requests. Lower the load, or let admission control admit more."
            if alone
            else "Latencies cover only the other requests. Lower the load, add instances, or reject fewer."
        ),
        keys=(*load_keys(seen.experiment), *(["policy.admission"] if alone else ["cluster.instances", "policy"])),
        request=first,
    )


def unfinished(seen: LintContext) -> Finding | str:
    """When the horizon ended the run, more than 5 % of the requests were still waiting or running."""
    if not seen.done:
        return "the run has not ended yet"
    states, arrived = seen.flow.states, seen.flow.total
    queued = states[RequestState.WAITING] + states[RequestState.CREATED]
    running = states[RequestState.RUNNING]
    cut = seen.cluster.queue.head()  # otherwise they wait for an instance that never came
    if not cut or 100 * (queued + running) <= _UNFINISHED_SHARE * arrived:
        return ""
    share = percent_text(queued + running, arrived)
    return Finding(
        id="unfinished",
        message=(
            f"When the horizon ended the run, {queued:,} of {plural(arrived, 'request')}"
            f" {'was' if queued == 1 else 'were'} still waiting and"
            f" {running:,} still running ({share} in total)."
        ),
        figures={"still_queued": queued, "still_running": running, "arrived": arrived},
        advice="End-to-end latencies do not include them: raise horizon_us, or lower the load if the queue is long.",
        keys=("horizon_us", *load_keys(seen.experiment)),
    )


def stranded(seen: LintContext) -> Finding | str:
    """The run ended with requests that nothing would have moved any more.

    They waited for an instance to come up, some of them after theirs had failed; or in the gateway, which takes the
    instances for saturated until it reads their signals again, and had no reason to.
    """
    cluster = seen.cluster
    if not seen.done:
        return "the run has not ended yet"
    left, arrived = cluster.arrived - cluster.closed(), cluster.arrived
    if not left:
        return ""
    if cluster.queue.head():  # the remaining events lie beyond the horizon
        return "the horizon ended the run"
    first = cluster.in_transit()[0].request_id
    who = f"{plural(left, 'request')} of {arrived:,} ({percent_text(left, arrived)})"
    up = any(cluster.lifecycle.state_of(instance.index) in CANDIDATES for instance in cluster.instances)
    if up and cluster.gateway.waiting == left:
        stayed = f"{who} stayed in the gateway's queue, the first of them {first}"
        return Finding(
            id="stranded",
            message=f"{stayed}: by the signals read last the instances are saturated, and no request is there to end.",
            figures={"stranded": left, "arrived": arrived},
            advice="Lower cluster.signals.refresh_interval_us, or let the gateway look at every tick.",
            keys=("cluster.signals.refresh_interval_us", "policy.gateway.dispatch"),
            request=first,
        )
    return Finding(
        id="stranded",
        message=f"{who} {'was' if left == 1 else 'were'} left without an instance; one of them is {first}.",
        figures={"stranded": left, "arrived": arrived},
        advice="Have failed instances repaired, provide more nodes, or raise the autoscaler's max_instances.",
        keys=("cluster.failures", "cluster.nodes", "cluster.autoscaler"),
        request=first,
    )
