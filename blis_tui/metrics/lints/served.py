"""Checks for requests that were not served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from blis_tui.cluster.life import CANDIDATES
from blis_tui.engine.request import RequestState
from blis_tui.metrics.lints.finding import Finding, load_keys
from blis_tui.units import in_words, percent_text, plural

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.metrics.lints.finding import LintContext

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
    up = any(cluster.lifecycle.state_of(one.index) in CANDIDATES for one in cluster.instances)
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
