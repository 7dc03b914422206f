"""Bounds on a report's figures that are already certain while the run goes on.

Each class follows one figure. For ended requests, the report's contribution is known, because their books never change.
For all others, only certain facts are used: how many there can be, and that a late first token never becomes earlier.
So whatever is declared impossible is impossible, in the report's own arithmetic.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.classes import dataclass
from blis_tui.engine.request import RequestState
from blis_tui.metrics.goodput import figures_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Request
    from blis_tui.metrics.request_log import Row
    from blis_tui.spec.model import SloTarget

    Group = tuple[str, str]
    """SLO class and tenant of a request."""
    Sample = Callable[[Row], float | None]
    SoFar = Callable[[Sequence[Request], int], list[int]]

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

    def samples_of(self, rows: Sequence[Row], groups: Sequence[Group], sample: Sample) -> list[float]:
        """Return the latencies of ended requests that the figure covers, in microseconds."""
        there = (
            rows if self == _ALL_REQUESTS else [one for one in rows if self.holds(one.arrival_us, groups[one.group])]
        )
        return [us for us in map(sample, there) if us is not None]

    def only(self, requests: Sequence[tuple[Request, int]]) -> list[int]:
        """Return the values paired with requests that the figure covers."""
        return [us for one, us in requests if self.holds(one.arrival_us, (one.slo_class, one.tenant))]


_ALL_REQUESTS: Final = Scope()


class Figure(Protocol):
    """Follows one figure of a run."""

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Add ended requests; ``groups`` are indexed by the rows' group numbers."""

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """Note the running requests that have their first token."""

    def reason(self, now_us: int) -> str:
        """Return why the figure cannot end in its range, as a sentence; empty if it still may."""


def allowed_above(percent: int, count: int) -> int:
    """Return how many of ``count`` samples may exceed a bound that their percentile meets.

    The percentile is the sample at rank ``percent/100 * (count - 1)``, or lies between that rank, rounded down, and the
    next one (see ``metrics.stats``). Of the ascending samples, those above the rounded rank may exceed the bound.
    """
    return count - 1 - percent * (count - 1) // 100


class Follower:
    """A base class that ignores everything."""

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
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

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
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
            self._late = len(self._scope.only([(one, us) for one, us in known if us / 1000 > high]))

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
        return _told(wanted.metric, "above", wanted.high, above, may, most, f"{noun} had more")
    may = _allowed_worse(100 - percent, most)
    if wanted.low is not None and may is not None and below > may:
        return _told(wanted.metric, "below", wanted.low, below, may, most, f"{noun} had less")
    return ""


def _allowed_worse(percent: int, most: int | None) -> int | None:
    """Return how many samples may be worse; None = not known. The maximum never allows any."""
    return 0 if percent == 100 else None if most is None else allowed_above(percent, most)


def _told(metric: str, side: str, bound: float, missed: int, may: int, most: int | None, what: str) -> str:
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

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
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
        told = f"so far they add up to {total_us / 1000:g} ms, for at most {self._most} requests"
        return f"{self._wanted.metric} will be above {high:g}: {told}"


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

    def __init__(self, wanted: Range, share: Callable[[Row, Group], int], most: int | None) -> None:
        super().__init__(wanted)
        self._share = share
        self._left = most
        self._count = 0

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
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

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
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
    return [one.first_token_us - one.arrival_us for one in answering]


def e2e_lower_bounds(answering: Sequence[Request], now_us: int) -> list[int]:
    """Return lower bounds of the E2E of requests that will complete, in microseconds; 0 if one may time out."""
    return [0 if one.deadline_us else now_us - one.arrival_us for one in answering]


def is_good(row: Row, target: SloTarget) -> bool:
    """Return whether a request completed and met all its targets, except for TTFAT, which is not known early."""
    if row.state != RequestState.COMPLETED:
        return False
    figures, limits = figures_ms(row), {"ttft": target.ttft_ms, "tpot": target.tpot_ms, "e2e": target.e2e_ms}
    pairs = [(figures[name], limit) for name, limit in limits.items()]
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

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:  # noqa: ARG002
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
