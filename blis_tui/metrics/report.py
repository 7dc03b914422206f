"""The report: what a run says about itself, as frozen records and as canonical JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from blis_tui._version import ENGINE
from blis_tui.canonical import to_json
from blis_tui.engine.request import RequestState
from blis_tui.metrics.expectations import Verdict, judge
from blis_tui.metrics.request_log import STATE_NAMES
from blis_tui.metrics.stats import Distribution, of_histogram, of_ratios, of_samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.metrics.request_log import RequestLog, Row
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Which experiment gave these figures; equal ``spec_sha256`` and ``engine`` mean equal bytes."""

    experiment: str
    spec_sha256: str
    seed: int
    engine: str
    complete: bool
    """False when the run was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Requests by what became of them. ``total = injected + rejected``; the others add up to ``injected``."""

    total: int
    injected: int
    rejected: int
    completed: int
    still_queued: int
    """Waiting in a queue, or on the way to one, at the end."""
    still_running: int
    dropped_unservable: int
    timed_out: int
    length_capped: int
    """Of the completed ones, those cut short by ``max_model_len``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of all requests: prompts that entered a queue, tokens generated, prompt tokens found in the cache."""

    input: int
    output: int
    cached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Completed requests and generated tokens per simulated second."""

    requests_per_s: float
    output_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """What clients measured, in milliseconds; overheads outside of steps included.

    ``ttft_ms``: arrival to first token, of everybody who got one. ``e2e_ms``: arrival to last token. ``itl_ms``: each gap
    between two tokens of a request. ``tpot_ms``: a request's mean gap. ``scheduling_delay_ms``: arrival to the first step
    that worked on the request.
    """

    ttft_ms: Distribution
    e2e_ms: Distribution
    itl_ms: Distribution
    tpot_ms: Distribution
    scheduling_delay_ms: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCounts:
    """The KV caches of all instances together.

    ``blocks`` and ``peak_used`` are sums over instances (each at its own peak). ``hit_rate``: blocks found in the cache at
    admissions, divided by those and the blocks newly taken, decoding included.
    """

    blocks: int
    peak_used: int
    hit_rate: float
    preemptions: int
    preempted_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReport:
    """One instance's share."""

    instance: int
    routed: int
    completed: int
    steps: int
    busy_us: int
    """Sum of the durations of its steps."""
    output_tokens: int
    peak_running: int
    itl_ms: Distribution
    kv: KvCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """The requests of one SLO class or tenant."""

    total: int
    rejected: int
    completed: int
    dropped_unservable: int
    timed_out: int
    output_tokens: int
    ttft_ms: Distribution
    e2e_ms: Distribution


class RequestRow(NamedTuple):
    """One request, as a row of ``--requests`` files and data frames; None where it never happened."""

    request_id: str
    state: str
    instance: int | None
    arrival_us: int
    queued_us: int | None
    scheduled_us: int | None
    first_token_us: int | None
    completed_us: int | None
    ttft_us: int | None
    e2e_us: int | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int
    slo_class: str
    tenant_id: str
    session_id: str
    round_index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a run found out. The field order is the order in the file."""

    meta: Meta
    requests: RequestCounts
    tokens: TokenCounts
    duration_us: int
    """Simulated time of the last event, or the horizon where that cut the run."""
    throughput: Throughput
    latency: Latencies
    kv: KvCounts
    instances: tuple[InstanceReport, ...]
    slo_classes: Mapping[str, GroupReport]
    tenants: Mapping[str, GroupReport]
    invariants: Mapping[str, str]
    """Identifier -> ``ok``, ``not checked``, or what is wrong."""
    expectations: tuple[Verdict, ...]
    rows: Sequence[RequestRow] = field(repr=False, compare=False)
    """One row a request, in order of arrival; not part of the JSON document."""

    @property
    def ok(self) -> bool:
        """Whether every expectation holds."""
        return all(verdict.ok for verdict in self.expectations)

    def to_dict(self) -> dict[str, object]:
        """The report as plain data, in the order of the file."""
        names = [name for name in self.__dataclass_fields__ if name != "rows"]
        return {name: _plain(getattr(self, name)) for name in names}

    def to_json(self) -> str:
        """The canonical bytes: what ``blis-tui run`` prints."""
        return to_json(self.to_dict())


def build_report(
    experiment: Experiment,
    cluster: Cluster,
    log: RequestLog,
    *,
    complete: bool,
    duration_us: int,
    invariants: Mapping[str, str],
) -> Report:
    """Summarise a simulation as it stands now."""
    rows = log.rows(cluster)
    overhead = cluster.instances[0].latency.output_token_overhead_us
    instances = tuple(_instance_report(cluster, rows, index, overhead) for index in range(len(cluster.instances)))
    counts = _count(rows)
    tokens = _total(rows, "output_tokens")
    seconds = duration_us / 1e6
    merged: dict[int, int] = {}
    for instance in cluster.instances:
        for gap, count in instance.itl_us.items():
            merged[gap] = merged.get(gap, 0) + count
    report = Report(
        meta=Meta(
            experiment=experiment.name,
            spec_sha256=experiment.sha256,
            seed=experiment.seed,
            engine=ENGINE,
            complete=complete,
        ),
        requests=counts,
        tokens=TokenCounts(input=cluster.input_tokens, output=tokens, cached=_total(rows, "cached_tokens")),
        duration_us=duration_us,
        throughput=Throughput(
            requests_per_s=counts.completed / seconds if seconds else 0.0,
            output_tokens_per_s=tokens / seconds if seconds else 0.0,
        ),
        latency=Latencies(
            ttft_ms=of_samples([row.ttft_us for row in rows if row.ttft_us >= 0]),
            e2e_ms=of_samples([row.e2e_us for row in rows if row.e2e_us >= 0]),
            itl_ms=of_histogram(merged, overhead),
            tpot_ms=of_ratios(
                [
                    (row.e2e_us - row.ttft_us) / (row.output_tokens - 1)
                    for row in rows
                    if row.e2e_us >= 0 and row.output_tokens > 1
                ]
            ),
            scheduling_delay_ms=of_samples(
                [row.scheduled_us - row.arrival_us for row in rows if row.scheduled_us >= 0]
            ),
        ),
        kv=_kv(cluster, range(len(cluster.instances))),
        instances=instances,
        slo_classes=_groups(rows, [slo for slo, _ in log.groups]),
        tenants=_groups(rows, [tenant for _, tenant in log.groups]),
        invariants=invariants,
        expectations=(),
        rows=[_request_row(row, log) for row in rows],
    )
    return _with_verdicts(report, experiment)


def _with_verdicts(report: Report, experiment: Experiment) -> Report:
    verdicts = tuple(judge(expectation, report.to_dict()) for expectation in experiment.expect)
    fields = {name: getattr(report, name) for name in report.__dataclass_fields__}
    return Report(**{**fields, "expectations": verdicts})


def _count(rows: Sequence[Row]) -> RequestCounts:
    by_state = dict.fromkeys(RequestState, 0)
    capped = 0
    for row in rows:
        by_state[RequestState(row.state)] += 1
        capped += row.length_capped
    rejected = by_state[RequestState.REJECTED]
    return RequestCounts(
        total=len(rows),
        injected=len(rows) - rejected,
        rejected=rejected,
        completed=by_state[RequestState.COMPLETED],
        still_queued=by_state[RequestState.WAITING] + by_state[RequestState.CREATED],
        still_running=by_state[RequestState.RUNNING],
        dropped_unservable=by_state[RequestState.DROPPED_UNSERVABLE],
        timed_out=by_state[RequestState.TIMED_OUT],
        length_capped=capped,
    )


def _kv(cluster: Cluster, indices: Sequence[int]) -> KvCounts:
    hits = misses = blocks = peak = preemptions = preempted = 0
    for index in indices:
        instance = cluster.instances[index]
        pool = instance.pool
        hits += pool.hits
        misses += pool.misses
        blocks += pool.total
        peak += pool.total - pool.min_free
        preemptions += instance.preemptions
        preempted += instance.preempted_requests
    return KvCounts(
        blocks=blocks,
        peak_used=peak,
        hit_rate=hits / (hits + misses) if hits + misses else 0.0,
        preemptions=preemptions,
        preempted_requests=preempted,
    )


def _instance_report(cluster: Cluster, rows: Sequence[Row], index: int, overhead_us: int) -> InstanceReport:
    instance = cluster.instances[index]
    mine = [row for row in rows if row.instance == index]
    return InstanceReport(
        instance=index,
        routed=instance.routed,
        completed=len([1 for row in mine if row.state == RequestState.COMPLETED]),
        steps=instance.steps,
        busy_us=instance.busy_us,
        output_tokens=_total(mine, "output_tokens"),
        peak_running=instance.peak_running,
        itl_ms=of_histogram(instance.itl_us, overhead_us),
        kv=_kv(cluster, (index,)),
    )


def _groups(rows: Sequence[Row], names: Sequence[str]) -> dict[str, GroupReport]:
    """Rows by the name of their group, in alphabetical order; unnamed ones are left out."""
    by_name: dict[str, list[Row]] = {name: [] for name in sorted(names) if name}
    for row in rows:
        name = names[row.group]
        if name:
            by_name[name].append(row)
    return {name: _group(members) for name, members in by_name.items()}


def _group(rows: Sequence[Row]) -> GroupReport:
    counts = _count(rows)
    return GroupReport(
        total=counts.total,
        rejected=counts.rejected,
        completed=counts.completed,
        dropped_unservable=counts.dropped_unservable,
        timed_out=counts.timed_out,
        output_tokens=_total(rows, "output_tokens"),
        ttft_ms=of_samples([row.ttft_us for row in rows if row.ttft_us >= 0]),
        e2e_ms=of_samples([row.e2e_us for row in rows if row.e2e_us >= 0]),
    )


def _total(rows: Sequence[Row], name: str) -> int:
    total = 0
    for row in rows:
        total += getattr(row, name)
    return total


def _request_row(row: Row, log: RequestLog) -> RequestRow:
    slo_class, tenant = log.groups[row.group]
    session_id, round_index = log.session(row.index) or ("", None)
    return RequestRow(
        log.name(row.index),
        STATE_NAMES[row.state],
        _happened(row.instance),
        row.arrival_us,
        _happened(row.queued_us),
        _happened(row.scheduled_us),
        _happened(row.first_token_us),
        _happened(row.completed_us),
        _happened(row.ttft_us),
        _happened(row.e2e_us),
        row.input_tokens,
        row.output_tokens,
        row.cached_tokens,
        row.preemptions,
        slo_class,
        tenant,
        session_id,
        round_index,
    )


def _happened(value: int) -> int | None:
    return None if value < 0 else value


def _plain(value: object) -> object:
    """Records as maps, tuples as lists; the rest is plain already."""
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return asdict(value)  # type: ignore[call-overload]
