"""Bounds on a report's figures that are already certain while the run goes on.

Each class follows one figure. For ended requests, the report's contribution is known, because their books never change.
For all others, only certain facts are used: how many there can be, and that a late first token never becomes earlier.
So whatever is declared impossible is impossible, in the report's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import RequestState
from blis_tui.model.latencies import SAMPLED
from blis_tui.results.sections.quality import figures_ms
from blis_tui.results.stats import PERCENTILES
from blis_tui.workload.arrivals import CLOSED_LOOP
from blis_tui.workload.source import TraceSource
from blis_tui.workload.traces.trace_sessions import TracedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Request
    from blis_tui.model import Expectation, Experiment, PluginConfig, Session, SloTarget, Workload
    from blis_tui.results.request_log import RequestNumbers
    from blis_tui.workload.source import RequestSource

    Group = tuple[str, str]
    """SLO class and tenant of a request."""
    Sample = Callable[[RequestNumbers], float | None]
    SoFar = Callable[[Sequence[Request], int], list[int]]


def max_requests(workload: Workload, source: RequestSource) -> int | None:
    """Return the maximum number of requests that can arrive; None = unlimited."""
    if isinstance(source, TraceSource | TracedSource):
        return len(source)
    if workload.requests is not None:
        return workload.requests
    sessions = [client.session for client in workload.clients if client.session is not None]
    if workload.sessions is not None and len(sessions) == len(workload.clients):
        calls = [_max_calls(session) for session in sessions]
        known = [call for call in calls if call is not None]
        return workload.sessions * max(known) if len(known) == len(calls) else None
    closed = any(client.arrivals.kind == CLOSED_LOOP for client in workload.clients)
    return _in_stages(workload) if workload.exact_stage_counts and not sessions and not closed else None


def _max_calls(session: Session) -> int | None:
    """Return the maximum number of requests of one session."""
    turns, calls = _most(session.turns), whole_sum([call.parallel for call in session.calls])
    return None if turns is None else turns * max(calls, 1)


def _in_stages(workload: Workload) -> int:
    """Return the maximum number in stages; each client's share of a stage is rounded up by less than one."""
    return whole_sum([int(stage.rate_per_s * stage.duration_s) + len(workload.clients) for stage in workload.stages])


def max_output_tokens_of(workload: Workload) -> int | None:
    """Return the maximum number of tokens of an answer; None = no bound is known."""
    if workload.trace is not None:
        return None
    configs: list[PluginConfig] = []
    for client in workload.clients:
        configs.append(client.output_tokens)
        calls = () if client.session is None else client.session.calls
        configs += [call.output_tokens for call in calls if call.output_tokens is not None]
    most = [_most(config) for config in configs]
    known = [tokens for tokens in most if tokens is not None]
    return max(known, default=None) if len(known) == len(most) else None


def _most(config: PluginConfig) -> int | None:
    """Return the maximum of one of this package's own distributions; None if it has none."""
    settings = config.settings
    if config.kind == "empirical":
        weights = settings["weights"]
        return max(map(int, weights), default=None) if isinstance(weights, Mapping) else None
    names = {"constant": "value", "uniform": "max", "gaussian": "max", "lognormal": "max", "exponential": "max"}
    most = settings.get(names.get(config.kind, ""))
    return most if isinstance(most, int) else None


_GROUPS: Final = {"slo_classes": 0, "tenants": 1}
"""Sections of a report about a subset of requests -> index in a request's group of the name that selects them."""

PERCENTS: Final = {"min": 0, **{f"p{percent}": percent for percent in PERCENTILES}, "max": 100}
"""Statistic in a report -> its percentile."""
_COUNTS: Final[dict[str, Callable[[RequestNumbers], int]]] = {
    "total": lambda _: 1,
    "injected": lambda row: row.state != RequestState.REJECTED,
    "rejected": lambda row: row.state == RequestState.REJECTED,
    "completed": lambda row: row.state == RequestState.COMPLETED,
    "dropped_unservable": lambda row: row.state == RequestState.DROPPED_UNSERVABLE,
    "timed_out": lambda row: row.state == RequestState.TIMED_OUT,
    "length_capped": lambda row: row.length_capped,
    "lost": lambda row: row.state == RequestState.LOST,
}
_GROUP_COUNTS: Final = ("total", "rejected", "completed", "dropped_unservable", "timed_out")
_COUNTERS: Final = frozenset(
    {"busy_us", "duration_us", "output_tokens", "routed", "steps", "allocation_failures", "preempted_hits"}
    | {"preempted_lookups", "preempted_queries", "preempted_requests", "preemptions"}
)
"""Other figures that grow as long as a run goes on."""


def range_of(constraint: Expectation) -> Range:
    """Return the range that a constraint sets for a number."""
    low, high, equals = constraint.min, constraint.max, constraint.equals
    if isinstance(equals, int | float) and not isinstance(equals, bool):
        low = equals if low is None else max(low, equals)
        high = equals if high is None else min(high, equals)
    return Range(metric=constraint.metric, low=low, high=high)


def scope_of(steps: Sequence[str], since_us: int = 0) -> Scope:
    """Return which requests the figure at a report path covers."""
    place = _GROUPS.get(steps[0])
    return Scope(since_us=since_us) if place is None else Scope(since_us=since_us, place=place, name=steps[1])


class FollowerFactory:
    """Creates followers for the figures of a run.

    Args:
        experiment: the simulated experiment.
        cluster: its state, before the first event.
    """

    def __init__(self, experiment: Experiment, cluster: Cluster) -> None:
        self._experiment = experiment
        self._cluster = cluster
        self._most = max_requests(experiment.workload, cluster.source)
        # If instances come and go, running requests may restart, and may end without a first token.
        self._varies = experiment.cluster.varies

    def follow(self, wanted: Range) -> Figure | None:
        """Return the follower of a figure; None if nothing known before the end could violate its range."""
        steps = wanted.metric.split(".")
        if wanted.low is None and wanted.high is None:
            return None
        match steps:
            case ["latency", "itl_ms", statistic]:
                return self._gaps(statistic, wanted)
            case ["latency", latency, statistic]:
                return self._latency(latency, statistic, wanted)
            case ["slo_classes" | "tenants", _, "ttft_ms" | "e2e_ms" as latency, statistic]:
                return self._latency(latency, statistic, wanted)
            case ["requests", name] if name in _COUNTS:
                return self._count(name, wanted)
            case ["slo_classes" | "tenants", _, name] if name in _GROUP_COUNTS:
                return self._count(name, wanted)
            case ["throughput", "requests_per_s"]:
                return self._rate(wanted)
            case ["slo", *rest]:
                return self._slo(rest, wanted)
        return None if wanted.high is None else self._growing(steps, wanted)

    def _growing(self, steps: Sequence[str], wanted: Range) -> Figure | None:
        """Return the follower of a figure that never decreases."""
        match steps:
            case ["tokens", "output"]:
                return Count(wanted, lambda row, _: row.output_tokens, None)
            case ["duration_us"]:
                return Clock(wanted)
            case ["kv", "preemptions" | "preempted_requests" as name]:
                return CounterBound(wanted, lambda: self._tallied(name))
        return None

    def _latency(self, latency: str, statistic: str, wanted: Range) -> Figure | None:
        kind, percent, most = SAMPLED.get(latency), PERCENTS.get(statistic), self._most
        if kind is None:
            return None
        sample = kind.of
        scope = scope_of(wanted.metric.split("."), self._experiment.warm_up_us)
        # If transfers start early, the last token may precede the first one, which makes the time between them
        # negative.
        negative = kind.start == "ttft_us" and self._experiment.cluster.disaggregation is not None
        if statistic == "mean" and most is not None and wanted.high is not None and not negative:
            return Mean(wanted, sample, scope, most, so_far=self._so_far(latency))
        if percent is None or not _ranks(percent, wanted, most):
            return None
        return Percentile(wanted, percent, sample, scope, most, so_far=self._so_far(latency))

    def _so_far(self, latency: str) -> Callable[[Sequence[Request], int], list[int]] | None:
        """Return a function for lower bounds of running requests' latencies, once they have their first tokens."""
        if self._varies:
            return None
        if latency == "ttft_ms":
            return first_tokens
        # Without a horizon or a second instance, every running request completes.
        endless = self._experiment.horizon_us is None and self._experiment.cluster.disaggregation is None
        return e2e_lower_bounds if latency == "e2e_ms" and endless else None

    def _gaps(self, statistic: str, wanted: Range) -> Figure | None:
        percent, most = PERCENTS.get(statistic), self._most_gaps()
        if percent is None or self._varies or not _ranks(percent, wanted, most):
            return None
        return Gaps(wanted, percent, self._cluster, self._experiment.warm_up_us, most)

    def _most_gaps(self) -> tuple[int, int] | None:
        """Return the most requests and the most tokens of each, if no token is generated twice; otherwise None."""
        tokens = max_output_tokens_of(self._experiment.workload)
        again = any(not instance.batch.traits.keeps_output for instance in self._cluster.instances)
        return None if self._most is None or tokens is None or again else (self._most, tokens)

    def _count(self, name: str, wanted: Range) -> Figure | None:
        if self._most is None and wanted.high is None:
            return None
        return Count(wanted, _counted(name, wanted.metric.split(".")), self._most)

    def _rate(self, wanted: Range) -> Figure | None:
        if self._most is None or wanted.low is None:
            return None
        return Throughput(wanted, _counted("completed", ["throughput"]), self._most)

    def _slo(self, rest: Sequence[str], wanted: Range) -> Figure | None:
        targets = dict(self._experiment.slo_targets)
        if len(rest) == 3 and rest[0] == "classes":
            targets = {name: target for name, target in targets.items() if name == rest[1]}
        elif len(rest) != 1:
            return None
        kind = {"attainment": Attainment, "goodput_rps": Goodput}.get(rest[-1])
        if kind is None or self._most is None or wanted.low is None:
            return None
        return kind(wanted, targets, self._most, early=not self._varies)

    def _tallied(self, name: str) -> int:
        return whole_sum([getattr(instance.tallies, name) for instance in self._cluster.instances])


def _ranks(percent: int, wanted: Range, most: object) -> bool:
    """Return whether a percentile can be followed; maximum and minimum also without a known sample count."""
    extreme = wanted.high if percent == PERCENTS["max"] else wanted.low if percent == PERCENTS["min"] else None
    return most is not None or extreme is not None


def _counted(name: str, steps: Sequence[str]) -> Callable[[RequestNumbers, Group], int]:
    counts, scope = _COUNTS[name], scope_of(steps)
    return lambda row, group: counts(row) if scope.holds(row.arrival_us, group) else 0


def counts_up(metric: str) -> bool:
    """Return whether a figure of a report counts something from the beginning of a run to its end."""
    return metric.startswith("tokens.") or metric.rpartition(".")[2] in _COUNTS.keys() | _COUNTERS


_ROUNDING: Final = 1e-12
"""Larger than the relative error of interpolating two floats, smaller than any difference between two latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The range required of a figure; None = no bound."""

    metric: str
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The requests that a figure covers."""

    since_us: int = 0
    """Requests that arrived earlier are excluded."""
    place: int = 0
    """Index in a request's group of the part that must equal ``name``."""
    name: str = ""
    """Required name; empty = any."""

    def holds(self, arrival_us: int, group: Group) -> bool:
        """Return whether the figure covers a request."""
        return arrival_us >= self.since_us and (not self.name or group[self.place] == self.name)

    def samples_of(self, rows: Sequence[RequestNumbers], groups: Sequence[Group], sample: Sample) -> list[float]:
        """Return the latencies of ended requests that the figure covers, in microseconds."""
        there = (
            rows if self == _ALL_REQUESTS else [row for row in rows if self.holds(row.arrival_us, groups[row.group])]
        )
        return [us for us in map(sample, there) if us is not None]

    def only(self, requests: Sequence[tuple[Request, int]]) -> list[int]:
        """Return the values paired with requests that the figure covers."""
        return [us for request, us in requests if self.holds(request.arrival_us, (request.slo_class, request.tenant))]


_ALL_REQUESTS: Final = Scope()


class Figure(Protocol):
    """Follows one figure of a run."""

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """Add ended requests; ``groups`` are indexed by the rows' group numbers."""

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """Note the running requests that have their first token."""

    def reason(self, now_us: int) -> str:
        """Return why the figure cannot end in its range, as a sentence; empty if it still may."""


def allowed_above(percent: int, count: int) -> int:
    """Return how many of ``count`` samples may exceed a bound that their percentile meets.

    The percentile is the sample at rank ``percent/100 * (count - 1)``, or lies between that rank, rounded down, and the
    next one (see ``results.stats``). Of the ascending samples, those above the rounded rank may exceed the bound.
    """
    return count - 1 - percent * (count - 1) // 100


class Follower:
    """A base class that ignores everything."""

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """Add ended requests; ``groups`` are indexed by the rows' group numbers."""

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """Note the running requests that have their first token."""


class Percentile(Follower):
    """A percentile of the requests' latencies; 100 is their maximum, 0 their minimum.

    Args:
        wanted: its range, in milliseconds.
        percent: the percentile.
        sample: returns a request's latency in microseconds; None = it has none.
        scope: the requests whose latencies count.
        most: maximum number of requests; None = not known.
        so_far: returns lower bounds for running requests' latencies; None = there are no such bounds.
    """

    def __init__(
        self,
        wanted: Range,
        percent: int,
        sample: Sample,
        scope: Scope,
        most: int | None,
        *,
        so_far: SoFar | None = None,
    ) -> None:
        self._wanted = wanted
        self._percent = percent
        self._sample = sample
        self._scope = scope
        self._most = most
        self._so_far = so_far
        self._above = self._below = self._late = 0

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """Add ended requests; ``groups`` are indexed by the rows' group numbers."""
        samples = self._scope.samples_of(rows, groups, self._sample)
        if self._most is not None:
            self._most -= len(rows) - len(samples)
        low, high = self._wanted.low, self._wanted.high
        if high is not None:
            high += _ROUNDING * abs(high)
            self._above += len([us for us in samples if us / 1000 > high])
        if low is not None:
            low -= _ROUNDING * abs(low)
            self._below += len([us for us in samples if us / 1000 < low])

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """Note the running requests that have their first token."""
        high = self._wanted.high
        if self._so_far is not None and high is not None:
            known = zip(answering, self._so_far(answering, now_us), strict=True)
            self._late = len(self._scope.only([(request, us) for request, us in known if us / 1000 > high]))

    def reason(self, now_us: int) -> str:  # noqa: ARG002  (common signature)
        """Return why the percentile cannot end in its range."""
        return rank_violation(
            self._wanted, self._percent, (self._above + self._late, self._below), self._most, "requests"
        )


def rank_violation(wanted: Range, percent: int, missed: tuple[int, int], most: int | None, noun: str) -> str:
    """Return why a percentile cannot end in its range.

    Args:
        wanted: its range.
        percent: the percentile.
        missed: samples known to be above the range, and below it.
        most: maximum number of samples.
        noun: what the samples belong to.
    """
    above, below = missed
    may = _allowed_worse(percent, most)
    if wanted.high is not None and may is not None and above > may:
        return _violation_text(wanted.metric, "above", wanted.high, above, may, most, f"{noun} had more")
    may = _allowed_worse(100 - percent, most)
    if wanted.low is not None and may is not None and below > may:
        return _violation_text(wanted.metric, "below", wanted.low, below, may, most, f"{noun} had less")
    return ""


def _allowed_worse(percent: int, most: int | None) -> int | None:
    """Return how many samples may be worse; None = not known. The maximum never allows any."""
    return 0 if percent == 100 else None if most is None else allowed_above(percent, most)


def _violation_text(metric: str, side: str, bound: float, missed: int, may: int, most: int | None, what: str) -> str:
    if not may:
        return f"{metric} will be {side} {bound:g}: {missed} {what}, none may"
    return f"{metric} will be {side} {bound:g}: {missed} of at most {most} {what}, at most {may} may"


class Mean(Follower):
    """The mean of non-negative latencies, bounded by their sum so far over the maximum number of requests.

    Args: as for ``Percentile``.
    """

    def __init__(self, wanted: Range, sample: Sample, scope: Scope, most: int, *, so_far: SoFar | None = None) -> None:
        self._wanted = wanted
        self._sample = sample
        self._scope = scope
        self._most = most
        self._so_far = so_far
        self._total_us = self._running_us = 0

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """Add ended requests; ``groups`` are indexed by the rows' group numbers."""
        samples = self._scope.samples_of(rows, groups, self._sample)
        self._most -= len(rows) - len(samples)
        for sample in samples:
            self._total_us += floor(sample)  # rounding down keeps the bound valid

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """Note the running requests that have their first token."""
        if self._so_far is not None:
            known = zip(answering, self._so_far(answering, now_us), strict=True)
            self._running_us = 0
            for sample in self._scope.only(list(known)):
                self._running_us += sample

    def reason(self, now_us: int) -> str:  # noqa: ARG002  (common signature)
        """Return why the mean cannot end in its range."""
        high, total_us = self._wanted.high, self._total_us + self._running_us
        if high is None or self._most <= 0 or not total_us / (1000 * self._most) > high:
            return ""
        sum_text = f"so far they add up to {total_us / 1000:g} ms, for at most {self._most} requests"
        return f"{self._wanted.metric} will be above {high:g}: {sum_text}"


class Bounded(Follower):
    """A figure with known lower and upper bounds."""

    def __init__(self, wanted: Range) -> None:
        self._wanted = wanted

    def least(self, now_us: int) -> float | None:  # noqa: ARG002
        """Return a lower bound of the figure; None = not known."""
        return None

    def greatest(self, now_us: int) -> float | None:  # noqa: ARG002
        """Return an upper bound of the figure; None = not known."""
        return None

    def reason(self, now_us: int) -> str:
        """Return why the figure cannot end in its range."""
        metric, low, high = self._wanted.metric, self._wanted.low, self._wanted.high
        if high is not None and (least := self.least(now_us)) is not None and least > high:
            return f"{metric} will be above {high:g}: it will be at least {least:g}"
        if low is not None and (greatest := self.greatest(now_us)) is not None and greatest < low:
            return f"{metric} will be below {low:g}: it can be at most {greatest:g}"
        return ""


class Count(Bounded):
    """A number of requests, or a sum over them.

    Args:
        wanted: its range.
        share: returns the contribution of an ended request.
        most: maximum number of requests; None = not known, or a request may contribute more than one.
    """

    def __init__(self, wanted: Range, share: Callable[[RequestNumbers, Group], int], most: int | None) -> None:
        super().__init__(wanted)
        self._share = share
        self._left = most
        self._count = 0

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """Add ended requests; ``groups`` are indexed by the rows' group numbers."""
        if self._left is not None:
            self._left -= len(rows)
        for row in rows:
            self._count += self._share(row, groups[row.group])

    def least(self, now_us: int) -> float:  # noqa: ARG002
        """Return the sum over the ended requests."""
        return self._count

    def greatest(self, now_us: int) -> float | None:  # noqa: ARG002
        """Return the sum if every remaining request contributes one."""
        return None if self._left is None else self._count + self._left


class Throughput(Count):
    """Requests per second of the whole run, whose duration is at least the time so far."""

    def least(self, now_us: int) -> None:  # type: ignore[override]
        """Return None, because the run may last for any time."""

    def greatest(self, now_us: int) -> float | None:
        """Return the rate if all remaining requests were served at once."""
        count = super().greatest(now_us)
        return None if count is None or not now_us else count / (now_us / 1e6)


class Attainment(Bounded):
    """The share of requests that met their targets.

    Args:
        wanted: its range.
        targets: the targets of each class; other classes do not count.
        most: maximum number of requests.
        early: whether a request with a first token keeps it, or only gets a later one.
    """

    def __init__(self, wanted: Range, targets: Mapping[str, SloTarget], most: int, *, early: bool) -> None:
        super().__init__(wanted)
        self._targets = targets
        self._left = most
        self._early = early
        self._injected = self._good = self._late = 0

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """Add ended requests; ``groups`` are indexed by the rows' group numbers."""
        self._left -= len(rows)
        for row in rows:
            target = self._targets.get(groups[row.group][0] or "standard")
            if target is not None:
                self._injected += row.state != RequestState.REJECTED
                self._good += is_good(row, target)

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """Note the running requests that have their first token."""
        if self._early:
            self._late = 0
            for request, after_us in zip(answering, first_tokens(answering, now_us), strict=True):
                target = self._targets.get(request.slo_class or "standard")
                self._late += target is not None and target.ttft_ms is not None and after_us / 1000 > target.ttft_ms

    def _best(self) -> int:
        """Return the number of good requests if every undecided one becomes good."""
        return self._good + self._left - self._late

    def greatest(self, now_us: int) -> float | None:  # noqa: ARG002
        """Return the attainment if every undecided request becomes good."""
        injected = self._injected + self._left
        return self._best() / injected if injected else None


class Goodput(Attainment):
    """Good requests per second of the whole run, whose duration is at least the time so far."""

    def greatest(self, now_us: int) -> float | None:
        """Return the rate if every undecided request became good at once."""
        return self._best() / (now_us / 1e6) if now_us else None


def first_tokens(answering: Sequence[Request], now_us: int) -> list[int]:  # noqa: ARG001  (common signature)
    """Return the engine's TTFTs of running requests, in microseconds; clients never measure less.

    A request that generates its answer again after a preemption gets a later first token.
    """
    return [request.first_token_us - request.arrival_us for request in answering]


def e2e_lower_bounds(answering: Sequence[Request], now_us: int) -> list[int]:
    """Return lower bounds of the E2E of requests that will complete, in microseconds; 0 if one may time out."""
    return [0 if request.deadline_us else now_us - request.arrival_us for request in answering]


def is_good(row: RequestNumbers, target: SloTarget) -> bool:
    """Return whether a request completed and met all its targets, except for TTFAT, which is not known early."""
    if row.state != RequestState.COMPLETED:
        return False
    pairs = [(figure, getattr(target, f"{name}_ms")) for name, figure in figures_ms(row).items()]
    return all(limit is None or figure is None or figure <= limit for figure, limit in pairs)


class Clock(Bounded):
    """The duration of the run."""

    def least(self, now_us: int) -> float:
        """Return the time so far."""
        return now_us


class CounterBound(Bounded):
    """A counter of the instances, which never decreases."""

    def __init__(self, wanted: Range, count: Callable[[], int]) -> None:
        super().__init__(wanted)
        self._count = count

    def least(self, now_us: int) -> float:  # noqa: ARG002
        """Return the count so far."""
        return self._count()


class Gaps(Follower):
    """A percentile of the gaps between tokens. It examines all gaps at growing intervals.

    Args:
        wanted: its range, in milliseconds.
        percent: the percentile; 100 = the maximum.
        cluster: the cluster.
        warm_up_us: gaps before this time do not count.
        most: maximum number of requests, and of output tokens of each; a request has fewer gaps than tokens. None = not
            known, or an answer may be generated again.
    """

    def __init__(
        self, wanted: Range, percent: int, cluster: Cluster, warm_up_us: int, most: tuple[int, int] | None
    ) -> None:
        self._wanted = wanted
        self._percent = percent
        self._cluster = cluster
        self._warm_up_us = warm_up_us
        self._most = most
        self._ended = self._tokens = 0
        self._next_look = 0

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:  # noqa: ARG002
        """Add ended requests."""
        self._ended += len(rows)
        for row in rows:
            self._tokens += row.output_tokens

    def reason(self, now_us: int) -> str:
        """Return why the percentile cannot end in its range."""
        events = self._cluster.events
        if events < self._next_look or now_us <= self._warm_up_us:
            return ""
        self._next_look = events + events // 4
        above = below = 0
        wanted = self._wanted
        for instance in self._cluster.instances:
            gaps = self._cluster.warm_up.gaps_since(instance)
            overhead = instance.latency.output_token_overhead_us
            for gap, count in gaps.items():
                value = (gap + overhead) / 1000
                above += count if wanted.high is not None and value > wanted.high else 0
                below += count if wanted.low is not None and value < wanted.low else 0
        most = None
        if self._most is not None:
            requests, tokens = self._most
            most = self._tokens + (requests - self._ended) * tokens
        return rank_violation(wanted, self._percent, (above, below), most, "gaps")
