"""The report of a run, as frozen records and as canonical JSON."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import field, fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from blis_tui._version import ENGINE
from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import plural
from blis_tui.engine.request import RequestState
from blis_tui.model.latencies import SAMPLED
from blis_tui.results.expectations import Verdict, judge
from blis_tui.results.lints.finding import LintContext
from blis_tui.results.lints.table import check_all
from blis_tui.results.request_log import split, where
from blis_tui.results.sections.control import lifecycle_report
from blis_tui.results.sections.instances import KvCounts, kv_counts
from blis_tui.results.sections.offered_load import Throughflow
from blis_tui.results.sections.types import Sections, sections_apply, step_times
from blis_tui.results.stats import OMITTED_IF_ABSENT, Distribution, of_histogram, of_ratios, of_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _typeshed import DataclassInstance

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.model import Experiment
    from blis_tui.results.expected_error import Expectation
    from blis_tui.results.lints.finding import Finding
    from blis_tui.results.lints.table import Checkup
    from blis_tui.results.request_log import Block, RequestLog, RequestTable
    from blis_tui.results.sections.control import LifecycleReport
    from blis_tui.results.sections.offered_load import Offered, Steady
    from blis_tui.results.sections.types import StepTime
    from blis_tui.workload.traces.trace_table import LeftOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Which experiment produced these figures; equal ``spec_sha256`` and ``engine`` mean equal bytes."""

    experiment: str
    """The experiment's ``name``."""
    spec_sha256: str
    """SHA-256 of the experiment's normal form: documents with equal hashes simulate the same, however they are written.
    """
    seed: int
    """The seed of all random streams."""
    engine: str
    """The version of the simulation's rules. It changes whenever any result does, independently of the version of the
    package."""
    complete: bool
    """False if the run was interrupted; the figures are then those up to that point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Requests by outcome.

    ``total = injected + rejected``, and all other fields except ``length_capped`` add up to ``injected``.
    """

    total: int
    """Requests that arrived, whatever their outcome."""
    injected: int
    """Requests that arrived and were not rejected: ``total - rejected``."""
    rejected: int
    """Requests rejected by admission control, by a tenant's budget or by the gateway, those that request a model that
    no instance serves, and those whose deadline passed before an instance came up; ``rejections`` has them by cause."""
    completed: int
    """Requests that completed, including those cut short (``length_capped``)."""
    still_queued: int
    """Requests waiting in a queue, or on the way to one, at the end; preempted ones and those held by the gateway or
    deferred (``deferrals``) among them."""
    still_running: int
    """Requests in the batch of an instance at the end."""
    dropped_unservable: int
    """Requests that an instance can never serve: too long for ``max_model_len`` or for its whole KV cache; with
    disaggregation also those whose KV blocks did not fit on the decode instance."""
    timed_out: int
    """Requests whose deadline (``timeout_us``) passed before their last token."""
    length_capped: int
    """Completed requests with fewer output tokens than their model would have generated, because ``max_model_len`` or
    their declared budget cut them short; part of ``completed``."""
    lost: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Requests that were lost with their instance and were not retried; left out where no instance is started or
    stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Prompt and output tokens of all requests."""

    input: int
    """Prompt tokens of the requests that entered the queue of an instance and could be served there, cached ones
    included; a split request counts once, one that starts again after a failure once more."""
    output: int
    """Output tokens of all requests, including those that did not complete; tokens generated again after a preemption
    count once."""
    cached: int
    """Prompt tokens found in the prefix cache (or a tier below it) when their requests were first scheduled; part of
    ``input``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Completed requests and generated tokens per simulated second of the whole run, including ramp-up and drain."""

    requests_per_s: float
    """Completed requests, divided by ``duration_us`` in seconds; ``steady.requests_per_s`` is the rate without ramp-up
    and drain."""
    output_tokens_per_s: float
    """``tokens.output``, divided by ``duration_us`` in seconds; includes tokens of requests that did not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies measured by clients, including overheads outside of steps, without the warm-up (``warm_up_us``)."""

    ttft_ms: Distribution
    """Time to first token: from a request's arrival to its first token at the client, for all requests that got one."""
    e2e_ms: Distribution
    """End-to-end latency: from arrival to the last token at the client, for completed requests."""
    itl_ms: Distribution
    """Inter-token latency: the time between two consecutive tokens of a request. Each gap is one sample, so long
    answers weigh more. Gaps of requests that did not complete count, and tokens that arrive together (speculative
    decoding) share one gap."""
    tpot_ms: Distribution
    """Time per output token: (E2E - TTFT) / (output tokens - 1), one sample for each completed request with at least
    two output tokens."""
    scheduling_delay_ms: Distribution
    """From a request's arrival to the first step that worked on it, for all requests that were scheduled. It includes
    admission, gateway and queue, but no time after a preemption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReport:
    """The figures of one instance."""

    instance: int
    """Its index in the cluster, from 0."""
    replica: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """The index of its replica within the pool, from 0, if the instance is one of a replica's ranks
    (``engine.data_parallel``)."""
    rank: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Its number within its replica, from 0, if the instance is one of a replica's ranks."""
    routed: int
    """Requests sent to it; a request that is retried after a failure counts again, and a split one at both of its
    instances."""
    completed: int
    """Completed requests whose last instance it was."""
    steps: int
    """Steps it took, without dummy batches."""
    busy_us: int
    """The sum of the durations of its steps; where several are in progress at a time (``pipeline_parallel``), more than
    the time in which it worked."""
    output_tokens: int
    """Output tokens of the requests whose last instance it was, including the first tokens of split requests, which
    their prefill instance generates."""
    peak_running: int
    """The most requests in its batch at one time."""
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
    """Requests of the group that completed."""
    dropped_unservable: int
    """Requests of the group that no instance could serve, as in ``requests.dropped_unservable``."""
    timed_out: int
    """Requests of the group whose deadline passed before their last token."""
    output_tokens: int
    """Output tokens of the group's requests, including those that did not complete."""
    ttft_ms: Distribution
    """``latency.ttft_ms`` of the group's requests."""
    e2e_ms: Distribution
    """``latency.e2e_ms`` of the group's requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Sections):
    """All results of a run, in the order of the file; optional sections come before ``invariants``."""

    meta: Meta
    """Which experiment was simulated, and with which version of the rules."""
    step_time: Mapping[str, StepTime]
    """By pool: the configuration of its instances, and their step-time model."""
    requests: RequestCounts
    """Requests by outcome."""
    tokens: TokenCounts
    """Tokens of prompts and answers."""
    duration_us: int
    """Simulated time of the last event, or the horizon if it ended the run."""
    throughput: Throughput
    """Completed requests and generated tokens per second of the whole run."""
    offered: Offered
    """The load that arrived, served or not."""
    steady: Steady
    """Arrivals and completions in the second half of the arrivals."""
    latency: Latencies
    """Latencies measured by clients."""
    kv: KvCounts
    """The KV caches of all instances together, and preemptions."""
    instances: tuple[InstanceReport, ...]
    """Per instance, in order of their indices."""
    slo_classes: Mapping[str, GroupReport]
    """By name: the requests of each SLO class."""
    tenants: Mapping[str, GroupReport]
    """By name: the requests of each tenant; requests without a tenant are in no group."""
    invariants: Mapping[str, str]
    """Identifier -> ``ok``, ``not checked``, or a description of the violation."""
    expectations: tuple[Verdict, ...]
    """The experiment's ``expect`` entries, and whether each holds."""
    warnings: tuple[Finding, ...]
    """Problems found in the run, defects of the simulator first; empty if there are none."""
    lifecycle: LifecycleReport | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Instances that were started and stopped; left out where none can be."""
    experiment: Experiment = field(repr=False, compare=False)
    """The simulated experiment; not part of the JSON document."""
    step_models: Mapping[str, StepTimeModel] = field(repr=False, compare=False)
    """Pool -> the step-time model of its instances; not part of the JSON document."""
    rows: RequestTable = field(repr=False, compare=False)
    """One row per request, in order of arrival; not part of the JSON document."""
    left_out: tuple[LeftOut, ...] = field(default=(), repr=False, compare=False)
    """What the trace's format left out of a recorded workload; not part of the JSON document."""

    def expected_errors(self) -> dict[str, Expectation]:
        """Return the expected errors of the means, by pool; computed on demand."""
        from blis_tui.results.expected_error import expectations, pool_loads  # noqa: PLC0415  (not every run asks)

        loads = pool_loads(self.experiment, self.to_dict())
        return expectations(self.experiment, loads, lambda pool: self.step_models[pool.name])

    @property
    def ok(self) -> bool:
        """Whether every expectation holds."""
        return all(verdict.ok for verdict in self.expectations)

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain data, in the order of the file."""
        document = _fields(self)
        own = [name for name in document if name not in _SECTIONS and name not in _NOT_WRITTEN]
        at = own.index("invariants")
        sections = [name for name in _SECTIONS if document[name] is not None]
        return {name: _plain(document[name]) for name in (*own[:at], *sections, *own[at:])}

    def to_json(self) -> str:
        """Return the canonical JSON that ``blis-tui run`` prints."""
        return to_json(self.to_dict())

    def __repr__(self) -> str:
        """Return one line, because the full report has thousands of characters."""
        return f"<Report {self._headline()}>"

    def _repr_html_(self) -> str:
        """Return the HTML shown by a notebook."""
        columns = [statistic.name for statistic in fields(Distribution)]
        latencies = [
            (metric.name, *(getattr(getattr(self.latency, metric.name), column) for column in columns))
            for metric in fields(self.latency)
        ]
        broken = [f"FAIL {expectation.sentence()}" for expectation in self.expectations if not expectation.ok]
        warned = [f"{warning.severity}[{warning.id}]: {warning.message}" for warning in self.warnings]
        from blis_tui.base.html import html_table  # noqa: PLC0415  (only notebooks need it)

        return html_table(self._headline(), ("", *columns), latencies, (*broken, *warned))

    def _headline(self) -> str:
        done, rate = self.requests, self.throughput
        return (
            f"{self.meta.experiment}, seed {self.meta.seed}: "
            f"{done.completed:,} of {plural(done.total, 'request')} completed, "
            f"{rate.requests_per_s:.4g} requests/s, {rate.output_tokens_per_s:,.0f} output tokens/s"
        )


_NOT_WRITTEN: Final = ("experiment", "step_models", "rows", "left_out")
_SECTIONS: Final = tuple(section.name for section in fields(Sections))


_TOTALS: Final = ("length_capped", "output_tokens", "cached_tokens")
"""Columns of requests that are summed."""


class _Tally:
    """Counts and samples of a set of requests; if all requests are of one class, its tally is also the overall one."""

    def __init__(self) -> None:
        self.states: Counter[int] = Counter()
        self.totals: Counter[str] = Counter()
        self.samples_us: dict[str, array[float]] = {
            name: cast("array[float]", array("d" if latency.per_gap else "q")) for name, latency in SAMPLED.items()
        }
        self._distributions: dict[str, Distribution] = {}

    def add(self, block: Block, warm_up_us: int) -> None:
        """Add a block of requests."""
        self.states.update(block.state)
        for name in _TOTALS:
            self.totals[name] += whole_sum(getattr(block, name))
        timed = where(block, [arrival - warm_up_us for arrival in block.arrival_us]) if warm_up_us else block
        for name, latency in SAMPLED.items():
            self.samples_us[name].extend(latency.samples_us(timed))

    @staticmethod
    def of_all(parts: Sequence[_Tally]) -> _Tally:
        """Return the combined tally of several; the order of samples does not matter."""
        if len(parts) == 1:
            return parts[0]
        whole = _Tally()
        for part in parts:
            whole.states.update(part.states)
            whole.totals.update(part.totals)
            for name, samples_us in part.samples_us.items():
                whole.samples_us[name] += samples_us
        return whole

    def latency(self, name: str) -> Distribution:
        """Return the distribution of a latency, by its field of the report."""
        if name not in self._distributions:
            samples_us = self.samples_us[name]
            self._distributions[name] = (
                of_ratios(samples_us) if SAMPLED[name].per_gap else of_samples(cast("array[int]", samples_us))
            )
        return self._distributions[name]

    def counts(self, *, varies: bool = False) -> RequestCounts:
        states = self.states
        total = whole_sum(states.values())
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
            length_capped=self.totals["length_capped"],
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
            output_tokens=self.totals["output_tokens"],
            ttft_ms=self.latency("ttft_ms"),
            e2e_ms=self.latency("e2e_ms"),
        )


class _Tallies:
    """The tallies of a report, filled in one pass over the requests.

    Attributes:
        overall: tally of all requests.
        completed: requests completed by each instance.
        output_tokens: output tokens by the last instance of each request.
    """

    def __init__(self, table: RequestTable, instances: int, warm_up_us: int) -> None:
        self.flow = Throughflow()
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
        there, output_tokens = where(block, block.instance), self.output_tokens
        for instance, tokens in zip(there.instance, there.output_tokens, strict=True):
            output_tokens[instance] += tokens
        done = dict(split(block, block.state)).get(RequestState.COMPLETED)
        if done is not None:
            for instance, count in Counter(done.instance).items():
                self.completed[instance] += count


def _by_name(tallies: Sequence[tuple[str, _Tally]]) -> dict[str, _Tally]:
    """Return the combined tally of each name; tallies without a name are left out."""
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
    """Summarise a simulation in its current state; ``now_us``: as for :meth:`RequestLog.table`."""
    table = log.table(cluster, now_us)
    tallies = _Tallies(table, len(cluster.instances), experiment.warm_up_us)
    overall = tallies.overall
    counts, output_tokens = overall.counts(varies=experiment.cluster.varies), overall.totals["output_tokens"]
    seconds = duration_us / 1e6
    gaps = _gaps_us(cluster)
    sections = _sections(experiment, cluster, table, duration_us)
    instances = map(_instance_report, cluster.instances, tallies.completed, tallies.output_tokens, gaps)
    report = Report(
        **{name: getattr(sections, name) for name in _SECTIONS},
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
        tokens=TokenCounts(input=cluster.input_tokens, output=output_tokens, cached=overall.totals["cached_tokens"]),
        duration_us=duration_us,
        throughput=Throughput(
            requests_per_s=counts.completed / seconds if seconds else 0.0,
            output_tokens_per_s=output_tokens / seconds if seconds else 0.0,
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
    return Latencies(itl_ms=of_histogram(seen_gaps_us(cluster)), **{name: overall.latency(name) for name in SAMPLED})


def latencies_so_far(experiment: Experiment, cluster: Cluster, log: RequestLog, now_us: int | None = None) -> Latencies:
    """Return the latencies of a report of the current state, without the rest of it; ``now_us`` as there."""
    tally = _Tally()
    for block in log.table(cluster, now_us).blocks():
        tally.add(block, experiment.warm_up_us)
    return _latencies(tally, cluster)


def _step_models(experiment: Experiment, cluster: Cluster) -> dict[str, StepTimeModel]:
    """Return the step-time model of each pool, which is that of its first instance."""
    models, first = {}, 0
    for pool in experiment.pools:
        models[pool.name] = cluster.instances[first].latency
        first += pool.instances
    return models


def _sections(experiment: Experiment, cluster: Cluster, table: RequestTable, duration_us: int) -> Sections:
    """Return the optional sections that apply."""
    if not sections_apply(experiment, cluster):
        return Sections()
    from blis_tui.results.sections.build import build_sections  # noqa: PLC0415  (a dozen modules that few runs need)

    return build_sections(experiment, cluster, table, duration_us)


def seen_gaps_us(cluster: Cluster) -> dict[int, int]:
    """Return how often clients saw each inter-token latency after the warm-up: the data of ``latency.itl_ms``."""
    merged: dict[int, int] = {}
    for instance, counted in zip(cluster.instances, _gaps_us(cluster), strict=True):
        overhead_us = instance.latency.output_token_overhead_us
        for gap, count in counted.items():
            seen = gap + overhead_us
            merged[seen] = merged.get(seen, 0) + count
    return merged


def _gaps_us(cluster: Cluster) -> list[dict[int, int]]:
    """Return how often each inter-token latency occurred at the engine after the warm-up, for each instance."""
    return [cluster.warm_up.gaps_since(instance) for instance in cluster.instances]


def run_checks(experiment: Experiment, cluster: Cluster, log: RequestLog, *, duration_us: int, done: bool) -> Checkup:
    """Run all checks behind the warnings on a simulation in its current state; cheaper than a whole report.

    ``done``: whether nothing follows; in the middle of a step, the queue of events does not say.
    """
    table = log.table(cluster)
    flow = Throughflow()
    for block in table.blocks():
        flow.add(block)
    return _check(experiment, cluster, flow, table, duration_us, done=done)


def _check(
    experiment: Experiment,
    cluster: Cluster,
    flow: Throughflow,
    table: RequestTable,
    duration_us: int,
    *,
    done: bool | None = None,
) -> Checkup:
    return check_all(
        LintContext(
            experiment=experiment,
            cluster=cluster,
            flow=flow,
            table=table,
            duration_us=duration_us,
            done=cluster.next_event_us() is None if done is None else done,
        )
    )


def _placed(experiment: Experiment, cluster: Cluster, instances: Iterable[InstanceReport]) -> Iterable[InstanceReport]:
    """Yield the instances with their places among the ranks of replicas, if there are any."""
    if all(pool.engine.data_parallel == 1 for pool in experiment.pools):
        return instances
    from blis_tui.cluster.snapshot import place_of  # noqa: PLC0415  (few clusters have ranks)

    places = [place_of(cluster.pools, at) for at in range(len(cluster.pools))]
    return [
        report if place is None else replace(report, replica=place.replica, rank=place.rank)
        for report, place in zip(instances, places, strict=True)
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
    """Return a value as plain data: records as maps, tuples as lists."""
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
    """Return the fields of a record, without those that do not apply to it."""
    values: dict[str, object] = {}
    for name, left_out, nothing in _columns(type(record)):
        value = getattr(record, name)
        if value != nothing or not left_out:
            values[name] = value
    return values


@cache
def _columns(kind: type[DataclassInstance]) -> tuple[tuple[str, bool, int | None], ...]:
    """Return, for each field of a record, its name, whether it may be left out, and the value that means left out."""
    return tuple(
        (declared.name, "left_out" in declared.metadata, 0 if "zero" in declared.metadata else None)
        for declared in fields(kind)
    )
