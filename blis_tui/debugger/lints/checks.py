"""The checks behind the warnings: each looks at the sums over a run and gives a warning, or says why it cannot yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.debugger.lints.tally import THRASHING
from blis_tui.debugger.units import percent_text, plural, span_text
from blis_tui.debugger.why.explanation import event_ref, instance_ref, request_ref, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.lints.tally import Tally
    from blis_tui.debugger.overview import Bucket
    from blis_tui.debugger.tape import Tape
    from blis_tui.debugger.why.explanation import Ref, Sentence
    from blis_tui.spec.model import Experiment

_MANY: Final = 20
"""Requests below which nothing is said about trends and shares."""
_GROWN: Final = 8
"""Mean length of the queue from which on its growth is worth a warning."""
_KV_HIGH_SHARE: Final = 10
_FULL_SHARE: Final = 50
_SEQS_SHARE: Final = 10
"""Percent of the time of all steps from which on a check speaks."""
_IDLE_BUDGET: Final = 50
"""Percent of the token budget; a step that uses less has tokens to spare."""
_BLOCKED_STEPS: Final = 20
REJECTED_SHARE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the checks look at."""

    tally: Tally
    tape: Tape
    experiment: Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A warning.

    ``severity``: ``error`` (a defect of the simulator, or requests that can never be served) or ``warning``.
    ``advice``: what to do about it. ``ref``: where to look; None where no single place shows it.
    """

    check: str
    severity: str
    sentence: Sentence
    advice: str
    ref: Ref | None = None


# ---- defects of the simulator ----


def littles_law(seen: Seen) -> Finding | str:
    """The time-average number present must be the sum of the stays: counted by steps, and by requests."""
    tally = seen.tally
    stays = tally.stays_us()
    if not tally.now_us or not stays:
        return "no request has stayed in an instance for any time yet"
    present = tally.present_us()
    if 100 * abs(present - stays) <= stays:
        return ""
    mean, expected = present / tally.now_us, stays / tally.now_us
    return Finding(
        check="littles-law",
        severity="error",
        sentence=say(
            f"On average {mean:,.2f} requests were in the instances as the steps count them,"
            f" but {expected:,.2f} by the requests' own times."
        ),
        advice="This is a defect of the simulator (Little's law does not hold): please report it with the experiment.",
    )


def tokens(seen: Seen) -> Finding | str:
    """What the steps computed must be what the requests computed."""
    tally = seen.tally
    advice = "This is a defect of the simulator: please report it with the experiment."
    if tally.unsound >= 0:
        ref = request_ref(seen.tape.name(tally.unsound))
        told = say("The prefill chunks of ", ref, " do not fit together.")
        return Finding(check="tokens", severity="error", sentence=told, advice=advice, ref=ref)
    if tally.staying:
        return "it is compared whenever all requests have ended"
    if not tally.prefill_tokens:
        return "nothing has been computed yet"
    steps = tally.prefill_tokens + tally.decode_tokens
    requests = tally.ended_prefill_tokens + tally.ended_decode_tokens
    if steps == requests:
        return ""
    told = say(f"The steps computed {plural(steps, 'token')}, the requests say {requests:,}.")
    return Finding(check="tokens", severity="error", sentence=told, advice=advice)


# ---- requests that were not served ----


def _lost(seen: Seen, kind: str) -> tuple[int, int, Ref | None]:
    """How many requests ended so, how many arrived, and the first such event."""
    counts = seen.tally.counts
    first = seen.tally.firsts.get(kind)
    return counts.get(kind, 0), counts.get("arrived", 0), None if first is None else event_ref(first)


def dropped(seen: Seen) -> Finding | str:
    """Requests that no instance can ever serve."""
    count, arrived, first = _lost(seen, "dropped")
    if not count or first is None:
        return ""
    share = percent_text(count, arrived)
    return Finding(
        check="dropped",
        severity="error",
        sentence=say(
            f"{plural(count, 'request')} of {arrived:,} ({share}) can never be served; the first: ", first, "."
        ),
        advice="Raise engine.max_model_len or engine.kv_blocks, or shorten the prompts.",
        ref=first,
    )


def timed_out(seen: Seen) -> Finding | str:
    """Requests whose deadline passed."""
    count, arrived, first = _lost(seen, "timed-out")
    if not count or first is None:
        return ""
    share = percent_text(count, arrived)
    return Finding(
        check="timed-out",
        severity="warning",
        sentence=say(f"{plural(count, 'request')} of {arrived:,} ({share}) timed out; the first: ", first, "."),
        advice="Lower the load, or allow the clients more time (timeout_us); work for them is thrown away.",
        ref=first,
    )


def rejected(seen: Seen) -> Finding | str:
    """Many requests were turned away."""
    count, arrived, first = _lost(seen, "rejected")
    if 100 * count <= REJECTED_SHARE * arrived or first is None:
        return ""
    share = percent_text(count, arrived)
    return Finding(
        check="rejected",
        severity="warning",
        sentence=say(f"{plural(count, 'request')} of {arrived:,} ({share}) were turned away; the first: ", first, "."),
        advice="Latencies are those of the others. Lower the load, or let admission control pass more.",
        ref=first,
    )


# ---- load ----


def _arriving(seen: Seen) -> Sequence[Bucket]:
    """The buckets of time in which requests still arrived, without the one that is still filling."""
    overview = seen.tape.overview
    return overview.buckets[: seen.tally.last_arrival_us // overview.width_us]


def overload(seen: Seen) -> Finding | str:
    """The queue is longer in every quarter of the time than in the one before."""
    buckets = _arriving(seen)
    if seen.tally.counts.get("arrived", 0) < _MANY or len(buckets) < 16:
        return "too few requests have arrived yet"
    size = len(buckets) // 4
    quarters = [buckets[place * size : (place + 1) * size] for place in range(4)]
    means = [sum(bucket.waiting_max for bucket in quarter) / size for quarter in quarters]
    if not (means[1] < means[2] < means[3] and means[3] >= _GROWN and means[3] >= 2 * means[1]):
        return ""
    seconds = size * seen.tape.overview.width_us / 1e6
    arrived = sum(bucket.arrivals for bucket in quarters[3]) / seconds
    served = sum(bucket.completions + bucket.losses for bucket in quarters[3]) / seconds
    return Finding(
        check="overload",
        severity="warning",
        sentence=say(
            f"The queue keeps growing while requests arrive: {means[1]:,.0f} waited on average in the second quarter"
            f" of that time, {means[3]:,.0f} in the last; there {arrived:,.1f} requests a second came"
            f" and {served:,.1f} left."
        ),
        advice="The load is above the capacity: lower workload.rate_per_s, add instances, or see what keeps them out.",
    )


def warm_up(seen: Seen) -> Finding | str:
    """The batch was still filling for most of the time."""
    buckets = _arriving(seen)
    if seen.tally.counts.get("arrived", 0) < _MANY or len(buckets) < 16:
        return "too few requests have arrived yet"
    later = sorted(bucket.running_max for bucket in buckets[len(buckets) // 2 :])
    usual = later[len(later) // 2]
    full = next((place for place, bucket in enumerate(buckets) if 10 * bucket.running_max >= 9 * usual), len(buckets))
    if 2 * full < len(buckets) or usual < 2:
        return ""
    width = seen.tape.overview.width_us
    share = percent_text(full, len(buckets))
    return Finding(
        check="warm-up",
        severity="warning",
        sentence=say(
            f"The batch was still filling for the first {span_text(full * width)} ({share} of the time with arrivals):"
            f" about {usual:,} run at a time in the later half, and it took until then to get near."
        ),
        advice="Means and percentiles describe the start more than the steady state: simulate more requests.",
    )


def imbalance(seen: Seen) -> Finding | str:
    """One instance is busy more than twice as long as the mean."""
    instances = seen.tally.instances
    if len(instances) < 3:
        return "it takes three instances or more"
    routed = sum(instance.routed for instance in instances)
    if routed < _MANY:
        return "too few requests have been routed yet"
    mean = seen.tally.busy_us / len(instances)
    busiest = max(range(len(instances)), key=lambda place: instances[place].busy_us)
    busy = instances[busiest].busy_us
    if busy <= 2 * mean:
        return ""
    ref = instance_ref(busiest)
    return Finding(
        check="imbalance",
        severity="warning",
        sentence=say(
            ref,
            f" was busy for {span_text(busy)}, {busy / mean:.1f} times the mean of all {len(instances)} instances;"
            f" it got {instances[busiest].routed:,} of {routed:,} requests.",
        ),
        advice="The router does not spread the work evenly: look at policy.routing.",
        ref=ref,
    )


# ---- limits ----


def kv_high(seen: Seen) -> Finding | str:
    """The KV cache is nearly full for much of the time."""
    tally = seen.tally
    if 100 * tally.kv_high_us <= _KV_HIGH_SHARE * tally.busy_us or not tally.busy_us:
        return ""
    share = percent_text(tally.kv_high_us, tally.busy_us)
    blocks = seen.experiment.engine.kv_blocks
    return Finding(
        check="kv-high",
        severity="warning",
        sentence=say(f"95 % or more of the {blocks:,} KV blocks were in use for {share} of the time of all steps."),
        advice="Requests wait for blocks or are preempted: give the cache more memory, or lower max_num_seqs.",
    )


def thrashing(seen: Seen) -> Finding | str:
    """Requests are preempted again and again."""
    tally = seen.tally
    if not tally.thrashed:
        return ""
    most, number = tally.worst
    ref = request_ref(seen.tape.name(number))
    return Finding(
        check="thrashing",
        severity="warning",
        sentence=say(
            f"{plural(tally.thrashed, 'request')} {'was' if tally.thrashed == 1 else 'were'}"
            f" preempted {THRASHING} times or more; most often ",
            ref,
            f", {most:,} times. There were {plural(tally.preemptions, 'preemption')} in all.",
        ),
        advice="Work is done again and again: more KV blocks, a lower max_num_seqs, or a watermark (vllm-v1) help.",
        ref=ref,
    )


def budget(seen: Seen) -> Finding | str:
    """Most of the time the token budget is what limits a step."""
    tally = seen.tally
    if 100 * tally.full_us <= _FULL_SHARE * tally.busy_us or not tally.busy_us:
        return ""
    share = percent_text(tally.full_us, tally.busy_us)
    budget = seen.experiment.engine.max_num_batched_tokens
    return Finding(
        check="token-budget",
        severity="warning",
        sentence=say(
            f"Steps that spent their whole budget of {budget:,} tokens took {share} of the time of all steps."
        ),
        advice="Prefill is what limits the run: raise engine.max_num_batched_tokens, or add instances.",
    )


def seqs(seen: Seen) -> Finding | str:
    """Requests wait for a place in the batch while the steps have tokens to spare."""
    tally = seen.tally
    if 100 * tally.seqs_us <= _SEQS_SHARE * tally.busy_us or not tally.seqs_steps:
        return ""
    budget = seen.experiment.engine.max_num_batched_tokens
    mean = tally.seqs_tokens / tally.seqs_steps
    if 100 * mean >= _IDLE_BUDGET * budget:
        return ""
    share = percent_text(tally.seqs_us, tally.busy_us)
    return Finding(
        check="max-num-seqs",
        severity="warning",
        sentence=say(
            f"Requests waited because {seen.experiment.engine.max_num_seqs:,} already ran (max_num_seqs),"
            f" {share} of the time of all steps; those steps used {mean:,.0f} of {budget:,} tokens on average."
        ),
        advice="Raise engine.max_num_seqs, as long as the KV cache has room.",
    )


def blocking(seen: Seen) -> Finding | str:
    """A queue was blocked for many steps for want of KV blocks."""
    longest = seen.tally.blocking
    if longest.steps < _BLOCKED_STEPS:
        return ""
    ref = event_ref(longest.event)
    return Finding(
        check="head-of-line",
        severity="warning",
        sentence=say(
            f"For {plural(longest.steps, 'step')} in a row, until ",
            ref,
            ", nobody was let in for want of KV blocks: the head of the queue did not fit, or running requests were"
            " preempted. Nobody behind the head was looked at.",
        ),
        advice="A smaller request might have fit: scheduling sjf puts short prompts first; more KV blocks help, too.",
        ref=ref,
    )


def prefixes(seen: Seen) -> Finding | str:
    """Prompts share prefixes, but nothing is found in the cache."""
    workload = seen.experiment.workload
    if workload.trace is not None:
        return "a recorded workload does not say beforehand who shares a prefix"
    size = seen.experiment.engine.block_size_tokens
    prefixes = [client.prefix.tokens for client in workload.clients if client.prefix is not None]
    if not prefixes:
        return "no client has a prefix"
    if seen.tally.counts.get("completed", 0) < _MANY:
        return "too few requests have completed yet"
    if seen.tally.cached_tokens:
        return ""
    short = max(prefixes) < size
    why = f"; none is as long as a block ({size} tokens)" if short else ""
    return Finding(
        check="prefix-cache",
        severity="warning",
        sentence=say(
            f"Prompts share prefixes of up to {max(prefixes):,} tokens, but nothing was found in the cache{why}."
        ),
        advice="Only whole blocks are shared, and only while they are kept: longer prefixes or more KV blocks help.",
    )
