"""The figures of a report that are partly known during the run, and what follows each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.request import RequestState
from blis_tui.metrics.stats import PERCENTILES
from blis_tui.study.bounds import (
    Attainment,
    Clock,
    Count,
    CounterBound,
    Gaps,
    Goodput,
    Mean,
    Percentile,
    Range,
    Scope,
    Throughput,
    e2e_lower_bounds,
    first_tokens,
)
from blis_tui.study.maxima import max_output_tokens_of, max_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Request
    from blis_tui.metrics.request_log import Row
    from blis_tui.spec.model import Expectation, Experiment
    from blis_tui.study.bounds import Figure, Group

_GROUPS: Final = {"slo_classes": 0, "tenants": 1}
"""Sections of a report about a subset of requests -> index in a request's group of the name that selects them."""

PERCENTS: Final = {"min": 0, **{f"p{percent}": percent for percent in PERCENTILES}, "max": 100}
"""Statistic in a report -> its percentile."""
_COUNTS: Final[dict[str, Callable[[Row], int]]] = {
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
LATENCIES: Final[dict[str, Callable[[Row], float | None]]] = {
    "ttft_ms": lambda row: row.ttft_us if row.ttft_us >= 0 else None,
    "e2e_ms": lambda row: row.e2e_us if row.e2e_us >= 0 else None,
    "tpot_ms": lambda row: (
        (row.e2e_us - row.ttft_us) / (row.output_tokens - 1) if row.e2e_us >= 0 and row.output_tokens > 1 else None
    ),
    "scheduling_delay_ms": lambda row: row.scheduled_us - row.arrival_us if row.scheduled_us >= 0 else None,
}
"""Latency in a report -> a request's latency in microseconds; None = it has none."""


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
        sample, percent, most = LATENCIES.get(latency), PERCENTS.get(statistic), self._most
        if sample is None:
            return None
        scope = scope_of(wanted.metric.split("."), self._experiment.warm_up_us)
        # If transfers start early, the last token may precede the first one, which makes the time between them
        # negative.
        negative = latency == "tpot_ms" and self._experiment.cluster.disaggregation is not None
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
        count = 0
        for instance in self._cluster.instances:
            count += getattr(instance.tallies, name)
        return count


def _ranks(percent: int, wanted: Range, most: object) -> bool:
    """Return whether a percentile can be followed; maximum and minimum also without a known sample count."""
    extreme = wanted.high if percent == PERCENTS["max"] else wanted.low if percent == PERCENTS["min"] else None
    return most is not None or extreme is not None


def _counted(name: str, steps: Sequence[str]) -> Callable[[Row, Group], int]:
    counts, scope = _COUNTS[name], scope_of(steps)
    return lambda row, group: counts(row) if scope.holds(row.arrival_us, group) else 0


def counts_up(metric: str) -> bool:
    """Return whether a figure of a report counts something from the beginning of a run to its end."""
    return metric.startswith("tokens.") or metric.rpartition(".")[2] in _COUNTS.keys() | _COUNTERS
