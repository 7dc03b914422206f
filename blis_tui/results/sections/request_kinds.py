"""The report's sections on sessions, reasoning, speculative decoding and anomalies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.options.drafts import DraftTallies
from blis_tui.engine.request import RequestState
from blis_tui.results.request_log import is_split
from blis_tui.results.stats import Distribution, of_samples
from blis_tui.workload.source import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.instance import Instance
    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestNumbers, RequestTable
    from blis_tui.workload.interactive import SessionCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """Sessions by outcome, and what their users measured."""

    started: int
    """Sessions that started: ``completed + cancelled + unfinished``."""
    completed: int
    """Sessions whose calls were all answered."""
    cancelled: int
    """Sessions of which a call was not answered, because it was rejected, dropped, lost or timed out."""
    unfinished: int
    """Sessions with calls that have not been sent or answered."""
    calls: int
    """Requests of sessions that arrived."""
    calls_per_s: float | None
    """Requests of sessions that arrived while sessions started, per second from the first start to the last. None where
    ``due_calls_per_s`` is."""
    due_calls_per_s: float | None
    """Requests of sessions that were due, per second of the same time: sessions started per second times the mean
    number of requests that each has. Where users wait for answers, fewer come in that time; with a queue that grows,
    ever fewer. None if all sessions started at once, or if users start them after the answers to others."""
    later_cached: float
    """Share (0 to 1) of the prompt tokens of scheduled later calls that was found in the prefix cache."""
    duration_ms: Distribution
    """From a session's first prompt to its last answer, for completed sessions."""
    first_ttft_ms: Distribution
    """Time to first token of the calls that start a session."""
    later_ttft_ms: Distribution
    """Time to first token of all other calls, whose prompts continue the session's history."""


def session_report(counts: SessionCounts, table: RequestTable, warm_up_us: int) -> SessionReport:
    """Return the figures of all requests that belong to sessions; distributions exclude the warm-up."""
    spans: dict[str, tuple[int, int]] = {}
    left_out = dict.fromkeys(counts.unfinished)
    first: list[int] = []
    later: list[int] = []
    calls = meanwhile = later_tokens = later_cached = 0
    for row in table.plain():
        session = table.session(row.number)
        if session is None:
            continue
        name, call = session
        calls += 1
        meanwhile += counts.first_us < row.arrival_us <= counts.last_us
        begin, end = spans.get(name, (row.arrival_us, 0))
        spans[name] = (min(begin, row.arrival_us), max(end, row.arrival_us + row.e2e_us))
        if row.state != RequestState.COMPLETED:
            left_out[name] = None
        if call and row.scheduled_us >= 0:
            later_tokens += row.input_tokens
            later_cached += row.cached_tokens
        if row.ttft_us >= 0 and row.arrival_us >= warm_up_us:
            (later if call else first).append(row.ttft_us)
    due = counts.due_calls_per_s
    durations = [end - begin for name, (begin, end) in spans.items() if name not in left_out and begin >= warm_up_us]
    return SessionReport(
        started=counts.started,
        completed=counts.completed,
        cancelled=counts.cancelled,
        unfinished=len(counts.unfinished),
        calls=calls,
        calls_per_s=None if due is None else 1_000_000 * meanwhile / (counts.last_us - counts.first_us),
        due_calls_per_s=due,
        later_cached=later_cached / later_tokens if later_tokens else 0.0,
        duration_ms=of_samples(durations),
        first_ttft_ms=of_samples(first),
        later_ttft_ms=of_samples(later),
    )


# The report's section on speculative decoding.


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeReport:
    """Drafts and their outcome, on all instances together, in vLLM's terms."""

    num_drafts: int
    """Drafts that were verified: one for each request and step with at least one draft token."""
    num_draft_tokens: int
    """Tokens of all these drafts, accepted or not."""
    num_accepted_tokens: int
    """Draft tokens that were accepted, including those beyond the end of an answer; the bonus token after each draft
    does not count."""
    draft_acceptance_rate: float
    """``num_accepted_tokens / num_draft_tokens``, from 0 to 1."""
    mean_acceptance_length: float
    """Tokens gained per draft: 1 (the bonus token) + ``num_accepted_tokens / num_drafts``; 0 if there were no drafts.
    """
    acceptance_rates: tuple[float, ...]
    """By position in the draft: share (0 to 1) of the ``num_drafts`` drafts whose token at that position was accepted.
    """
    tokens_per_step: float
    """Output tokens that a request gained per decode step, including steps without a draft. It is lower than
    ``mean_acceptance_length`` where answers end or drafts are cut short."""


def speculative_report(instances: Sequence[Instance]) -> SpeculativeReport | None:
    """Return the figures of these instances; None if none of them speculates."""
    tallies = [instance.batch.speculative.tallies for instance in instances if instance.batch.speculative is not None]
    if not tallies:
        return None
    total = DraftTallies(accepted_runs=[0] * max(len(draft_tallies.accepted_runs) for draft_tallies in tallies))
    for draft_tallies in tallies:
        total.add(draft_tallies)
    drafts = total.num_drafts
    positions = [total.accepted_at(position) for position in range(1, len(total.accepted_runs))]
    return SpeculativeReport(
        num_drafts=drafts,
        num_draft_tokens=total.num_draft_tokens,
        num_accepted_tokens=total.num_accepted_tokens,
        draft_acceptance_rate=total.num_accepted_tokens / total.num_draft_tokens if drafts else 0.0,
        mean_acceptance_length=1.0 + total.num_accepted_tokens / drafts if drafts else 0.0,
        acceptance_rates=tuple(count / drafts if drafts else 0.0 for count in positions),
        tokens_per_step=total.output_tokens / total.decodes if total.decodes else 0.0,
    )


# Anomalies: overtaking that priorities do not explain, and queues much longer than the others.


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomalies:
    """Counts of anomalies, as BLIS defines them."""

    priority_inversions: int
    """Pairs of completed requests of one class on one instance in which the earlier arrival took more than twice as
    long as the later one; 0 if the queues do not follow priorities."""
    head_of_line_blocking: int
    """Instances whose queue of requests that have not run yet is, averaged over the run, more than twice the mean of
    their pool."""


def anomalies_of(
    experiment: Experiment, cluster: Cluster, rows: Sequence[RequestNumbers], table: RequestTable
) -> Anomalies:
    """Return the anomalies of the run so far."""
    policy = experiment.policy
    asks = "priority" in policy.scheduling.kind or cluster.instances[0].batch.traits.priorities != 0
    by_priority = asks and policy.priority.kind != "constant"
    return Anomalies(
        priority_inversions=_inversions(rows, table) if by_priority else 0,
        head_of_line_blocking=_blocked(cluster, rows),
    )


def _inversions(rows: Sequence[RequestNumbers], table: RequestTable) -> int:
    groups: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in rows:
        if row.state == RequestState.COMPLETED:
            key = (table.group(row)[0], row.instance)
            groups.setdefault(key, []).append((row.number, row.e2e_us))
    return whole_sum([doubled_pairs([e2e_us for _, e2e_us in sorted(group)])[0] for group in groups.values()])


def doubled_pairs(values: Sequence[int]) -> tuple[int, list[int]]:
    """Return the number of pairs whose earlier value is more than twice the later one, and the sorted values."""
    if len(values) < 2:
        return 0, [*values]
    half = len(values) // 2
    (left, early), (right, late) = doubled_pairs(values[:half]), doubled_pairs(values[half:])
    count, at = left + right, 0
    for value in early:
        while at < len(late) and value > 2 * late[at]:
            at += 1
        count += at
    return count, sorted((*early, *late))


def _blocked(cluster: Cluster, rows: Sequence[RequestNumbers]) -> int:
    waited_us = [0] * len(cluster.instances)
    for row in rows:
        first = row.prefill_instance if is_split(row) else row.instance
        if first >= 0 and row.queued_us >= 0:
            if row.scheduled_us >= 0:
                waited_us[first] += row.scheduled_us - row.queued_us
            elif row.state == RequestState.WAITING:
                waited_us[first] += cluster.now - row.queued_us
    pools: dict[str, list[int]] = {}
    for pool, waited in zip(cluster.pools, waited_us, strict=True):
        pools.setdefault(pool.name, []).append(waited)
    count = 0
    for waits in pools.values():
        total = whole_sum(waits)
        count += len([wait for wait in waits if wait * len(waits) > 2 * total])
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningReport:
    """Reasoning and answers of all requests; distributions exclude the warm-up."""

    requests: int
    """Requests that ask for any reasoning tokens."""
    answered: int
    """Requests with reasoning that got a token of the answer itself."""
    reasoning_tokens: int
    """Output tokens generated as reasoning."""
    answer_tokens: int
    """Output tokens generated that are not reasoning, including those of requests that do not reason."""
    share: float
    """``reasoning_tokens`` as a share, from 0 to 1, of all output tokens."""
    ttfat_ms: Distribution
    """Time to first answer token: from arrival to the first token after the reasoning, at the client, for requests that
    reason and got there."""
    reasoning_ms: Distribution
    """Time from the first token to the first answer token, for the same requests as ``ttfat_ms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultimodalReport:
    """Composition of prompts: tokens of all requests, whether or not they were served."""

    requests: int
    """Requests whose prompt contains media."""
    text_tokens: int
    """Prompt tokens that are text, including those of text-only requests."""
    image_tokens: int
    """Prompt tokens that stand for images."""
    audio_tokens: int
    """Prompt tokens that stand for audio."""
    video_tokens: int
    """Prompt tokens that stand for video."""


def reasons(experiment: Experiment, cluster: Cluster) -> bool:
    """Return whether the workload states which output tokens are reasoning."""
    table = table_of(cluster.source)
    if table is not None:
        return table.has_column("reasoning_tokens")
    return any(client.reasoning is not None for client in experiment.workload.clients)


def is_multimodal(experiment: Experiment, cluster: Cluster) -> bool:
    """Return whether the workload states which prompt tokens are media."""
    table = table_of(cluster.source)
    if table is not None:
        return table.has_column("media")
    return any(client.multimodal is not None for client in experiment.workload.clients)


def reasoning_report(rows: Sequence[RequestNumbers], table: RequestTable, warm_up_us: int) -> ReasoningReport:
    """Return the figures of all requests; distributions exclude the warm-up."""
    requests = answered = thought = tokens = 0
    to_answer: list[int] = []
    spans: list[int] = []
    for row in rows:
        extras = table.extras(row.number)
        tokens += row.output_tokens
        if extras.reasoning_tokens > 0:
            requests += 1
            answered += extras.ttfat_us >= 0
            thought += min(extras.reasoning_tokens, row.output_tokens)
            if extras.ttfat_us >= 0 and row.arrival_us >= warm_up_us:
                to_answer.append(extras.ttfat_us)
                spans.append(extras.ttfat_us - row.ttft_us)
    return ReasoningReport(
        requests=requests,
        answered=answered,
        reasoning_tokens=thought,
        answer_tokens=tokens - thought,
        share=thought / tokens if tokens else 0.0,
        ttfat_ms=of_samples(to_answer),
        reasoning_ms=of_samples(spans),
    )


def multimodal_report(rows: Sequence[RequestNumbers], table: RequestTable) -> MultimodalReport:
    """Return the prompt composition of all requests."""
    requests = text = image = audio = video = 0
    for row in rows:
        media = table.extras(row.number).media
        requests += any(media)
        text += row.input_tokens - media.tokens
        image += media.image_tokens
        audio += media.audio_tokens
        video += media.video_tokens
    return MultimodalReport(
        requests=requests, text_tokens=text, image_tokens=image, audio_tokens=audio, video_tokens=video
    )
