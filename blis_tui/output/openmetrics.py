"""A run's metrics at fixed times under vLLM's names, in OpenMetrics text format.

vLLM's metrics: names, help texts and buckets, and the contribution of each request.

Source of names, texts and buckets: vLLM, ``v1/metrics/loggers.py``.

Instances are sampled while the run is paused at such a time, as Prometheus would scrape them. Metrics derived from
requests are computed at the end. A step counts from its start, when its tokens are on their way.

A histogram is written as its component series, each with all its times, and of unknown type: Prometheus' parser for
Python accepts a histogram at a single time only (it drops samples of later times, and rejects the rest).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.instance import Instance
    from blis_tui.model import Pool
    from blis_tui.results.request_log import RequestNumbers, RequestTable


US_PER_S: Final = 1_000_000
AT_DEADLINE: Final = -1
"""Placeholder for the time of a request's deadline."""

_TO_FIRST_TOKEN_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
_PER_TOKEN_S: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric, and what a request contributes to it.

    Attributes:
        name: vLLM's name, without the suffixes of its samples.
        help: vLLM's help text.
        of: returns when a request contributes and how much, in microseconds or tokens; None = it does not.
        buckets_s: the upper bounds of its buckets in seconds; empty = those of token counts.
        counts: whether it is a counter of contributions, without buckets.
        labels: labels in addition to the common ones.
        prefill: whether it belongs to the prefill instance under disaggregation.
    """

    name: str
    help: str
    of: Callable[[RequestNumbers], tuple[int, int] | None]
    buckets_s: tuple[float, ...] = ()
    counts: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    prefill: bool = False

    def scale(self) -> int:
        """Number of contributed units per unit of the metric."""
        return US_PER_S if self.buckets_s else 1


def buckets_of_tokens(most: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20 ... up to ``most``."""
    bounds: list[float] = []
    power = 1
    while power <= most:
        bounds += [float(power * digit) for digit in (1, 2, 5) if power * digit <= most]
        power *= 10
    return tuple(bounds)


def longest(pool: Pool) -> int:
    """Maximum number of tokens of a request of this pool."""
    return pool.engine.max_model_len or pool.model.max_position_embeddings


def _ended(row: RequestNumbers) -> bool:
    return row.state == RequestState.COMPLETED


def _span(row: RequestNumbers, begin_us: int, end_us: int) -> tuple[int, int] | None:
    """Return the time between two events of a completed request, contributed at its end."""
    return (row.completed_us, max(end_us - begin_us, 0)) if _ended(row) else None


def _ttft(row: RequestNumbers) -> tuple[int, int] | None:
    return (row.first_token_us, row.ttft_us) if row.ttft_us >= 0 else None


def _time_per_token(row: RequestNumbers) -> tuple[int, int] | None:
    gaps = row.output_tokens - 1
    if not _ended(row) or gaps < 1:
        return None
    return row.completed_us, (2 * (row.e2e_us - row.ttft_us) + gaps) // (2 * gaps)


def _prompt(row: RequestNumbers) -> tuple[int, int] | None:
    return (row.first_token_us, row.input_tokens) if row.first_token_us >= 0 else None


def _finished(reason: str) -> Family:
    def of(row: RequestNumbers) -> tuple[int, int] | None:
        if reason == "abort":
            return (AT_DEADLINE, 1) if row.state == RequestState.TIMED_OUT else None
        return (row.completed_us, 1) if _ended(row) and row.length_capped == (reason == "length") else None

    labels = (("finished_reason", reason),)
    return Family("vllm:request_success", "Count of successfully processed requests.", of, counts=True, labels=labels)


PREFIX_CACHE: Final = ("vllm:prefix_cache_queries", "vllm:prefix_cache_hits")
"""Metrics that stay 0 without a prefix cache."""

FAMILIES: Final = (
    Family("vllm:prompt_tokens", "Number of prefill tokens processed.", _prompt, counts=True, prefill=True),
    Family(
        PREFIX_CACHE[0],
        "Prefix cache queries, in terms of number of queried tokens.",
        lambda row: (row.scheduled_us, row.input_tokens) if row.scheduled_us >= 0 else None,
        counts=True,
        prefill=True,
    ),
    Family(
        PREFIX_CACHE[1],
        "Prefix cache hits, in terms of number of cached tokens.",
        lambda row: (row.scheduled_us, row.cached_tokens) if row.scheduled_us >= 0 else None,
        counts=True,
        prefill=True,
    ),
    *map(_finished, ("stop", "length", "abort")),
    Family(
        "vllm:request_prompt_tokens",
        "Number of prefill tokens processed.",
        lambda row: (row.completed_us, row.input_tokens) if _ended(row) else None,
    ),
    Family(
        "vllm:request_generation_tokens",
        "Number of generation tokens processed.",
        lambda row: (row.completed_us, row.output_tokens) if _ended(row) else None,
    ),
    Family(
        "vllm:request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        lambda row: (row.completed_us, row.output_tokens) if _ended(row) else None,
    ),
    Family(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        _ttft,
        _TO_FIRST_TOKEN_S,
        prefill=True,
    ),
    Family(
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        _time_per_token,
        _PER_TOKEN_S,
    ),
    Family(
        "vllm:e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        lambda row: _span(row, 0, row.e2e_us),
        _REQUEST_S,
    ),
    Family(
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        lambda row: _span(row, row.queued_us, row.scheduled_us),
        _REQUEST_S,
        prefill=True,
    ),
    Family(
        "vllm:request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
        lambda row: _span(row, row.scheduled_us, row.completed_us),
        _REQUEST_S,
    ),
    Family(
        "vllm:request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        lambda row: _span(row, row.scheduled_us, row.first_token_us),
        _REQUEST_S,
        prefill=True,
    ),
    Family(
        "vllm:request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
        lambda row: _span(row, row.first_token_us, row.completed_us),
        _REQUEST_S,
    ),
)
"""Metrics derived from requests, in file order; those with the same name are adjacent."""

GAPS: Final = Family(
    "vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", lambda _: None, _PER_TOKEN_S
)
"""Derived from the instances' own counts."""


_GAP_ENDS_US: Final = tuple(round(end * US_PER_S) for end in GAPS.buckets_s)


def gaps_of(instance: Instance) -> tuple[list[int], int]:
    """Return an instance's inter-token gaps so far: the count in each bucket, and their sum in microseconds."""
    counts, total = [0] * (len(_GAP_ENDS_US) + 1), 0
    for gap, count in instance.tallies.itl_us.items():
        seen = gap + instance.latency.output_token_overhead_us
        counts[bisect_left(_GAP_ENDS_US, seen)] += count
        total += seen * count
    return counts, total


@dataclass(frozen=True, slots=True)
class InstanceFigure:
    """A metric that is read from an instance.

    Attributes:
        name: vLLM's name.
        kind: its type.
        help: vLLM's help text.
        of: returns its current value.
    """

    name: str
    kind: str
    help: str
    of: Callable[[Instance], float]

    @property
    def sample(self) -> str:
        """The name of its samples."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


INSTANCE_FIGURES: Final = (
    InstanceFigure(
        "vllm:num_requests_running",
        "gauge",
        "Number of requests in model execution batches.",
        lambda instance: len(instance.batch.running),
    ),
    InstanceFigure(
        "vllm:num_requests_waiting",
        "gauge",
        "Number of requests waiting to be processed.",
        lambda instance: len(instance.waiting.items),
    ),
    InstanceFigure(
        "vllm:kv_cache_usage_perc",
        "gauge",
        "KV-cache usage. 1 means 100 percent usage.",
        lambda instance: instance.pool.used / instance.pool.total,
    ),
    InstanceFigure(
        "vllm:num_preemptions",
        "counter",
        "Cumulative number of preemption from the engine.",
        lambda instance: instance.tallies.preemptions,
    ),
)
GENERATED: Final = ("vllm:generation_tokens", "Number of generation tokens processed.")
"""Name and help text of the count of generated tokens."""


@dataclass(slots=True)
class _Target:
    """An instance, with its samples since its start."""

    pool: Pool
    first: int
    """The index of its first sample time."""
    figures: list[tuple[float, ...]] = field(default_factory=list)
    """``INSTANCE_FIGURES`` at each time."""
    gaps: list[tuple[int, ...]] = field(default_factory=list)
    """Gaps between its tokens at each time: the count in each bucket, and the sum of all gaps."""
    together: list[int] = field(default_factory=list)
    """Tokens that came together with another one (accepted drafts), so that no gap precedes them."""

    def look(self, instance: Instance) -> None:
        """Sample its current values."""
        self.figures.append(tuple(figure.of(instance) for figure in INSTANCE_FIGURES))
        counts, total = gaps_of(instance)
        self.gaps.append((*counts, total))
        speculative = instance.batch.speculative
        self.together.append(
            0 if speculative is None else speculative.tallies.output_tokens - speculative.tallies.decodes
        )


class _Contributions:
    """Contributions of requests to one metric of one instance, by the index of the first time that shows them."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets
        self.totals: dict[int, int] = {}
        self.counts: dict[int, dict[int, int]] = {}

    def add(self, time: int, bucket: int, value: int) -> None:
        """Add one contribution."""
        self.totals[time] = self.totals.get(time, 0) + value
        counts = self.counts.setdefault(time, {})
        counts[bucket] = counts.get(bucket, 0) + 1

    def over(self, times: range) -> Iterator[tuple[int, list[int]]]:
        """Iterate over times: the cumulative total, and the cumulative count in each bucket."""
        total, counts = 0, [0] * (self.buckets + 1)
        for time in times:
            total += self.totals.get(time, 0)
            for bucket, count in self.counts.get(time, {}).items():
                counts[bucket] += count
            yield total, counts


@dataclass(frozen=True, slots=True)
class _Point:
    """Cumulative values at a time."""

    time_us: int
    counts: Sequence[int]
    """The count in each bucket; the list changes with the next point."""
    total: int


@dataclass(frozen=True, slots=True)
class _Series:
    """One metric of one instance."""

    labels: dict[str, str]
    ends: tuple[float, ...]
    """The upper bounds of its buckets."""
    points: Callable[[], Iterator[_Point]]


class Scrapes:
    """The metrics of all instances over simulated time."""

    def __init__(self) -> None:
        self._times_us: list[int] = []
        self._targets: list[_Target] = []

    def take(self, cluster: Cluster, time_us: int) -> None:
        """Sample all instances; ``time_us`` is the current time, not before the latest event."""
        for index, instance in enumerate(cluster.instances):
            if index == len(self._targets):
                self._targets.append(_Target(cluster.pools[index], len(self._times_us)))
            self._targets[index].look(instance)
        self._times_us.append(time_us)

    def text(self, cluster: Cluster, table: RequestTable) -> Iterator[str]:
        """Iterate over the file's lines; the latest event's time is added as a sample unless it is the last one."""
        if not self._times_us or self._times_us[-1] < cluster.now:
            self.take(cluster, cluster.now)
        first_tokens = [_Contributions(0) for _ in self._targets]
        added = [
            [_Contributions(len(self._buckets(family, target))) for target in self._targets] for family in FAMILIES
        ]
        for row in table.plain():
            if row.instance < 0:
                continue
            prefill = row.prefill_instance if row.prefill_instance >= 0 else row.instance
            for family, of_instances in zip(FAMILIES, added, strict=True):
                sample = family.of(row)
                if sample is not None:
                    time_us, value = sample
                    when = table.deadline_us(row) if time_us == AT_DEADLINE else time_us
                    self._add(family, of_instances, prefill if family.prefill else row.instance, when, value)
            if row.first_token_us >= 0 and row.output_tokens:
                first_tokens[prefill].add(self._shown(row.first_token_us), 0, 1)
        yield from self._state()
        yield from self._generation(first_tokens)
        yield from _histogram(GAPS, [self._gaps(index) for index in range(len(self._targets))])
        described = ""
        for family, of_instances in zip(FAMILIES, added, strict=True):
            series = [self._points(family, index, contributions) for index, contributions in enumerate(of_instances)]
            if not family.counts:
                yield from _histogram(family, series)
                continue
            if family.name != described:
                yield from about(family.name, "counter", family.help)
                described = family.name
            for labelled in series:
                for point in labelled.points():
                    yield _line(f"{family.name}_total", labelled.labels, str(point.total), point.time_us)
        yield "# EOF\n"

    # ---- metrics from requests ----

    def _add(self, family: Family, of_instances: list[_Contributions], index: int, time_us: int, value: int) -> None:
        target = self._targets[index]
        if family.name in PREFIX_CACHE and not target.pool.engine.enable_prefix_caching:
            return
        ends = self._buckets(family, target)
        bucket = bisect_left(ends, value / family.scale()) if ends else 0
        of_instances[index].add(max(self._shown(time_us), target.first), bucket, value)

    def _shown(self, time_us: int) -> int:
        """Index of the first sample time that is not before ``time_us``."""
        return min(bisect_left(self._times_us, time_us), len(self._times_us) - 1)

    def _buckets(self, family: Family, target: _Target) -> tuple[float, ...]:
        if family.counts:
            return ()
        return family.buckets_s or _token_buckets(target.pool)

    def _points(self, family: Family, index: int, added: _Contributions) -> _Series:
        target = self._targets[index]
        times = range(target.first, len(self._times_us))

        def points() -> Iterator[_Point]:
            for time, (total, counts) in zip(times, added.over(times), strict=True):
                yield _Point(self._times_us[time], counts, total)

        return _Series({**self._labels(index), **dict(family.labels)}, self._buckets(family, target), points)

    # ---- metrics from instances ----

    def _labels(self, index: int) -> dict[str, str]:
        return {"engine": str(index), "model_name": self._targets[index].pool.model.name}

    def _state(self) -> Iterator[str]:
        """Iterate over the lines of instantaneous values."""
        for place, figure in enumerate(INSTANCE_FIGURES):
            yield from about(figure.name, figure.kind, figure.help)
            for index, target in enumerate(self._targets):
                for values, time_us in zip(target.figures, self._times_us[target.first :], strict=True):
                    yield _line(figure.sample, self._labels(index), repr(values[place]), time_us)

    def _generation(self, first_tokens: list[_Contributions]) -> Iterator[str]:
        """Count generated tokens: each is a first token, follows another after a gap, or comes together with it."""
        name, text = GENERATED
        yield from about(name, "counter", text)
        for index, target in enumerate(self._targets):
            times = range(target.first, len(self._times_us))
            came = zip(times, target.gaps, target.together, first_tokens[index].over(times), strict=True)
            for time, gaps, together, (firsts, _) in came:
                total = firsts + together
                for count in gaps[:-1]:
                    total += count
                yield _line(f"{name}_total", self._labels(index), str(total), self._times_us[time])

    def _gaps(self, index: int) -> _Series:
        target = self._targets[index]

        def points() -> Iterator[_Point]:
            for (*counts, total), time_us in zip(target.gaps, self._times_us[target.first :], strict=True):
                yield _Point(time_us, counts, total)

        return _Series(self._labels(index), GAPS.buckets_s, points)


def _token_buckets(pool: Pool) -> tuple[float, ...]:
    return buckets_of_tokens(longest(pool))


def seconds(time_us: int) -> str:
    """Format microseconds as seconds, exactly."""
    whole, rest = divmod(time_us, US_PER_S)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")


def about(name: str, kind: str, text: str) -> Iterator[str]:
    """Yield the lines before the samples of a metric."""
    yield f"# HELP {name} {text}\n"
    yield f"# TYPE {name} {kind}\n"


def _histogram(family: Family, series: Sequence[_Series]) -> Iterator[str]:
    name = f"{family.name}_bucket"
    yield from about(name, "unknown", family.help)
    for labelled in series:
        rows = [(list(accumulate(point.counts)), point.time_us) for point in labelled.points()]
        for bucket, end in enumerate((*labelled.ends, None)):
            labels = {**labelled.labels, "le": "+Inf" if end is None else _end(end)}
            for upto, time_us in rows:
                yield _line(name, labels, str(upto[bucket]), time_us)
    name = f"{family.name}_count"
    yield from about(name, "unknown", family.help)
    for labelled in series:
        for point in labelled.points():
            *_, count = accumulate(point.counts)
            yield _line(name, labelled.labels, str(count), point.time_us)
    name = f"{family.name}_sum"
    yield from about(name, "unknown", family.help)
    for labelled in series:
        for point in labelled.points():
            value = seconds(point.total) if family.buckets_s else str(point.total)
            yield _line(name, labelled.labels, value, point.time_us)


def _end(value: float) -> str:
    """Format a bucket's upper bound as Prometheus clients do."""
    return repr(value) if value < US_PER_S else f"{value:g}"


def _line(name: str, labels: dict[str, str], value: str, time_us: int) -> str:
    return f"{series_name(name, labels)} {value} {seconds(time_us)}\n"


def series_name(name: str, labels: Mapping[str, str]) -> str:
    """Return a metric's name with its labels, as they stand before a value."""
    shown = ",".join([f'{label}="{_escaped(text)}"' for label, text in labels.items()])
    return f"{name}{{{shown}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
