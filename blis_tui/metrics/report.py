"""The report: what a run says about itself, as frozen records and as canonical JSON."""

from __future__ import annotations

from array import array
from dataclasses import field, fields, is_dataclass, replace
from functools import cache, cached_property
from itertools import compress
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE
from blis_tui.canonical import to_json
from blis_tui.classes import dataclass
from blis_tui.engine.request import RequestState
from blis_tui.metrics.expectations import Verdict, judge
from blis_tui.metrics.kv import KvCounts, kv_counts
from blis_tui.metrics.lifecycle import lifecycle_report
from blis_tui.metrics.lints.finding import Seen
from blis_tui.metrics.lints.lints import check_all
from blis_tui.metrics.load import Flow
from blis_tui.metrics.request_columns import split
from blis_tui.metrics.sections import Sections, sections_apply
from blis_tui.metrics.stats import WHERE_IT_APPLIES, Distribution, of_histogram, of_ratios, of_samples, whole_sum
from blis_tui.metrics.step_time import step_times
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _typeshed import DataclassInstance

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.metrics.expected_error import Expectation
    from blis_tui.metrics.lifecycle import LifecycleReport
    from blis_tui.metrics.lints.finding import Finding
    from blis_tui.metrics.lints.lints import Checkup
    from blis_tui.metrics.load import Offered, Steady
    from blis_tui.metrics.request_columns import Block
    from blis_tui.metrics.request_log import RequestLog, RequestTable
    from blis_tui.metrics.step_time import StepTime
    from blis_tui.spec.model import Experiment
    from blis_tui.workload.trace_table import LeftOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Which experiment gave these figures; equal ``spec_sha256`` and ``engine`` mean equal bytes."""

    experiment: str
    """The experiment's ``name``."""
    spec_sha256: str
    """SHA-256 of the experiment in its normal form: equal ones simulate the same, however their documents are
    written."""
    seed: int
    """The seed of all random streams."""
    engine: str
    """The version of the simulation's rules. It changes when any result does, and not with the version of the
    package."""
    complete: bool
    """False when the run was interrupted: the figures are those until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Requests by outcome.

    ``total = injected + rejected``, and all others but ``length_capped`` add up to ``injected``.
    """

    total: int
    """Requests that arrived, whatever their outcome."""
    injected: int
    """Requests that arrived and were not rejected: ``total - rejected``."""
    rejected: int
    """Requests rejected by admission control, by a tenant's budget or by the gateway, and those that request a model
    that no instance serves; ``rejections`` has them by cause."""
    completed: int
    """Requests whose answer is complete, those cut short (``length_capped``) among them."""
    still_queued: int
    """Requests waiting in a queue, or on the way to one, at the end; preempted ones and those held by the gateway or
    deferred (``deferrals``) among them."""
    still_running: int
    """Requests in the batch of an instance at the end."""
    dropped_unservable: int
    """Requests that an instance can never serve: too long for ``max_model_len`` or for its whole KV cache; with
    disaggregation also those whose KV blocks did not fit where they were to decode."""
    timed_out: int
    """Requests whose deadline (``timeout_us``) passed before their last token."""
    length_capped: int
    """Requests that completed with fewer output tokens than their model would have generated, cut short by
    ``max_model_len`` or by the budget that they declared; part of ``completed``."""
    lost: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Requests that were lost with their instance and were not retried; left out where no instance is started or
    stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of prompts and answers, of all requests."""

    input: int
    """Prompt tokens of the requests that entered the queue of an instance and could be served there, cached ones
    included; a split request counts once, one that starts again after a failure once more."""
    output: int
    """Output tokens of all requests, those that did not complete included; what is generated again after a preemption
    counts once."""
    cached: int
    """Prompt tokens found in the prefix cache (or a tier below it) when their requests were first scheduled; part of
    ``input``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Completed requests and generated tokens per simulated second of the whole run, start and drain included."""

    requests_per_s: float
    """Completed requests, divided by ``duration_us`` in seconds; ``steady.requests_per_s`` is the rate without ramp-up
    and drain."""
    output_tokens_per_s: float
    """``tokens.output``, divided by ``duration_us`` in seconds: tokens of requests that did not complete count, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """What clients measured, overheads outside of steps included; without the warm-up (``warm_up_us``)."""

    ttft_ms: Distribution
    """Time to first token: from a request's arrival to its first token at the client, of all requests that got one."""
    e2e_ms: Distribution
    """End-to-end latency: from arrival to the last token at the client, of completed requests."""
    itl_ms: Distribution
    """Inter-token latency: the time between two tokens of a request that follow one another, one sample for each gap,
    so that long answers weigh more. Gaps of requests that did not complete count, and tokens that come together
    (speculative decoding) share one gap."""
    tpot_ms: Distribution
    """Time per output token: (E2E - TTFT) / (output tokens - 1), one sample for each completed request with two output
    tokens or more."""
    scheduling_delay_ms: Distribution
    """From a request's arrival to the first step that worked on it, of all requests that were scheduled: admission,
    gateway and queue, without the time after a preemption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReport:
    """One instance's share."""

    instance: int
    """Its index in the cluster, from 0."""
    replica: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """The index of its replica within its pool, from 0, where it is one of the ranks of one
    (``engine.data_parallel``)."""
    rank: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Its number within its replica, from 0, where it is one of the ranks of one."""
    routed: int
    """Requests sent to it; one that is sent again after a failure counts again, and a split one at both its
    instances."""
    completed: int
    """Completed requests that it served last."""
    steps: int
    """Steps it took, dummy batches not counted."""
    busy_us: int
    """The sum of the durations of its steps; where several are in progress at a time (``pipeline_parallel``), more than
    the time in which it worked."""
    output_tokens: int
    """Output tokens of the requests that it served last, the first tokens of split ones included, which come from their
    prefill instance."""
    peak_running: int
    """The most requests in its batch at a time."""
    itl_ms: Distribution
    """``latency.itl_ms`` of the tokens that it generated."""
    kv: KvCounts
    """Its KV cache and its preemptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """The requests of one SLO class or tenant."""

    total: int
    """Requests of the group that arrived, whatever their outcome."""
    rejected: int
    """Requests of it that were rejected, as in ``requests.rejected``."""
    completed: int
    """Requests of it whose answer was generated to its end."""
    dropped_unservable: int
    """Requests of it that no instance could serve, as in ``requests.dropped_unservable``."""
    timed_out: int
    """Requests of it whose deadline passed before their last token."""
    output_tokens: int
    """Output tokens of all its requests, those that did not complete included."""
    ttft_ms: Distribution
    """``latency.ttft_ms`` of its requests."""
    e2e_ms: Distribution
    """``latency.e2e_ms`` of its requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Sections):
    """Everything a run found out, in the order of the file; the sections that apply come before ``invariants``."""

    meta: Meta
    """Which experiment was simulated, and with which version of the rules."""
    step_time: Mapping[str, StepTime]
    """By pool: what its instances run, and how their steps are timed."""
    requests: RequestCounts
    """Requests by outcome."""
    tokens: TokenCounts
    """Tokens of prompts and answers."""
    duration_us: int
    """Simulated time of the last event, or the horizon where that cut the run."""
    throughput: Throughput
    """Completed requests and generated tokens per second of the whole run."""
    offered: Offered
    """The load that arrived, served or not."""
    steady: Steady
    """What arrived and what was served in the second half of the arrivals."""
    latency: Latencies
    """What clients measured."""
    kv: KvCounts
    """The KV caches of all instances together, and preemptions."""
    instances: tuple[InstanceReport, ...]
    """Per instance, in order of their indices."""
    slo_classes: Mapping[str, GroupReport]
    """By name: the requests of each SLO class."""
    tenants: Mapping[str, GroupReport]
    """By name: the requests of each tenant; requests without one are in none."""
    invariants: Mapping[str, str]
    """Identifier -> ``ok``, ``not checked``, or what is wrong."""
    expectations: tuple[Verdict, ...]
    """The experiment's ``expect`` entries, and whether each holds."""
    warnings: tuple[Finding, ...]
    """What looks wrong with the run, defects of the simulator first; empty when nothing does."""
    lifecycle: LifecycleReport | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Instances that were started and stopped; left out where none can be."""
    experiment: Experiment = field(repr=False, compare=False)
    """What was simulated; not part of the JSON document, as ``rows``."""
    step_models: Mapping[str, StepTimeModel] = field(repr=False, compare=False)
    """Pool -> the step-time model of its instances; not part of the JSON document, as ``rows``."""
    rows: RequestTable = field(repr=False, compare=False)
    """One row a request, in order of arrival; not part of the JSON document."""
    left_out: tuple[LeftOut, ...] = field(default=(), repr=False, compare=False)
    """What of a recorded workload is no request, because the trace's format leaves it out; not part of it, either."""

    def expected_errors(self) -> dict[str, Expectation]:
        """How far off its means are expected to be, by pool: worked out when it is asked for."""
        from blis_tui.metrics.pool_load import expectations, pool_loads  # noqa: PLC0415  (not every run asks)

        loads = pool_loads(self.experiment, self.to_dict())
        return expectations(self.experiment, loads, lambda pool: self.step_models[pool.name])

    @property
    def ok(self) -> bool:
        """Whether every expectation holds."""
        return all(verdict.ok for verdict in self.expectations)

    def to_dict(self) -> dict[str, object]:
        """The report as plain data, in the order of the file."""
        document = _fields(self)
        own = [name for name in document if name not in _SECTIONS and name not in _NOT_WRITTEN]
        at = own.index("invariants")
        sections = [name for name in _SECTIONS if document[name] is not None]
        return {name: _plain(document[name]) for name in (*own[:at], *sections, *own[at:])}

    def to_json(self) -> str:
        """The canonical bytes: what ``blis-tui run`` prints."""
        return to_json(self.to_dict())

    def __repr__(self) -> str:
        """One line: thousands of characters say nothing to those who look."""
        return f"<Report {self._headline()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        columns = [one.name for one in fields(Distribution)]
        latencies = [
            (one.name, *(getattr(getattr(self.latency, one.name), column) for column in columns))
            for one in fields(self.latency)
        ]
        broken = [f"FAIL {one.sentence()}" for one in self.expectations if not one.ok]
        warned = [f"{one.severity}[{one.id}]: {one.message}" for one in self.warnings]
        from blis_tui.notebook import html_table  # noqa: PLC0415  (notebooks alone need it)

        return html_table(self._headline(), ("", *columns), latencies, (*broken, *warned))

    def _headline(self) -> str:
        done, rate = self.requests, self.throughput
        return (
            f"{self.meta.experiment}, seed {self.meta.seed}: "
            f"{done.completed:,} of {plural(done.total, 'request')} completed, "
            f"{rate.requests_per_s:.4g} requests/s, {rate.output_tokens_per_s:,.0f} output tokens/s"
        )


_NOT_WRITTEN: Final = ("experiment", "step_models", "rows", "left_out")
_SECTIONS: Final = tuple(one.name for one in fields(Sections))


_STATES: Final = tuple(map(int, RequestState))


class _Tally:
    """Counts and samples of a set of requests; where all are of one class, its tally is that of all."""

    def __init__(self) -> None:
        self.states = dict.fromkeys(_STATES, 0)
        self.capped = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.ttft_us = array("q")
        self.e2e_us = array("q")
        self.delays_us = array("q")
        self.per_token_us = array("d")

    def add(self, block: Block, warm_up_us: int) -> None:
        """Take in requests."""
        for state in dict.fromkeys(block.state):
            self.states[state] += block.state.count(state)
        self.capped += whole_sum(block.length_capped)
        self.output_tokens += whole_sum(block.output_tokens)
        self.cached_tokens += whole_sum(block.cached_tokens)
        arrivals, ttfts, e2es = block.arrival_us, block.ttft_us, block.e2e_us
        counted = [arrival >= warm_up_us for arrival in arrivals]
        times = compress(zip(block.scheduled_us, arrivals, strict=True), counted)
        self.delays_us.extend([at - arrival for at, arrival in times if at >= 0])
        self.ttft_us.extend([ttft for ttft in compress(ttfts, counted) if ttft >= 0])
        self.e2e_us.extend([e2e for e2e in compress(e2es, counted) if e2e >= 0])
        answers = compress(zip(e2es, ttfts, block.output_tokens, strict=True), counted)
        self.per_token_us.extend(
            [(e2e - ttft) / (tokens - 1) for e2e, ttft, tokens in answers if e2e >= 0 and tokens > 1]
        )

    @staticmethod
    def of_all(parts: Sequence[_Tally]) -> _Tally:
        """One of all requests in several; the order of samples says nothing."""
        if len(parts) == 1:
            return parts[0]
        whole = _Tally()
        for part in parts:
            for state, count in part.states.items():
                whole.states[state] += count
            whole.capped += part.capped
            whole.output_tokens += part.output_tokens
            whole.cached_tokens += part.cached_tokens
            whole.ttft_us += part.ttft_us
            whole.e2e_us += part.e2e_us
            whole.delays_us += part.delays_us
            whole.per_token_us += part.per_token_us
        return whole

    @cached_property
    def ttft_ms(self) -> Distribution:
        return of_samples(self.ttft_us)

    @cached_property
    def e2e_ms(self) -> Distribution:
        return of_samples(self.e2e_us)

    def counts(self, *, varies: bool = False) -> RequestCounts:
        states = self.states
        total = 0
        for count in states.values():
            total += count
        rejected = states[RequestState.REJECTED]
        return RequestCounts(
            total=total,
            injected=total - rejected,
            rejected=rejected,
            completed=states[RequestState.COMPLETED],
            still_queued=states[RequestState.WAITING] + states[RequestState.CREATED],
            still_running=states[RequestState.RUNNING],
            dropped_unservable=states[RequestState.DROPPED_UNSERVABLE],
            timed_out=states[RequestState.TIMED_OUT],
            length_capped=self.capped,
            lost=states[RequestState.LOST] if varies else None,
        )

    def group(self) -> GroupReport:
        counts = self.counts()
        return GroupReport(
            total=counts.total,
            rejected=counts.rejected,
            completed=counts.completed,
            dropped_unservable=counts.dropped_unservable,
            timed_out=counts.timed_out,
            output_tokens=self.output_tokens,
            ttft_ms=self.ttft_ms,
            e2e_ms=self.e2e_ms,
        )


class _Tallies:
    """The tallies of a report, filled in one pass over the requests.

    Attributes:
        overall: of all requests.
        completed: requests that each instance completed.
        output_tokens: tokens that each instance generated last.
    """

    def __init__(self, table: RequestTable, instances: int, warm_up_us: int, *, held: bool) -> None:
        self.flow = Flow(held=held)
        self.completed, self.output_tokens = [0] * instances, [0] * instances
        names = table.group_names()
        alike: dict[tuple[str, str], _Tally] = {}
        for block in table.blocks():
            self.flow.add(block)
            self._add_instances(block)
            for name, part in split(block, [names[group] for group in block.group]):
                if name not in alike:
                    alike[name] = _Tally()
                alike[name].add(part, warm_up_us)
        self.overall = _Tally.of_all([*alike.values()])
        self.slo_classes = _by_name([(slo_class, tally) for (slo_class, _), tally in alike.items()])
        self.tenants = _by_name([(tenant, tally) for (_, tenant), tally in alike.items()])

    def _add_instances(self, block: Block) -> None:
        completed, output_tokens = self.completed, self.output_tokens
        for instance, state, tokens in zip(block.instance, block.state, block.output_tokens, strict=True):
            if instance >= 0:
                completed[instance] += state == RequestState.COMPLETED
                output_tokens[instance] += tokens


def _by_name(tallies: Sequence[tuple[str, _Tally]]) -> dict[str, _Tally]:
    """The tallies of each name together; those without one are left out."""
    parts: dict[str, list[_Tally]] = {name: [] for name, _ in tallies if name}
    for name, tally in tallies:
        if name:
            parts[name].append(tally)
    return {name: _Tally.of_all(of_name) for name, of_name in parts.items()}


def build_report(
    experiment: Experiment,
    cluster: Cluster,
    log: RequestLog,
    *,
    complete: bool,
    duration_us: int,
    invariants: Mapping[str, str],
    now_us: int | None = None,
    left_out: tuple[LeftOut, ...] = (),
) -> Report:
    """Summarise a simulation as it stands now; ``now_us``: as of :meth:`RequestLog.table`."""
    table = log.table(cluster, now_us)
    tallies = _Tallies(table, len(cluster.instances), experiment.warm_up_us, held=cluster.gateway.holds)
    overall = tallies.overall
    counts = overall.counts(varies=experiment.cluster.varies)
    seconds = duration_us / 1e6
    gaps = _gaps_us(cluster)
    found = _sections(experiment, cluster, table, duration_us)
    instances = map(_instance_report, cluster.instances, tallies.completed, tallies.output_tokens, gaps)
    report = Report(
        **{name: getattr(found, name) for name in _SECTIONS},
        meta=Meta(
            experiment=experiment.name,
            spec_sha256=experiment.sha256,
            seed=experiment.seed,
            engine=ENGINE,
            complete=complete,
        ),
        step_time=step_times(experiment),
        experiment=experiment,
        step_models=_step_models(experiment, cluster),
        requests=counts,
        tokens=TokenCounts(input=cluster.input_tokens, output=overall.output_tokens, cached=overall.cached_tokens),
        duration_us=duration_us,
        throughput=Throughput(
            requests_per_s=counts.completed / seconds if seconds else 0.0,
            output_tokens_per_s=overall.output_tokens / seconds if seconds else 0.0,
        ),
        offered=tallies.flow.offered(cluster.pipeline.offered_output_tokens),
        steady=tallies.flow.steady(),
        latency=_latencies(overall, cluster),
        kv=kv_counts(cluster.instances),
        instances=tuple(_placed(experiment, cluster, instances)),
        slo_classes={name: tallies.slo_classes[name].group() for name in sorted(tallies.slo_classes)},
        tenants={name: tallies.tenants[name].group() for name in sorted(tallies.tenants)},
        invariants=invariants,
        expectations=(),
        warnings=_check(experiment, cluster, tallies.flow, table, duration_us).findings,
        lifecycle=lifecycle_report(experiment, cluster, duration_us),
        rows=table,
        left_out=left_out,
    )
    if experiment.report == "full":
        report = replace(report, step_time=step_times(experiment, report.expected_errors()))
    document = report.to_dict() if experiment.expect else {}
    return replace(report, expectations=tuple(judge(expectation, document) for expectation in experiment.expect))


def _latencies(overall: _Tally, cluster: Cluster) -> Latencies:
    return Latencies(
        ttft_ms=overall.ttft_ms,
        e2e_ms=overall.e2e_ms,
        itl_ms=of_histogram(seen_gaps_us(cluster)),
        tpot_ms=of_ratios(overall.per_token_us),
        scheduling_delay_ms=of_samples(overall.delays_us),
    )


def _step_models(experiment: Experiment, cluster: Cluster) -> dict[str, StepTimeModel]:
    """The step-time model of each pool: that of its first instance."""
    found, first = {}, 0
    for pool in experiment.pools:
        found[pool.name] = cluster.instances[first].latency
        first += pool.instances
    return found


def _sections(experiment: Experiment, cluster: Cluster, table: RequestTable, duration_us: int) -> Sections:
    """Those that apply."""
    if not sections_apply(experiment, cluster):
        return Sections()
    from blis_tui.metrics.section_reports import build_sections  # noqa: PLC0415  (a dozen modules that few runs need)

    return build_sections(experiment, cluster, table, duration_us)


def seen_gaps_us(cluster: Cluster) -> dict[int, int]:
    """How often clients saw each inter-token latency, after the warm-up: what ``latency.itl_ms`` sums up."""
    merged: dict[int, int] = {}
    for instance, counted in zip(cluster.instances, _gaps_us(cluster), strict=True):
        for gap, count in counted.items():
            seen = gap + instance.latency.output_token_overhead_us
            merged[seen] = merged.get(seen, 0) + count
    return merged


def _gaps_us(cluster: Cluster) -> list[dict[int, int]]:
    """The same at the engine, for each instance."""
    return [cluster.warm_up.gaps_since(one) for one in cluster.instances]


def check_up(experiment: Experiment, cluster: Cluster, log: RequestLog, *, duration_us: int) -> Checkup:
    """All checks behind the warnings, on a simulation as it stands now; cheaper than a whole report."""
    table = log.table(cluster)
    flow = Flow(held=cluster.gateway.holds)
    for block in table.blocks():
        flow.add(block)
    return _check(experiment, cluster, flow, table, duration_us)


def _check(experiment: Experiment, cluster: Cluster, flow: Flow, table: RequestTable, duration_us: int) -> Checkup:
    return check_all(
        Seen(
            experiment=experiment,
            cluster=cluster,
            flow=flow,
            table=table,
            duration_us=duration_us,
            done=cluster.next_event_us() is None,
        )
    )


def _placed(experiment: Experiment, cluster: Cluster, instances: Iterable[InstanceReport]) -> Iterable[InstanceReport]:
    """The same, with their places among the ranks of replicas."""
    if all(pool.engine.data_parallel == 1 for pool in experiment.pools):
        return instances
    from blis_tui.cluster.snapshot import place_of  # noqa: PLC0415  (few clusters have ranks)

    places = [place_of(cluster.pools, at) for at in range(len(cluster.pools))]
    return [
        one if place is None else replace(one, replica=place.replica, rank=place.rank)
        for one, place in zip(instances, places, strict=True)
    ]


def _instance_report(instance: Instance, completed: int, output_tokens: int, gaps: dict[int, int]) -> InstanceReport:
    return InstanceReport(
        instance=instance.index,
        routed=instance.routed,
        completed=completed,
        steps=instance.tallies.steps,
        busy_us=instance.tallies.busy_us,
        output_tokens=output_tokens,
        peak_running=instance.tallies.peak_running,
        itl_ms=of_histogram(gaps, instance.latency.output_token_overhead_us),
        kv=kv_counts((instance,)),
    )


_SCALARS: Final = frozenset({int, float, str, bool, type(None)})


def _plain(value: object) -> object:
    """Records as maps, tuples as lists; the rest is plain already."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(item) for name, item in _fields(value).items()}
    return value


def _fields(record: DataclassInstance) -> dict[str, object]:
    """The fields of a record, without those that do not apply to it."""
    found: dict[str, object] = {}
    for name, left_out, nothing in _columns(type(record)):
        value = getattr(record, name)
        if value != nothing or not left_out:
            found[name] = value
    return found


@cache
def _columns(kind: type[DataclassInstance]) -> tuple[tuple[str, bool, int | None], ...]:
    """The names of a record's fields, whether they are left out where they do not apply, and with which value."""
    return tuple((one.name, "left_out" in one.metadata, 0 if "zero" in one.metadata else None) for one in fields(kind))
