"""How figures of a report can still come out while its run goes on.

Each class here follows one figure. Of requests that have ended, what the report will count is known: their books never
change. Of all others only what holds whatever becomes of them is used: how many there can be, and that a first token
that came too late does not become an earlier one. So what is said to be impossible is impossible, in the arithmetic of
the report.
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
    """The SLO class and the tenant of a request."""
    Sample = Callable[[Row], float | None]
    SoFar = Callable[[Sequence[Request], int], list[int]]

_ROUNDING: Final = 1e-12
"""More than the relative error of interpolating between two floats, less than any difference between two latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What a figure must be; None = no bound."""

    metric: str
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which requests a figure is about."""

    since_us: int = 0
    """Those that arrived before are left out."""
    place: int = 0
    """What of a request's group must have that name."""
    name: str = ""
    """Empty = any."""

    def holds(self, arrival_us: int, group: Group) -> bool:
        """Whether it is about a request."""
        return arrival_us >= self.since_us and (not self.name or group[self.place] == self.name)

    def samples_of(self, rows: Sequence[Row], groups: Sequence[Group], sample: Sample) -> list[float]:
        """The latencies of requests that have ended, in microseconds."""
        there = (
            rows if self == _ALL_REQUESTS else [one for one in rows if self.holds(one.arrival_us, groups[one.group])]
        )
        return [us for us in map(sample, there) if us is not None]

    def only(self, requests: Sequence[tuple[Request, int]]) -> list[int]:
        """What is beside those requests that it is about."""
        return [us for one, us in requests if self.holds(one.arrival_us, (one.slo_class, one.tenant))]


_ALL_REQUESTS: Final = Scope()


class Figure(Protocol):
    """Follows one figure of a run."""

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Requests have ended, of groups that rows have by their numbers."""

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """These are running now, and have their first token."""

    def reason(self, now_us: int) -> str:
        """Why it cannot come out in its range, as a sentence; empty = it still may."""


def allowed_above(percent: int, count: int) -> int:
    """How many of so many samples may lie above a bound that their percentile keeps to.

    The percentile is the sample at rank ``percent/100 * (count - 1)``, or lies between that rank, rounded down, and the
    next one (see ``metrics.stats``). Of ascending samples, those from the rounded rank on are too many.
    """
    return count - 1 - percent * (count - 1) // 100


class Follower:
    """Follows nothing."""

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Requests have ended, of groups that rows have by their numbers."""

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """These are running now, and have their first token."""


class Percentile(Follower):
    """A percentile of the requests' latencies; 100 is their maximum, 0 their minimum.

    Args:
        wanted: its range, in milliseconds.
        percent: which.
        sample: a request's latency in microseconds; None = it has none.
        scope: the requests whose latencies count.
        most: how many requests there can be at most; None = not known.
        so_far: the least that the latencies of running requests will come to; None = they may come to nothing at all.
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
        """Requests have ended, of groups that rows have by their numbers."""
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
        """These are running now, and have their first token."""
        high = self._wanted.high
        if self._so_far is not None and high is not None:
            known = zip(answering, self._so_far(answering, now_us), strict=True)
            self._late = len(self._scope.only([(one, us) for one, us in known if us / 1000 > high]))

    def reason(self, now_us: int) -> str:  # noqa: ARG002  (the same for all)
        """Why it cannot come out in its range."""
        return said_of_rank(
            self._wanted, self._percent, (self._above + self._late, self._below), self._most, "requests"
        )


def said_of_rank(wanted: Range, percent: int, missed: tuple[int, int], most: int | None, noun: str) -> str:
    """Why a percentile cannot come out in its range.

    Args:
        wanted: its range.
        percent: which percentile.
        missed: samples known to be above the range, and below it.
        most: how many samples there can be at most.
        noun: what has a sample.
    """
    above, below = missed
    may = _may(percent, most)
    if wanted.high is not None and may is not None and above > may:
        return _told(wanted.metric, "above", wanted.high, above, may, most, f"{noun} had more")
    may = _may(100 - percent, most)
    if wanted.low is not None and may is not None and below > may:
        return _told(wanted.metric, "below", wanted.low, below, may, most, f"{noun} had less")
    return ""


def _may(percent: int, most: int | None) -> int | None:
    """How many samples may be worse; None = not known. The maximum allows for none however many there are."""
    return 0 if percent == 100 else None if most is None else allowed_above(percent, most)


def _told(metric: str, side: str, bound: float, missed: int, may: int, most: int | None, what: str) -> str:
    if not may:
        return f"{metric} will be {side} {bound:g}: {missed} {what}, none may"
    return f"{metric} will be {side} {bound:g}: {missed} of at most {most} {what}, at most {may} may"


class Mean(Follower):
    """The mean of latencies that are never negative: what they add up to so far, for all requests that there can be.

    Args: as those of ``Percentile``.
    """

    def __init__(self, wanted: Range, sample: Sample, scope: Scope, most: int, *, so_far: SoFar | None = None) -> None:
        self._wanted = wanted
        self._sample = sample
        self._scope = scope
        self._most = most
        self._so_far = so_far
        self._total_us = self._running_us = 0

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Requests have ended, of groups that rows have by their numbers."""
        samples = self._scope.samples_of(rows, groups, self._sample)
        self._most -= len(rows) - len(samples)
        for sample in samples:
            self._total_us += floor(sample)  # what it bounds is no smaller

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """These are running now, and have their first token."""
        if self._so_far is not None:
            known = zip(answering, self._so_far(answering, now_us), strict=True)
            self._running_us = 0
            for sample in self._scope.only(list(known)):
                self._running_us += sample

    def reason(self, now_us: int) -> str:  # noqa: ARG002  (the same for all)
        """Why it cannot come out in its range."""
        high, total_us = self._wanted.high, self._total_us + self._running_us
        if high is None or self._most <= 0 or not total_us / (1000 * self._most) > high:
            return ""
        told = f"so far they add up to {total_us / 1000:g} ms, for at most {self._most} requests"
        return f"{self._wanted.metric} will be above {high:g}: {told}"


class Bounded(Follower):
    """A figure between two others that are known."""

    def __init__(self, wanted: Range) -> None:
        self._wanted = wanted

    def least(self, now_us: int) -> float | None:  # noqa: ARG002
        """What it will be at least; None = not known."""
        return None

    def greatest(self, now_us: int) -> float | None:  # noqa: ARG002
        """What it will be at most; None = not known."""
        return None

    def reason(self, now_us: int) -> str:
        """Why it cannot come out in its range."""
        metric, low, high = self._wanted.metric, self._wanted.low, self._wanted.high
        if high is not None and (least := self.least(now_us)) is not None and least > high:
            return f"{metric} will be above {high:g}: it will be at least {least:g}"
        if low is not None and (greatest := self.greatest(now_us)) is not None and greatest < low:
            return f"{metric} will be below {low:g}: it can be at most {greatest:g}"
        return ""


class Count(Bounded):
    """A number of requests, or of something that they have.

    Args:
        wanted: its range.
        share: what a request that has ended contributes.
        most: how many requests there can be at most; None = not known, or they may contribute any number.
    """

    def __init__(self, wanted: Range, share: Callable[[Row, Group], int], most: int | None) -> None:
        super().__init__(wanted)
        self._share = share
        self._left = most
        self._count = 0

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Requests have ended, of groups that rows have by their numbers."""
        if self._left is not None:
            self._left -= len(rows)
        for row in rows:
            self._count += self._share(row, groups[row.group])

    def least(self, now_us: int) -> float:  # noqa: ARG002
        """Those that have ended."""
        return self._count

    def greatest(self, now_us: int) -> float | None:  # noqa: ARG002
        """And all that have not."""
        return None if self._left is None else self._count + self._left


class Throughput(Count):
    """Requests per second of the whole run, which lasts as long as it has lasted, at least."""

    def least(self, now_us: int) -> None:  # type: ignore[override]
        """It may last for ever."""

    def greatest(self, now_us: int) -> float | None:
        """If all that are left were served at once."""
        count = super().greatest(now_us)
        return None if count is None or not now_us else count / (now_us / 1e6)


class Attainment(Bounded):
    """The share of requests that met their targets.

    Args:
        wanted: its range.
        targets: what each class must keep to; others do not count.
        most: how many requests there can be at most.
        early: who has got a first token keeps its time or gets a longer one.
    """

    def __init__(self, wanted: Range, targets: Mapping[str, SloTarget], most: int, *, early: bool) -> None:
        super().__init__(wanted)
        self._targets = targets
        self._left = most
        self._early = early
        self._injected = self._good = self._late = 0

    def ended(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Requests have ended, of groups that rows have by their numbers."""
        self._left -= len(rows)
        for row in rows:
            target = self._targets.get(groups[row.group][0] or "standard")
            if target is not None:
                self._injected += row.state != RequestState.REJECTED
                self._good += is_good(row, target)

    def look(self, answering: Sequence[Request], now_us: int) -> None:
        """These are running now, and have their first token."""
        if self._early:
            self._late = 0
            for request, after_us in zip(answering, first_tokens(answering, now_us), strict=True):
                target = self._targets.get(request.slo_class or "standard")
                self._late += target is not None and target.ttft_ms is not None and after_us / 1000 > target.ttft_ms

    def _best(self) -> int:
        """Good requests, if all are that may be."""
        return self._good + self._left - self._late

    def greatest(self, now_us: int) -> float | None:  # noqa: ARG002
        """If all are good that may be."""
        injected = self._injected + self._left
        return self._best() / injected if injected else None


class Goodput(Attainment):
    """Good requests per second of the whole run, which lasts as long as it has lasted, at least."""

    def greatest(self, now_us: int) -> float | None:
        """If all that may be good were so at once."""
        return self._best() / (now_us / 1e6) if now_us else None


def first_tokens(answering: Sequence[Request], now_us: int) -> list[int]:  # noqa: ARG001  (one signature for all)
    """When requests got their first tokens, in microseconds after their arrival; their clients measure no less.

    Who generates the answer again after a preemption has another first token, later.
    """
    return [one.first_token_us - one.arrival_us for one in answering]


def ages(answering: Sequence[Request], now_us: int) -> list[int]:
    """What requests take, at least, that are sure to be completed, in microseconds; 0 where one may time out."""
    return [0 if one.deadline_us else now_us - one.arrival_us for one in answering]


def is_good(row: Row, target: SloTarget) -> bool:
    """Whether a request is completed and kept to all its targets, for all that is known early: not that of TTFAT."""
    if row.state != RequestState.COMPLETED:
        return False
    figures, limits = figures_ms(row), {"ttft": target.ttft_ms, "tpot": target.tpot_ms, "e2e": target.e2e_ms}
    pairs = [(figures[name], limit) for name, limit in limits.items()]
    return all(limit is None or figure is None or figure <= limit for figure, limit in pairs)


class Clock(Bounded):
    """How long the run takes."""

    def least(self, now_us: int) -> float:
        """As long as it has taken."""
        return now_us


class Tallied(Bounded):
    """What instances count, and never less."""

    def __init__(self, wanted: Range, count: Callable[[], int]) -> None:
        super().__init__(wanted)
        self._count = count

    def least(self, now_us: int) -> float:  # noqa: ARG002
        """What they have counted."""
        return self._count()


class Gaps(Follower):
    """A percentile of the gaps between tokens. It looks at all of them now and then: ever less often.

    Args:
        wanted: its range, in milliseconds.
        percent: which; 100 = the maximum.
        cluster: whose.
        warm_up_us: gaps before are not counted.
        most: how many requests and how many output tokens each of them there can be at most: a request has fewer gaps
            than tokens. None = not known, or an answer may be generated again.
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
        """Requests have ended, of groups that rows have by their numbers."""
        self._ended += len(rows)
        for row in rows:
            self._tokens += row.output_tokens

    def reason(self, now_us: int) -> str:
        """Why it cannot come out in its range."""
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
        return said_of_rank(wanted, self._percent, (above, below), most, "gaps")
